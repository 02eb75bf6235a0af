#include "engine/ops/cuda/nccl_communicator.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cuda_emulation/controls.h"
#include "cuda_emulation/nccl/controls.h"
#include "gpu/device_buffer.h"
#include "gpu/status.h"
#include "gpu/stream.h"
#include "tests/unit/engine/ops/cuda/rank_threads.h"

// Ranks as threads of one process, each with an emulated device.
namespace baton::engine::cuda {
namespace {

constexpr int kDevices = 4;

class NcclCommunicatorTest : public ::testing::Test {
 protected:
  void TearDown() override { cuda_emulation::ClearFaults(); }
};

TEST_F(NcclCommunicatorTest, SumsAndGathersAlikeOnEveryRank) {
  for (const int world_size : {1, 2, 3, kDevices}) {
    SCOPED_TRACE(absl::StrCat(world_size, " ranks"));
    const Ranks ranks = MakeRanks({.world_size = world_size});
    const auto statuses = RunAll(ranks, [&](NcclCommunicator& own, cudaStream_t stream) {
      constexpr std::size_t kCount = 1000;
      auto values = gpu::DeviceBuffer::Create(kCount * sizeof(float));
      auto gathered = gpu::DeviceBuffer::Create(world_size * kCount * sizeof(float));
      std::vector<float> host(kCount, static_cast<float>(1 << own.rank()));
      std::vector<float> all(world_size * kCount);
      cudaMemcpyAsync(values->data(), host.data(), values->bytes(), cudaMemcpyHostToDevice, stream);
      absl::Status status = own.AllGather(values->data(), values->bytes(), gathered->data());
      if (status.ok()) status = own.AllReduceSum(values->as<float>(), values->as<float>(), kCount);
      cudaMemcpyAsync(host.data(), values->data(), values->bytes(), cudaMemcpyDeviceToHost, stream);
      cudaMemcpyAsync(all.data(), gathered->data(), gathered->bytes(), cudaMemcpyDeviceToHost,
                      stream);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(host, std::vector<float>(kCount, static_cast<float>((1 << world_size) - 1)));
      for (int rank = 0; rank < world_size; ++rank) {
        EXPECT_EQ(all[rank * kCount], static_cast<float>(1 << rank));
        EXPECT_EQ(all[(rank + 1) * kCount - 1], static_cast<float>(1 << rank));
      }
      return status;
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status.ToString();
  }
  EXPECT_EQ(cuda_emulation::LiveCommunicators(), 0);
}

TEST_F(NcclCommunicatorTest, AbortFreesARankThatWaitsForAnother) {
  const Ranks ranks = MakeRanks({.world_size = 2});
  const absl::Status broken = absl::DataLossError("rank 1 broke");
  const auto statuses = RunAll(ranks, [&](NcclCommunicator& own, cudaStream_t stream) {
    if (own.rank() == 1) {
      own.Abort(broken);
      return own.status();
    }
    auto value = gpu::DeviceBuffer::Create(sizeof(float));
    const absl::Status status = own.AllReduceSum(value->as<float>(), value->as<float>(), 1);
    if (!status.ok()) return status;
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return own.status();
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, broken);
  EXPECT_EQ(ranks[0]->AllReduceSum(nullptr, nullptr, 1), broken);
}

TEST_F(NcclCommunicatorTest, GroupFailsWhenARankDoesNotConnect) {
  Ranks ranks = MakeRanks({.world_size = 2, .connect_timeout = absl::Milliseconds(50)});
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  const auto stream = gpu::Stream::Create();
  ASSERT_TRUE(stream.ok());

  EXPECT_EQ(ranks[0]->Connect(stream->get()).code(), absl::StatusCode::kDeadlineExceeded);

  EXPECT_EQ(ranks[1]->status().code(), absl::StatusCode::kDeadlineExceeded);
  ranks[0]->Disconnect();
}

TEST_F(NcclCommunicatorTest, AFailingCallEndsTheGroup) {
  const Ranks ranks = MakeRanks({.world_size = 2});
  cuda_emulation::InjectNcclFault("ncclAllReduce", ncclSystemError);
  const auto statuses = RunAll(ranks, [&](NcclCommunicator& own, cudaStream_t stream) {
    auto value = gpu::DeviceBuffer::Create(sizeof(float));
    const absl::Status status = own.AllReduceSum(value->as<float>(), value->as<float>(), 1);
    cudaStreamSynchronize(stream);
    // The other rank's call may have been queued before the failure.
    return status.ok() ? ranks[0]->status() : status;
  });
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->status().code(), absl::StatusCode::kInternal) << rank->status().ToString();
  }
}

}  // namespace
}  // namespace baton::engine::cuda

int main(int argc, char** argv) {
  setenv("CUDA_EMULATION_DEVICES", "4", /*overwrite=*/1);  // read at the first use
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
