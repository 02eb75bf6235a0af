#include "text/tokenizer/word_cache.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace baton::text {

std::uint32_t WordCache::NewOwner() {
  static std::atomic<std::uint32_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

WordCache& WordCache::OfThisThread() {
  thread_local WordCache cache;
  return cache;
}

WordCache::Key WordCache::MakeKey(std::string_view word) {
  char bytes[16] = {};
  std::memcpy(bytes, word.data(), word.size());
  bytes[15] = static_cast<char>(word.size());
  Key key;
  std::memcpy(&key.front, bytes, 8);
  std::memcpy(&key.back, bytes + 8, 8);
  return key;
}

void WordCache::Remember(std::uint32_t owner, const Key& key, const std::vector<std::int32_t>& ids,
                         std::size_t begin, Slot& slot) {
  const std::size_t count = ids.size() - begin;
  if (count > kMaxIds) return;
  slot.key = key;
  slot.owner = owner;
  slot.num_ids = static_cast<std::uint32_t>(count);
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), slot.ids);
}

}  // namespace baton::text
