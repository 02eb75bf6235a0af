#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/parallel/communicator.h"

namespace baton::engine {

struct ThreadGroupOptions {
  int world_size = 1;
  // How long a rank looks for the others before it sleeps in the kernel. Zero where more threads
  // than cores run.
  absl::Duration spin = absl::Microseconds(50);
  // How long one call may wait for the others; then the group fails. Must exceed what the slowest
  // rank computes between two calls.
  absl::Duration timeout = absl::Minutes(5);
};

// A group whose ranks are threads of this process and see each other's memory. Besides the calls of
// every group it has barriers and shared memory, with which ranks hand over results without
// copying. What a rank passes to a call must stay valid until every rank has left it or the group
// has failed and the other ranks' threads have returned.
class ThreadCommunicator final : public Communicator {
 public:
  // One for each rank, in order. They share the group's state, which lives as long as any of them.
  static std::vector<std::shared_ptr<ThreadCommunicator>> MakeGroup(
      const ThreadGroupOptions& options);
  ~ThreadCommunicator() override;

  int rank() const override { return rank_; }
  int world_size() const override;
  // Sums in rank order.
  absl::Status AllReduceSum(const float* send, float* receive, std::size_t count) override;
  absl::Status AllGather(const void* send, std::size_t bytes, void* receive) override;
  void Abort(const absl::Status& status) override;
  absl::Status status() const override;

  // Returns once every rank has called it; what a rank wrote before, all see after.
  absl::Status Barrier();

  // The group's memory number `slot`, at least `bytes` large, 64-byte aligned, the same for every
  // rank. A collective call: all ranks ask for the same slot and size. Waits for the others only
  // when the memory grows, which loses what it held.
  absl::StatusOr<std::byte*> Shared(int slot, std::size_t bytes);

  // Rank 0's `pointer`, on every rank. Waits for the others.
  absl::StatusOr<void*> FromRank0(void* pointer);

 private:
  struct Group;
  struct Offer;
  ThreadCommunicator(std::shared_ptr<Group> group, int rank);
  // What each rank offers, once all have called it; they must agree on the size. Valid until the
  // next call but one.
  absl::StatusOr<std::span<const Offer>> Exchange(const Offer& offer);

  const std::shared_ptr<Group> group_;
  const int rank_;
  std::vector<std::size_t> shared_bytes_;  // of each slot, as asked for so far
  std::vector<float> sums_;
  std::size_t num_exchanges_ = 0;
};

}  // namespace baton::engine
