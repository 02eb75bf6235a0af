#include "checkpoint/stored_tensor.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "checkpoint/printable.h"

namespace baton::checkpoint {

std::optional<std::int64_t> ElementCount(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 1 || size > std::numeric_limits<std::int64_t>::max() / count) return std::nullopt;
    count *= size;
  }
  return count;
}

absl::Status CheckNoOverlap(const StoredTensors& tensors) {
  std::vector<StoredTensors::const_pointer> in_file_order;
  in_file_order.reserve(tensors.size());
  for (const auto& entry : tensors) in_file_order.push_back(&entry);
  std::sort(in_file_order.begin(), in_file_order.end(), [](const auto* a, const auto* b) {
    return a->second.data.data() < b->second.data.data();
  });
  for (std::size_t i = 1; i < in_file_order.size(); ++i) {
    const auto& [name, tensor] = *in_file_order[i - 1];
    const auto& [next_name, next] = *in_file_order[i];
    if (tensor.data.data() + tensor.data.size() > next.data.data()) {
      return absl::InvalidArgumentError(absl::StrCat("tensors overlap: ", Quoted(name), " and ",
                                                     Quoted(next_name), "; the file is damaged"));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::checkpoint
