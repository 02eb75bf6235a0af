#include "engine/parallel/thread_communicator.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace baton::engine {
namespace {

using Ranks = std::vector<std::shared_ptr<ThreadCommunicator>>;

Ranks MakeRanks(int world_size, absl::Duration spin = absl::ZeroDuration(),
                absl::Duration timeout = absl::Seconds(60)) {
  return ThreadCommunicator::MakeGroup(
      {.world_size = world_size, .spin = spin, .timeout = timeout});
}

// Calls `run` on a thread of each rank and waits for all.
std::vector<absl::Status> RunAll(const Ranks& ranks,
                                 const std::function<absl::Status(ThreadCommunicator&)>& run) {
  std::vector<absl::Status> statuses(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = run(*ranks[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

void ExpectAllOk(const std::vector<absl::Status>& statuses) {
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_TRUE(statuses[rank].ok()) << "rank " << rank << ": " << statuses[rank];
  }
}

class ThreadCommunicatorTest : public ::testing::TestWithParam<absl::Duration> {};

// What every rank wrote before a barrier, all see after it, however often.
TEST_P(ThreadCommunicatorTest, BarrierShowsWhatOthersWrote) {
  for (const int world_size : {1, 2, 3, 5}) {
    SCOPED_TRACE(absl::StrCat(world_size, " ranks"));
    const Ranks ranks = MakeRanks(world_size, GetParam());
    std::vector<int> written(world_size, 0);  // plain: TSan sees a barrier that does not hold
    ExpectAllOk(RunAll(ranks, [&](ThreadCommunicator& own) -> absl::Status {
      for (int round = 1; round <= 200; ++round) {
        written[own.rank()] = round;
        if (absl::Status status = own.Barrier(); !status.ok()) return status;
        for (const int value : written) EXPECT_EQ(value, round);
        if (absl::Status status = own.Barrier(); !status.ok()) return status;
      }
      return absl::OkStatus();
    }));
  }
}

TEST_P(ThreadCommunicatorTest, SumsInRankOrderAndGathersInPlace) {
  const int world_size = 3;
  const Ranks ranks = MakeRanks(world_size, GetParam());
  ExpectAllOk(RunAll(ranks, [&](ThreadCommunicator& own) -> absl::Status {
    for (int round = 0; round < 50; ++round) {
      // Any other order gives another sum: 1e8 swallows what is added to it alone.
      const float parts[] = {1e8f, -1e8f, 0.25f};
      std::vector<float> sum(1 + round, parts[own.rank()]);
      if (auto status = own.AllReduceSum(sum.data(), sum.data(), sum.size()); !status.ok()) {
        return status;
      }
      EXPECT_EQ(sum, std::vector<float>(1 + round, 0.25f));
      std::vector<int> all(world_size, -1);
      all[own.rank()] = round * 10 + own.rank();
      if (auto status = own.AllGather(&all[own.rank()], sizeof(int), all.data()); !status.ok()) {
        return status;
      }
      EXPECT_EQ(all, (std::vector<int>{round * 10, round * 10 + 1, round * 10 + 2}));
    }
    return absl::OkStatus();
  }));
}

TEST_P(ThreadCommunicatorTest, SharesGrowingMemoryAndRankZerosPointers) {
  const Ranks ranks = MakeRanks(3, GetParam());
  int marks[64] = {};
  ExpectAllOk(RunAll(ranks, [&](ThreadCommunicator& own) -> absl::Status {
    for (int round = 1; round < 64; ++round) {
      const int slot = round % 2;
      const auto memory = own.Shared(slot, 3 * sizeof(int) * round);
      if (!memory.ok()) return memory.status();
      int* values = reinterpret_cast<int*>(*memory);
      for (int i = 0; i < round; ++i) values[own.rank() * round + i] = round + own.rank();
      if (auto status = own.Barrier(); !status.ok()) return status;
      int sum = std::accumulate(values, values + 3 * round, 0);
      EXPECT_EQ(sum, round * (3 * round + 3));
      const auto mark = own.FromRank0(own.rank() == 0 ? &marks[round] : nullptr);
      if (!mark.ok()) return mark.status();
      EXPECT_EQ(*mark, &marks[round]);
    }
    return absl::OkStatus();
  }));
}

TEST_P(ThreadCommunicatorTest, AbortWakesAllAndKeepsItsReason) {
  const Ranks ranks = MakeRanks(3, GetParam());

  const auto statuses = RunAll(ranks, [&](ThreadCommunicator& own) -> absl::Status {
    float value = 0;
    if (own.rank() == 1) {
      own.Abort(absl::DataLossError("rank 1 broke"));
      own.Abort(absl::InternalError("and again"));
      return own.status();
    }
    return own.rank() == 0 ? own.Barrier() : own.AllReduceSum(&value, &value, 1);
  });

  for (const absl::Status& status : statuses)
    EXPECT_EQ(status, absl::DataLossError("rank 1 broke"));
  for (const auto& rank : ranks) EXPECT_EQ(rank->Barrier(), absl::DataLossError("rank 1 broke"));
}

TEST_P(ThreadCommunicatorTest, GroupFailsWhenARankDoesNotCome) {
  const Ranks ranks = MakeRanks(3, GetParam(), absl::Milliseconds(20));

  const auto statuses = RunAll(ranks, [&](ThreadCommunicator& own) {
    return own.rank() == 2 ? absl::OkStatus() : own.Barrier();
  });

  for (const int rank : {0, 1}) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kDeadlineExceeded) << statuses[rank];
  }
  EXPECT_EQ(ranks[2]->Barrier().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(ThreadCommunicatorTest, GroupFailsWhenRanksDisagreeOnASize) {
  const Ranks ranks = MakeRanks(2, GetParam());

  const auto statuses = RunAll(ranks, [](ThreadCommunicator& own) {
    std::vector<float> values(4);
    return own.AllReduceSum(values.data(), values.data(), own.rank() == 0 ? 3 : 4);
  });

  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(SleepingAndSpinning, ThreadCommunicatorTest,
                         ::testing::Values(absl::ZeroDuration(), absl::Microseconds(50)),
                         [](const auto& tested) {
                           return tested.param == absl::ZeroDuration() ? "Sleeping" : "Spinning";
                         });

}  // namespace
}  // namespace baton::engine
