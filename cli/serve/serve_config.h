#pragma once
#include <string>

#include "common/config_field.h"
#include "router/router_config.h"
#include "worker/worker_config.h"

namespace baton::cli {

// Settings of `baton serve`: how many processes, and what is passed on to them.
struct ServeConfig {
  int prefill = 1;
  int decode = 1;
  int prefill_tensor_parallel_size = 0;
  int decode_tensor_parallel_size = 0;
  std::string role = "split";
  router::RouterConfig router;
  worker::WorkerConfig worker;

  template <class Visitor>
  void VisitFields(Visitor&& field) {
    field(prefill, "prefill", {.min = 1, .max = 256}, "Prefill workers to start (role=split).");
    field(decode, "decode", {.min = 1, .max = 256},
          "Decode workers to start, or workers of both kinds when role=both.");
    field(prefill_tensor_parallel_size, "prefill-tensor-parallel-size",
          {.min = 0, .max = 64, .alias = "prefill-tp"},
          "tensor-parallel-size of prefill workers; 0 takes that of all.");
    field(decode_tensor_parallel_size, "decode-tensor-parallel-size",
          {.min = 0, .max = 64, .alias = "decode-tp"},
          "tensor-parallel-size of decode workers; 0 takes that of all.");
    field(role, "role", {.choices = {"split", "both"}},
          "split starts prefill and decode workers; both starts workers that do both themselves.");
    router.VisitFields(field);
    worker.VisitFields(field);
  }
};

}  // namespace baton::cli
