// Tells ThreadSanitizer what absl::Mutex, CondVar and Notification synchronise. Abseil comes as a
// shared library that was built without it, so TSan sees neither lock nor wait and reports every
// guarded access as a race. The linker sends our calls of these functions through the wrappers
// below (--wrap, see tsan_mutex.cmake; `Real` is the library's own). Between a pre and its post
// call TSan ignores what the thread does: also the conditions of other waiters, which Abseil
// evaluates in whichever thread unlocks. Part of TSan builds only.
#include <sanitizer/tsan_interface.h>

#include <type_traits>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

using absl::Condition;
using absl::CondVar;
using absl::Duration;
using absl::Mutex;
using absl::Notification;
using absl::Time;

namespace {

constexpr unsigned kWrite = 0;
constexpr unsigned kRead = __tsan_mutex_read_lock;

// `call` returns with the lock held, whatever it answers.
template <class Call>
auto Locking(Mutex* mutex, unsigned flags, Call call) {
  __tsan_mutex_pre_lock(mutex, flags);
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    __tsan_mutex_post_lock(mutex, flags, 0);
  } else {
    const auto result = call();
    __tsan_mutex_post_lock(mutex, flags, 0);
    return result;
  }
}

template <class Call>
bool Trying(Mutex* mutex, unsigned flags, Call call) {
  flags |= __tsan_mutex_try_lock;
  __tsan_mutex_pre_lock(mutex, flags);
  const bool locked = call();
  __tsan_mutex_post_lock(mutex, flags | (locked ? 0u : __tsan_mutex_try_lock_failed), 0);
  return locked;
}

template <class Call>
void Unlocking(Mutex* mutex, unsigned flags, Call call) {
  __tsan_mutex_pre_unlock(mutex, flags);
  call();
  __tsan_mutex_post_unlock(mutex, flags);
}

// A wait gives the lock up and takes it again. It is told as that of a writer: waiting under a
// reader's lock looks the same from here, and is not done in this repository.
template <class Call>
auto Waiting(Mutex* mutex, Call call) {
  Unlocking(mutex, kWrite, [] {});
  return Locking(mutex, kWrite, call);
}

// HasBeenNotified is inlined: its load of the flag, the first member of a Notification's second
// word, is TSan's own acquire and needs a release on that very address.
void* FlagOf(const Notification* notification) {
  return reinterpret_cast<char*>(const_cast<Notification*>(notification)) + sizeof(Mutex);
}

}  // namespace

void RealDestroyMutex(Mutex* m) asm("__real__ZN4absl7debian35MutexD1Ev");
void WrapDestroyMutex(Mutex* m) asm("__wrap__ZN4absl7debian35MutexD1Ev");
void WrapDestroyMutex(Mutex* m) {
  RealDestroyMutex(m);
  __tsan_mutex_destroy(m, 0);
}

void RealLock(Mutex* m) asm("__real__ZN4absl7debian35Mutex4LockEv");
void WrapLock(Mutex* m) asm("__wrap__ZN4absl7debian35Mutex4LockEv");
void WrapLock(Mutex* m) {
  Locking(m, kWrite, [&] { RealLock(m); });
}

void RealUnlock(Mutex* m) asm("__real__ZN4absl7debian35Mutex6UnlockEv");
void WrapUnlock(Mutex* m) asm("__wrap__ZN4absl7debian35Mutex6UnlockEv");
void WrapUnlock(Mutex* m) {
  Unlocking(m, kWrite, [&] { RealUnlock(m); });
}

bool RealTryLock(Mutex* m) asm("__real__ZN4absl7debian35Mutex7TryLockEv");
bool WrapTryLock(Mutex* m) asm("__wrap__ZN4absl7debian35Mutex7TryLockEv");
bool WrapTryLock(Mutex* m) {
  return Trying(m, kWrite, [&] { return RealTryLock(m); });
}

void RealReaderLock(Mutex* m) asm("__real__ZN4absl7debian35Mutex10ReaderLockEv");
void WrapReaderLock(Mutex* m) asm("__wrap__ZN4absl7debian35Mutex10ReaderLockEv");
void WrapReaderLock(Mutex* m) {
  Locking(m, kRead, [&] { RealReaderLock(m); });
}

void RealReaderUnlock(Mutex* m) asm("__real__ZN4absl7debian35Mutex12ReaderUnlockEv");
void WrapReaderUnlock(Mutex* m) asm("__wrap__ZN4absl7debian35Mutex12ReaderUnlockEv");
void WrapReaderUnlock(Mutex* m) {
  Unlocking(m, kRead, [&] { RealReaderUnlock(m); });
}

void RealLockWhen(Mutex* m, const Condition& c) asm(
    "__real__ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE");
void WrapLockWhen(Mutex* m, const Condition& c) asm(
    "__wrap__ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE");
void WrapLockWhen(Mutex* m, const Condition& c) {
  Locking(m, kWrite, [&] { RealLockWhen(m, c); });
}

void RealReaderLockWhen(Mutex* m, const Condition& c) asm(
    "__real__ZN4absl7debian35Mutex14ReaderLockWhenERKNS0_9ConditionE");
