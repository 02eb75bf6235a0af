#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/config_field.h"

namespace baton::worker {

// Every setting of a prefill or decode worker process. Names follow vLLM's where they mean the
// same.
struct WorkerConfig {
  std::string model;
  std::string served_model_name;
  int max_model_len = 0;
  int max_num_seqs = 64;
  int max_num_batched_tokens = 512;
  int max_waiting = 256;

  int block_size = 16;
  int kv_blocks = 0;
  std::int64_t kv_memory = 0;
  std::string kv_dtype = "auto";
  std::string dtype = "auto";
  std::string compute = "auto";
  std::string backend = "cpu";
  int tensor_parallel_size = 1;
  int device = 0;
  double gpu_memory_utilization = 0.9;
  int threads = 0;
  int nice = 0;

  std::vector<std::string> routers = {"127.0.0.1:8002"};
  std::string worker_id;
  std::string host = "0.0.0.0";
  std::string advertise_host = "127.0.0.1";
  int kv_port = 0;
  int admin_port = 0;
  std::string transport = "auto";
  bool kv_checksum = false;
  absl::Duration lease = absl::Seconds(10);
  absl::Duration drain_timeout = absl::Seconds(30);

  std::string log_level = "info";
  std::string log_format = "text";

  template <class Visitor>
  void VisitFields(Visitor&& field) {
    VisitEngine(field);
    VisitNetwork(field);
  }

 private:
  template <class Visitor>
  void VisitEngine(Visitor& field) {
    field(model, "model", {}, "Path of a .gguf file or of a Hugging Face directory.");
    field(served_model_name, "served-model-name", {},
          "Name of the model in logs and the API; empty takes the model's own.");
    field(max_model_len, "max-model-len", {.unit = "tokens", .min = 0, .max = 1 << 24},
          "Longest prompt plus output; 0 takes the model's own limit.");
    field(max_num_seqs, "max-num-seqs", {.min = 1, .max = 4096},
          "Sequences computed together in one step at most.");
    field(max_num_batched_tokens, "max-num-batched-tokens",
          {.unit = "tokens", .min = 1, .max = 65536},
          "Rows of one step at most; longer prompts are cut into chunks of it.");
    field(max_waiting, "max-waiting", {.min = 1, .max = 100000},
          "Requests that may queue for blocks or a place in a step; beyond it they are refused.");
    field(block_size, "block-size", {.unit = "tokens", .min = 1, .max = 256},
          "Tokens per KV block. Prefill and decode workers may differ if one is a multiple of the "
          "other.");
    field(kv_blocks, "kv-blocks", {.unit = "blocks", .min = 0, .max = 1 << 24},
          "KV blocks of the pool; 0 derives the number from kv-memory.");
    field(
        kv_memory, "kv-memory", {.unit = "bytes", .min = 0},
        "Memory of the KV pool; 0 takes what max-num-seqs sequences of 2048 tokens need, at most "
        "a quarter of the machine's memory; with backend cuda what gpu-memory-utilization leaves.");
    field(kv_dtype, "kv-dtype", {.choices = {"auto", "f16", "bf16", "f32"}},
          "Number format of the KV cache; auto is f16, or f32 when computing in f32; with backend "
          "cuda what it computes in.");
    field(dtype, "dtype", {.choices = {"auto", "half", "float16", "bfloat16", "float", "float32"}},
          "vLLM's name for the arithmetic: float and float32 mean compute=f32, the others the fast "
          "one; weights are computed on as they are stored. With backend cuda bfloat16 or float16 "
          "(half), auto taking bfloat16 for models stored so.");
    field(compute, "compute", {.choices = {"auto", "fast", "f32"}},
          "Arithmetic: fast quantizes activations where weights are quantized, f32 does not.");
    field(backend, "backend", {.choices = {"cpu", "reference", "cuda"}},
          "Implementation of the model's operations; reference is clear and slow, cuda needs a "
          "build with CUDA and an NVIDIA GPU.");
    field(device, "device", {.min = 0, .max = 255},
          "Index of the GPU, among those that CUDA_VISIBLE_DEVICES leaves; backend cuda.");
    field(gpu_memory_utilization, "gpu-memory-utilization", {.min = 0.05, .max = 1.0},
          "Share of the GPU's memory for weights, activations and the KV pool, which gets what is "
          "left; backend cuda.");
    field(tensor_parallel_size, "tensor-parallel-size", {.min = 1, .max = 64, .alias = "tp"},
          "Ranks that compute the model together, each with a share of its heads and columns.");
    field(threads, "threads", {.min = 0, .max = 1024},
          "Compute threads, of all ranks together, the engine's own included; 0 takes one per "
          "core.");
    field(nice, "nice", {.min = -20, .max = 19},
          "Scheduling niceness of the compute threads; higher yields to others.");
  }

  template <class Visitor>
  void VisitNetwork(Visitor& field) {
    field(routers, "routers", {}, "Session endpoints (host:port) of the routers to register with.");
    field(worker_id, "worker-id", {}, "Unique name; empty makes one of role, host name and pid.");
    field(host, "host", {}, "Address that the KV transfer and admin ports listen on.");
    field(advertise_host, "advertise-host", {}, "Host name under which other workers reach this.");
    field(kv_port, "kv-port", {.min = 0, .max = 65535},
          "Port of the KV transfer endpoint of a decode worker; 0 picks one.");
    field(admin_port, "admin-port", {.min = 0, .max = 65535},
          "Port of /metrics, /health, /ready and /debug; 0 picks one.");
    field(transport, "transport", {.choices = {"auto", "nccl", "shm", "grpc"}},
          "How KV blocks travel; auto is NCCL between GPUs, else shared memory on one host, else "
          "gRPC.");
    field(kv_checksum, "kv-checksum", {}, "Send and verify a CRC32C with every KV block.");
    field(lease, "lease", {.min = 0.5, .max = 3600},
          "How long reserved blocks wait for a sign of life from the sender.");
    field(drain_timeout, "drain-timeout", {.min = 0, .max = 86400},
          "How long running requests may go on after SIGTERM.");
    field(log_level, "log-level", {.choices = {"debug", "info", "warn", "error"}},
          "Least severe event that is logged.");
    field(log_format, "log-format", {.choices = {"text", "json"}}, "Shape of a log line.");
  }
};

}  // namespace baton::worker
