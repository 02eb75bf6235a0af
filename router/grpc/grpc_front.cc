#include "router/grpc/grpc_front.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "baton/v1/generate.grpc.pb.h"
#include "common/status.h"
#include "router/api/api_error.h"
#include "router/generation/intake.h"
#include "router/grpc/generate_call.h"
#include "router/grpc/generate_convert.h"

namespace baton::router {
namespace {

constexpr char kServiceName[] = "baton.v1.Generation";

std::string MetadataOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto it = context.client_metadata().find(key);
  return it == context.client_metadata().end() ? std::string()
                                               : std::string(it->second.data(), it->second.size());
}

class GenerationService final : public v1::Generation::CallbackService {
 public:
  explicit GenerationService(DoorContext context) : context_(std::move(context)) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* call, const v1::GenerateRequest* request) override {
    RequestEnvelope envelope;
    envelope.door = "grpc";
    envelope.request_id = ChooseRequestId(MetadataOf(*call, "x-request-id"));
    envelope.arrival = context_.clock.Now();
    envelope.deadline =
        std::min(envelope.arrival + context_.request_timeout, absl::FromChrono(call->deadline()));
    call->AddInitialMetadata("x-request-id", envelope.request_id);
    auto stream = std::make_shared<GenerateCall>(envelope.request_id, context_.max_unread_bytes);
    grpc::ServerWriteReactor<v1::GenerateResponse>* reactor = stream->MakeReactor();
    const absl::Status authorized =
        CheckAuthorization(MetadataOf(*call, "authorization"), context_.api_keys);
    if (!authorized.ok()) {
      context_.metrics.CountRequest(envelope.door, HttpStatusCode(authorized.code()));
      stream->OnFailed(authorized);
      return reactor;
    }
    // The request lives as long as the call; the copy lets it be read after an early cancel.
    const bool taken = context_.text_pool.Run(
        [this, stream, envelope, copy = *request] { Submit(stream, envelope, copy); });
    if (!taken) {
      stream->OnFailed(
          absl::ResourceExhaustedError("too many requests wait to be read; retry later"));
    }
    return reactor;
  }

 private:
  void Submit(const std::shared_ptr<GenerateCall>& stream, const RequestEnvelope& envelope,
              const v1::GenerateRequest& proto) {
    if (stream->over()) return;
    absl::StatusOr<GenerationRequest> parsed = FromProto(proto);
    absl::StatusOr<PreparedRequest> prepared =
        parsed.ok() ? Prepare(*std::move(parsed), context_.model, context_.prepare, context_.clock)
                    : parsed.status();
    if (prepared.ok() && prepared->num_choices() > context_.max_choices) {
      prepared = FieldError("n", "invalid_value",
                            absl::StrCat("too many choices; at most ", context_.max_choices));
    }
    if (!prepared.ok()) {
      context_.metrics.CountRequest(envelope.door, HttpStatusCode(prepared.status().code()));
      return stream->OnFailed(prepared.status());
    }
    auto request = std::make_shared<const PreparedRequest>(*std::move(prepared));
    stream->SetPromptTokens(request->prompts[0].tokens);
    const RequestKey key = SubmitRequest(context_.core, context_.metrics, context_.model, envelope,
                                         std::move(request), stream);
    stream->SetCancel([core = &context_.core, key] { core->Cancel(key); });
  }

  const DoorContext context_;
};

class GrpcFrontImpl final : public GrpcFront {
 public:
  explicit GrpcFrontImpl(DoorContext context) : service_(std::move(context)) {}
  ~GrpcFrontImpl() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const std::string& host, int port) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    const bool is_ipv6 = host.find(':') != std::string::npos;
    const std::string address =
        is_ipv6 ? absl::StrFormat("[%s]:%d", host, port) : absl::StrFormat("%s:%d", host, port);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(8 << 20);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrFormat(
          "cannot listen for gRPC on %s; choose another grpc-port or stop its owner", address));
    }
    SetServing(false);
    return absl::OkStatus();
  }

  void SetServing(bool serving) override {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    if (health == nullptr) return;
    health->SetServingStatus(serving);
    health->SetServingStatus(kServiceName, serving);
  }
  void Shutdown(absl::Duration grace) override {
    if (server_ == nullptr || std::exchange(shut_down_, true)) return;
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    server_->Wait();
  }
  int port() const override { return port_; }

 private:
  GenerationService service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  bool shut_down_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcFront>> GrpcFront::Start(DoorContext context,
                                                            const std::string& host, int port) {
  auto front = std::make_unique<GrpcFrontImpl>(std::move(context));
  BATON_RETURN_IF_ERROR(front->Listen(host, port));
  return front;
}

}  // namespace baton::router