void WrapReaderLockWhen(Mutex* m, const Condition& c) asm(
    "__wrap__ZN4absl7debian35Mutex14ReaderLockWhenERKNS0_9ConditionE");
void WrapReaderLockWhen(Mutex* m, const Condition& c) {
  Locking(m, kRead, [&] { RealReaderLockWhen(m, c); });
}

bool RealLockWhenWithTimeout(Mutex* m, const Condition& c, Duration d) asm(
    "__real__ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
bool WrapLockWhenWithTimeout(Mutex* m, const Condition& c, Duration d) asm(
    "__wrap__ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
bool WrapLockWhenWithTimeout(Mutex* m, const Condition& c, Duration d) {
  return Locking(m, kWrite, [&] { return RealLockWhenWithTimeout(m, c, d); });
}

bool RealLockWhenWithDeadline(Mutex* m, const Condition& c, Time t) asm(
    "__real__ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
bool WrapLockWhenWithDeadline(Mutex* m, const Condition& c, Time t) asm(
    "__wrap__ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
bool WrapLockWhenWithDeadline(Mutex* m, const Condition& c, Time t) {
  return Locking(m, kWrite, [&] { return RealLockWhenWithDeadline(m, c, t); });
}

void RealAwait(Mutex* m,
               const Condition& c) asm("__real__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
void WrapAwait(Mutex* m,
               const Condition& c) asm("__wrap__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
void WrapAwait(Mutex* m, const Condition& c) {
  Waiting(m, [&] { RealAwait(m, c); });
}

bool RealAwaitWithTimeout(Mutex* m, const Condition& c, Duration d) asm(
    "__real__ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
bool WrapAwaitWithTimeout(Mutex* m, const Condition& c, Duration d) asm(
    "__wrap__ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
bool WrapAwaitWithTimeout(Mutex* m, const Condition& c, Duration d) {
  return Waiting(m, [&] { return RealAwaitWithTimeout(m, c, d); });
}

bool RealAwaitWithDeadline(Mutex* m, const Condition& c, Time t) asm(
    "__real__ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
bool WrapAwaitWithDeadline(Mutex* m, const Condition& c, Time t) asm(
    "__wrap__ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
bool WrapAwaitWithDeadline(Mutex* m, const Condition& c, Time t) {
  return Waiting(m, [&] { return RealAwaitWithDeadline(m, c, t); });
}

void RealWait(CondVar* v, Mutex* m) asm("__real__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
void WrapWait(CondVar* v, Mutex* m) asm("__wrap__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
void WrapWait(CondVar* v, Mutex* m) {
  Waiting(m, [&] { RealWait(v, m); });
}

bool RealWaitWithTimeout(CondVar* v, Mutex* m, Duration d) asm(
    "__real__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
bool WrapWaitWithTimeout(CondVar* v, Mutex* m, Duration d) asm(
    "__wrap__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
bool WrapWaitWithTimeout(CondVar* v, Mutex* m, Duration d) {
  return Waiting(m, [&] { return RealWaitWithTimeout(v, m, d); });
}

bool RealWaitWithDeadline(CondVar* v, Mutex* m, Time t) asm(
    "__real__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
bool WrapWaitWithDeadline(CondVar* v, Mutex* m, Time t) asm(
    "__wrap__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
bool WrapWaitWithDeadline(CondVar* v, Mutex* m, Time t) {
  return Waiting(m, [&] { return RealWaitWithDeadline(v, m, t); });
}

void RealNotify(Notification* n) asm("__real__ZN4absl7debian312Notification6NotifyEv");
void WrapNotify(Notification* n) asm("__wrap__ZN4absl7debian312Notification6NotifyEv");
void WrapNotify(Notification* n) {
  __tsan_release(FlagOf(n));
  RealNotify(n);
}

void RealWaitForNotification(const Notification* n) asm(
    "__real__ZNK4absl7debian312Notification19WaitForNotificationEv");
void WrapWaitForNotification(const Notification* n) asm(
    "__wrap__ZNK4absl7debian312Notification19WaitForNotificationEv");
void WrapWaitForNotification(const Notification* n) {
  RealWaitForNotification(n);
  __tsan_acquire(FlagOf(n));
}

bool RealWaitForNotificationWithTimeout(const Notification* n, Duration d) asm(
    "__real__ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
bool WrapWaitForNotificationWithTimeout(const Notification* n, Duration d) asm(
    "__wrap__ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
bool WrapWaitForNotificationWithTimeout(const Notification* n, Duration d) {
  const bool notified = RealWaitForNotificationWithTimeout(n, d);
  __tsan_acquire(FlagOf(n));
  return notified;
}

bool RealWaitForNotificationWithDeadline(const Notification* n, Time t) asm(
    "__real__ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE");
bool WrapWaitForNotificationWithDeadline(const Notification* n, Time t) asm(
    "__wrap__ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE");
bool WrapWaitForNotificationWithDeadline(const Notification* n, Time t) {
  const bool notified = RealWaitForNotificationWithDeadline(n, t);
  __tsan_acquire(FlagOf(n));
  return notified;
}
