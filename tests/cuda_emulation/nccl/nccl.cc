// A NCCL subset over TCP on the loopback (threads of one process or several processes), stream-ordered like the real one.
#include <arpa/inet.h>
#include <fcntl.h>
#include <nccl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "cuda_emulation/runtime.h"

namespace {
struct Id { char magic[8]; std::uint32_t ip; std::uint16_t port; std::uint64_t nonce; };
static_assert(sizeof(Id) <= sizeof(ncclUniqueId));
struct Hello { std::uint64_t nonce; int rank, nranks; std::uint16_t port; };
struct Header { std::uint32_t kind; std::uint32_t dtype; std::uint64_t bytes; };   // checked on arrival: a count mismatch is an error here

int Listen(std::uint16_t* port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{}; a.sin_family = AF_INET; a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) || listen(fd, 64)) { close(fd); return -1; }
  socklen_t n = sizeof a; getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n); *port = ntohs(a.sin_port);
  return fd;
}
int Dial(std::uint16_t port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{}; a.sin_family = AF_INET; a.sin_addr.s_addr = htonl(INADDR_LOOPBACK); a.sin_port = htons(port);
  if (connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a)) { close(fd); return -1; }
  int one = 1; setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}
std::size_t Size(ncclDataType_t t) {
  switch (t) { case ncclInt8: case ncclUint8: case ncclFloat8e4m3: case ncclFloat8e5m2: return 1; case ncclFloat16: case ncclBfloat16: return 2; case ncclInt32: case ncclUint32: case ncclFloat32: return 4; default: return 8; }
}
const bool hang_on_peer_death = [] { auto* e = std::getenv("CUDA_EMULATION_NCCL_PEER_DEATH"); return e && std::string(e) == "hang"; }();
}  // namespace

struct ncclComm {
  int rank = 0, n = 0;
  bool blocking = true;
  std::vector<int> peer;                  // socket to each rank
  int wake = eventfd(0, EFD_CLOEXEC);     // readable once aborted
  std::atomic<bool> aborted{false};
  std::atomic<int> state{ncclInProgress}; // what ncclCommGetAsyncError tells
  std::thread init;
  std::mutex m; std::condition_variable cv; int in_flight = 0;
  std::string last_error;
  void Fail(ncclResult_t r, std::string why) { std::lock_guard l(m); if (state != ncclSuccess && state != ncclInProgress) return; last_error = std::move(why); state = r; }
  ~ncclComm() { if (init.joinable()) init.join(); for (int f : peer) if (f >= 0) close(f); close(wake); }
};

namespace {
// false: aborted, or the other side is gone
bool Full(ncclComm* c, int fd, void* p, std::size_t n, bool write) {
  char* b = static_cast<char*>(p);
  while (n) {
    pollfd f[2] = {{fd, static_cast<short>(write ? POLLOUT : POLLIN), 0}, {c->wake, POLLIN, 0}};
    poll(f, 2, -1);
    if (c->aborted) return false;
    ssize_t k = write ? send(fd, b, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, b, n, MSG_DONTWAIT);
    if (k > 0) { b += k; n -= k; } else if (k == 0 || (errno != EAGAIN && errno != EINTR)) return false;
  }
  return true;
}
int Accept(ncclComm* c, int fd) {
  pollfd f[2] = {{fd, POLLIN, 0}, {c->wake, POLLIN, 0}};
  poll(f, 2, -1);
  return c->aborted ? -1 : accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
}
ncclResult_t Connect(ncclComm* c, Id id) {
  std::uint16_t my_port; int ls = Listen(&my_port);
  int root = Dial(id.port);
  if (root < 0) { close(ls); c->Fail(ncclSystemError, "cannot reach the unique id's root"); return ncclSystemError; }
  Hello h{id.nonce, c->rank, c->n, my_port};
  std::vector<std::uint16_t> ports(c->n);
  bool ok = Full(c, root, &h, sizeof h, true) && Full(c, root, ports.data(), ports.size() * 2, false);
  close(root);
  c->peer.assign(c->n, -1);
  for (int r = 0; ok && r < c->rank; ++r) { c->peer[r] = Dial(ports[r]); ok = c->peer[r] >= 0 && Full(c, c->peer[r], &c->rank, 4, true); }
  for (int r = c->rank + 1; ok && r < c->n; ++r) {
    int fd = Accept(c, ls), who = -1;
    ok = fd >= 0 && Full(c, fd, &who, 4, false) && who >= 0 && who < c->n && c->peer[who] < 0;
    if (ok) { int one = 1; setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); c->peer[who] = fd; }
  }
  close(ls);
  if (!ok) { c->Fail(c->aborted ? ncclInvalidUsage : ncclRemoteError, "initialisation broke off"); return ncclRemoteError; }
  c->state = ncclSuccess;
  return ncclSuccess;
}
void Root(int ls, Id id) {   // runs in the process that made the unique id
  std::vector<int> fds; std::vector<std::uint16_t> ports; int got = 0;
  do {
    int fd = accept4(ls, nullptr, nullptr, SOCK_CLOEXEC);
    Hello h{};
    if (fd < 0 || recv(fd, &h, sizeof h, MSG_WAITALL) != sizeof h || h.nonce != id.nonce) { if (fd >= 0) close(fd); continue; }
    if (fds.empty()) { fds.assign(h.nranks, -1); ports.assign(h.nranks, 0); }
    if (h.rank < 0 || h.rank >= static_cast<int>(fds.size()) || fds[h.rank] >= 0) { close(fd); continue; }
    fds[h.rank] = fd; ports[h.rank] = h.port; ++got;
  } while (fds.empty() || got < static_cast<int>(fds.size()));
  for (int fd : fds) { (void)!send(fd, ports.data(), ports.size() * 2, MSG_NOSIGNAL); close(fd); }
  close(ls);
}

