#pragma once

namespace baton {

// Keeps gRPC's callback threads running until the process ends. Whoever makes channels for callback
// calls and may destroy the only one calls it first. Without it, gRPC (1.51) joins those threads
// with the last channel, under a lock that the next channel waits for: seconds in which no lost
// peer can be dialled again. Thread-safe, any number of times.
void KeepGrpcThreads();

}  // namespace baton
