#include "session/convert.h"

#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "session/convert_values.h"

namespace baton::session {
namespace {

using session::FromProto;
using session::ToProto;

constexpr double kMaxCount = std::numeric_limits<std::int32_t>::max();

v1::WorkerRole ToProto(WorkerRole role) {
  switch (role) {
    case WorkerRole::kPrefill:
      return v1::WORKER_ROLE_PREFILL;
    case WorkerRole::kDecode:
      return v1::WORKER_ROLE_DECODE;
    case WorkerRole::kBoth:
      return v1::WORKER_ROLE_BOTH;
  }
  return v1::WORKER_ROLE_UNSPECIFIED;
}

absl::Status FromProto(v1::WorkerRole in, WorkerRole* out) {
  switch (in) {
    case v1::WORKER_ROLE_PREFILL:
      *out = WorkerRole::kPrefill;
      return absl::OkStatus();
    case v1::WORKER_ROLE_DECODE:
      *out = WorkerRole::kDecode;
      return absl::OkStatus();
    case v1::WORKER_ROLE_BOTH:
      *out = WorkerRole::kBoth;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrFormat("unknown worker role: %d", static_cast<int>(in)));
  }
}

absl::Status FromProto(v1::FinishReason in, FinishReason* out) {
  switch (in) {
    case v1::FINISH_REASON_NONE:
      *out = FinishReason::kNone;
      return absl::OkStatus();
    case v1::FINISH_REASON_STOP:
      *out = FinishReason::kStop;
      return absl::OkStatus();
    case v1::FINISH_REASON_LENGTH:
      *out = FinishReason::kLength;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrFormat("unknown finish reason: %d", static_cast<int>(in)));
  }
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kNone:
      break;
  }
  return v1::FINISH_REASON_NONE;
}

bool AllZero(const PhaseTimes& times) {
  const absl::Duration zero = absl::ZeroDuration();
  return times.prefill_queue == zero && times.prefill_compute == zero &&
         times.exposed_transfer == zero && times.adopt == zero && times.first_decode_step == zero &&
         times.transfer_bytes == 0 && times.transfer_total == zero && times.layers.empty();
}

void ToProto(const TokenOutput& output, v1::TokenOutput* out) {
  out->set_request_id(output.request_id);
  out->set_first_position(output.first_position);
  for (const SampledToken& token : output.tokens) ToProto(token, out->add_tokens());
  out->set_finish(ToProto(output.finish));
  for (const SampledToken& token : output.prompt_logprobs) {
    ToProto(token, out->add_prompt_logprobs());
  }
  if (!AllZero(output.times)) ToProto(output.times, out->mutable_times());
}

absl::Status FromProto(const v1::TokenOutput& in, TokenOutput* out) {
  BATON_RETURN_IF_ERROR(CheckId(in.request_id(), "request_id"));
  BATON_RETURN_IF_ERROR(CheckRange(in.first_position(), 0, kMaxCount, "first_position"));
  BATON_RETURN_IF_ERROR(FromProto(in.finish(), &out->finish));
  out->request_id = in.request_id();
  out->first_position = in.first_position();
  out->tokens.resize(in.tokens_size());
  for (int i = 0; i < in.tokens_size(); ++i) {
    BATON_RETURN_IF_ERROR(FromProto(in.tokens(i), &out->tokens[i]));
  }
  out->prompt_logprobs.resize(in.prompt_logprobs_size());
  for (int i = 0; i < in.prompt_logprobs_size(); ++i) {
    BATON_RETURN_IF_ERROR(FromProto(in.prompt_logprobs(i), &out->prompt_logprobs[i]));
  }
  return FromProto(in.times(), &out->times);
}

// ---- one overload per message

struct WorkerMessageWriter {
  v1::WorkerMessage* out;
  void operator()(const Hello& hello) const {
    v1::Hello* to = out->mutable_hello();
    to->set_worker_id(hello.worker_id);
    to->set_incarnation(hello.incarnation);
    to->set_role(ToProto(hello.role));
    ToProto(hello.fingerprint, to->mutable_fingerprint());
    to->set_served_model(hello.served_model);
    to->set_admin_address(hello.admin_address);
    to->set_vocab_size(hello.vocab_size);
    to->set_max_context(hello.max_context);
    to->set_max_sequences(hello.max_sequences);
    to->set_num_blocks(hello.num_blocks);
    ToProto(hello.cut, to->mutable_cut());
  }
  void operator()(const Heartbeat& heartbeat) const {
    ToProto(heartbeat.load, out->mutable_heartbeat());
  }
  void operator()(const ReserveQueued& queued) const {
    out->mutable_reserve_queued()->set_request_id(queued.request_id);
    out->mutable_reserve_queued()->set_place(queued.place);
  }
  void operator()(const TicketGranted& granted) const {
    v1::TicketGranted* to = out->mutable_ticket_granted();
    to->set_request_id(granted.request_id);
    ToProto(granted.ticket, to->mutable_ticket());
    to->set_wait_ns(ToNanoseconds(granted.wait));
  }
  void operator()(const StepOutputs& step) const {
    v1::StepOutputs* to = out->mutable_step_outputs();
    for (const TokenOutput& output : step.outputs) ToProto(output, to->add_outputs());
  }
  void operator()(const TransferReport& report) const {
    out->mutable_transfer_report()->set_request_id(report.request_id);
    ToProto(report.times, out->mutable_transfer_report()->mutable_times());
  }
  void operator()(const RequestFailed& failed) const {
    out->mutable_request_failed()->set_request_id(failed.request_id);
    ToProto(failed.status, out->mutable_request_failed()->mutable_status());
  }
};

