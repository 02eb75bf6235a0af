#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvtransfer/transfer.h"

namespace baton {

// A sender without a wire: remembers its transfers, lets the test say how each ends, and writes
// down every breach of TransferSender's contract. Not thread-safe.
class FakeTransferSender final : public kvtransfer::TransferSender {
 public:
  struct Transfer {
    TransferTicket ticket;
    std::vector<std::int32_t> source_blocks;
    std::vector<std::vector<int>> puts;  // [layer][prompt block], how often
    std::optional<kvtransfer::HandoffRecord> record;
    std::optional<absl::Status> aborted;
    DoneCallback done;
  };

  explicit FakeTransferSender(int num_layers) : num_layers_(num_layers) {}

  std::uint64_t Begin(const TransferTicket& ticket, std::vector<std::int32_t> source_blocks,
                      DoneCallback done) override {
    Check(source_blocks.size() == ticket.blocks.size(), "Begin: block counts differ");
    for (const auto& [key, other] : open_) {
      for (const std::int32_t block : source_blocks) {
        const auto& taken = other.source_blocks;
        Check(std::find(taken.begin(), taken.end(), block) == taken.end(),
              absl::StrCat("block ", block, " is reused while transfer ", key, " may read it"));
      }
    }
    Transfer transfer{ticket, std::move(source_blocks), {}, {}, {}, std::move(done)};
    transfer.puts.assign(num_layers_, std::vector<int>(ticket.blocks.size(), 0));
    open_.emplace(next_key_, std::move(transfer));
    return next_key_++;
  }

  void PutLayer(std::uint64_t key, int layer, int first_block, int last_block) override {
    Transfer* transfer = Open(key, "PutLayer");
    if (transfer == nullptr) return;
    auto& counts = transfer->puts[layer];
    Check(0 <= first_block && first_block < last_block &&
              last_block <= static_cast<int>(counts.size()),
          absl::StrCat("PutLayer: blocks ", first_block, "..", last_block));
    for (int block = first_block; block < last_block; ++block) {
      Check(++counts[block] == 1, absl::StrCat("layer ", layer, " block ", block, " put twice"));
    }
  }

  void Complete(std::uint64_t key, kvtransfer::HandoffRecord record) override {
    Transfer* transfer = Open(key, "Complete");
    if (transfer == nullptr) return;
    for (const auto& counts : transfer->puts) {
      for (const int count : counts) Check(count == 1, "Complete: a block was not put");
    }
    transfer->record = std::move(record);
  }

  void Abort(std::uint64_t key, absl::Status why) override {
    const auto it = open_.find(key);
    if (it == open_.end()) return;  // ended meanwhile
    Check(!it->second.aborted.has_value(), "Abort: twice");
    it->second.aborted = std::move(why);
  }

  // Ends a transfer: its callback runs, and its source blocks may be reused. False if not open.
  bool Finish(std::uint64_t key, const absl::Status& status,
              const kvtransfer::SendReport& report = {}) {
    const auto it = open_.find(key);
    if (it == open_.end()) return false;
    const DoneCallback done = std::move(it->second.done);
    open_.erase(it);
    done(key, status, report);
    return true;
  }
  // Ends a transfer as a real sender would: acknowledged if complete, else as it was aborted, else
  // the wire fails.
  bool FinishNaturally(std::uint64_t key) {
    const auto it = open_.find(key);
    if (it == open_.end()) return false;
    const Transfer& transfer = it->second;
    return Finish(key, transfer.aborted.has_value()  ? *transfer.aborted
                       : transfer.record.has_value() ? absl::OkStatus()
                                                     : absl::UnavailableError("wire broke"));
  }

  const std::map<std::uint64_t, Transfer>& open() const { return open_; }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  // Null when the transfer has ended: that may cross a call on its way.
  Transfer* Open(std::uint64_t key, const char* call) {
    const auto it = open_.find(key);
    if (it == open_.end()) return nullptr;
    const bool usable = !it->second.aborted.has_value() && !it->second.record.has_value();
    Check(usable, absl::StrCat(call, ": transfer ", key, " was completed or aborted"));
    return usable ? &it->second : nullptr;
  }
  void Check(bool holds, const std::string& breach) {
    if (!holds) violations_.push_back(breach);
  }

  const int num_layers_;
  std::uint64_t next_key_ = 100;
  std::map<std::uint64_t, Transfer> open_;
  std::vector<std::string> violations_;
};

}  // namespace baton
