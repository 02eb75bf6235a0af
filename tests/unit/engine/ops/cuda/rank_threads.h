#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "engine/ops/cuda/nccl_communicator.h"
#include "gpu/stream.h"

namespace baton::engine::cuda {

using Ranks = std::vector<std::shared_ptr<NcclCommunicator>>;
using RankBody = std::function<absl::Status(NcclCommunicator&, cudaStream_t)>;

inline Ranks MakeRanks(NcclGroupOptions options) {
  auto ranks = NcclCommunicator::MakeGroup(options);
  EXPECT_TRUE(ranks.ok()) << ranks.status().ToString();
  return *std::move(ranks);
}

// Runs `body` on a thread of each rank, connected, with device `rank` current; the ranks leave when
// all are done.
inline std::vector<absl::Status> RunAll(const Ranks& ranks, const RankBody& body) {
  std::vector<absl::Status> statuses(ranks.size());
  std::vector<gpu::Stream> streams(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_EQ(cudaSetDevice(static_cast<int>(rank)), cudaSuccess);
      auto stream = gpu::Stream::Create();
      EXPECT_TRUE(stream.ok()) << stream.status().ToString();
      streams[rank] = *std::move(stream);
      statuses[rank] = ranks[rank]->Connect(streams[rank].get());
      if (statuses[rank].ok()) statuses[rank] = body(*ranks[rank], streams[rank].get());
      cudaStreamSynchronize(streams[rank].get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& rank : ranks) rank->Disconnect();
  return statuses;
}

}  // namespace baton::engine::cuda
