#include <algorithm>
#include <vector>

#include "cuda_emulation/nccl/bootstrap.h"
#include "cuda_emulation/nccl/communicator.h"

// Making communicators out of others. The ranks exchange who takes part over their control
// connections, on the calling thread; the new communicator is then made like any other.
namespace cuda_emulation::nccl {
namespace {

struct Member {
  int color;
  int key;
  int rank;  // in the parent
  ncclUniqueId id;
};

// Exchanges `mine` with the ranks of `others`; all in rank order, mine included. Empty: one is
// gone.
std::vector<Member> Gather(ncclComm* parent, const Member& mine, const std::vector<int>& others) {
  for (const int other : others) {
    if (!WriteAll(parent->peers[other].control, &mine, sizeof(mine), parent->wake)) return {};
  }
  std::vector<Member> all{mine};
  for (const int other : others) {
    Member member{};
    if (!ReadAll(parent->peers[other].control, &member, sizeof(member), parent->wake)) return {};
    all.push_back(member);
  }
  return all;
}

ncclResult_t MakeFrom(ncclComm* parent, Member mine, const std::vector<int>& others,
                      ncclComm_t* out, ncclConfig_t* config) {
  *out = nullptr;
  if (mine.color != NCCL_SPLIT_NOCOLOR) {
    if (const ncclResult_t made = MakeUniqueId(&mine.id); made != ncclSuccess) return made;
  }
  std::vector<Member> members = Gather(parent, mine, others);
  if (members.empty()) {
    parent->Refuse("a rank that takes part in the split is gone");
    return ncclRemoteError;
  }
  if (mine.color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  std::erase_if(members, [&](const Member& member) { return member.color != mine.color; });
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return a.key != b.key ? a.key < b.key : a.rank < b.rank;
  });
  const auto me = std::find_if(members.begin(), members.end(),
                               [&](const Member& member) { return member.rank == mine.rank; });
  ncclConfig_t inherited = NCCL_CONFIG_INITIALIZER;
  inherited.blocking = parent->blocking ? 1 : 0;
  inherited.maxCTAs = parent->max_channels;
  return ncclCommInitRankConfig(out, static_cast<int>(members.size()), members.front().id,
                                static_cast<int>(me - members.begin()),
                                config == nullptr ? &inherited : config);
}

// A revoked communicator may still be split and shrunk, once it is quiescent.
ncclResult_t CheckParent(ncclComm* parent) {
  if (parent == nullptr) return ncclInvalidArgument;
  if (parent->revoked) return parent->async_error() == ncclSuccess ? ncclSuccess : ncclInvalidUsage;
  return CheckUsable(parent);
}

}  // namespace
}  // namespace cuda_emulation::nccl

using namespace cuda_emulation::nccl;

extern "C" {

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* out,
                           ncclConfig_t* config) {
  BATON_NCCL_FAULT(ncclCommSplit);
  if (const ncclResult_t usable = CheckParent(parent); usable != ncclSuccess) return usable;
  const Entry entry(parent);
  if (!entry.ok() || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) return ncclInvalidUsage;
  std::vector<int> others;
  for (int rank = 0; rank < parent->size; ++rank) {
    if (rank != parent->rank) others.push_back(rank);
  }
  return MakeFrom(parent, {color, key, parent->rank, {}}, others, out, config);
}

ncclResult_t ncclCommShrink(ncclComm_t parent, int* excluded, int num_excluded, ncclComm_t* out,
                            ncclConfig_t* config, int flags) {
  BATON_NCCL_FAULT(ncclCommShrink);
  if (parent == nullptr) return ncclInvalidArgument;
  const Entry entry(parent);
  if (!entry.ok()) return ncclInvalidUsage;
  if (flags == NCCL_SHRINK_ABORT) {
    parent->revoked = true;
    parent->Stop();
    parent->AwaitIdle();
    parent->wake.Clear();
  } else if (const ncclResult_t usable = CheckParent(parent); usable != ncclSuccess) {
    return usable;
  }
  std::vector<int> others;
  for (int rank = 0; rank < parent->size; ++rank) {
    const bool out_of_it =
        std::find(excluded, excluded + num_excluded, rank) != excluded + num_excluded;
    if (out_of_it && rank == parent->rank) return ncclInvalidArgument;
    if (!out_of_it && rank != parent->rank) others.push_back(rank);
  }
  return MakeFrom(parent, {0, parent->rank, parent->rank, {}}, others, out, config);
}

}  // extern "C"
