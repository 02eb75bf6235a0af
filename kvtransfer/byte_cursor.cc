#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "kvtransfer/frame_stream.h"

namespace baton::kvtransfer {

const std::byte* ByteCursor::Contiguous(std::size_t size) const {
  BATON_CHECK(size <= remaining_, "more bytes were looked at than the frame has");
  if (index_ == pieces_.size() || pieces_[index_].size() - offset_ < size) return nullptr;
  return pieces_[index_].data() + offset_;
}

void ByteCursor::Take(std::size_t size, std::byte* to) {
  BATON_CHECK(size <= remaining_, "more bytes were taken than the frame has");
  remaining_ -= size;
  while (size > 0) {
    const std::span<const std::byte> piece = pieces_[index_];
    const std::size_t count = std::min(size, piece.size() - offset_);
    if (to != nullptr) {
      std::memcpy(to, piece.data() + offset_, count);
      to += count;
    }
    size -= count;
    offset_ += count;
    if (offset_ == piece.size()) {
      ++index_;
      offset_ = 0;
    }
  }
}

}  // namespace baton::kvtransfer
