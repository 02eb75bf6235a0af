// The subset of the CUDA runtime that the project calls, on the host. Device memory is host memory.
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include "cuda_emulation/exec.h"
#include "cuda_emulation/runtime.h"

namespace cuda_emulation {
namespace {
using Clock = std::chrono::steady_clock;
constexpr std::size_t kArena = std::size_t{8} << 30;   // address space for "device" memory, all devices

struct Range { std::size_t size; enum Kind { kDevice, kPinned, kManaged } kind; int device; };
struct State {
  std::mutex m;
  int devices = 1;
  std::size_t capacity = std::size_t{2} << 30, used[16] = {};
  bool guard = false;                     // PROT_NONE while no kernel or copy runs
  std::map<std::uintptr_t, Range> ranges; // every allocation, by base address
  std::atomic<int> sticky{0};
  std::string last_message;
  std::map<const void*, int> max_dynamic_smem;
  std::vector<Fault> faults;
  // guard mode: a bump arena with exact-size free lists
  char* arena = nullptr; std::size_t arena_used = 0; std::multimap<std::size_t, char*> free_list;
  int running = 0;
};
State& S() {
  static State* s = [] {
    auto* x = new State;
    if (auto* e = std::getenv("CUDA_EMULATION_DEVICES")) x->devices = std::atoi(e);
    if (auto* e = std::getenv("CUDA_EMULATION_MEMORY_MB")) x->capacity = std::strtoull(e, nullptr, 10) << 20;
    if (auto* e = std::getenv("CUDA_EMULATION_GUARD")) x->guard = e[0] == '1';
#if defined(__SANITIZE_ADDRESS__)
    x->guard = false;                     // redzones come from malloc instead
#endif
    if (x->guard) {
      void* p = mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      x->arena = p == MAP_FAILED ? nullptr : static_cast<char*>(p);
    }
    return x;
  }();
  return *s;
}
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
cudaError_t Ret(cudaError_t e) { if (e != cudaSuccess) last_error = e; return e; }
// Injected faults first, then the sticky error of a failed kernel.
std::optional<cudaError_t> Enter(const char* call) {
  State& s = S();
  if (int e = s.sticky.load()) return Ret(static_cast<cudaError_t>(e));
  const std::optional<cudaError_t> fault = TakeFault(call);
  return fault ? std::optional(Ret(*fault)) : std::nullopt;
}
#define ENTER(name) if (auto injected = Enter(#name)) return *injected
void Protect(State& s, int prot) {   // live allocations only: holes and freed ranges stay closed
  for (auto& [at, r] : s.ranges)
    if (r.kind == Range::kDevice) { const std::uintptr_t a = at / 4096 * 4096; mprotect(reinterpret_cast<void*>(a), (at + r.size - a + 4095) / 4096 * 4096, prot); }
}
struct Access {   // device memory is reachable for the life of this object
  Access() { State& s = S(); if (!s.guard) return; std::lock_guard l(s.m); if (s.running++ == 0) Protect(s, PROT_READ | PROT_WRITE); }
  ~Access() { State& s = S(); if (!s.guard) return; std::lock_guard l(s.m); if (--s.running == 0) Protect(s, PROT_NONE); }
};
const std::pair<const std::uintptr_t, Range>* Find(const void* p) {
  State& s = S();
  auto a = reinterpret_cast<std::uintptr_t>(p);
  auto it = s.ranges.upper_bound(a);
  if (it == s.ranges.begin()) return nullptr;
  --it;
  return a < it->first + it->second.size ? &*it : nullptr;
}
}  // namespace
void InjectFault(Fault f) { State& s = S(); std::lock_guard l(s.m); s.faults.push_back(std::move(f)); }
void ClearFaults() { State& s = S(); std::lock_guard l(s.m); s.faults.clear(); }
void ResetDeviceForTest() { S().sticky = 0; last_error = cudaSuccess; }
std::string LastKernelMessage() { State& s = S(); std::lock_guard l(s.m); return s.last_message; }
std::size_t LiveAllocations() { State& s = S(); std::lock_guard l(s.m); return s.ranges.size(); }
std::optional<cudaError_t> TakeFault(const char* call) {
  State& s = S();
  std::lock_guard l(s.m);
  for (auto& f : s.faults)
    if (f.call == call && f.times > 0) {
      if (f.after > 0) { --f.after; continue; }
      --f.times;
      if (f.sticky) s.sticky = f.error;
      return f.error;
    }
  return std::nullopt;
}
int DeviceOf(const void* p, std::size_t bytes) {
  State& s = S();
  std::lock_guard l(s.m);
  auto* r = Find(p);
  if (!r || r->second.kind != Range::kDevice) return -1;
  return reinterpret_cast<std::uintptr_t>(p) + bytes <= r->first + r->second.size ? r->second.device : -1;
}
bool AccountDeviceMemory(int device, std::ptrdiff_t bytes) {
  State& s = S();
  std::lock_guard l(s.m);
  if (bytes > 0 && s.used[device] + bytes > s.capacity) return false;
  s.used[device] += bytes;
  return true;
}
bool IsDevicePointer(const void* p) { State& s = S(); std::lock_guard l(s.m); return Find(p) != nullptr; }
}  // namespace cuda_emulation

