#pragma once

// The emulation's own sources are never compiled with -fsanitize=thread: their accesses to memory
// are not the kernel's. They still call TSan's run time, so that what they order is known:
// CUDA_EMULATION_TSAN says that the program is linked with it.
#if defined(CUDA_EMULATION_TSAN)
extern "C" {
void __tsan_acquire(void* tag);
void __tsan_release(void* tag);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
}
#endif

namespace cuda_emulation {

// While it lives, accesses of the executor on a kernel's fiber are not the kernel's. (malloc and
// memcpy are seen even in code that is not instrumented.)
class Quiet {
 public:
#if defined(CUDA_EMULATION_TSAN)
  Quiet() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Quiet() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  Quiet() {}
#endif
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

// Ends a Quiet for a while: accesses that are the kernel's or the host's own.
class Loud {
 public:
#if defined(CUDA_EMULATION_TSAN)
  Loud() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  ~Loud() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
#else
  Loud() {}
#endif
  Loud(const Loud&) = delete;
  Loud& operator=(const Loud&) = delete;
};

// While it lives, the mutexes that this thread takes order nothing: the emulation's bookkeeping is
// not an order that a device gives. What CUDA does promise is said by Acquire and Release.
class UnseenLocks {
 public:
#if defined(CUDA_EMULATION_TSAN)
  UnseenLocks() { AnnotateIgnoreSyncBegin(__FILE__, __LINE__); }
  ~UnseenLocks() { AnnotateIgnoreSyncEnd(__FILE__, __LINE__); }
#else
  UnseenLocks() {}
#endif
  UnseenLocks(const UnseenLocks&) = delete;
  UnseenLocks& operator=(const UnseenLocks&) = delete;
};

// Ends an UnseenLocks for a while: code that is not the emulation's runs.
class SeenLocks {
 public:
#if defined(CUDA_EMULATION_TSAN)
  SeenLocks() { AnnotateIgnoreSyncEnd(__FILE__, __LINE__); }
  ~SeenLocks() { AnnotateIgnoreSyncBegin(__FILE__, __LINE__); }
#else
  SeenLocks() {}
#endif
  SeenLocks(const SeenLocks&) = delete;
  SeenLocks& operator=(const SeenLocks&) = delete;
};

// An order between threads, named by an address: whoever acquires it sees what was done before
// each release that came earlier. No UnseenLocks may be alive; AcquireUnseen is for when one is.
inline void Acquire([[maybe_unused]] void* tag) {
#if defined(CUDA_EMULATION_TSAN)
  __tsan_acquire(tag);
#endif
}
inline void Release([[maybe_unused]] void* tag) {
#if defined(CUDA_EMULATION_TSAN)
  __tsan_release(tag);
#endif
}
inline void AcquireUnseen(void* tag) {
  SeenLocks seen;
  Acquire(tag);
}
inline void ReleaseUnseen(void* tag) {
  SeenLocks seen;
  Release(tag);
}

}  // namespace cuda_emulation
