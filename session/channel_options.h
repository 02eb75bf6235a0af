#pragma once

// What both ends of a session set on their gRPC channel or server.
namespace baton::session {

// A step's outputs with prompt log-probabilities of a long prompt are far beyond gRPC's 4 MiB.
constexpr int kMaxMessageBytes = 64 << 20;
// A silent peer is noticed after at most their sum.
constexpr int kKeepaliveTimeMs = 2000;
constexpr int kKeepaliveTimeoutMs = 2000;
// Pings come every kKeepaliveTimeMs; less than this apart would be abuse.
constexpr int kMinPingIntervalMs = 500;

}  // namespace baton::session
