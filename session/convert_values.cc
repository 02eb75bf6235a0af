#include "session/convert_values.h"

#include <limits>

#include "absl/strings/str_format.h"
#include "common/status.h"

namespace baton::session {
namespace {

constexpr std::size_t kMaxIdBytes = 512;
constexpr double kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr double kMaxNanoseconds = static_cast<double>(std::numeric_limits<std::int64_t>::max());
constexpr float kMaxFloat = std::numeric_limits<float>::max();

// A count: any int32 that is not negative.
absl::Status CheckCount(std::int32_t value, const char* field) {
  return CheckRange(value, 0, kMaxCount, field);
}

}  // namespace

absl::Status CheckId(const std::string& id, const char* field) {
  if (!id.empty() && id.size() <= kMaxIdBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "bad length of field: %s has %d bytes, not 1..%d", field, id.size(), kMaxIdBytes));
}

absl::Status CheckRange(double value, double min, double max, const char* field) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("field out of range: %s is %g, not %g..%g", field, value, min, max));
}

std::int64_t ToNanoseconds(absl::Duration duration) { return absl::ToInt64Nanoseconds(duration); }

void ToProto(const absl::Status& status, v1::Status* out) {
  out->set_code(static_cast<std::int32_t>(status.code()));
  out->set_message(std::string(status.message()));
}

absl::Status FromProto(const v1::Status& in, absl::Status* out) {
  BATON_RETURN_IF_ERROR(CheckRange(in.code(), 0, 16, "status.code"));
  *out = absl::Status(static_cast<absl::StatusCode>(in.code()), in.message());
  return absl::OkStatus();
}

void ToProto(const ModelFingerprint& fingerprint, v1::ModelFingerprint* out) {
  out->set_model(fingerprint.model);
  out->set_compute(fingerprint.compute);
  out->set_kv_dtype(fingerprint.kv_dtype);
  out->set_num_layers(fingerprint.num_layers);
  out->set_num_kv_heads(fingerprint.num_kv_heads);
  out->set_head_dim(fingerprint.head_dim);
  out->mutable_windows()->Assign(fingerprint.windows.begin(), fingerprint.windows.end());
}

absl::Status FromProto(const v1::ModelFingerprint& in, ModelFingerprint* out) {
  BATON_RETURN_IF_ERROR(CheckId(in.model(), "fingerprint.model"));
  BATON_RETURN_IF_ERROR(CheckRange(in.num_layers(), 1, kMaxCount, "fingerprint.num_layers"));
  BATON_RETURN_IF_ERROR(CheckRange(in.num_kv_heads(), 1, kMaxCount, "fingerprint.num_kv_heads"));
  BATON_RETURN_IF_ERROR(CheckRange(in.head_dim(), 1, kMaxCount, "fingerprint.head_dim"));
  if (in.windows_size() != 0 && in.windows_size() != in.num_layers()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("fingerprint disagrees with itself: %d windows for %d layers",
                        in.windows_size(), in.num_layers()));
  }
  for (const std::int32_t window : in.windows()) {
    BATON_RETURN_IF_ERROR(CheckCount(window, "fingerprint.windows"));
  }
  *out = {in.model(),
          in.compute(),
          in.kv_dtype(),
          in.num_layers(),
          in.num_kv_heads(),
          in.head_dim(),
          {in.windows().begin(), in.windows().end()}};
  return absl::OkStatus();
}

void ToProto(const KvCut& cut, v1::KvCut* out) {
  out->set_block_size(cut.block_size);
  out->set_tensor_parallel_size(cut.tensor_parallel_size);
}

absl::Status FromProto(const v1::KvCut& in, KvCut* out) {
  BATON_RETURN_IF_ERROR(CheckRange(in.block_size(), 1, kMaxKvBlockSize, "cut.block_size"));
  BATON_RETURN_IF_ERROR(
      CheckRange(in.tensor_parallel_size(), 1, kMaxTensorParallelSize, "cut.tensor_parallel_size"));
  *out = {in.block_size(), in.tensor_parallel_size()};
  return absl::OkStatus();
}

