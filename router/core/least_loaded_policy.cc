#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/sliding_window.h"
#include "router/core/placement_policy.h"

namespace baton::router {
namespace {

bool TakesRequests(const Worker& worker) { return !worker.load.draining; }

bool IsExcluded(const PlacementQuery& query, SessionId session) {
  return std::find(query.excluded.begin(), query.excluded.end(), session) != query.excluded.end();
}

bool IsLongEnough(const PlacementQuery& query, const Worker& worker) {
  return worker.hello.max_context <= 0 || query.max_total_tokens <= worker.hello.max_context;
}

// Heartbeats tell of all routers' work but late; our own count is exact but only ours.
int NumSequences(const Worker& worker) {
  return std::max(worker.load.running + worker.load.waiting, worker.num_sequences);
}

int NumAvailableBlocks(const Worker& worker) {
  return worker.load.blocks.free + worker.load.blocks.cached;
}

// Whether the blocks that the worker would take on admission are free. Of a prompt handed over it
// takes none for what every layer's window hides from the rows to come.
bool HasRoom(const PlacementQuery& query, const Worker& worker, bool prefills_locally) {
  const int block_size = std::max(1, worker.hello.cut.block_size);
  int needed = query.num_prompt_tokens / block_size + 1;
  if (!prefills_locally) {
    const int window = worker.hello.fingerprint.WidestWindow();
    needed -= FirstVisible(window, query.num_prompt_tokens) / block_size;
  }
  return NumAvailableBlocks(worker) >= needed && worker.load.waiting == 0;
}

class LeastLoadedPolicy final : public PlacementPolicy {
 public:
  explicit LeastLoadedPolicy(PlacementOptions options) : options_(options), random_(options.seed) {}

  absl::StatusOr<DecodePlacement> PlaceDecode(const PlacementQuery& query,
                                              const WorkerRegistry& registry) override {
    const Worker* best = nullptr;
    std::tuple<bool, int, int> best_cost;
    int num_ties = 0;
    Lack lack;
    for (const auto& [session, worker] : registry.workers()) {
      if (!worker.decodes() || !TakesRequests(worker)) continue;
      lack.decode = false;
      if (!CanPrefillFor(worker, query, registry)) continue;
      lack.prefill = false;
      if (!IsLongEnough(query, worker)) {
        lack.longest = std::max(lack.longest, worker.hello.max_context);
        continue;
      }
      lack.length = false;
      if (IsExcluded(query, session)) continue;
      const bool has_room = HasRoom(query, worker, PrefillsLocally(worker, query, registry));
      const std::tuple cost(!has_room, NumSequences(worker), -NumAvailableBlocks(worker));
      if (best != nullptr && cost > best_cost) continue;
      num_ties = best != nullptr && cost == best_cost ? num_ties + 1 : 1;
      // Reservoir sampling: each of the tied is kept with equal chance.
      if (random_() % num_ties == 0) best = &worker;
      best_cost = cost;
    }
    if (best == nullptr) return Explain(lack, query);
    return DecodePlacement{best->session, PrefillsLocally(*best, query, registry)};
  }

  absl::StatusOr<SessionId> PlacePrefill(const PlacementQuery& query, const Worker& decode,
                                         const WorkerRegistry& registry) override {
    const Worker* best = nullptr;
    std::int64_t best_cost = 0;
    int num_ties = 0;
    Lack lack;
    lack.decode = false;
    for (const auto& [session, worker] : registry.workers()) {
      if (!IsPartner(worker, decode)) continue;
      lack.prefill = false;
      if (!IsLongEnough({query.num_prompt_tokens, query.num_prompt_tokens, {}}, worker)) {
        lack.longest = std::max(lack.longest, worker.hello.max_context);
        continue;
      }
      lack.length = false;
      if (IsExcluded(query, session)) continue;
      const std::int64_t cost =
          std::max<std::int64_t>(worker.load.waiting_tokens, worker.num_unanswered_tokens);
      if (best != nullptr && cost > best_cost) continue;
      num_ties = best != nullptr && cost == best_cost ? num_ties + 1 : 1;
      if (random_() % num_ties == 0) best = &worker;
      best_cost = cost;
    }
    if (best == nullptr) return Explain(lack, query);
    return best->session;
  }

 private:
  // Why nobody was found: each stays true until a worker passes that test.
  struct Lack {
    bool decode = true;
    bool prefill = true;
    bool length = true;
    int longest = 0;
  };

  static absl::Status Explain(const Lack& lack, const PlacementQuery& query) {
    if (lack.decode) return absl::UnavailableError("no decode worker takes requests; retry later");
    if (lack.prefill) {
      return absl::UnavailableError("no prefill worker takes requests; retry later");
    }
    if (lack.length) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "request too long: %d tokens with its output, the longest worker takes %d; shorten the "
          "prompt or lower max_tokens",
          query.max_total_tokens, lack.longest));
    }
    return absl::ResourceExhaustedError("every worker refused the request; retry later");
  }

  // KV can pass only between equal fingerprints, and cuts that fit.
  static bool IsPartner(const Worker& worker, const Worker& decode) {
    return worker.prefills() && TakesRequests(worker) &&
           worker.hello.fingerprint == decode.hello.fingerprint &&
           CutsFit(worker.hello.cut, decode.hello.cut);
  }
  static bool HasPartner(const Worker& decode, const WorkerRegistry& registry) {
    return std::any_of(registry.workers().begin(), registry.workers().end(),
                       [&](const auto& entry) { return IsPartner(entry.second, decode); });
  }

  bool PrefillsLocally(const Worker& worker, const PlacementQuery& query,
                       const WorkerRegistry& registry) const {
    if (worker.does_both() || query.num_prompt_tokens <= options_.local_prefill_threshold) {
      return true;
    }
    return options_.local_prefill_fallback && !HasPartner(worker, registry);
  }
  bool CanPrefillFor(const Worker& worker, const PlacementQuery& query,
                     const WorkerRegistry& registry) const {
    return PrefillsLocally(worker, query, registry) || HasPartner(worker, registry);
  }

  const PlacementOptions options_;
  std::mt19937_64 random_;
};

}  // namespace

std::unique_ptr<PlacementPolicy> MakeLeastLoadedPolicy(PlacementOptions options) {
  return std::make_unique<LeastLoadedPolicy>(options);
}

}  // namespace baton::router
