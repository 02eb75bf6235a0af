#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/core/worker_registry.h"

namespace baton::router {

// What placement needs to know of a sequence.
struct PlacementQuery {
  std::int32_t num_prompt_tokens = 0;
  std::int32_t max_total_tokens = 0;      // prompt + output at most
  std::span<const SessionId> excluded{};  // workers that refused it already
};

struct DecodePlacement {
  SessionId session = 0;
  bool local_prefill = false;  // it also computes the prompt; no prefill worker is involved
};

// Chooses the workers of a sequence. Called on the router core's thread; must not block.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;

  // Chooses the worker that will decode, and whether it prefills too.
  //   kUnavailable      no worker of a kind that is needed takes requests
  //   kInvalidArgument  there are some, but the sequence is longer than any of them can hold
  virtual absl::StatusOr<DecodePlacement> PlaceDecode(const PlacementQuery& query,
                                                      const WorkerRegistry& registry) = 0;
  // Chooses the prefill worker, once `decode` has granted a ticket. Same errors.
  virtual absl::StatusOr<SessionId> PlacePrefill(const PlacementQuery& query, const Worker& decode,
                                                 const WorkerRegistry& registry) = 0;
};

struct PlacementOptions {
  // Prompts of at most so many tokens are prefilled by the decode worker itself; 0 = none.
  std::int32_t local_prefill_threshold = 0;
  // With no prefill worker at all, decode workers prefill themselves instead of a 503.
  bool local_prefill_fallback = false;
  std::uint64_t seed = 0;  // of the tie-break
};

// Makes the policy called `name`. kInvalidArgument for an unknown name; lists the known ones.
absl::StatusOr<std::unique_ptr<PlacementPolicy>> MakePlacementPolicy(std::string_view name,
                                                                     PlacementOptions options);
std::vector<std::string_view> PlacementPolicyNames();

// Decode: a worker with room for the prompt before one without, then the fewest sequences, then the
// most free blocks. Prefill: the fewest prompt tokens not yet computed. Ties fall at random, so
// that routers which share workers do not march in step.
std::unique_ptr<PlacementPolicy> MakeLeastLoadedPolicy(PlacementOptions options);

}  // namespace baton::router
