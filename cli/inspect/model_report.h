#pragma once
#include <string>

#include "checkpoint/checkpoint.h"
#include "engine/model/model_plan.h"

namespace baton::cli {

// A line of a report: "name                   value"; an empty name continues the one above.
void PrintRow(const char* name, const std::string& value);

// Family, sizes and features of a model, as its files state them.
void PrintArchitecture(const checkpoint::ModelMetadata& model);
// What each run of equal layers computes.
void PrintPlan(const engine::ModelPlan& plan);
// Parameters, bytes and tensor types.
void PrintWeights(const checkpoint::Checkpoint& checkpoint);
// Bytes of KV cache a token, and how many tokens this machine holds beside the weights.
void PrintMemory(const checkpoint::Checkpoint& checkpoint);

}  // namespace baton::cli
