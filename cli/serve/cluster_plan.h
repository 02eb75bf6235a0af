#pragma once
#include <map>
#include <string>
#include <vector>

#include "cli/serve/serve_config.h"
#include "cli/serve/supervisor.h"

namespace baton::cli {

// Decides which processes a local cluster consists of: the router first, then the workers; their
// command lines (every setting that was `given` and that the process knows, then what the local
// cluster prescribes), and how they share `num_cores` cores: prefill and decode workers may each
// use all of them, but prefill threads are nicer, so that a long prompt does not stall streams.
std::vector<std::vector<ChildSpec>> PlanCluster(const ServeConfig& config,
                                                const std::map<std::string, std::string>& given,
                                                int num_cores);

}  // namespace baton::cli
