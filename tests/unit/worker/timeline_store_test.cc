#include "worker/timeline_store.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace baton::worker {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(TimelineStoreTest, KeepsTheLatestAndDropsTheOldest) {
  TimelineStore store(/*capacity=*/3);

  for (int i = 0; i < 5; ++i) store.Begin(absl::StrCat("r", i), 1, "queued", kStart);

  EXPECT_EQ(store.size(), 3u);
  EXPECT_FALSE(store.Find("r1").has_value());
  EXPECT_TRUE(store.Find("r4").has_value());
}

TEST(TimelineStoreTest, ALaterRequestOfTheSameIdReplacesTheEarlier) {
  TimelineStore store(/*capacity=*/3);
  store.Begin("r", 1, "queued", kStart);
  store.End("r", "cancelled", 0, kStart);

  store.Begin("r", 7, "queued", kStart);

  EXPECT_EQ(store.size(), 1u);
  EXPECT_EQ(store.Find("r")->prompt_tokens, 7);
  EXPECT_EQ(store.Find("r")->outcome, "");
}

TEST(TimelineStoreTest, IgnoresUnknownRequests) {
  TimelineStore store(/*capacity=*/3);

  store.Mark("nobody", "computing", kStart);
  store.End("nobody", "finished", 1, kStart);

  EXPECT_EQ(store.size(), 0u);
}

TEST(TimelineStoreTest, PhasesOfTheJsonAddUpToTheTotal) {
  TimelineStore store(/*capacity=*/3);
  store.Begin("r", 12, "queued", kStart);
  store.Mark("r", "computing", kStart + absl::Milliseconds(30));
  store.Mark("r", "handoff", kStart + absl::Milliseconds(50));
  store.End("r", "finished", 1, kStart + absl::Milliseconds(90));

  const auto json = nlohmann::json::parse(TimelineToJson(*store.Find("r"), absl::Now()));

  EXPECT_EQ(json["prompt_tokens"], 12);
  EXPECT_EQ(json["outcome"], "finished");
  double sum = 0;
  for (const auto& phase : json["phases"]) sum += phase["seconds"].get<double>();
  EXPECT_NEAR(json["total_seconds"].get<double>(), 0.09, 1e-9);
  EXPECT_NEAR(sum, 0.09, 1e-9);
  EXPECT_EQ(json["phases"][1]["phase"], "computing");
  EXPECT_NEAR(json["phases"][1]["start_seconds"].get<double>(), 0.03, 1e-9);
}

TEST(TimelineStoreTest, ARunningRequestLastsUntilNow) {
  TimelineStore store(/*capacity=*/3);
  store.Begin("r", 12, "queued", kStart);

  const auto json =
      nlohmann::json::parse(TimelineToJson(*store.Find("r"), kStart + absl::Seconds(2)));

  EXPECT_EQ(json["outcome"], "running");
  EXPECT_NEAR(json["total_seconds"].get<double>(), 2.0, 1e-9);
}

}  // namespace
}  // namespace baton::worker
