#include "router/generation/intake.h"

#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "router/api/api_error.h"

namespace baton::router {
namespace {

constexpr int kClientClosedRequest = 499;  // nginx's code for it

// Counts a request's outcome; one that ends without a last call was cancelled.
class CountedOutput final : public GenerationOutput {
 public:
  CountedOutput(std::shared_ptr<GenerationOutput> output, RouterMetrics& metrics, std::string door)
      : output_(std::move(output)), metrics_(metrics), door_(std::move(door)) {}
  ~CountedOutput() override {
    if (!counted_) metrics_.CountRequest(door_, kClientClosedRequest);
  }
  bool OnDelta(ChoiceDelta delta) override { return output_->OnDelta(std::move(delta)); }
  void OnDone(const Usage& usage) override {
    Count(200);
    output_->OnDone(usage);
  }
  void OnFailed(const absl::Status& status) override {
    Count(HttpStatusCode(status.code()));
    output_->OnFailed(status);
  }

 private:
  void Count(int http_status) {
    metrics_.CountRequest(door_, http_status);
    counted_ = true;
  }

  const std::shared_ptr<GenerationOutput> output_;
  RouterMetrics& metrics_;
  const std::string door_;
  bool counted_ = false;
};

}  // namespace

RequestKey SubmitRequest(RouterCore& core, RouterMetrics& metrics, const ServedModel& model,
                         const RequestEnvelope& envelope,
                         std::shared_ptr<const PreparedRequest> request,
                         std::shared_ptr<GenerationOutput> output) {
  const RequestKey key = core.NewKey();
  auto generation = std::make_shared<Generation>(
      std::move(request), model,
      std::make_shared<CountedOutput>(std::move(output), metrics, envelope.door),
      [&core, key] { core.Cancel(key); });
  std::vector<SequenceRequest> sequences =
      generation->MakeSequences(envelope.request_id, envelope.arrival, envelope.deadline);
  const absl::Status status =
      core.Submit(key, std::move(sequences),
                  [generation](const absl::Status& refusal) { generation->Fail(refusal); });
  if (!status.ok()) generation->Fail(status);
  return key;
}

std::string ChooseRequestId(std::string_view from_client) {
  bool fit = !from_client.empty() && from_client.size() <= 128;
  for (const char c : from_client) {
    fit &= c > 0x20 && c < 0x7f && c != '"' && c != '\'' && c != '/' && c != '\\';
  }
  if (fit) return std::string(from_client);
  thread_local std::mt19937_64 random{std::random_device{}()};
  return absl::StrFormat("%016x%016x", random(), random());
}

bool SecretsEqual(std::string_view given, std::string_view expected) {
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = expected.empty() ? '\0' : expected[i % expected.size()];
    difference |= static_cast<unsigned char>(given[i] ^ other);
  }
  return difference == 0;
}

absl::Status CheckAuthorization(std::string_view header, const std::vector<std::string>& keys) {
  if (keys.empty()) return absl::OkStatus();
  constexpr std::string_view kScheme = "Bearer ";
  bool known = false;
  if (header.substr(0, kScheme.size()) == kScheme) {
    for (const std::string& key : keys) known |= SecretsEqual(header.substr(kScheme.size()), key);
  }
  if (known) return absl::OkStatus();
  return WithErrorDetails(
      absl::UnauthenticatedError(
          "missing or unknown API key; send the header 'Authorization: Bearer KEY'"),
      "", "invalid_api_key");
}

}  // namespace baton::router