using cuda_emulation::S;
// ---------------------------------------------------------------- streams, events, graphs
using Op = std::function<void()>;
struct CUevent_st {
  std::mutex m; std::condition_variable cv;
  std::uint64_t recorded = 0, completed = 0;
  std::chrono::steady_clock::time_point at;
  CUstream_st* captured_in = nullptr;
};
struct CUgraph_st { std::vector<Op> ops; };
struct CUgraphExec_st { std::vector<Op> ops; };
struct CUstream_st {
  std::mutex m; std::condition_variable cv, idle;
  std::deque<Op> q; bool busy = false, stop = false;
  CUstream_st* capture_root = nullptr;   // set while capturing
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUgraph_st* graph = nullptr; std::set<CUstream_st*> joined; std::set<CUstream_st*> unjoined;
  std::thread t{[this] {
    for (;;) {
      Op op;
      { std::unique_lock l(m); cv.wait(l, [&] { return stop || !q.empty(); }); if (q.empty()) return; op = std::move(q.front()); q.pop_front(); busy = true; }
      op();
      op = nullptr;
      { std::lock_guard l(m); busy = false; if (q.empty()) idle.notify_all(); }
    }
  }};
  ~CUstream_st() { { std::lock_guard l(m); stop = true; } cv.notify_all(); t.join(); }
  void Push(Op op) { std::lock_guard l(m); q.push_back(std::move(op)); cv.notify_one(); }
  void Wait() { std::unique_lock l(m); idle.wait(l, [&] { return q.empty() && !busy; }); }
  bool Idle() { std::lock_guard l(m); return q.empty() && !busy; }
};
namespace cuda_emulation {
namespace {
std::mutex streams_m; std::set<CUstream_st*> streams;
CUstream_st* Null() { static auto* s = new CUstream_st; return s; }   // never destroyed: runs until exit
CUstream_st* Get(cudaStream_t s) { return s ? s : Null(); }
std::atomic<int> captures{0};
cudaError_t Submit(cudaStream_t sp, Op op) {
  CUstream_st* s = Get(sp);
  if (s->capture_root) { s->capture_root->graph->ops.push_back(std::move(op)); return cudaSuccess; }
  s->Push(std::move(op));
  return cudaSuccess;
}
cudaError_t ForbiddenInCapture() {   // synchronous calls invalidate a capture in progress (global mode)
  if (captures.load() == 0) return cudaSuccess;
  std::lock_guard l(streams_m);
  for (auto* s : streams) if (s->status == cudaStreamCaptureStatusActive) s->status = cudaStreamCaptureStatusInvalidated;
  return Ret(cudaErrorStreamCaptureUnsupported);
}
#define NO_CAPTURE() if (auto e = ForbiddenInCapture()) return e
}
// For the fake libraries: run `op` in stream order, with device memory reachable.
cudaError_t SubmitToStream(cudaStream_t s, std::function<void()> op) { return Submit(s, [op = std::move(op)] { Access a; op(); }); }
namespace {
void KernelFailed(cudaError_t e, const std::string& msg) {
  State& s = S();
  std::lock_guard l(s.m);
  if (s.sticky == 0) { s.sticky = e; s.last_message = msg; }
  if (std::getenv("CUDA_EMULATION_VERBOSE")) std::fprintf(stderr, "cuda_emulation: %s\n", msg.c_str());
}
}  // namespace
}  // namespace cuda_emulation
using namespace cuda_emulation;

