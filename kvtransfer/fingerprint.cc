#include "kvtransfer/fingerprint.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace baton::kvtransfer {
namespace {

class FieldComparison {
 public:
  FieldComparison(std::string_view sender, std::string_view receiver)
      : sender_(sender), receiver_(receiver) {}
  template <class T>
  void Compare(const char* field, const T& sender, const T& receiver) {
    if (sender == receiver) return;
    differences_.push_back(
        absl::StrCat(field, " is ", sender, " at ", sender_, " and ", receiver, " at ", receiver_));
  }
  const std::vector<std::string>& differences() const { return differences_; }

 private:
  std::string sender_;
  std::string receiver_;
  std::vector<std::string> differences_;
};

std::string Describe(const std::vector<std::int32_t>& windows) {
  return windows.empty() ? "none" : absl::StrJoin(windows, ",");
}

}  // namespace

absl::Status CheckFingerprints(const KvSide& sender, const KvSide& receiver) {
  const ModelFingerprint& sent = sender.fingerprint;
  const ModelFingerprint& wanted = receiver.fingerprint;
  FieldComparison fields(sender.name, receiver.name);
  fields.Compare("model", sent.model, wanted.model);
  fields.Compare("compute", sent.compute, wanted.compute);
  fields.Compare("kv_dtype", sent.kv_dtype, wanted.kv_dtype);
  fields.Compare("num_layers", sent.num_layers, wanted.num_layers);
  fields.Compare("num_kv_heads", sent.num_kv_heads, wanted.num_kv_heads);
  fields.Compare("head_dim", sent.head_dim, wanted.head_dim);
  fields.Compare("windows", Describe(sent.windows), Describe(wanted.windows));
  if (fields.differences().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("model fingerprints differ: ", absl::StrJoin(fields.differences(), "; "),
                   "; start both workers with the same model and settings"));
}

absl::Status CheckCuts(const KvSide& sender, const KvSide& receiver) {
  for (const KvSide* side : {&sender, &receiver}) {
    const auto& [block_size, ranks] = side->cut;
    if (ranks < 1 || ranks > kMaxTensorParallelSize) {
      return absl::FailedPreconditionError(
          absl::StrFormat("tensor-parallel size out of range: %d at %s, must be 1..%d", ranks,
                          side->name, kMaxTensorParallelSize));
    }
    if (block_size < 1 || block_size > kMaxKvBlockSize) {
      return absl::FailedPreconditionError(
          absl::StrFormat("KV block size out of range: %d tokens at %s, must be 1..%d", block_size,
                          side->name, kMaxKvBlockSize));
    }
  }
  if (CutsFit(sender.cut, receiver.cut)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("KV block sizes do not fit: %d tokens at %s, %d at %s; make one a multiple "
                      "of the other",
                      sender.cut.block_size, sender.name, receiver.cut.block_size, receiver.name));
}

absl::Status CheckSides(const KvSide& sender, const KvSide& receiver) {
  BATON_RETURN_IF_ERROR(CheckFingerprints(sender, receiver));
  return CheckCuts(sender, receiver);
}

}  // namespace baton::kvtransfer
