#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace baton::engine::cpu {

// 64-byte aligned memory for `T`s that never shrinks. Contents are not kept when it grows.
template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t count) { Reserve(count); }
  // Makes room for `count` elements and returns the first; new memory is not initialised.
  T* Reserve(std::size_t count) {
    if (count > capacity_) {
      data_.reset();
      const std::size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
      data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
      if (data_ == nullptr) throw std::bad_alloc();
      capacity_ = count;
    }
    return data_.get();
  }
  T* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T[], Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace baton::engine::cpu
