#include "cuda_emulation/nccl/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace cuda_emulation::nccl {
namespace {

sockaddr_in Loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

Socket WithoutDelay(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return Socket(fd);
}

// False: woken.
bool AwaitReady(int fd, short events, const WakeEvent& wake) {
  pollfd polled[2] = {{fd, events, 0}, {wake.fd(), POLLIN, 0}};
  while (poll(polled, 2, -1) < 0 && errno == EINTR) {
  }
  return (polled[1].revents & POLLIN) == 0;
}

std::ptrdiff_t OrNothingNow(ssize_t result) {
  if (result > 0) return result;
  return result < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

WakeEvent::WakeEvent() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
WakeEvent::~WakeEvent() { close(fd_); }
void WakeEvent::Raise() { eventfd_write(fd_, 1); }
void WakeEvent::Clear() {
  eventfd_t count = 0;
  eventfd_read(fd_, &count);
}

Socket Listen(std::uint16_t* port) {
  Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  if (!listener.open() || bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener.fd(), 64) != 0 ||
      getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return {};
  }
  *port = ntohs(address.sin_port);
  return listener;
}

Socket Dial(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sockaddr_in address = Loopback(port);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return {};
  }
  return WithoutDelay(fd);
}

Socket Accept(const Socket& listener, const WakeEvent& wake) {
  if (!AwaitReady(listener.fd(), POLLIN, wake)) return {};
  const int fd = accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);
  return fd < 0 ? Socket() : WithoutDelay(fd);
}

std::ptrdiff_t WriteSome(int fd, const void* data, std::size_t bytes) {
  return OrNothingNow(send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
}
std::ptrdiff_t ReadSome(int fd, void* data, std::size_t bytes) {
  return OrNothingNow(recv(fd, data, bytes, MSG_DONTWAIT));
}

bool WriteAll(const Socket& socket, const void* data, std::size_t bytes, const WakeEvent& wake) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    if (!AwaitReady(socket.fd(), POLLOUT, wake)) return false;
    const std::ptrdiff_t written = WriteSome(socket.fd(), from, bytes);
    if (written < 0) return false;
    from += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

bool ReadAll(const Socket& socket, void* data, std::size_t bytes, const WakeEvent& wake) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    if (!AwaitReady(socket.fd(), POLLIN, wake)) return false;
    const std::ptrdiff_t read = ReadSome(socket.fd(), to, bytes);
    if (read < 0) return false;
    to += read;
    bytes -= static_cast<std::size_t>(read);
  }
  return true;
}

}  // namespace cuda_emulation::nccl
