#include "common/grpc_threads.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

namespace baton {
namespace {

// A server with callbacks and without a port: the threads' user that does not go away.
struct IdleServer {
  IdleServer() {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(&service);
    server = builder.BuildAndStart();
  }
  grpc::CallbackGenericService service;
  std::unique_ptr<grpc::Server> server;
};

}  // namespace

void KeepGrpcThreads() {
  // Never destroyed: other threads may use gRPC until the process is gone.
  static const IdleServer* const server = new IdleServer;
  static_cast<void>(server);
}

}  // namespace baton