extern "C" {
cudaError_t cudaGetDeviceCount(int* n) { ENTER(cudaGetDeviceCount); *n = S().devices; return cudaSuccess; }
cudaError_t cudaSetDevice(int d) { ENTER(cudaSetDevice); if (d < 0 || d >= S().devices) return Ret(cudaErrorInvalidDevice); current_device = d; return cudaSuccess; }
cudaError_t cudaGetDevice(int* d) { *d = current_device; return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
  ENTER(cudaGetDeviceProperties);
  if (d < 0 || d >= S().devices) return Ret(cudaErrorInvalidDevice);
  *p = {};
  std::snprintf(p->name, sizeof p->name, "Host emulation of sm_90");
  p->major = 9; p->minor = 0; p->multiProcessorCount = 4; p->warpSize = 32; p->maxThreadsPerBlock = 1024; p->totalGlobalMem = S().capacity;
  p->sharedMemPerBlock = 48 << 10; p->sharedMemPerBlockOptin = 227 << 10; p->sharedMemPerMultiprocessor = 228 << 10; p->regsPerBlock = 65536; p->l2CacheSize = 50 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
  switch (a) {
    case cudaDevAttrMultiProcessorCount: *v = 4; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = 227 << 10; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *v = 9; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *v = 0; return cudaSuccess;
    default: return Ret(cudaErrorInvalidValue);
  }
}
cudaError_t cudaMemGetInfo(size_t* f, size_t* t) { State& s = S(); std::lock_guard l(s.m); *t = s.capacity; *f = s.capacity - s.used[current_device]; return cudaSuccess; }
cudaError_t cudaGetLastError() { auto e = last_error; last_error = cudaSuccess; if (int s = S().sticky) return static_cast<cudaError_t>(s); return e; }
cudaError_t cudaPeekAtLastError() { if (int s = S().sticky) return static_cast<cudaError_t>(s); return last_error; }
const char* cudaGetErrorName(cudaError_t e) { return e == cudaSuccess ? "cudaSuccess" : e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : e == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure" : e == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaError"; }
const char* cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }

