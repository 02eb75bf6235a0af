#include "common/http/server.h"

#include <netinet/tcp.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/http/connection.h"

namespace baton::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

class ServerImpl final : public Server {
 public:
  ServerImpl(ServerOptions options, Handler handler)
      : options_(std::move(options)), handler_(std::move(handler)) {}

  absl::Status Listen() {
    boost::system::error_code error;
    tcp::resolver resolver(context_);
    const auto found = resolver.resolve(options_.host, std::to_string(options_.port),
                                        tcp::resolver::passive, error);
    if (error || found.empty()) {
      return absl::UnavailableError(
          absl::StrFormat("cannot resolve the listen address %s: %s; check the host setting",
                          options_.host, error.message()));
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return absl::UnavailableError(
          absl::StrFormat("cannot listen on %s:%d: %s; choose another port or stop its owner",
                          options_.host, options_.port, error.message()));
    }
    port_ = acceptor_.local_endpoint().port();
    Accept();
    for (int i = 0; i < options_.num_threads; ++i) {
      threads_.emplace_back([this] { context_.run(); });
    }
    return absl::OkStatus();
  }

  ~ServerImpl() override {
    StopAccepting();
    std::vector<std::shared_ptr<Connection>> open;
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
      for (const auto& [key, connection] : connections_) open.push_back(connection);
    }
    for (const auto& connection : open) connection->Close();
    open.clear();
    work_.reset();
    for (auto& thread : threads_) thread.join();
  }

  int port() const override { return port_; }

  void StopAccepting() override {
    asio::post(acceptor_.get_executor(), [this] {
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      retry_timer_.cancel();
    });
  }

  int num_connections() const override {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(connections_.size());
  }

 private:
  void Accept() {
    acceptor_.async_accept(
        asio::make_strand(context_),
        [this](const boost::system::error_code& error, Connection::Socket socket) {
          if (!acceptor_.is_open()) return;
          if (error) {
            // Out of descriptors, for example: try again shortly instead of spinning.
            retry_timer_.expires_after(std::chrono::milliseconds(50));
            retry_timer_.async_wait([this](const boost::system::error_code& cancelled) {
              if (!cancelled && acceptor_.is_open()) Accept();
            });
            return;
          }
          Adopt(std::move(socket));
          Accept();
        });
  }

  void Adopt(Connection::Socket socket) {
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.set_option(asio::socket_base::keep_alive(true), ignored);
    auto connection = std::make_shared<Connection>(std::move(socket), options_, handler_,
                                                   [this](Connection* gone) {
                                                     absl::MutexLock lock(&mutex_);
                                                     connections_.erase(gone);
                                                   });
    bool full = false;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      full = static_cast<int>(connections_.size()) >= options_.max_connections;
      connections_[connection.get()] = connection;
    }
    if (full) {
      connection->RefuseAndClose();
    } else {
      connection->Start();
    }
  }

  const ServerOptions options_;
  const Handler handler_;
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
  tcp::acceptor acceptor_{asio::make_strand(context_)};
  asio::steady_timer retry_timer_{acceptor_.get_executor()};
  int port_ = 0;
  std::vector<std::thread> threads_;
  mutable absl::Mutex mutex_;
  std::map<Connection*, std::shared_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options, Handler handler) {
  auto server = std::make_unique<ServerImpl>(std::move(options), std::move(handler));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

}  // namespace baton::http
