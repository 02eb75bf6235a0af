#include "router/grpc/generate_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "router/grpc/generate_convert.h"

namespace baton::router {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace

class GenerateCall::Reactor final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  explicit Reactor(std::shared_ptr<GenerateCall> call) : call_(std::move(call)) {}
  void OnWriteDone(bool ok) override { call_->OnWriteDone(ok); }
  void OnCancel() override { call_->OnCancelled(); }
  void OnDone() override {
    call_->OnReactorGone();
    delete this;
  }

 private:
  const std::shared_ptr<GenerateCall> call_;
};

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateCall::MakeReactor() {
  absl::MutexLock lock(&mutex_);
  reactor_ = new Reactor(shared_from_this());
  return reactor_;
}

void GenerateCall::SetPromptTokens(std::vector<std::int32_t> tokens) {
  absl::MutexLock lock(&mutex_);
  prompt_tokens_ = std::move(tokens);
}

void GenerateCall::SetCancel(std::function<void()> cancel) {
  {
    absl::MutexLock lock(&mutex_);
    if (!cancelled_) {
      cancel_ = std::move(cancel);
      return;
    }
  }
  cancel();
}

bool GenerateCall::over() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_ || finished_;
}

bool GenerateCall::OnDelta(ChoiceDelta delta) {
  absl::MutexLock lock(&mutex_);
  if (cancelled_ || status_.has_value()) return false;
  pending_bytes_ += delta.text.size() + 8 * delta.token_ids.size() + 64 * delta.logprobs.size();
  if (pending_bytes_ > max_unread_bytes_) {
    pending_.clear();
    status_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                           absl::StrCat("the client reads too slowly: more than ",
                                        max_unread_bytes_, " bytes are unread; read faster"));
    Advance();
    return false;
  }
  const auto [it, inserted] = pending_.try_emplace(delta.index);
  if (inserted) {
    it->second = std::move(delta);
  } else {
    it->second.Merge(std::move(delta));
  }
  Advance();
  return true;
}

void GenerateCall::OnDone(const Usage& usage) {
  absl::MutexLock lock(&mutex_);
  if (status_.has_value()) return;
  usage_ = usage;
  status_ = grpc::Status::OK;
  Advance();
}

void GenerateCall::OnFailed(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (status_.has_value()) return;
  status_ = ToGrpc(status);
  Advance();
}

void GenerateCall::Advance() {
  if (reactor_ == nullptr || in_flight_ || finished_) return;
  if (!cancelled_ && (!pending_.empty() || usage_.has_value())) {
    FillNext();
    in_flight_ = true;
    reactor_->StartWrite(&writing_);
    return;
  }
  if (cancelled_ || status_.has_value()) {
    finished_ = true;
    reactor_->Finish(cancelled_ ? grpc::Status(grpc::StatusCode::CANCELLED, "cancelled")
                                : *status_);
  }
}

void GenerateCall::FillNext() {
  writing_.Clear();
  writing_.set_request_id(request_id_);
  if (pending_.empty()) {
    writing_.mutable_usage()->set_prompt_tokens(usage_->num_prompt_tokens);
    writing_.mutable_usage()->set_completion_tokens(usage_->num_completion_tokens);
    usage_.reset();
    return;
  }
  const ChoiceDelta delta = std::move(pending_.extract(pending_.begin()).mapped());
  if (pending_.empty()) pending_bytes_ = 0;
  FillResponse(delta, writing_);
  if (delta.first && delta.index == 0) {
    writing_.mutable_prompt_token_ids()->Add(prompt_tokens_.begin(), prompt_tokens_.end());
  }
}

void GenerateCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  in_flight_ = false;
  if (!ok) cancelled_ = true;
  Advance();
}

void GenerateCall::OnCancelled() {
  std::function<void()> cancel;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    cancel = std::exchange(cancel_, nullptr);
    Advance();
  }
  if (cancel) cancel();
}

void GenerateCall::OnReactorGone() {
  absl::MutexLock lock(&mutex_);
  reactor_ = nullptr;
  finished_ = true;
  cancel_ = nullptr;
}

}  // namespace baton::router