void ToProto(const TransferTicket& ticket, v1::TransferTicket* out) {
  out->set_transfer_id(ticket.transfer_id);
  out->set_worker_id(ticket.worker_id);
  out->set_incarnation(ticket.incarnation);
  out->set_lease_ns(ToNanoseconds(ticket.lease));
  out->set_address(ticket.address);
  out->set_num_tokens(ticket.num_tokens);
  out->mutable_blocks()->Assign(ticket.blocks.begin(), ticket.blocks.end());
  ToProto(ticket.fingerprint, out->mutable_fingerprint());
  ToProto(ticket.cut, out->mutable_cut());
}

absl::Status FromProto(const v1::TransferTicket& in, TransferTicket* out) {
  BATON_RETURN_IF_ERROR(CheckId(in.worker_id(), "ticket.worker_id"));
  BATON_RETURN_IF_ERROR(CheckId(in.address(), "ticket.address"));
  BATON_RETURN_IF_ERROR(
      CheckRange(static_cast<double>(in.lease_ns()), 0, kMaxNanoseconds, "ticket.lease_ns"));
  BATON_RETURN_IF_ERROR(CheckRange(in.num_tokens(), 1, kMaxCount, "ticket.num_tokens"));
  BATON_RETURN_IF_ERROR(FromProto(in.fingerprint(), &out->fingerprint));
  BATON_RETURN_IF_ERROR(FromProto(in.cut(), &out->cut));
  const std::int32_t block_size = out->cut.block_size;
  if (in.blocks_size() != out->cut.BlocksFor(in.num_tokens())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("ticket disagrees with itself: %d blocks for %d tokens in blocks of %d",
                        in.blocks_size(), in.num_tokens(), block_size));
  }
  // No layer needs the blocks before this one.
  const int first_needed = out->fingerprint.FirstVisibleToken(in.num_tokens()) / block_size;
  for (int i = 0; i < in.blocks_size(); ++i) {
    if (in.blocks(i) == -1 && i < first_needed) continue;
    BATON_RETURN_IF_ERROR(CheckCount(in.blocks(i), "ticket.blocks"));
  }
  out->transfer_id = in.transfer_id();
  out->worker_id = in.worker_id();
  out->incarnation = in.incarnation();
  out->lease = absl::Nanoseconds(in.lease_ns());
  out->address = in.address();
  out->num_tokens = in.num_tokens();
  out->blocks.assign(in.blocks().begin(), in.blocks().end());
  return absl::OkStatus();
}

void ToProto(const SampledToken& token, v1::SampledToken* out) {
  out->set_token(token.token);
  out->set_logprob(token.logprob);
  for (const TokenLogprob& candidate : token.top) {
    v1::TokenLogprob* top = out->add_top();
    top->set_token(candidate.token);
    top->set_logprob(candidate.logprob);
  }
}

absl::Status FromProto(const v1::SampledToken& in, SampledToken* out) {
  BATON_RETURN_IF_ERROR(CheckCount(in.token(), "token"));
  out->token = in.token();
  out->logprob = in.logprob();
  out->top.reserve(in.top_size());
  for (const v1::TokenLogprob& candidate : in.top()) {
    BATON_RETURN_IF_ERROR(CheckCount(candidate.token(), "top.token"));
    out->top.push_back({candidate.token(), candidate.logprob()});
  }
  return absl::OkStatus();
}

void ToProto(const SamplingParams& params, v1::SamplingParams* out) {
  out->set_temperature(params.temperature);
  out->set_top_k(params.top_k);
  out->set_top_p(params.top_p);
  out->set_min_p(params.min_p);
  out->set_repetition_penalty(params.repetition_penalty);
  out->set_presence_penalty(params.presence_penalty);
  out->set_frequency_penalty(params.frequency_penalty);
  for (const auto& [token, bias] : params.logit_bias) {
    v1::TokenLogprob* entry = out->add_logit_bias();
    entry->set_token(token);
    entry->set_logprob(bias);
  }
  out->set_seed(params.seed);
  out->set_max_tokens(params.max_tokens);
  out->set_min_tokens(params.min_tokens);
  out->set_ignore_eos(params.ignore_eos);
  out->mutable_stop_token_ids()->Assign(params.stop_token_ids.begin(), params.stop_token_ids.end());
  out->set_logprobs(params.logprobs);
  out->set_top_logprobs(params.top_logprobs);
  out->set_prompt_logprobs(params.prompt_logprobs);
  out->set_num_prompt_logprobs(params.num_prompt_logprobs);
}

