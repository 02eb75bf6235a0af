#include "cuda_emulation/exec.h"
#include "cuda_emulation/fiber.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#if defined(EMU_TSAN_RT)
extern "C" {
void __tsan_acquire(void*); void __tsan_release(void*);
void AnnotateIgnoreReadsBegin(const char*, int); void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int); void AnnotateIgnoreWritesEnd(const char*, int);
}
#define TSAN_ACQ(p) __tsan_acquire(p)
#define TSAN_REL(p) __tsan_release(p)
namespace { struct Quiet {   // the executor's own memory traffic (it runs on the fibers too) is not the kernel's
  Quiet() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); AnnotateIgnoreWritesBegin(__FILE__, __LINE__); }
  ~Quiet() { AnnotateIgnoreWritesEnd(__FILE__, __LINE__); AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
}; }
#else
#define TSAN_ACQ(p) (void)0
#define TSAN_REL(p) (void)0
namespace { struct Quiet { Quiet() {} }; }
#endif

namespace cuda_emulation {
namespace {
constexpr int kMaxThreads = 1024, kWarp = 32;

struct AsyncCopy { void* dst; const void* src; int bytes, src_bytes; CopyFn copy; };
struct Block;
struct Warp;
struct Thread {
  Fiber fiber;
  uint3 tid{};
  int linear = 0;
  Block* block = nullptr;
  Warp* warp = nullptr;
  bool done = false, waiting = false;
  const char* where_file = nullptr; unsigned where_line = 0;
  std::vector<AsyncCopy> open; std::vector<std::vector<AsyncCopy>> groups;
};
struct Rendezvous { std::uint32_t mask = 0, arrived = 0; CollectiveFn fn = nullptr; void* args[kWarp]; };
struct Warp { Thread* lane[kWarp]; std::uint32_t alive = 0; std::vector<Rendezvous> meet; char sync_tag[16]; };
struct Barrier { unsigned arrived = 0; std::vector<Thread*> waiting; const char* file = nullptr; int line = 0; char sync_tag; };
struct Block {
  dim3 index{};
  unsigned threads = 0, alive = 0;
  Warp warps[kMaxThreads / kWarp];
  Barrier barriers[16];
  std::byte* dynamic = nullptr; std::size_t dynamic_size = 0;
  std::map<const void*, std::pair<std::byte*, std::size_t>> statics; std::size_t static_size = 0;
};

struct Worker {
  Fiber self;
  std::vector<Thread*> threads;            // pool; threads[i] has a stack
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Thread*> ring; std::size_t head = 0, count = 0, cap = 0;   // ready fibers; each is in at most once
  const LaunchSpec* spec = nullptr;
  unsigned alive = 0;
  std::string failure;
  std::vector<Thread*> grid_waiting; unsigned grid_arrived = 0;
  std::uint64_t rng = 1;
  Counters c;
  std::size_t max_static = 0;
  std::vector<void*> arena;                // shared memory of finished blocks (TSan: freed at the end of the grid)
};
thread_local Worker* worker = nullptr;
thread_local Thread* current = nullptr;
[[maybe_unused]] char start_tag, end_tag, grid_tag;   // happens-before: launch -> threads, threads -> end of grid, grid barrier

std::uint64_t Next(std::uint64_t& s) { s ^= s << 13; s ^= s >> 7; s ^= s << 17; return s; }

void Push(Thread* t) {
  Worker& w = *worker;
  t->waiting = false;
  w.ring[(w.head + w.count++) & (w.cap - 1)] = t;
}
Thread* Pop() {
  Worker& w = *worker;
  if (w.count == 0) return nullptr;
  auto at = [&](std::size_t i) -> Thread*& { return w.ring[(w.head + i) & (w.cap - 1)]; };
  const Order o = GlobalOptions().order;
  if (o == Order::kReverse) return at(--w.count);
  if (o == Order::kRandom) std::swap(at(0), at(Next(w.rng) % w.count));
  Thread* t = at(0);
  ++w.head; --w.count;
  return t;
}
void SetCurrent(Thread* t) { current = t; threadIdx = t->tid; blockIdx = t->block->index; }
// Leave the running fiber (its state is already recorded) and run something else.
void Yield(Fiber& from) {
  Worker& w = *worker;
  Thread* next = w.failure.empty() ? Pop() : nullptr;
  ++w.c.switches;
  if (next) {
    if (&next->fiber == &from) return;
    current = next;
    FiberSwitch(from, next->fiber);
  } else {
    FiberSwitch(from, w.self);
  }
  // resumed
}
void Block_(Thread* t, const Site& loc) {
  t->waiting = true; t->where_file = loc.file; t->where_line = loc.line;
  Yield(t->fiber);
  SetCurrent(t);
}
void ReleaseBarrier(Barrier& b) {
  Quiet quiet;
  b.arrived = 0;
  for (Thread* x : b.waiting) Push(x);
  b.waiting.clear();
}
void ThreadEntry() {
  FiberEntered(current->fiber);
  for (;;) {
    Thread* t = current;
    SetCurrent(t);
    TSAN_ACQ(&start_tag);
    worker->spec->body();
    t = current;
    TSAN_REL(&end_tag);
    { Quiet quiet; t->done = true; t->open.clear(); t->groups.clear(); }
    t->warp->alive &= ~(1u << (t->linear % kWarp));
    --worker->alive;
    Block* b = t->block;
    if (--b->alive > 0 && b->barriers[0].arrived == b->alive) ReleaseBarrier(b->barriers[0]);
    Yield(t->fiber);
  }
}
std::string Where(const Thread* t) {
  std::string f = t->where_file ? t->where_file : "?";
  f = f.substr(f.rfind('/') + 1);
  return "block(" + std::to_string(t->block->index.x) + "," + std::to_string(t->block->index.y) + "," + std::to_string(t->block->index.z) + ") thread " +
         std::to_string(t->linear) + " at " + f + ":" + std::to_string(t->where_line);
}
std::byte* AllocShared(std::size_t n) {
  if (n == 0) n = 1;
  void* p = nullptr;
  if (posix_memalign(&p, 128, n)) throw std::bad_alloc();
  worker->arena.push_back(p);
  if (GlobalOptions().poison_shared) std::memset(p, 0xFF, n);   // NaN as float, half, bf16; -1 as int
  return static_cast<std::byte*>(p);
}
void FreeArena(Worker& w) { for (void* p : w.arena) std::free(p); w.arena.clear(); }

// Runs `count` blocks starting at linear index `first` together on this worker.
bool RunBlocks(const LaunchSpec& s, std::uint64_t first, unsigned count) {
  Worker& w = *worker;
  const unsigned per = s.block.x * s.block.y * s.block.z;
  while (w.blocks.size() < count) w.blocks.push_back(std::make_unique<Block>());
  while (w.threads.size() < std::size_t{count} * per) {
    auto* t = new Thread;
    FiberCreate(t->fiber, GlobalOptions().stack_bytes);
    FiberReset(t->fiber, &ThreadEntry);
    w.threads.push_back(t);
  }
  w.spec = &s; w.alive = count * per; w.head = w.count = 0;
  if (w.cap < std::size_t{count} * per) { w.cap = 1; while (w.cap < std::size_t{count} * per) w.cap *= 2; w.ring.resize(w.cap); }
  w.grid_arrived = 0; w.grid_waiting.clear();
  blockDim = s.block; gridDim = s.grid;
  for (unsigned k = 0; k < count; ++k) {
    Block& b = *w.blocks[k];
    std::uint64_t id = first + k;
    b.index = dim3(id % s.grid.x, id / s.grid.x % s.grid.y, id / s.grid.x / s.grid.y);
    b.threads = b.alive = per;
    b.statics.clear(); b.static_size = 0;
    b.dynamic = AllocShared(s.dynamic_smem); b.dynamic_size = s.dynamic_smem;
    for (auto& br : b.barriers) { br.arrived = 0; br.waiting.clear(); }
    for (unsigned i = 0; i < per; ++i) {
      Thread* t = w.threads[k * per + i];
      t->tid = uint3{i % s.block.x, i / s.block.x % s.block.y, i / s.block.x / s.block.y};
      t->linear = i; t->block = &b; t->warp = &b.warps[i / kWarp]; t->done = t->waiting = false;
      if (i % kWarp == 0) { t->warp->alive = 0; t->warp->meet.clear(); }
      t->warp->lane[i % kWarp] = t; t->warp->alive |= 1u << (i % kWarp);
      Push(t);
    }
    ++w.c.blocks;
  }
  TSAN_REL(&start_tag);
  Thread* t = Pop();
  current = t;
  ++w.c.switches;
  FiberSwitch(w.self, t->fiber);
  for (unsigned k = 0; k < count; ++k) w.max_static = std::max(w.max_static, w.blocks[k]->static_size);
  if (w.failure.empty() && w.alive > 0) {
    w.failure = "deadlock: " + std::to_string(w.alive) + " threads wait forever; e.g.";
    int shown = 0;
    for (unsigned i = 0; i < count * per && shown < 3; ++i)
      if (!w.threads[i]->done) { w.failure += (shown++ ? "; " : " ") + Where(w.threads[i]); }
  }
  if (!w.failure.empty()) {  // abandoned fibers restart from scratch
    for (unsigned i = 0; i < count * per; ++i)
      if (!w.threads[i]->done) { FiberReset(w.threads[i]->fiber, &ThreadEntry); w.threads[i]->open.clear(); w.threads[i]->groups.clear(); }
    return false;
  }
#ifndef EMU_TSAN_RT
  FreeArena(w);
#endif
  return true;
}

struct Pool {
  std::mutex m; std::condition_variable cv, done_cv;
  std::vector<std::thread> threads; std::function<void()> job; std::uint64_t gen = 0; int busy = 0; bool stop = false;
  void Ensure(int n) {
    while (static_cast<int>(threads.size()) < n) threads.emplace_back([this] {
      std::uint64_t seen = 0;
      for (;;) {
        std::function<void()> j;
        { std::unique_lock l(m); cv.wait(l, [&] { return stop || gen != seen; }); if (stop) return; seen = gen; j = job; }
        j();
        { std::lock_guard l(m); if (--busy == 0) done_cv.notify_all(); }
      }
    });
  }
  ~Pool() { { std::lock_guard l(m); stop = true; } cv.notify_all(); for (auto& t : threads) t.join(); }
};
Pool& ThePool() { static Pool p; return p; }
std::mutex run_mutex;
std::atomic<std::uint64_t> g_switches, g_blocks, g_coll;
Worker& MyWorker() {
  if (!worker) { worker = new Worker; FiberAdopt(worker->self); }   // kept for the life of the OS thread
  return *worker;
}
}  // namespace

Options& GlobalOptions() {
  static Options o = [] {
    Options x;
    if (const char* e = std::getenv("CUDA_EMULATION_WORKERS")) x.workers = std::max(1, std::atoi(e));
    if (const char* e = std::getenv("CUDA_EMULATION_ORDER")) {
      std::string s = e;
      if (s.starts_with("reverse")) x.order = Order::kReverse;
      else if (s.starts_with("random")) { x.order = Order::kRandom; if (auto c = s.find(':'); c != s.npos) x.seed = std::strtoull(s.c_str() + c + 1, nullptr, 10); }
    }
    if (const char* e = std::getenv("CUDA_EMULATION_CP_ASYNC")) x.async = e[0] == 'e' ? Async::kEarly : e[0] == 'r' ? Async::kRandom : Async::kLate;
#if defined(__SANITIZE_ADDRESS__) || defined(EMU_TSAN_RT)
    x.stack_bytes = 256 << 10;
#endif
    return x;
  }();
  return o;
}
Counters GlobalCounters() { return {g_switches, g_blocks, g_coll}; }

LaunchResult RunGrid(const LaunchSpec& s) {
  LaunchResult r;
  const std::uint64_t per = std::uint64_t{s.block.x} * s.block.y * s.block.z, n = std::uint64_t{s.grid.x} * s.grid.y * s.grid.z;
  if (per == 0 || per > kMaxThreads || n == 0 || s.block.z > 64 || s.grid.y > 65535 || s.grid.z > 65535)
    return {cudaErrorInvalidConfiguration, "bad grid or block dimensions", 0};
  std::lock_guard run(run_mutex);   // prototype: one grid at a time
  std::atomic<std::uint64_t> next{0};
  std::mutex err_m;
  auto work = [&] {
    Worker& w = MyWorker();
    w.failure.clear(); w.max_static = 0; w.rng = GlobalOptions().seed * 0x9E3779B97F4A7C15ull + 1; w.c = {};
    if (s.cooperative) { if (next.exchange(1) == 0) RunBlocks(s, 0, static_cast<unsigned>(n)); }
    else for (;;) { auto b = next.fetch_add(1); if (b >= n || !RunBlocks(s, b, 1)) break; }
    TSAN_ACQ(&end_tag);
    FreeArena(w);
    g_switches += w.c.switches; g_blocks += w.c.blocks; g_coll += w.c.collectives;
    std::lock_guard l(err_m);
    r.static_smem = std::max(r.static_smem, w.max_static);
    if (!w.failure.empty() && r.error == cudaSuccess) { r.error = cudaErrorLaunchFailure; r.message = std::string(s.name) + ": " + w.failure; next = n; }
  };
  int extra = s.cooperative ? 0 : static_cast<int>(std::min<std::uint64_t>(GlobalOptions().workers, n)) - 1;
  Pool& p = ThePool();
  if (extra > 0) {
    std::lock_guard l(p.m);
    p.Ensure(extra); p.job = work; p.busy = static_cast<int>(p.threads.size()); ++p.gen;
    p.cv.notify_all();
  }
  work();
  if (extra > 0) { std::unique_lock l(p.m); p.done_cv.wait(l, [&] { return p.busy == 0; }); }
  return r;
}

void DeviceFail(std::string m) {
  Thread* t = current;
  worker->failure = m + " (block(" + std::to_string(t->block->index.x) + "," + std::to_string(t->block->index.y) + "," + std::to_string(t->block->index.z) +
                    ") thread " + std::to_string(t->linear) + ")";
  FiberSwitch(t->fiber, worker->self);
  std::abort();
}
unsigned LaneId() { return current->linear % kWarp; }
static std::string At(const Site& l) { std::string f = l.file; return f.substr(f.rfind('/') + 1) + ":" + std::to_string(l.line); }

void WarpCollective(std::uint32_t mask, void* args, CollectiveFn fn, const Site& loc, bool memory) {
  Thread* t = current; Warp& w = *t->warp; const unsigned lane = t->linear % kWarp;
  ++worker->c.collectives;
  if (!(mask >> lane & 1)) DeviceFail("warp operation at " + At(loc) + " whose mask does not name the calling lane");
  if (mask & ~w.alive) DeviceFail("warp operation at " + At(loc) + " names lanes that do not exist or have exited");
  Rendezvous* r = nullptr;
  {
    Quiet quiet;
    for (auto& m : w.meet) if (m.mask == mask) { r = &m; break; }
    if (!r) { w.meet.reserve(32); r = &w.meet.emplace_back(); r->mask = mask; }
  }
  if (r->arrived == 0) r->fn = fn;
  else if (r->fn != fn) DeviceFail("lanes of one warp meet in different warp operations at " + At(loc));
  r->args[lane] = args;
  r->arrived |= 1u << lane;
  if (r->arrived == mask) {
    r->arrived = 0;
    if (fn && memory) fn(r->args, mask);                    // its accesses to shared memory are the kernel's
    else if (fn) { Quiet quiet; fn(r->args, mask); }        // registers only
    for (unsigned i = 0; i < kWarp; ++i) if ((mask >> i & 1) && i != lane) Push(w.lane[i]);
    return;
  }
  Block_(t, loc);
}
void WarpSync(std::uint32_t mask, const Site& loc) {
  Warp* w = current->warp; (void)w;
  TSAN_REL(&w->sync_tag[0]);
  WarpCollective(mask, nullptr, nullptr, loc);
  TSAN_ACQ(&w->sync_tag[0]);
}
// CUDA_EMULATION_SKIP_SYNC=file.cu:line turns one barrier or cp.async wait off: a test that still passes proves nothing about it.
static bool Skipped(const Site& loc) {
  static const char* e = std::getenv("CUDA_EMULATION_SKIP_SYNC");
  if (!e) return false;
  const std::string f = loc.file;
  return f.substr(f.rfind('/') + 1) + ":" + std::to_string(loc.line) == e;
}
void BlockSync(unsigned id, unsigned threads, const Site& loc) {
  if (Skipped(loc)) return;
  Quiet quiet;
  Thread* t = current; Block& b = *t->block;
  Barrier& br = b.barriers[id];
  if (br.arrived == 0) { br.file = loc.file; br.line = loc.line; }
  else if (id == 0 && br.line != loc.line) DeviceFail("divergent __syncthreads: threads of one block meet at line " + std::to_string(br.line) + " and at " + At(loc));
  TSAN_REL(&br.sync_tag);
  const unsigned expected = threads ? threads : b.alive;
  if (++br.arrived == expected) { ReleaseBarrier(br); }
  else { br.waiting.push_back(t); Block_(t, loc); }
  TSAN_ACQ(&br.sync_tag);
}
void GridSync(const Site& loc) {
  Worker& w = *worker;
  if (!w.spec->cooperative) DeviceFail("grid sync outside a cooperative launch at " + At(loc));
  TSAN_REL(&grid_tag);
  if (++w.grid_arrived == w.alive) { w.grid_arrived = 0; for (auto* x : w.grid_waiting) Push(x); w.grid_waiting.clear(); }
  else { w.grid_waiting.push_back(current); Block_(current, loc); }
  TSAN_ACQ(&grid_tag);
}
void Fence() { static char fence_tag; (void)fence_tag; TSAN_ACQ(&fence_tag); TSAN_REL(&fence_tag); std::atomic_thread_fence(std::memory_order_seq_cst); }
void* DynamicShared() { return current->block->dynamic; }
std::size_t DynamicSharedSize() { return current->block->dynamic_size; }
void* StaticShared(const void* key, std::size_t size, std::size_t) {
  Quiet quiet;
  Block& b = *current->block;
  auto& e = b.statics[key];
  if (!e.first) { e = {AllocShared(size), size}; b.static_size += size; }
  return e.first;
}
// The device may move the bytes at any time between issue and wait. Late finds missing waits, early finds
// buffers that are overwritten while others still read them.
void CopyAsync(void* d, const void* s, int n, int sn, CopyFn copy) {
  bool late = GlobalOptions().async == Async::kLate;
  if (GlobalOptions().async == Async::kRandom) late = Next(worker->rng) & 1;
  if (!late) { copy(d, s, n, sn); return; }
  Quiet quiet; current->open.push_back({d, s, n, sn, copy});
}
void CopyAsyncCommit() { Quiet quiet; current->groups.push_back(std::move(current->open)); current->open.clear(); }
void CopyAsyncWait(int left, const Site& loc) {
  if (Skipped(loc)) return;
  auto& g = current->groups;
  while (static_cast<int>(g.size()) > left) { for (auto& c : g.front()) c.copy(c.dst, c.src, c.bytes, c.src_bytes); Quiet quiet; g.erase(g.begin()); }
}
namespace {
std::mutex reg_m; std::map<const void*, KernelInfo>& Reg() { static std::map<const void*, KernelInfo> r; return r; }
}
void RegisterKernel(const void* fn, const KernelInfo& i) { std::lock_guard l(reg_m); Reg().emplace(fn, i); }
const KernelInfo* FindKernel(const void* fn) { std::lock_guard l(reg_m); auto it = Reg().find(fn); return it == Reg().end() ? nullptr : &it->second; }
}  // namespace cuda_emulation
