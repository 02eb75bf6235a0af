#include "tests/support/fake_worker.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace baton::testing {

void FakeHandoff::Add(const std::string& worker_id, FakeWorker* decode) {
  absl::MutexLock lock(&mutex_);
  workers_[worker_id] = decode;
}

void FakeHandoff::Remove(const std::string& worker_id) {
  absl::MutexLock lock(&mutex_);
  workers_.erase(worker_id);
}

bool FakeHandoff::Deliver(const std::string& worker_id, std::uint64_t transfer_id) {
  absl::MutexLock lock(&mutex_);
  const auto it = workers_.find(worker_id);
  return it != workers_.end() && it->second->TakeDelivery(transfer_id);
}

ModelFingerprint FakeWorker::Fingerprint() const {
  ModelFingerprint fingerprint;
  fingerprint.model = options_.model_fingerprint;
  fingerprint.compute = "fast";
  fingerprint.kv_dtype = "f16";
  fingerprint.num_layers = fingerprint.num_kv_heads = fingerprint.head_dim = 1;
  return fingerprint;
}

FakeWorker::FakeWorker(Options options, FakeHandoff& handoff)
    : options_(std::move(options)), handoff_(handoff) {
  session::WorkerLink::Options link;
  link.router_address = absl::StrCat("127.0.0.1:", options_.router_port);
  link.hello.worker_id = options_.id;
  link.hello.incarnation = static_cast<std::uint64_t>(absl::ToUnixNanos(absl::Now()));
  link.hello.role = options_.role;
  link.hello.fingerprint = Fingerprint();
  link.hello.cut = {.block_size = 16};
  link.hello.vocab_size = 1 << 20;
  link.hello.max_context = options_.max_context;
  link.hello.max_sequences = 256;
  link.hello.num_blocks = 4096;
  session::WorkerLink::Callbacks callbacks;
  callbacks.on_connected = [](int, const session::Welcome&) {};
  callbacks.on_message = [this](int session, session::RouterMessage message) {
    OnMessage(session, std::move(message));
  };
  callbacks.on_disconnected = [this](int) {
    absl::MutexLock lock(&mutex_);
    held_.clear();
  };
  callbacks.load = [this] {
    absl::MutexLock lock(&mutex_);
    session::WorkerLoad load;
    load.blocks.free = load.blocks.total = 4096;
    load.running = static_cast<int>(held_.size());
    load.draining = draining_;
    return load;
  };
  handoff_.Add(options_.id, this);
  link_ = session::WorkerLink::Start(std::move(link), std::move(callbacks));
  thread_ = std::thread([this] { Run(); });
}

FakeWorker::~FakeWorker() {
  handoff_.Remove(options_.id);
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  thread_.join();
  link_.reset();
}

void FakeWorker::SetPaused(bool paused) {
  absl::MutexLock lock(&mutex_);
  paused_ = paused;
}
void FakeWorker::RefuseWith(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  refusal_ = std::move(status);
}
void FakeWorker::SetDraining(bool draining) {
  absl::MutexLock lock(&mutex_);
  draining_ = draining;
}
int FakeWorker::num_held() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(held_.size());
}
std::int64_t FakeWorker::num_tokens_sent() const {
  absl::MutexLock lock(&mutex_);
  return num_tokens_sent_;
}
session::RequestSpec FakeWorker::last_spec() const {
  absl::MutexLock lock(&mutex_);
  return last_spec_;
}

void FakeWorker::OnMessage(int session, session::RouterMessage message) {
  absl::MutexLock lock(&mutex_);
  session_ = session;
  std::visit([this](auto& content) ABSL_NO_THREAD_SAFETY_ANALYSIS { Receive(content); }, message);
}

void FakeWorker::Receive(session::Reserve& message) {
  const std::string id = message.spec.request_id;
  if (!refusal_.ok()) {
    link_->Send(session_, session::RequestFailed{id, refusal_});
    return;
  }
  last_spec_ = message.spec;
  Held& held = held_[id];
  held.spec = std::move(message.spec);
  held.ready = message.local_prefill;
  if (message.local_prefill) return;
  held.transfer_id = next_transfer_++;
  session::TicketGranted granted;
  granted.request_id = id;
  granted.ticket.transfer_id = held.transfer_id;
  granted.ticket.worker_id = options_.id;
  granted.ticket.incarnation = 1;
  granted.ticket.lease = absl::Seconds(5);
  granted.ticket.address = "127.0.0.1:1";
  granted.ticket.fingerprint = Fingerprint();
  granted.ticket.cut = {.block_size = 16};
  granted.ticket.num_tokens = static_cast<std::int32_t>(held.spec.prompt.size());
  granted.ticket.blocks.assign(held.spec.prompt.size() / 16 + 1, 0);
  link_->Send(session_, std::move(granted));
}

