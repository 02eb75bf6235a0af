#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace baton::text {

// Remembers what short words became: most words of a text are few and short. One of fixed size (400
// KiB, allocated at first use) for each thread, shared by all models; a word that falls on
// another's place takes it. Not thread-safe: use the thread's own.
class WordCache {
 public:
  // A number that no other model of this process has or had; models are told apart by it.
  static std::uint32_t NewOwner();
  static WordCache& OfThisThread();

  // Appends the ids of `word`: those remembered for this owner, or what `compute(word, ids)`
  // appends, which must depend on the word alone.
  template <class Compute>
  void Append(std::uint32_t owner, std::string_view word, std::vector<std::int32_t>& ids,
              Compute compute) {
    if (word.size() > kMaxWordBytes) {
      compute(word, ids);
      return;
    }
    const Key key = MakeKey(word);
    Slot& slot = SlotOf(owner, key);
    if (slot.owner == owner && slot.key.front == key.front && slot.key.back == key.back) {
      ids.insert(ids.end(), slot.ids, slot.ids + slot.num_ids);
      return;
    }
    const std::size_t begin = ids.size();
    compute(word, ids);
    Remember(owner, key, ids, begin, slot);
  }

 private:
  static constexpr std::size_t kMaxWordBytes = 15;
  static constexpr std::size_t kMaxIds = 6;
  static constexpr int kSlotBits = 13;

  // The word's bytes, zeros behind them, and its length in the last byte.
  struct Key {
    std::uint64_t front = 0;
    std::uint64_t back = 0;
  };
  struct Slot {
    Key key;
    std::uint32_t owner = 0;  // 0: empty
    std::uint32_t num_ids = 0;
    std::int32_t ids[kMaxIds] = {};
  };

  WordCache() : slots_(std::size_t{1} << kSlotBits) {}
  static Key MakeKey(std::string_view word);
  static void Remember(std::uint32_t owner, const Key& key, const std::vector<std::int32_t>& ids,
                       std::size_t begin, Slot& slot);
  Slot& SlotOf(std::uint32_t owner, const Key& key) {
    std::uint64_t hash = (key.front ^ owner) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ (hash >> 32) ^ key.back) * 0xD6E8FEB86659FD93u;
    return slots_[hash >> (64 - kSlotBits)];
  }

  std::vector<Slot> slots_;
};

}  // namespace baton::text