struct RouterMessageWriter {
  v1::RouterMessage* out;
  void operator()(const Welcome& welcome) const {
    v1::Welcome* to = out->mutable_welcome();
    to->set_router_id(welcome.router_id);
    to->set_heartbeat_interval_ns(ToNanoseconds(welcome.heartbeat_interval));
    if (!welcome.refusal.ok()) ToProto(welcome.refusal, to->mutable_refusal());
  }
  void operator()(const Reserve& reserve) const {
    ToProto(reserve.spec, out->mutable_reserve()->mutable_spec());
    out->mutable_reserve()->set_local_prefill(reserve.local_prefill);
  }
  void operator()(const Prefill& prefill) const {
    ToProto(prefill.spec, out->mutable_prefill()->mutable_spec());
    ToProto(prefill.ticket, out->mutable_prefill()->mutable_ticket());
  }
  void operator()(const Cancel& cancel) const {
    out->mutable_cancel()->set_request_id(cancel.request_id);
  }
};

absl::StatusOr<WorkerMessage> Read(const v1::Hello& in) {
  BATON_RETURN_IF_ERROR(CheckId(in.worker_id(), "worker_id"));
  BATON_RETURN_IF_ERROR(CheckRange(in.vocab_size(), 1, kMaxCount, "vocab_size"));
  BATON_RETURN_IF_ERROR(CheckRange(in.max_context(), 1, kMaxCount, "max_context"));
  BATON_RETURN_IF_ERROR(CheckRange(in.max_sequences(), 1, kMaxCount, "max_sequences"));
  BATON_RETURN_IF_ERROR(CheckRange(in.num_blocks(), 1, kMaxCount, "num_blocks"));
  Hello hello;
  BATON_RETURN_IF_ERROR(FromProto(in.role(), &hello.role));
  BATON_RETURN_IF_ERROR(FromProto(in.fingerprint(), &hello.fingerprint));
  BATON_RETURN_IF_ERROR(FromProto(in.cut(), &hello.cut));
  hello.worker_id = in.worker_id();
  hello.incarnation = in.incarnation();
  hello.served_model = in.served_model();
  hello.admin_address = in.admin_address();
  hello.vocab_size = in.vocab_size();
  hello.max_context = in.max_context();
  hello.max_sequences = in.max_sequences();
  hello.num_blocks = in.num_blocks();
  return WorkerMessage(std::move(hello));
}

absl::StatusOr<WorkerMessage> Read(const v1::Heartbeat& in) {
  Heartbeat heartbeat;
  BATON_RETURN_IF_ERROR(FromProto(in, &heartbeat.load));
  return WorkerMessage(heartbeat);
}

absl::StatusOr<WorkerMessage> Read(const v1::ReserveQueued& in) {
  BATON_RETURN_IF_ERROR(CheckId(in.request_id(), "request_id"));
  BATON_RETURN_IF_ERROR(CheckRange(in.place(), 0, kMaxCount, "place"));
  return WorkerMessage(ReserveQueued{in.request_id(), in.place()});
}

absl::StatusOr<WorkerMessage> Read(const v1::TicketGranted& in) {
  BATON_RETURN_IF_ERROR(CheckId(in.request_id(), "request_id"));
  TicketGranted granted;
  granted.request_id = in.request_id();
  BATON_RETURN_IF_ERROR(FromProto(in.ticket(), &granted.ticket));
  granted.wait = absl::Nanoseconds(in.wait_ns());
  return WorkerMessage(std::move(granted));
}

absl::StatusOr<WorkerMessage> Read(const v1::StepOutputs& in) {
  StepOutputs step;
  step.outputs.resize(in.outputs_size());
  for (int i = 0; i < in.outputs_size(); ++i) {
    BATON_RETURN_IF_ERROR(FromProto(in.outputs(i), &step.outputs[i]));
  }
  return WorkerMessage(std::move(step));
}

