#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace baton::testing {
namespace {

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

HttpClient::HttpClient(int port, absl::Duration timeout) {
  fd_ = socket(AF_INET, SOCK_STREAM, 0);
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Close();
}

HttpClient::~HttpClient() { Close(); }

void HttpClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool HttpClient::SendRaw(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool HttpClient::Send(std::string_view method, std::string_view target, std::string_view body,
                      std::string_view extra_headers) {
  return SendRaw(absl::StrCat(Absl(method), " ", Absl(target), " HTTP/1.1\r\nHost: test\r\n",
                              Absl(extra_headers), "Content-Type: application/json\r\n",
                              "Content-Length: ", body.size(), "\r\n\r\n", Absl(body)));
}

bool HttpClient::Fill() {
  char chunk[16384];
  const ssize_t got = recv(fd_, chunk, sizeof(chunk), 0);
  if (got <= 0) return false;
  buffer_.append(chunk, static_cast<size_t>(got));
  return true;
}

absl::StatusOr<std::string> HttpClient::ReadUntil(std::string_view needle) {
  size_t at = buffer_.find(needle);
  while (at == std::string::npos) {
    if (!Fill()) return absl::UnavailableError("closed or timed out; so far: " + buffer_);
    at = buffer_.find(needle);
  }
  std::string result = buffer_.substr(0, at + needle.size());
  buffer_.erase(0, at + needle.size());
  return result;
}

absl::StatusOr<HttpResult> HttpClient::ReadResult() {
  auto head = ReadUntil("\r\n\r\n");
  if (!head.ok()) return head.status();
  HttpResult result;
  result.status = std::atoi(head->c_str() + head->find(' ') + 1);
  size_t line = head->find("\r\n") + 2;
  while (line < head->size()) {
    const size_t end = head->find("\r\n", line);
    const size_t colon = head->find(':', line);
    if (end == line || colon == std::string::npos || colon > end) break;
    result.headers[absl::AsciiStrToLower(head->substr(line, colon - line))] =
        std::string(absl::StripAsciiWhitespace(head->substr(colon + 1, end - colon - 1)));
    line = end + 2;
  }
  if (result.headers["transfer-encoding"] == "chunked") {
    for (;;) {
      auto size_line = ReadUntil("\r\n");
      if (!size_line.ok()) return size_line.status();
      const size_t size = std::strtoul(size_line->c_str(), nullptr, 16);
      while (buffer_.size() < size + 2) {
        if (!Fill()) return absl::UnavailableError("closed within a chunk");
      }
      result.body.append(buffer_, 0, size);
      buffer_.erase(0, size + 2);
      if (size == 0) return result;
    }
  }
  const size_t size = std::strtoul(result.headers["content-length"].c_str(), nullptr, 10);
  while (buffer_.size() < size) {
    if (!Fill()) return absl::UnavailableError("closed within the body");
  }
  result.body = buffer_.substr(0, size);
  buffer_.erase(0, size);
  return result;
}

absl::StatusOr<HttpResult> HttpClient::Do(std::string_view method, std::string_view target,
                                          std::string_view body, std::string_view extra_headers) {
  if (!Send(method, target, body, extra_headers)) return absl::UnavailableError("cannot send");
  return ReadResult();
}

bool HttpClient::WaitForClose() {
  for (;;) {
    char chunk[16384];
    const ssize_t got = recv(fd_, chunk, sizeof(chunk), 0);
    if (got == 0) return true;
    if (got < 0) return errno == ECONNRESET;
  }
}

}  // namespace baton::testing