namespace {

absl::Status CheckSampling(const v1::SamplingParams& in) {
  BATON_RETURN_IF_ERROR(CheckRange(in.temperature(), 0, kMaxFloat, "temperature"));
  BATON_RETURN_IF_ERROR(CheckCount(in.top_k(), "top_k"));
  BATON_RETURN_IF_ERROR(CheckRange(in.top_p(), 0, 1, "top_p"));
  BATON_RETURN_IF_ERROR(CheckRange(in.min_p(), 0, 1, "min_p"));
  BATON_RETURN_IF_ERROR(CheckRange(in.repetition_penalty(), std::numeric_limits<float>::min(),
                                   kMaxFloat, "repetition_penalty"));
  BATON_RETURN_IF_ERROR(
      CheckRange(in.presence_penalty(), -kMaxFloat, kMaxFloat, "presence_penalty"));
  BATON_RETURN_IF_ERROR(
      CheckRange(in.frequency_penalty(), -kMaxFloat, kMaxFloat, "frequency_penalty"));
  for (const v1::TokenLogprob& entry : in.logit_bias()) {
    BATON_RETURN_IF_ERROR(CheckCount(entry.token(), "logit_bias.token"));
    BATON_RETURN_IF_ERROR(CheckRange(entry.logprob(), -kMaxFloat, kMaxFloat, "logit_bias"));
  }
  BATON_RETURN_IF_ERROR(CheckRange(in.max_tokens(), 1, kMaxCount, "max_tokens"));
  BATON_RETURN_IF_ERROR(CheckCount(in.min_tokens(), "min_tokens"));
  for (const std::int32_t token : in.stop_token_ids()) {
    BATON_RETURN_IF_ERROR(CheckCount(token, "stop_token_ids"));
  }
  BATON_RETURN_IF_ERROR(CheckCount(in.top_logprobs(), "top_logprobs"));
  return CheckCount(in.num_prompt_logprobs(), "num_prompt_logprobs");
}

}  // namespace

absl::Status FromProto(const v1::SamplingParams& in, SamplingParams* out) {
  BATON_RETURN_IF_ERROR(CheckSampling(in));
  out->temperature = in.temperature();
  out->top_k = in.top_k();
  out->top_p = in.top_p();
  out->min_p = in.min_p();
  out->repetition_penalty = in.repetition_penalty();
  out->presence_penalty = in.presence_penalty();
  out->frequency_penalty = in.frequency_penalty();
  out->logit_bias.reserve(in.logit_bias_size());
  for (const v1::TokenLogprob& entry : in.logit_bias()) {
    out->logit_bias.emplace_back(entry.token(), entry.logprob());
  }
  out->seed = in.seed();
  out->max_tokens = in.max_tokens();
  out->min_tokens = in.min_tokens();
  out->ignore_eos = in.ignore_eos();
  out->stop_token_ids.assign(in.stop_token_ids().begin(), in.stop_token_ids().end());
  out->logprobs = in.logprobs();
  out->top_logprobs = in.top_logprobs();
  out->prompt_logprobs = in.prompt_logprobs();
  out->num_prompt_logprobs = in.num_prompt_logprobs();
  return absl::OkStatus();
}

void ToProto(const PhaseTimes& times, v1::PhaseTimes* out) {
  out->set_prefill_queue_ns(ToNanoseconds(times.prefill_queue));
  out->set_prefill_compute_ns(ToNanoseconds(times.prefill_compute));
  out->set_exposed_transfer_ns(ToNanoseconds(times.exposed_transfer));
  out->set_adopt_ns(ToNanoseconds(times.adopt));
  out->set_first_decode_step_ns(ToNanoseconds(times.first_decode_step));
  out->set_transfer_bytes(times.transfer_bytes);
  out->set_transfer_total_ns(ToNanoseconds(times.transfer_total));
  for (const LayerTiming& layer : times.layers) {
    v1::LayerTiming* timing = out->add_layers();
    timing->set_layer(layer.layer);
    timing->set_computed_ns(ToNanoseconds(layer.computed));
    timing->set_sent_ns(ToNanoseconds(layer.sent));
  }
}