absl::StatusOr<WorkerMessage> Read(const v1::TransferReport& in) {
  BATON_RETURN_IF_ERROR(CheckId(in.request_id(), "request_id"));
  TransferReport report;
  report.request_id = in.request_id();
  BATON_RETURN_IF_ERROR(FromProto(in.times(), &report.times));
  return WorkerMessage(std::move(report));
}

absl::StatusOr<WorkerMessage> Read(const v1::RequestFailed& in) {
  BATON_RETURN_IF_ERROR(CheckId(in.request_id(), "request_id"));
  RequestFailed failed;
  failed.request_id = in.request_id();
  BATON_RETURN_IF_ERROR(FromProto(in.status(), &failed.status));
  if (failed.status.ok()) return absl::InvalidArgumentError("request failed with an OK status");
  return WorkerMessage(std::move(failed));
}

absl::StatusOr<RouterMessage> Read(const v1::Welcome& in) {
  Welcome welcome;
  welcome.router_id = in.router_id();
  // A heartbeat more often than every millisecond would be a spin.
  BATON_RETURN_IF_ERROR(CheckRange(static_cast<double>(in.heartbeat_interval_ns()), 1e6, 3.6e12,
                                   "heartbeat_interval_ns"));
  welcome.heartbeat_interval = absl::Nanoseconds(in.heartbeat_interval_ns());
  BATON_RETURN_IF_ERROR(FromProto(in.refusal(), &welcome.refusal));
  return RouterMessage(std::move(welcome));
}

absl::StatusOr<RouterMessage> Read(const v1::Reserve& in) {
  Reserve reserve;
  BATON_RETURN_IF_ERROR(FromProto(in.spec(), &reserve.spec));
  reserve.local_prefill = in.local_prefill();
  return RouterMessage(std::move(reserve));
}

absl::StatusOr<RouterMessage> Read(const v1::Prefill& in) {
  Prefill prefill;
  BATON_RETURN_IF_ERROR(FromProto(in.spec(), &prefill.spec));
  BATON_RETURN_IF_ERROR(FromProto(in.ticket(), &prefill.ticket));
  return RouterMessage(std::move(prefill));
}

absl::StatusOr<RouterMessage> Read(const v1::Cancel& in) {
  BATON_RETURN_IF_ERROR(CheckId(in.request_id(), "request_id"));
  return RouterMessage(Cancel{in.request_id()});
}

// The error of a message names its kind.
template <class Message>
absl::StatusOr<Message> Named(absl::StatusOr<Message> message, const char* kind) {
  if (message.ok()) return message;
  return Annotate(message.status(), kind);
}

}  // namespace

v1::WorkerMessage ToProto(const WorkerMessage& message) {
  v1::WorkerMessage out;
  std::visit(WorkerMessageWriter{&out}, message);
  return out;
}

v1::RouterMessage ToProto(const RouterMessage& message) {
  v1::RouterMessage out;
  std::visit(RouterMessageWriter{&out}, message);
  return out;
}

absl::StatusOr<WorkerMessage> FromProto(const v1::WorkerMessage& message) {
  switch (message.kind_case()) {
    case v1::WorkerMessage::kHello:
      return Named(Read(message.hello()), "hello");
    case v1::WorkerMessage::kHeartbeat:
      return Named(Read(message.heartbeat()), "heartbeat");
    case v1::WorkerMessage::kReserveQueued:
      return Named(Read(message.reserve_queued()), "reserve_queued");
    case v1::WorkerMessage::kTicketGranted:
      return Named(Read(message.ticket_granted()), "ticket_granted");
    case v1::WorkerMessage::kStepOutputs:
      return Named(Read(message.step_outputs()), "step_outputs");
    case v1::WorkerMessage::kTransferReport:
      return Named(Read(message.transfer_report()), "transfer_report");
    case v1::WorkerMessage::kRequestFailed:
      return Named(Read(message.request_failed()), "request_failed");
    case v1::WorkerMessage::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("worker message of no known kind");
}

absl::StatusOr<RouterMessage> FromProto(const v1::RouterMessage& message) {
  switch (message.kind_case()) {
    case v1::RouterMessage::kWelcome:
      return Named(Read(message.welcome()), "welcome");
    case v1::RouterMessage::kReserve:
      return Named(Read(message.reserve()), "reserve");
    case v1::RouterMessage::kPrefill:
      return Named(Read(message.prefill()), "prefill");
    case v1::RouterMessage::kCancel:
      return Named(Read(message.cancel()), "cancel");
    case v1::RouterMessage::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("router message of no known kind");
}

}  // namespace baton::session
