#include "router/core/timeline_store.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

SequenceRecord Record(const std::string& request, const std::string& sequence, int index = 0) {
  SequenceRecord record;
  record.request_id = request;
  record.sequence_id = sequence;
  record.index = index;
  return record;
}

TEST(TimelineStoreTest, FindsTheChoicesOfARequestInOrder) {
  TimelineStore store(10);
  store.Put(Record("r", "r/2", 1));
  store.Put(Record("r", "r/1", 0));

  const auto found = store.Find("r");

  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].sequence_id, "r/1");
  EXPECT_TRUE(store.Find("other").empty());
}

TEST(TimelineStoreTest, ALaterRecordOfASequenceReplacesTheEarlier) {
  TimelineStore store(10);
  store.Put(Record("r", "r/1"));
  SequenceRecord later = Record("r", "r/1");
  later.num_output_tokens = 5;

  store.Put(later);

  ASSERT_EQ(store.Find("r").size(), 1u);
  EXPECT_EQ(store.Find("r")[0].num_output_tokens, 5);
}

TEST(TimelineStoreTest, ForgetsTheOldestBeyondItsCapacity) {
  TimelineStore store(3);
  for (int i = 0; i < 10; ++i) store.Put(Record(absl::StrCat("r", i), absl::StrCat("r", i, "/1")));

  EXPECT_TRUE(store.Find("r6").empty());
  EXPECT_EQ(store.Find("r7").size(), 1u);
  EXPECT_EQ(store.Find("r9").size(), 1u);
}

}  // namespace
}  // namespace baton::router
