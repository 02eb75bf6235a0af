#include "kvtransfer/fingerprint.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

absl::Status CheckFingerprints(std::string_view sender_name, const ModelFingerprint& sender,
                               std::string_view receiver_name, const ModelFingerprint& receiver) {
  FieldComparison fields(sender_name, receiver_name);
  fields.Compare("model", sender.model, receiver.model);
  fields.Compare("compute", sender.compute, receiver.compute);
  fields.Compare("kv_dtype", sender.kv_dtype, receiver.kv_dtype);
  fields.Compare("num_layers", sender.num_layers, receiver.num_layers);
  fields.Compare("num_kv_heads", sender.num_kv_heads, receiver.num_kv_heads);
  fields.Compare("head_dim", sender.head_dim, receiver.head_dim);
  fields.Compare("block_size", sender.block_size, receiver.block_size);
  fields.Compare("windows", Describe(sender.windows), Describe(receiver.windows));
  if (fields.differences().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("model fingerprints differ: ", absl::StrJoin(fields.differences(), "; "),
                   "; start both workers with the same model and settings"));
}

}  // namespace baton::kvtransfer
