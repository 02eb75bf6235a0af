#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

// Stream sockets on the loopback, as the emulated NCCL needs them.
namespace cuda_emulation::nccl {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// An event that stays raised and can be polled together with sockets. Thread-safe.
class WakeEvent {
 public:
  WakeEvent();
  ~WakeEvent();
  void Raise();
  void Clear();
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// Not open when the system refuses.
Socket Listen(std::uint16_t* port);
Socket Dial(std::uint16_t port);
Socket Accept(const Socket& listener, const WakeEvent& wake);  // not open: woken, or refused

// All of it, or false: woken, or the other side is gone.
bool WriteAll(const Socket& socket, const void* data, std::size_t bytes, const WakeEvent& wake);
bool ReadAll(const Socket& socket, void* data, std::size_t bytes, const WakeEvent& wake);

// As much as goes now. -1: the other side is gone.
std::ptrdiff_t WriteSome(int fd, const void* data, std::size_t bytes);
std::ptrdiff_t ReadSome(int fd, void* data, std::size_t bytes);

}  // namespace cuda_emulation::nccl
