#include "checkpoint/safetensors_file.h"

#include <simdjson.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/byte_reader.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

namespace dom = simdjson::dom;

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr std::size_t kMostDimensions = 4;
constexpr std::string_view kMetadataKey = "__metadata__";

struct ElementType {
  std::string_view name;
  std::int64_t bytes;
  std::optional<DType> dtype;
};

constexpr ElementType kElementTypes[] = {
    {"F32", 4, DType::kF32},      {"F16", 2, DType::kF16},      {"BF16", 2, DType::kBF16},
    {"F64", 8, std::nullopt},     {"I64", 8, std::nullopt},     {"I32", 4, std::nullopt},
    {"I16", 2, std::nullopt},     {"I8", 1, std::nullopt},      {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},     {"U16", 2, std::nullopt},     {"U8", 1, std::nullopt},
    {"F8_E4M3", 1, std::nullopt}, {"F8_E5M2", 1, std::nullopt}, {"BOOL", 1, std::nullopt},
};

const ElementType* FindType(std::string_view name) {
  for (const ElementType& type : kElementTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed entry: ", what));
}

// Natural numbers of an array with at most `most` entries.
absl::StatusOr<std::vector<std::int64_t>> ReadNaturals(dom::element value, std::size_t most,
                                                       const char* what) {
  dom::array array;
  if (value.get(array) != simdjson::SUCCESS || array.size() > most) {
    return Malformed(absl::StrCat(what, " must be an array of at most ", most, " numbers"));
  }
  std::vector<std::int64_t> numbers;
  for (const dom::element item : array) {
    std::int64_t number = 0;
    if (item.get(number) != simdjson::SUCCESS || number < 0) {
      return Malformed(absl::StrCat(what, " must hold natural numbers"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

struct Entry {
  const ElementType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

absl::StatusOr<Entry> ReadEntry(dom::element value) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return Malformed("must be an object");
  dom::element dtype, shape, offsets;
  std::string_view type_name;
  if (object.at_key("dtype").get(dtype) != simdjson::SUCCESS ||
      dtype.get(type_name) != simdjson::SUCCESS) {
    return Malformed("dtype must be a string");
  }
  if (object.at_key("shape").get(shape) != simdjson::SUCCESS) return Malformed("has no shape");
  if (object.at_key("data_offsets").get(offsets) != simdjson::SUCCESS) {
    return Malformed("has no data_offsets");
  }
  Entry entry;
  entry.type = FindType(type_name);
  if (entry.type == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("unknown element type ", Quoted(type_name), "; supported: F32, F16, BF16"));
  }
  BATON_ASSIGN_OR_RETURN(entry.shape, ReadNaturals(shape, kMostDimensions, "shape"));
  BATON_ASSIGN_OR_RETURN(const std::vector<std::int64_t> range,
                         ReadNaturals(offsets, 2, "data_offsets"));
  if (range.size() != 2) return Malformed("data_offsets must hold two numbers");
  entry.begin = static_cast<std::uint64_t>(range[0]);
  entry.end = static_cast<std::uint64_t>(range[1]);
  return entry;
}

// The entry's bytes in `section`, the data part of the file, which begins at `section_offset`.
absl::StatusOr<StoredTensor> PlaceTensor(Entry entry, std::span<const std::byte> section,
                                         std::size_t section_offset) {
  if (entry.begin > entry.end || entry.end > section.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data lies outside the file: offsets [%d, %d] of %d bytes of tensor data; the file is "
        "truncated or damaged, download it again",
        entry.begin, entry.end, section.size()));
  }
  if (entry.shape.empty()) entry.shape = {1};  // a scalar
  const std::optional<std::int64_t> elements = ElementCount(entry.shape);
  const std::uint64_t bytes = entry.end - entry.begin;
  if (!elements.has_value() ||
      *elements > std::numeric_limits<std::int64_t>::max() / entry.type->bytes ||
      static_cast<std::uint64_t>(*elements * entry.type->bytes) != bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data size disagrees with the shape: %d bytes for %s of %s", bytes,
                        ShapeText(entry.shape), std::string(entry.type->name)));
  }
  if ((section_offset + entry.begin) % static_cast<std::uint64_t>(entry.type->bytes) != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "misaligned data: file offset %d, must be a multiple of %d; save the model again with a "
        "current safetensors library",
        section_offset + entry.begin, entry.type->bytes));
  }
  StoredTensor tensor;
  tensor.dtype = entry.type->dtype;
  tensor.type_name = std::string(entry.type->name);
  tensor.shape = std::move(entry.shape);
  tensor.data = section.subspan(entry.begin, bytes);
  return tensor;
}

absl::StatusOr<StoredTensors> ReadEntries(dom::object header, std::span<const std::byte> section,
                                          std::size_t section_offset) {
  StoredTensors tensors;
  std::uint64_t total = 0;
  for (const dom::key_value_pair field : header) {
    if (field.key == kMetadataKey) continue;  // free text about the file
    const auto annotate = [&](const absl::Status& status) {
      return Annotate(status, absl::StrCat("tensor ", Quoted(field.key)));
    };
    absl::StatusOr<Entry> entry = ReadEntry(field.value);
    if (!entry.ok()) return annotate(entry.status());
    absl::StatusOr<StoredTensor> tensor = PlaceTensor(*std::move(entry), section, section_offset);
    if (!tensor.ok()) return annotate(tensor.status());
    total += tensor->data.size();
    if (!tensors.emplace(std::string(field.key), *std::move(tensor)).second) {
      return annotate(absl::InvalidArgumentError("name given twice; the file is damaged"));
    }
  }
  BATON_RETURN_IF_ERROR(CheckNoOverlap(tensors));
  // Without overlaps, equal sums mean that no byte is left out, as the format demands.
  if (total != section.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor data has holes: %d bytes, tensors take %d; download the file again",
                        section.size(), total));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<StoredTensors> ParseSafetensors(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  BATON_ASSIGN_OR_RETURN(const std::uint64_t length, reader.Read<std::uint64_t>());
  if (length > kMostHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "not a safetensors file: header of %d bytes, limit %d", length, kMostHeaderBytes));
  }
  BATON_ASSIGN_OR_RETURN(const std::span<const std::byte> json, reader.ReadBytes(length));
  dom::parser parser;
  dom::object header;
  // Copies the text, since the parser reads some bytes past its end.
  const simdjson::error_code error =
      parser.parse(reinterpret_cast<const char*>(json.data()), json.size()).get(header);
  if (error != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat(
        "header is not a JSON object: ", simdjson::error_message(error), "; the file is damaged"));
  }
  return ReadEntries(header, bytes.subspan(reader.offset()), reader.offset());
}

}  // namespace baton::checkpoint
