#pragma once

// What both ends of a session set on their gRPC channel or server.
namespace baton::session {

// A step's outputs with prompt log-probabilities of a long prompt are far beyond gRPC's 4 MiB.
constexpr int kMaxMessageBytes = 64 << 20;
// A silent peer is noticed after at most their sum. A peer that died closes its connection at once;
// the pings are for lost machines and networks, so they forgive a machine that is merely busy. A
// router notices missed heartbeats sooner.
constexpr int kKeepaliveTimeMs = 2000;
constexpr int kKeepaliveTimeoutMs = 8000;
// Pings come every kKeepaliveTimeMs; less than this apart would be abuse.
constexpr int kMinPingIntervalMs = 500;

}  // namespace baton::session