// One point-to-point transfer, header first. All transfers of a group progress together.
struct Xfer { int peer; bool out; Header h; char* data; std::size_t done = 0; Header seen{}; };
constexpr std::size_t kH = sizeof(Header);
void Progress(ncclComm* c, std::vector<Xfer> xs) {
  // per peer and direction only the first unfinished transfer may move: NCCL matches them in order
  std::vector<char> self_copied(xs.size(), 0);
  for (std::size_t i = 0; i < xs.size(); ++i)   // to oneself: pair sends with receives in order
    if (xs[i].peer == c->rank && xs[i].out)
      for (std::size_t j = 0; j < xs.size(); ++j)
        if (xs[j].peer == c->rank && !xs[j].out && !self_copied[j]) { self_copied[j] = self_copied[i] = 1; std::memcpy(xs[j].data, xs[i].data, xs[i].h.bytes); break; }
  for (;;) {
    std::vector<pollfd> pf{{c->wake, POLLIN, 0}}; std::vector<Xfer*> act;
    std::map<std::pair<int, bool>, bool> taken;
    for (std::size_t i = 0; i < xs.size(); ++i) {
      Xfer& x = xs[i];
      if (self_copied[i] || x.done == kH + x.h.bytes || taken[{x.peer, x.out}]) continue;
      taken[{x.peer, x.out}] = true;
      pf.push_back({c->peer[x.peer], static_cast<short>(x.out ? POLLOUT : POLLIN), 0}); act.push_back(&x);
    }
    if (act.empty()) return;
    poll(pf.data(), pf.size(), -1);
    if (c->aborted) return;
    for (std::size_t i = 0; i < act.size(); ++i) {
      if (!pf[i + 1].revents) continue;
      Xfer& x = *act[i]; int fd = c->peer[x.peer];
      char* p; std::size_t n;
      if (x.done < kH) { p = reinterpret_cast<char*>(x.out ? &x.h : &x.seen) + x.done; n = kH - x.done; } else { p = x.data + (x.done - kH); n = kH + x.h.bytes - x.done; }
      ssize_t k = x.out ? send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, p, n, MSG_DONTWAIT);
      if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR)) {
        if (hang_on_peer_death) { pollfd w{c->wake, POLLIN, 0}; poll(&w, 1, -1); return; }   // NVLink and shared memory do not notice
        c->Fail(ncclRemoteError, "rank " + std::to_string(x.peer) + " is gone");
        return;
      }
      if (k > 0) x.done += k;
      if (!x.out && x.done == kH && (x.seen.bytes != x.h.bytes || x.seen.dtype != x.h.dtype || x.seen.kind != x.h.kind)) {
        c->Fail(ncclInvalidUsage, "rank " + std::to_string(x.peer) + " sends " + std::to_string(x.seen.bytes) + " bytes of kind " + std::to_string(x.seen.kind) + ", " + std::to_string(x.h.bytes) + " expected");
        return;
      }
    }
  }
}
enum Kind : std::uint32_t { kP2p = 1, kAllReduce, kAllGather, kReduceScatter, kBroadcast };
struct Op { ncclComm* c; cudaStream_t s; std::function<void(std::vector<Xfer>&)> plan; std::function<void()> after; };
thread_local int depth = 0; thread_local std::vector<Op> pending;