static cudaError_t Alloc(void** out, size_t n, Range::Kind kind) {
  State& s = S();
  std::lock_guard l(s.m);
  if (kind == Range::kDevice && s.used[current_device] + n > s.capacity) return Ret(cudaErrorMemoryAllocation);
  char* p = nullptr;
  if (kind == Range::kDevice && s.guard) {
    const std::size_t pages = (n + 4095) / 4096 * 4096 + 4096;       // a hole of one page behind each allocation
    if (s.arena_used + pages > kArena) return Ret(cudaErrorMemoryAllocation);
    p = s.arena + s.arena_used + (pages - 4096 - (n + 255) / 256 * 256);   // right-aligned: overruns hit the hole
    mprotect(s.arena + s.arena_used, pages - 4096, PROT_READ | PROT_WRITE);
    std::memset(p, 0xFF, n);
    s.arena_used += pages;
    if (s.running == 0) mprotect(s.arena + s.arena_used - pages, pages, PROT_NONE);
  } else {
    if (posix_memalign(reinterpret_cast<void**>(&p), 256, n ? n : 1)) return Ret(cudaErrorMemoryAllocation);
    if (kind == Range::kDevice) std::memset(p, 0xFF, n);              // uninitialised reads show up as NaN
  }
  s.ranges[reinterpret_cast<std::uintptr_t>(p)] = {n, kind, current_device};
  if (kind == Range::kDevice) s.used[current_device] += n;
  *out = p;
  return cudaSuccess;
}
static cudaError_t Free(void* p, Range::Kind kind) {
  if (!p) return cudaSuccess;
  State& s = S();
  std::lock_guard l(s.m);
  auto it = s.ranges.find(reinterpret_cast<std::uintptr_t>(p));
  if (it == s.ranges.end() || it->second.kind != kind) return Ret(cudaErrorInvalidValue);
  if (kind == Range::kDevice) s.used[it->second.device] -= it->second.size;
  if (kind == Range::kDevice && s.guard) { const std::uintptr_t a = it->first / 4096 * 4096; mprotect(reinterpret_cast<void*>(a), it->second.size, PROT_NONE); madvise(reinterpret_cast<void*>(a), it->second.size, MADV_DONTNEED); }  // address never reused
  else std::free(p);
  s.ranges.erase(it);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** p, size_t n) { ENTER(cudaMalloc); NO_CAPTURE(); return Alloc(p, n, Range::kDevice); }
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaFree(void* p) { ENTER(cudaFree); NO_CAPTURE(); cudaDeviceSynchronize(); return Free(p, Range::kDevice); }
cudaError_t cudaMallocHost(void** p, size_t n) { ENTER(cudaMallocHost); return Alloc(p, n, Range::kPinned); }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { ENTER(cudaHostAlloc); return Alloc(p, n, Range::kPinned); }
cudaError_t cudaFreeHost(void* p) { return Free(p, Range::kPinned); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { ENTER(cudaStreamCreateWithFlags); *s = new CUstream_st; std::lock_guard l(streams_m); streams.insert(*s); return cudaSuccess; }
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int) { return cudaStreamCreateWithFlags(s, f); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { { std::lock_guard l(streams_m); streams.erase(s); } delete s; return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t sp) {
  ENTER(cudaStreamSynchronize); NO_CAPTURE();
  Get(sp)->Wait();
  if (int e = S().sticky) return Ret(static_cast<cudaError_t>(e));
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t sp) { ENTER(cudaStreamQuery); return Get(sp)->Idle() ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaDeviceSynchronize() {
  ENTER(cudaDeviceSynchronize); NO_CAPTURE();
  std::vector<CUstream_st*> all; { std::lock_guard l(streams_m); all.assign(streams.begin(), streams.end()); }
  for (auto* s : all) s->Wait();
  Null()->Wait();
  if (int e = S().sticky) return Ret(static_cast<cudaError_t>(e));
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { ENTER(cudaEventCreateWithFlags); *e = new CUevent_st; return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { delete e; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t sp) {
  ENTER(cudaEventRecord);
  CUstream_st* s = Get(sp);
  if (s->capture_root) { e->captured_in = s->capture_root; if (s != s->capture_root) s->capture_root->unjoined.erase(s); return cudaSuccess; }
  std::uint64_t n; { std::lock_guard l(e->m); n = ++e->recorded; e->captured_in = nullptr; }
  s->Push([e, n] { std::lock_guard l(e->m); e->completed = n; e->at = Clock::now(); e->cv.notify_all(); });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t sp, cudaEvent_t e, unsigned) {
  ENTER(cudaStreamWaitEvent);
  CUstream_st* s = Get(sp);
  if (e->captured_in) {   // fork or join inside a capture: API order is a valid order of the graph
    if (!s->capture_root) { s->capture_root = e->captured_in; e->captured_in->joined.insert(s); e->captured_in->unjoined.insert(s); }
    return cudaSuccess;
  }
  std::uint64_t n; { std::lock_guard l(e->m); n = e->recorded; }
  return Submit(sp, [e, n] { std::unique_lock l(e->m); e->cv.wait(l, [&] { return e->completed >= n; }); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) { ENTER(cudaEventSynchronize); NO_CAPTURE(); std::unique_lock l(e->m); auto n = e->recorded; e->cv.wait(l, [&] { return e->completed >= n; }); if (int x = S().sticky) return Ret(static_cast<cudaError_t>(x)); return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t e) { ENTER(cudaEventQuery); std::lock_guard l(e->m); return e->completed >= e->recorded ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) { *ms = std::chrono::duration<float, std::milli>(b->at - a->at).count(); return cudaSuccess; }

cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind k, cudaStream_t st) {
  ENTER(cudaMemcpyAsync);
  auto inside = [](const void* p, size_t n, bool device) {
    State& s = S(); std::lock_guard l(s.m);
    auto* r = Find(p);
    if (!r) return !device;                                   // pageable host memory
    if (device != (r->second.kind == Range::kDevice)) return false;
    return reinterpret_cast<std::uintptr_t>(p) + n <= r->first + r->second.size;
  };
  if (k != cudaMemcpyDefault) {
    const bool dd = k == cudaMemcpyHostToDevice || k == cudaMemcpyDeviceToDevice, sd = k == cudaMemcpyDeviceToHost || k == cudaMemcpyDeviceToDevice;
    if (!inside(d, n, dd) || !inside(s, n, sd)) return Ret(cudaErrorInvalidValue);
  }
  if (k == cudaMemcpyHostToDevice && !IsDevicePointer(s) && !Get(st)->capture_root) {   // pageable: staged before return
    auto copy = std::make_shared<std::vector<char>>(static_cast<const char*>(s), static_cast<const char*>(s) + n);
    return Submit(st, [=] { Access a; std::memcpy(d, copy->data(), n); });
  }
  Submit(st, [=] { Access a; std::memcpy(d, s, n); });
  if (k == cudaMemcpyDeviceToHost && !IsDevicePointer(d) && !Get(st)->capture_root) Get(st)->Wait();   // pageable: synchronous
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind k) { NO_CAPTURE(); if (auto e = cudaMemcpyAsync(d, s, n, k, nullptr)) return e; return cudaStreamSynchronize(nullptr); }
cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t st) { ENTER(cudaMemsetAsync); return Submit(st, [=] { Access a; std::memset(d, v, n); }); }
cudaError_t cudaMemset(void* d, int v, size_t n) { if (auto e = cudaMemsetAsync(d, v, n, nullptr)) return e; return cudaStreamSynchronize(nullptr); }
cudaError_t cudaLaunchHostFunc(cudaStream_t st, cudaHostFn_t f, void* u) { ENTER(cudaLaunchHostFunc); return Submit(st, [=] { f(u); }); }

cudaError_t cudaFuncSetAttribute(const void* f, cudaFuncAttribute a, int v) {
  ENTER(cudaFuncSetAttribute);
  if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) { if (v > 227 << 10) return Ret(cudaErrorInvalidValue); State& s = S(); std::lock_guard l(s.m); s.max_dynamic_smem[f] = v; }
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** args) {
  ENTER(cudaLaunchKernelExC);
  const KernelInfo* k = FindKernel(f);
  if (!k) return Ret(cudaErrorInvalidDeviceFunction);
  std::size_t limit = 48 << 10;
  { State& s = S(); std::lock_guard l(s.m); if (auto it = s.max_dynamic_smem.find(f); it != s.max_dynamic_smem.end()) limit = it->second; }
  if (c->dynamicSmemBytes > limit) return Ret(cudaErrorInvalidValue);
  LaunchSpec spec{c->gridDim, c->blockDim, c->dynamicSmemBytes, false, nullptr, k->name};
  for (unsigned i = 0; i < c->numAttrs; ++i) if (c->attrs[i].id == cudaLaunchAttributeCooperative) spec.cooperative = c->attrs[i].val.cooperative;
  if (spec.block.x * spec.block.y * spec.block.z > 1024 || spec.block.x * spec.block.y * spec.block.z == 0 || spec.grid.x == 0 || spec.grid.y == 0 || spec.grid.z == 0) return Ret(cudaErrorInvalidConfiguration);
  auto packed = k->copy_args(args);
  spec.body = [k, f, packed] { k->invoke(f, packed.get()); };
  return Submit(c->stream, [spec = std::move(spec)] {
    if (S().sticky) return;
    Access a;
    auto r = RunGrid(spec);
    if (r.error == cudaSuccess && r.static_smem + spec.dynamic_smem > 227u << 10) r = {cudaErrorLaunchFailure, "shared memory over the limit", 0};
    if (r.error != cudaSuccess) KernelFailed(r.error, r.message);
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  ENTER(cudaStreamBeginCapture);
  if (!s || s->capture_root) return Ret(cudaErrorIllegalState);
  s->capture_root = s; s->graph = new CUgraph_st; s->status = cudaStreamCaptureStatusActive; ++captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
  ENTER(cudaStreamEndCapture);
  if (s->capture_root != s) return Ret(cudaErrorIllegalState);
  --captures;
  const bool bad = s->status == cudaStreamCaptureStatusInvalidated, forked = !s->unjoined.empty();
  for (auto* x : s->joined) x->capture_root = nullptr;
  s->joined.clear(); s->unjoined.clear(); s->capture_root = nullptr; s->status = cudaStreamCaptureStatusNone;
  if (bad || forked) { delete s->graph; s->graph = nullptr; *g = nullptr; return Ret(bad ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined); }
  *g = s->graph; s->graph = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* st) { *st = Get(s)->capture_root ? Get(s)->capture_root->status : cudaStreamCaptureStatusNone; return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long) { ENTER(cudaGraphInstantiate); *e = new CUgraphExec_st{g->ops}; return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) { ENTER(cudaGraphLaunch); return Submit(s, [ops = e->ops] { for (auto& o : ops) o(); }); }
cudaError_t cudaGraphDestroy(cudaGraph_t g) { delete g; return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { delete e; return cudaSuccess; }
}
