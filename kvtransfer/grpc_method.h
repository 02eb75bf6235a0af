#pragma once

namespace baton::kvtransfer {

// The raw-bytes method that links are; no .proto declares it since its messages are not protobuf.
inline constexpr char kLinkMethod[] = "/baton.v1.KvTransfer/Link";

// A silent peer is found out within these two, even on an idle link.
inline constexpr int kKeepaliveTimeMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;

}  // namespace baton::kvtransfer