ncclResult_t Submit(std::vector<Op> ops) {
  std::map<std::pair<ncclComm*, cudaStream_t>, std::vector<Op>> by;
  for (auto& o : ops) by[{o.c, o.s}].push_back(std::move(o));
  for (auto& [k, v] : by) {
    ncclComm* c = k.first;
    if (c->state != ncclSuccess) return c->state == ncclInProgress ? ncclInvalidUsage : static_cast<ncclResult_t>(c->state.load());
    { std::lock_guard l(c->m); ++c->in_flight; }
    cuda_emulation::SubmitToStream(k.second, [c, v = std::move(v)] {
      if (!c->aborted && c->state == ncclSuccess) {
        std::vector<Xfer> xs; for (auto& o : v) o.plan(xs);
        Progress(c, std::move(xs));
        if (c->state == ncclSuccess && !c->aborted) for (auto& o : v) if (o.after) o.after();
      }
      std::lock_guard l(c->m); if (--c->in_flight == 0) c->cv.notify_all();
    });
  }
  return ncclSuccess;
}
ncclResult_t Add(Op o) { if (depth) { pending.push_back(std::move(o)); return ncclSuccess; } std::vector<Op> one; one.push_back(std::move(o)); return Submit(std::move(one)); }
template <class T, class A> void Reduce(void* out, const std::vector<const char*>& in, std::size_t n, ncclRedOp_t op) {
  for (std::size_t i = 0; i < n; ++i) {
    A a = static_cast<A>(reinterpret_cast<const T*>(in[0])[i]);
    for (std::size_t r = 1; r < in.size(); ++r) { A b = static_cast<A>(reinterpret_cast<const T*>(in[r])[i]); a = op == ncclMax ? std::max(a, b) : op == ncclMin ? std::min(a, b) : op == ncclProd ? a * b : a + b; }
    if (op == ncclAvg) a = a / static_cast<A>(in.size());
    static_cast<T*>(out)[i] = static_cast<T>(a);
  }
}
void ReduceAny(ncclDataType_t t, void* out, const std::vector<const char*>& in, std::size_t n, ncclRedOp_t op) {
  switch (t) {
    case ncclFloat32: return Reduce<float, float>(out, in, n, op); case ncclFloat64: return Reduce<double, double>(out, in, n, op);
    case ncclBfloat16: return Reduce<__nv_bfloat16, float>(out, in, n, op); case ncclFloat16: return Reduce<__half, float>(out, in, n, op);
    case ncclInt32: return Reduce<int, int>(out, in, n, op); case ncclInt64: return Reduce<long long, long long>(out, in, n, op);
    default: return Reduce<signed char, int>(out, in, n, op);
  }
}
}  // namespace

