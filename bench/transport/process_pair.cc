#include "bench/transport/process_pair.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "common/check.h"

namespace baton::bench {
namespace {

double WallSeconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::array<int, 2> MakePipe() {
  std::array<int, 2> ends{};
  BATON_CHECK(pipe(ends.data()) == 0, "pipe");
  return ends;
}

// The child keeps its three ends only, so that each side sees the other's death.
pid_t Fork(const std::function<void(PairEnd&)>& body, int in, int out, int result,
           const std::vector<int>& all) {
  const pid_t pid = fork();
  BATON_CHECK(pid >= 0, "fork");
  if (pid != 0) return pid;
  for (const int fd : all) {
    if (fd != in && fd != out && fd != result) close(fd);
  }
  PairEnd end(in, out, result);
  body(end);
  _exit(0);
}

}  // namespace

void PairEnd::WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  BATON_CHECK(write(out_, text.data(), text.size()) == static_cast<ssize_t>(text.size()), "write");
}

std::string PairEnd::ReadLine() {
  std::string line;
  char c = 0;
  while (read(in_, &c, 1) == 1 && c != '\n') line.push_back(c);
  return line;
}

void PairEnd::StartClock() {
  start_seconds_ = WallSeconds();
  start_cpu_ = CpuSeconds();
}

void PairEnd::StopClock() {
  const std::array<double, 2> cost = {WallSeconds() - start_seconds_, CpuSeconds() - start_cpu_};
  BATON_CHECK(write(result_, cost.data(), sizeof(cost)) == sizeof(cost), "write");
}

PairCost RunPair(const std::function<void(PairEnd&)>& sender,
                 const std::function<void(PairEnd&)>& receiver) {
  const auto to_sender = MakePipe();
  const auto to_receiver = MakePipe();
  const auto sender_result = MakePipe();
  const auto receiver_result = MakePipe();
  const std::vector<int> all = {to_sender[0],       to_sender[1],      to_receiver[0],
                                to_receiver[1],     sender_result[0],  sender_result[1],
                                receiver_result[0], receiver_result[1]};
  const pid_t receiver_pid = Fork(receiver, to_receiver[0], to_sender[1], receiver_result[1], all);
  const pid_t sender_pid = Fork(sender, to_sender[0], to_receiver[1], sender_result[1], all);
  for (const int fd : {to_sender[0], to_sender[1], to_receiver[0], to_receiver[1], sender_result[1],
                       receiver_result[1]}) {
    close(fd);
  }
  PairCost cost;
  std::array<double, 2> sent{};
  std::array<double, 2> received{};
  cost.ok = read(sender_result[0], sent.data(), sizeof(sent)) == sizeof(sent) &&
            read(receiver_result[0], received.data(), sizeof(received)) == sizeof(received);
  cost.seconds = sent[0];
  cost.cpu_seconds = sent[1] + received[1];
  close(sender_result[0]);
  close(receiver_result[0]);
  waitpid(sender_pid, nullptr, 0);
  waitpid(receiver_pid, nullptr, 0);
  return cost;
}

}  // namespace baton::bench