void FakeWorker::Receive(session::Prefill& message) {
  last_spec_ = message.spec;
  Held& held = held_[message.spec.request_id];
  held.spec = std::move(message.spec);
  held.ticket = std::move(message.ticket);
  held.ready = true;
}

void FakeWorker::Receive(session::Cancel& message) { held_.erase(message.request_id); }

bool FakeWorker::TakeDelivery(std::uint64_t transfer_id) {
  absl::MutexLock lock(&mutex_);
  for (auto& [id, held] : held_) {
    if (held.transfer_id != transfer_id) continue;
    held.ready = true;
    held.position = 1;
    return true;
  }
  return false;
}

void FakeWorker::Run() {
  absl::Time next = absl::Now() + options_.step;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithDeadline(absl::Condition(&stopped_), next);
      if (stopped_) return;
    }
    next = std::max(next + options_.step, absl::Now());
    Step();
  }
}

session::TokenOutput FakeWorker::NextOutput(const std::string& id, Held& held) {
  const SamplingParams& sampling = held.spec.sampling;
  const auto fill = [](int position, std::int32_t id_of_token, int num_top) {
    SampledToken token{id_of_token, -0.25f * static_cast<float>(position + 1), {}};
    for (int n = 0; n < num_top; ++n) {
      token.top.push_back({id_of_token + n, token.logprob - static_cast<float>(n)});
    }
    return token;
  };
  session::TokenOutput output;
  output.request_id = id;
  output.first_position = held.position;
  const std::int32_t token = options_.script[held.position % options_.script.size()];
  output.tokens.push_back(
      fill(held.position, token, sampling.logprobs ? sampling.top_logprobs : 0));
  if (held.position == 0 && sampling.prompt_logprobs) {
    for (std::size_t i = 1; i < held.spec.prompt.size(); ++i) {
      output.prompt_logprobs.push_back(
          fill(static_cast<int>(i), held.spec.prompt[i], sampling.num_prompt_logprobs));
    }
  }
  ++held.position;
  ++num_tokens_sent_;
  const auto& stops = sampling.stop_token_ids;
  if (held.position > sampling.min_tokens &&
      std::find(stops.begin(), stops.end(), token) != stops.end()) {
    output.finish = FinishReason::kStop;
  } else if (held.position >= sampling.max_tokens) {
    output.finish = FinishReason::kLength;
  }
  output.times.prefill_compute = absl::Microseconds(10);
  return output;
}

void FakeWorker::Step() {
  session::StepOutputs step;
  std::vector<std::pair<std::string, TransferTicket>> handed_over;
  int session = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (paused_) return;
    session = session_;
    std::vector<std::string> over;
    for (auto& [id, held] : held_) {
      if (!held.ready) continue;
      step.outputs.push_back(NextOutput(id, held));
      const bool prefilled = options_.role == session::WorkerRole::kPrefill;
      if (prefilled) handed_over.emplace_back(id, held.ticket);
      if (prefilled || step.outputs.back().finish != FinishReason::kNone) over.push_back(id);
    }
    for (const std::string& id : over) held_.erase(id);
  }
  if (!step.outputs.empty()) link_->Send(session, std::move(step));
  for (const auto& [id, ticket] : handed_over) {
    if (!handoff_.Deliver(ticket.worker_id, ticket.transfer_id)) continue;
    session::TransferReport report{id, {}};
    report.times.transfer_bytes = 4096;
    report.times.transfer_total = absl::Microseconds(20);
    report.times.exposed_transfer = absl::Microseconds(5);
    report.times.layers.push_back({0, absl::Microseconds(5), absl::Microseconds(6)});
    link_->Send(session, std::move(report));
  }
}

}  // namespace baton::testing