extern "C" {
ncclResult_t ncclGetVersion(int* v) { *v = NCCL_VERSION_CODE; return ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t r) { static const char* s[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote process exited or there was a network error", "in progress"}; return r >= 0 && r < 8 ? s[r] : "unknown"; }
const char* ncclGetLastError(ncclComm_t c) { return c ? c->last_error.c_str() : ""; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* u) {
  Id id{}; std::memcpy(id.magic, "emunccl", 8); id.nonce = std::random_device{}() | std::uint64_t{std::random_device{}()} << 32;
  int ls = Listen(&id.port);
  if (ls < 0) return ncclSystemError;
  std::thread(Root, ls, id).detach();
  std::memset(u, 0, sizeof *u); std::memcpy(u, &id, sizeof id);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int n, ncclUniqueId u, int rank, ncclConfig_t* cfg) {
  Id id; std::memcpy(&id, &u, sizeof id);
  if (std::memcmp(id.magic, "emunccl", 8) || n < 1 || rank < 0 || rank >= n) return ncclInvalidArgument;
  auto* c = new ncclComm; c->rank = rank; c->n = n; c->blocking = !cfg || cfg->blocking != 0;
  *out = c;
  if (c->blocking) { auto r = Connect(c, id); if (r != ncclSuccess) { delete c; *out = nullptr; } return r; }
  c->init = std::thread([c, id] { Connect(c, id); });
  return ncclInProgress;
}
ncclResult_t ncclCommInitRank(ncclComm_t* c, int n, ncclUniqueId u, int rank) { return ncclCommInitRankConfig(c, n, u, rank, nullptr); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* r) { *r = static_cast<ncclResult_t>(c->state.load()); return ncclSuccess; }
ncclResult_t ncclCommCount(const ncclComm_t c, int* n) { *n = c->n; return ncclSuccess; }
ncclResult_t ncclCommUserRank(const ncclComm_t c, int* r) { *r = c->rank; return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t c) {
  c->aborted = true; std::uint64_t one = 1; (void)!write(c->wake, &one, 8);
  { std::unique_lock l(c->m); c->cv.wait(l, [&] { return c->in_flight == 0; }); }
  delete c;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t c) { { std::unique_lock l(c->m); c->cv.wait(l, [&] { return c->in_flight == 0; }); } delete c; return ncclSuccess; }
ncclResult_t ncclGroupStart() { ++depth; return ncclSuccess; }
ncclResult_t ncclGroupEnd() { if (depth == 0) return ncclInvalidUsage; if (--depth) return ncclSuccess; auto ops = std::move(pending); pending.clear(); return Submit(std::move(ops)); }
ncclResult_t ncclSend(const void* p, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  if (peer < 0 || peer >= c->n) return ncclInvalidArgument;
  return Add({c, s, [=](auto& xs) { xs.push_back({peer, true, {kP2p, static_cast<unsigned>(t), n * Size(t)}, static_cast<char*>(const_cast<void*>(p))}); }, nullptr});
}
ncclResult_t ncclRecv(void* p, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  if (peer < 0 || peer >= c->n) return ncclInvalidArgument;
  return Add({c, s, [=](auto& xs) { xs.push_back({peer, false, {kP2p, static_cast<unsigned>(t), n * Size(t)}, static_cast<char*>(p)}); }, nullptr});
}
// Everyone gets everyone's contribution and reduces in rank order: every rank computes bit-identical results.
static ncclResult_t Exchange(Kind kind, const void* in, std::size_t bytes, ncclDataType_t t, ncclComm_t c, cudaStream_t s, std::function<void(const std::vector<const char*>&)> after) {
  auto all = std::make_shared<std::vector<std::vector<char>>>(c->n);
  return Add({c, s,
              [=](auto& xs) {
                for (int r = 0; r < c->n; ++r) { (*all)[r].resize(bytes); if (r == c->rank) { std::memcpy((*all)[r].data(), in, bytes); continue; }
                  xs.push_back({r, true, {kind, static_cast<unsigned>(t), bytes}, static_cast<char*>(const_cast<void*>(in))}); xs.push_back({r, false, {kind, static_cast<unsigned>(t), bytes}, (*all)[r].data()}); } },
              [=] { std::vector<const char*> p; for (auto& v : *all) p.push_back(v.data()); after(p); }});
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) { return Exchange(kAllReduce, in, n * Size(t), t, c, s, [=](auto& p) { ReduceAny(t, out, p, n, op); }); }
ncclResult_t ncclAllGather(const void* in, void* out, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) { return Exchange(kAllGather, in, n * Size(t), t, c, s, [=](auto& p) { for (std::size_t r = 0; r < p.size(); ++r) std::memcpy(static_cast<char*>(out) + r * n * Size(t), p[r], n * Size(t)); }); }
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return Exchange(kReduceScatter, in, n * Size(t) * c->n, t, c, s, [=](auto& p) { std::vector<const char*> q; for (auto* x : p) q.push_back(x + c->rank * n * Size(t)); ReduceAny(t, out, q, n, op); });
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) { return Exchange(kBroadcast, c->rank == root ? in : out, n * Size(t), t, c, s, [=](auto& p) { std::memcpy(out, p[root], n * Size(t)); }); }
ncclResult_t ncclMemAlloc(void** p, size_t n) { return cudaMalloc(p, n) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; }
ncclResult_t ncclMemFree(void* p) { return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; }
ncclResult_t ncclCommRegister(const ncclComm_t, void* p, size_t, void** h) { *h = p; return ncclSuccess; }
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }
// Ranks of one colour form a new communicator; the first of them makes its unique id and the parent carries it round.
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t* out, ncclConfig_t* cfg) {
  struct Mine { int color, key, rank; ncclUniqueId id; };
  Mine me{color, key, c->rank, {}};
  if (color != NCCL_SPLIT_NOCOLOR) ncclGetUniqueId(&me.id);
  std::vector<Mine> all(c->n); all[c->rank] = me;
  for (int r = 0; r < c->n; ++r) if (r != c->rank && !Full(c, c->peer[r], &me, sizeof me, true)) return ncclRemoteError;
  for (int r = 0; r < c->n; ++r) if (r != c->rank && !Full(c, c->peer[r], &all[r], sizeof me, false)) return ncclRemoteError;
  if (color == NCCL_SPLIT_NOCOLOR) { *out = nullptr; return ncclSuccess; }
  std::vector<Mine> mine; for (auto& a : all) if (a.color == color) mine.push_back(a);
  std::stable_sort(mine.begin(), mine.end(), [](auto& a, auto& b) { return a.key < b.key; });
  int my = 0; while (mine[my].rank != c->rank) ++my;
  return ncclCommInitRankConfig(out, static_cast<int>(mine.size()), mine[0].id, my, cfg);
}
}
