#pragma once
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton {

// The one place where threads meet: a first-in first-out queue with a bound and a deadline on every
// wait. Closing wakes every waiter; what was queued before can still be popped. Thread-safe.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Appends `item` unless the queue is full or closed. Never waits; false leaves `item` untouched.
  bool TryPush(T&& item) {
    absl::MutexLock lock(&mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // Appends `item`, waiting for room until `deadline`. False when closed or still full by then.
  bool Push(T&& item, absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closed_ || items_.size() < capacity_;
    };
    mutex_.AwaitWithDeadline(absl::Condition(&has_room), deadline);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // Takes the oldest item, waiting for one until `deadline`. Empty on a timeout, or when the queue
  // is closed and drained.
  std::optional<T> Pop(absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closed_ || !items_.empty();
    };
    mutex_.AwaitWithDeadline(absl::Condition(&ready), deadline);
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  // Takes everything that is queued now, after waiting until `deadline` for at least one item.
  std::vector<T> PopAll(absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closed_ || !items_.empty();
    };
    mutex_.AwaitWithDeadline(absl::Condition(&ready), deadline);
    std::vector<T> items;
    items.reserve(items_.size());
    for (T& item : items_) items.push_back(std::move(item));
    items_.clear();
    return items;
  }

  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

  bool closed() const {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }
  size_t size() const {
    absl::MutexLock lock(&mutex_);
    return items_.size();
  }
  size_t capacity() const { return capacity_; }

 private:
  const size_t capacity_;
  mutable absl::Mutex mutex_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton
