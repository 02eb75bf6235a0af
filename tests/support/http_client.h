#pragma once
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::testing {

struct HttpResult {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
};

// A blocking HTTP/1.1 client over one loopback connection, for tests: sees exactly the bytes a
// foreign client would. Not thread-safe.
class HttpClient {
 public:
  explicit HttpClient(int port, absl::Duration timeout = absl::Seconds(20));
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  // Sends raw bytes.
  bool SendRaw(std::string_view bytes);
  // Sends a request and reads the whole answer, leaving the connection open.
  absl::StatusOr<HttpResult> Do(std::string_view method, std::string_view target,
                                std::string_view body = "", std::string_view extra_headers = "");
  // Sends a request only.
  bool Send(std::string_view method, std::string_view target, std::string_view body = "",
            std::string_view extra_headers = "");
  // Reads one answer.
  absl::StatusOr<HttpResult> ReadResult();
  // Reads raw bytes until `needle` was seen; what came so far, or an error on timeout and close.
  absl::StatusOr<std::string> ReadUntil(std::string_view needle);
  // True once the server closed its side.
  bool WaitForClose();
  void Close();

 private:
  bool Fill();
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace baton::testing
