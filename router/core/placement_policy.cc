#include "router/core/placement_policy.h"

#include <string>

#include "absl/status/status.h"

namespace baton::router {
namespace {

struct RegisteredPolicy {
  std::string_view name;
  std::unique_ptr<PlacementPolicy> (*make)(PlacementOptions options);
};

constexpr RegisteredPolicy kPolicies[] = {
    {"least-loaded", MakeLeastLoadedPolicy},
};

}  // namespace

absl::StatusOr<std::unique_ptr<PlacementPolicy>> MakePlacementPolicy(std::string_view name,
                                                                     PlacementOptions options) {
  std::string known;
  for (const RegisteredPolicy& policy : kPolicies) {
    if (policy.name == name) return policy.make(options);
    known += (known.empty() ? "" : ", ") + std::string(policy.name);
  }
  return absl::InvalidArgumentError("unknown placement policy: " + std::string(name) +
                                    "; known are " + known);
}

std::vector<std::string_view> PlacementPolicyNames() {
  std::vector<std::string_view> names;
  for (const RegisteredPolicy& policy : kPolicies) names.push_back(policy.name);
  return names;
}

}  // namespace baton::router