absl::Status FromProto(const v1::PhaseTimes& in, PhaseTimes* out) {
  out->prefill_queue = absl::Nanoseconds(in.prefill_queue_ns());
  out->prefill_compute = absl::Nanoseconds(in.prefill_compute_ns());
  out->exposed_transfer = absl::Nanoseconds(in.exposed_transfer_ns());
  out->adopt = absl::Nanoseconds(in.adopt_ns());
  out->first_decode_step = absl::Nanoseconds(in.first_decode_step_ns());
  out->transfer_bytes = in.transfer_bytes();
  out->transfer_total = absl::Nanoseconds(in.transfer_total_ns());
  out->layers.reserve(in.layers_size());
  for (const v1::LayerTiming& timing : in.layers()) {
    BATON_RETURN_IF_ERROR(CheckCount(timing.layer(), "layers.layer"));
    out->layers.push_back({timing.layer(), absl::Nanoseconds(timing.computed_ns()),
                           absl::Nanoseconds(timing.sent_ns())});
  }
  return absl::OkStatus();
}

void ToProto(const WorkerLoad& load, v1::Heartbeat* out) {
  v1::BlockBooks* blocks = out->mutable_blocks();
  blocks->set_free(load.blocks.free);
  blocks->set_cached(load.blocks.cached);
  blocks->set_reserved(load.blocks.reserved);
  blocks->set_active(load.blocks.active);
  blocks->set_total(load.blocks.total);
  out->set_running(load.running);
  out->set_waiting(load.waiting);
  out->set_waiting_tokens(load.waiting_tokens);
  out->set_prefill_tokens_per_second(load.prefill_tokens_per_second);
  out->set_draining(load.draining);
}

absl::Status FromProto(const v1::Heartbeat& in, WorkerLoad* out) {
  const v1::BlockBooks& blocks = in.blocks();
  BATON_RETURN_IF_ERROR(CheckCount(blocks.free(), "blocks.free"));
  BATON_RETURN_IF_ERROR(CheckCount(blocks.cached(), "blocks.cached"));
  BATON_RETURN_IF_ERROR(CheckCount(blocks.reserved(), "blocks.reserved"));
  BATON_RETURN_IF_ERROR(CheckCount(blocks.active(), "blocks.active"));
  BATON_RETURN_IF_ERROR(CheckCount(blocks.total(), "blocks.total"));
  BATON_RETURN_IF_ERROR(CheckCount(in.running(), "running"));
  BATON_RETURN_IF_ERROR(CheckCount(in.waiting(), "waiting"));
  BATON_RETURN_IF_ERROR(CheckCount(in.waiting_tokens(), "waiting_tokens"));
  BATON_RETURN_IF_ERROR(
      CheckRange(in.prefill_tokens_per_second(), 0, 1e18, "prefill_tokens_per_second"));
  out->blocks = {blocks.free(), blocks.cached(), blocks.reserved(), blocks.active(),
                 blocks.total()};
  out->running = in.running();
  out->waiting = in.waiting();
  out->waiting_tokens = in.waiting_tokens();
  out->prefill_tokens_per_second = in.prefill_tokens_per_second();
  out->draining = in.draining();
  return absl::OkStatus();
}

void ToProto(const RequestSpec& spec, v1::RequestSpec* out) {
  out->set_request_id(spec.request_id);
  out->mutable_prompt()->Assign(spec.prompt.begin(), spec.prompt.end());
  ToProto(spec.sampling, out->mutable_sampling());
  out->set_priority(spec.priority);
  if (spec.time_left != absl::InfiniteDuration()) {
    out->set_time_left_ns(ToNanoseconds(spec.time_left));
  }
}

absl::Status FromProto(const v1::RequestSpec& in, RequestSpec* out) {
  BATON_RETURN_IF_ERROR(CheckId(in.request_id(), "request_id"));
  BATON_RETURN_IF_ERROR(CheckRange(in.prompt_size(), 1, kMaxCount, "prompt length"));
  for (const std::int32_t token : in.prompt()) {
    BATON_RETURN_IF_ERROR(CheckCount(token, "prompt"));
  }
  BATON_RETURN_IF_ERROR(FromProto(in.sampling(), &out->sampling));
  out->request_id = in.request_id();
  out->prompt.assign(in.prompt().begin(), in.prompt().end());
  out->priority = in.priority();
  out->time_left =
      in.has_time_left_ns() ? absl::Nanoseconds(in.time_left_ns()) : absl::InfiniteDuration();
  return absl::OkStatus();
}

}  // namespace baton::session
