#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace baton::bench {

// One end's channel to the other and to the parent, over pipes: lines of text for set-up, and the
// marks between which its cost counts.
class PairEnd {
 public:
  PairEnd(int in, int out, int result) : in_(in), out_(out), result_(result) {}
  void WriteLine(const std::string& line);
  std::string ReadLine();  // empty when the other end has gone
  // The measured part begins and ends; the second reports to the parent.
  void StartClock();
  void StopClock();

 private:
  const int in_;
  const int out_;
  const int result_;
  double start_seconds_ = 0;
  double start_cpu_ = 0;
};

struct PairCost {
  double seconds = 0;      // the sender's wall time
  double cpu_seconds = 0;  // of both processes
  bool ok = false;
};

// Runs `sender` and `receiver` in processes of their own (forked: the caller must not have used
// gRPC) and adds up what they report.
PairCost RunPair(const std::function<void(PairEnd&)>& sender,
                 const std::function<void(PairEnd&)>& receiver);

}  // namespace baton::bench
