#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace baton {

// A mutex with conditions to wait for, as absl::Mutex, but made of the standard library's: Debian's
// Abseil is built without ThreadSanitizer's annotations, so under that sanitizer every use of
// absl::Mutex looks like a race, while what stands on pthread is understood. For code that tests
// run under ThreadSanitizer; who is always beside gRPC may use either.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  // Wakes every waiter to look at its condition. They are woken before the mutex is free, since
  // whoever gets it next may destroy it.
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    if (num_waiting_ > 0) changed_.notify_all();
    mutex_.unlock();
  }

  // Waits until `condition()`, which is called with the mutex held and reads only what it guards.
  template <class Condition>
  void Await(const Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    AwaitWithDeadline(condition, absl::InfiniteFuture());
  }
  // As Await, but at most until `deadline`; the condition's last value.
  template <class Condition>
  bool AwaitWithDeadline(const Condition& condition, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    if (condition()) return true;
    if (deadline != absl::InfiniteFuture() && deadline <= absl::Now()) return false;
    // We become a waiter: what we changed under the lock may be what another waits for.
    if (num_waiting_ > 0) changed_.notify_all();
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    ++num_waiting_;
    bool holds;
    if (deadline == absl::InfiniteFuture()) {
      changed_.wait(lock, condition);
      holds = true;
    } else {
      holds = changed_.wait_until(lock, absl::ToChronoTime(deadline), condition);
    }
    --num_waiting_;
    lock.release();
    return holds;
  }
  template <class Condition>
  bool AwaitWithTimeout(const Condition& condition, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    return AwaitWithDeadline(condition, absl::Now() + timeout);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_waiting_ = 0;  // guarded by mutex_
};

// Holds a Mutex for a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

}  // namespace baton
