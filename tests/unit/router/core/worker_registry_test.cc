#include "router/core/worker_registry.h"

#include <gtest/gtest.h>

#include "tests/unit/router/core/dispatcher_fakes.h"

namespace baton::router {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(WorkerRegistryTest, FindsWorkersThatMissedTheirHeartbeats) {
  WorkerRegistry registry(absl::Seconds(3));
  registry.Add(1, MakeHello("p0", session::WorkerRole::kPrefill), kStart);
  registry.Add(2, MakeHello("d0", session::WorkerRole::kDecode), kStart);

  registry.Heard(2, session::WorkerLoad{}, kStart + absl::Seconds(2));

  EXPECT_TRUE(registry.FindSilent(kStart + absl::Seconds(3)).empty());
  EXPECT_EQ(registry.FindSilent(kStart + absl::Seconds(4)), std::vector<SessionId>{1});
}

TEST(WorkerRegistryTest, NamesTheSessionThatANewRegistrationReplaces) {
  WorkerRegistry registry(absl::Seconds(3));
  session::Hello hello = MakeHello("d0", session::WorkerRole::kDecode);
  EXPECT_EQ(registry.Add(1, hello, kStart), std::nullopt);

  hello.incarnation = 2;

  EXPECT_EQ(registry.Add(5, hello, kStart), 1u);
}

TEST(WorkerRegistryTest, CountsWorkersByRole) {
  WorkerRegistry registry(absl::Seconds(3));
  registry.Add(1, MakeHello("p0", session::WorkerRole::kPrefill), kStart);
  registry.Add(2, MakeHello("d0", session::WorkerRole::kDecode), kStart);
  registry.Add(3, MakeHello("d1", session::WorkerRole::kDecode), kStart);
  registry.Add(4, MakeHello("b0", session::WorkerRole::kBoth), kStart);
  session::WorkerLoad draining;
  draining.draining = true;
  registry.Heard(3, draining, kStart);

  const WorkerCounts counts = registry.Count();

  EXPECT_EQ(counts.num_prefill, 1);
  EXPECT_EQ(counts.num_decode, 2);
  EXPECT_EQ(counts.num_both, 1);
  EXPECT_EQ(counts.num_draining, 1);
}

}  // namespace
}  // namespace baton::router
