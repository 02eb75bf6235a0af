#include "checkpoint/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/byte_reader.h"
#include "checkpoint/printable.h"
#include "common/status.h"

namespace baton::checkpoint {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kLargestAlignment = 1 << 20;
constexpr std::uint32_t kMostDimensions = 4;  // GGML_MAX_DIMS
// The least bytes that one entry of each list takes; a count above remaining / least is a lie.
constexpr std::uint64_t kLeastPairBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr std::uint64_t kLeastStringBytes = 8;
// Entries given memory before they are read: a count that passes the test above may still be a lie.
constexpr std::uint64_t kMostReserved = 1 << 18;

// Tensor types by ggml's number (enum ggml_type), with the sizes of their blocks.
struct StoredType {
  std::uint32_t id;
  std::string_view name;
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
  std::optional<DType> dtype;
};

constexpr StoredType kStoredTypes[] = {
    {0, "F32", 1, 4, DType::kF32},          {1, "F16", 1, 2, DType::kF16},
    {2, "Q4_0", 32, 18, DType::kQ4_0},      {3, "Q4_1", 32, 20, DType::kQ4_1},
    {6, "Q5_0", 32, 22, DType::kQ5_0},      {7, "Q5_1", 32, 24, DType::kQ5_1},
    {8, "Q8_0", 32, 34, DType::kQ8_0},      {9, "Q8_1", 32, 36, std::nullopt},
    {10, "Q2_K", 256, 84, DType::kQ2_K},    {11, "Q3_K", 256, 110, DType::kQ3_K},
    {12, "Q4_K", 256, 144, DType::kQ4_K},   {13, "Q5_K", 256, 176, DType::kQ5_K},
    {14, "Q6_K", 256, 210, DType::kQ6_K},   {15, "Q8_K", 256, 292, std::nullopt},
    {16, "IQ2_XXS", 256, 66, std::nullopt}, {17, "IQ2_XS", 256, 74, std::nullopt},
    {18, "IQ3_XXS", 256, 98, std::nullopt}, {19, "IQ1_S", 256, 50, std::nullopt},
    {20, "IQ4_NL", 32, 18, DType::kIQ4_NL}, {21, "IQ3_S", 256, 110, std::nullopt},
    {22, "IQ2_S", 256, 82, std::nullopt},   {23, "IQ4_XS", 256, 136, DType::kIQ4_XS},
    {24, "I8", 1, 1, std::nullopt},         {25, "I16", 1, 2, std::nullopt},
    {26, "I32", 1, 4, std::nullopt},        {27, "I64", 1, 8, std::nullopt},
    {28, "F64", 1, 8, std::nullopt},        {29, "IQ1_M", 256, 56, std::nullopt},
    {30, "BF16", 1, 2, DType::kBF16},       {34, "TQ1_0", 256, 54, std::nullopt},
    {35, "TQ2_0", 256, 66, std::nullopt},   {39, "MXFP4", 32, 17, DType::kMXFP4},
};

const StoredType* FindType(std::uint32_t id) {
  for (const StoredType& type : kStoredTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

absl::Status CheckCount(std::uint64_t count, std::uint64_t least_bytes, std::size_t remaining,
                        absl::string_view what) {
  if (count <= remaining / least_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s count cannot be: %d in the %d bytes left; the file is truncated or "
                      "damaged, download it again",
                      what, count, remaining));
}

absl::StatusOr<GgufArray> ReadArray(ByteReader& reader) {
  GgufArray array;
  BATON_ASSIGN_OR_RETURN(const std::uint32_t element, reader.Read<std::uint32_t>());
  BATON_ASSIGN_OR_RETURN(const std::uint64_t count, reader.Read<std::uint64_t>());
  array.element = static_cast<GgufType>(element);
  if (array.element == GgufType::kString) {
    BATON_RETURN_IF_ERROR(CheckCount(count, kLeastStringBytes, reader.remaining(), "array"));
    array.strings.reserve(std::min<std::uint64_t>(count, kMostReserved));
    for (std::uint64_t i = 0; i < count; ++i) {
      BATON_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
      array.strings.push_back(text);
    }
  } else {
    const std::size_t size = GgufScalarBytes(array.element);
    if (size == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("array of unknown element type ", element, "; nested arrays are not read"));
    }
    BATON_RETURN_IF_ERROR(CheckCount(count, size, reader.remaining(), "array"));
    BATON_ASSIGN_OR_RETURN(array.numbers, reader.ReadBytes(count * size));
  }
  array.count = count;
  return array;
}

absl::StatusOr<GgufValue> ReadValue(ByteReader& reader) {
  BATON_ASSIGN_OR_RETURN(const std::uint32_t number, reader.Read<std::uint32_t>());
  const auto type = static_cast<GgufType>(number);
  if (type == GgufType::kString) {
    BATON_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
    return GgufValue(text);
  }
  if (type == GgufType::kArray) {
    BATON_ASSIGN_OR_RETURN(GgufArray array, ReadArray(reader));
    return GgufValue(std::move(array));
  }
  const std::size_t size = GgufScalarBytes(type);
  if (size == 0) {
    return absl::InvalidArgumentError(absl::StrCat("unknown value type ", number));
  }
  BATON_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, reader.ReadBytes(size));
  return LoadGgufScalar(type, bytes, 0);
}

absl::Status ReadMetadata(ByteReader& reader, std::uint64_t count, GgufMetadata& metadata) {
  BATON_RETURN_IF_ERROR(CheckCount(count, kLeastPairBytes, reader.remaining(), "metadata"));
  for (std::uint64_t i = 0; i < count; ++i) {
    absl::StatusOr<std::string_view> key = reader.ReadString();
    if (!key.ok()) return Annotate(key.status(), absl::StrCat("metadata key ", i));
    absl::StatusOr<GgufValue> value = ReadValue(reader);
    if (!value.ok()) return Annotate(value.status(), absl::StrCat("metadata ", Quoted(*key)));
    if (!metadata.Add(*key, *std::move(value))) {
      return absl::InvalidArgumentError(absl::StrCat("metadata key given twice: ", Quoted(*key)));
    }
  }
  return absl::OkStatus();
}

// What the list says about one tensor; its place is checked once the list's end is known.
struct ListedTensor {
  std::string_view name;
  StoredTensor tensor;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

absl::Status ReadShape(ByteReader& reader, std::vector<std::int64_t>& shape) {
  BATON_ASSIGN_OR_RETURN(const std::uint32_t dimensions, reader.Read<std::uint32_t>());
  if (dimensions < 1 || dimensions > kMostDimensions) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d dimensions, must be 1..%d", dimensions, kMostDimensions));
  }
  shape.resize(dimensions);
  for (std::uint32_t i = 0; i < dimensions; ++i) {  // the file lists the innermost size first
    BATON_ASSIGN_OR_RETURN(shape[dimensions - 1 - i], reader.Read<std::int64_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadTypeAndPlace(ByteReader& reader, ListedTensor& listed) {
  StoredTensor& tensor = listed.tensor;
  BATON_RETURN_IF_ERROR(ReadShape(reader, tensor.shape));
  BATON_ASSIGN_OR_RETURN(const std::uint32_t type_id, reader.Read<std::uint32_t>());
  BATON_ASSIGN_OR_RETURN(listed.offset, reader.Read<std::uint64_t>());
  const StoredType* type = FindType(type_id);
  if (type == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("unknown tensor type ", type_id, "; supported: ", SupportedDTypes()));
  }
  tensor.dtype = type->dtype;
  tensor.type_name = std::string(type->name);
  const std::optional<std::int64_t> elements = ElementCount(tensor.shape);
  if (!elements.has_value() || *elements > std::numeric_limits<std::int64_t>::max() / 512) {
    return absl::InvalidArgumentError(
        absl::StrCat("impossible shape: ", ShapeText(tensor.shape), "; the file is damaged"));
  }
  if (tensor.shape.back() % type->block_elements != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rows are not whole blocks: %d columns, %s has blocks of %d",
                        tensor.shape.back(), tensor.type_name, type->block_elements));
  }
  listed.bytes = static_cast<std::uint64_t>(*elements) / type->block_elements * type->block_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ListedTensor>> ReadTensorList(ByteReader& reader, std::uint64_t count) {
  BATON_RETURN_IF_ERROR(CheckCount(count, kLeastTensorBytes, reader.remaining(), "tensor"));
  std::vector<ListedTensor> list;
  for (std::uint64_t i = 0; i < count; ++i) {
    absl::StatusOr<std::string_view> name = reader.ReadString();
    if (!name.ok()) return Annotate(name.status(), absl::StrCat("name of tensor ", i));
    ListedTensor& listed = list.emplace_back();
    listed.name = *name;
    const absl::Status status = ReadTypeAndPlace(reader, listed);
    if (!status.ok()) return Annotate(status, absl::StrCat("tensor ", Quoted(*name)));
  }
  return list;
}

// Gives every listed tensor its bytes in `section`, the part of the file behind the header.
absl::Status PlaceTensors(std::vector<ListedTensor> list, std::span<const std::byte> section,
                          std::uint64_t alignment, StoredTensors& tensors) {
  for (ListedTensor& listed : list) {
    const auto fail = [&](const std::string& message) {
      return Annotate(absl::InvalidArgumentError(message),
                      absl::StrCat("tensor ", Quoted(listed.name)));
    };
    if (listed.offset % alignment != 0) {
      return fail(absl::StrFormat("misaligned data: offset %d, must be a multiple of %d",
                                  listed.offset, alignment));
    }
    if (listed.offset > section.size() || listed.bytes > section.size() - listed.offset) {
      return fail(absl::StrFormat(
          "data lies outside the file: %d bytes at offset %d of %d bytes of tensor data; the file "
          "is truncated or damaged, download it again",
          listed.bytes, listed.offset, section.size()));
    }
    listed.tensor.data = section.subspan(listed.offset, listed.bytes);
    if (!tensors.emplace(std::string(listed.name), std::move(listed.tensor)).second) {
      return fail("name given twice; the file is damaged");
    }
  }
  return CheckNoOverlap(tensors);
}

absl::StatusOr<std::uint64_t> Alignment(const GgufMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(const std::optional<std::int64_t> stated,
                         metadata.Integer("general.alignment"));
  if (!stated.has_value()) return kDefaultAlignment;
  const auto alignment = static_cast<std::uint64_t>(*stated);
  if (*stated < 1 || alignment > kLargestAlignment || !std::has_single_bit(alignment)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("general.alignment out of range: %d, must be a power of two up to %d",
                        *stated, kLargestAlignment));
  }
  return alignment;
}

absl::Status CheckMagicAndVersion(ByteReader& reader, std::uint32_t& version) {
  absl::StatusOr<std::uint32_t> magic = reader.Read<std::uint32_t>();
  if (!magic.ok() || *magic != kMagic) {
    return absl::InvalidArgumentError(
        "not a GGUF file: it does not begin with 'GGUF'; give a .gguf file or the directory of a "
        "Hugging Face model");
  }
  BATON_ASSIGN_OR_RETURN(version, reader.Read<std::uint32_t>());
  if (version == 2 || version == 3) return absl::OkStatus();
  if ((version & 0xFFFFu) == 0 && version != 0) {
    return absl::FailedPreconditionError(
        "big-endian GGUF is not read; convert it with gguf-py's gguf_convert_endian.py");
  }
  return absl::FailedPreconditionError(absl::StrCat("GGUF version not read: ", version,
                                                    ", must be 2 or 3; convert the model again"));
}

}  // namespace

absl::StatusOr<GgufFile> ParseGguf(std::span<const std::byte> bytes) {
  GgufFile file;
  ByteReader reader(bytes);
  BATON_RETURN_IF_ERROR(CheckMagicAndVersion(reader, file.version));
  BATON_ASSIGN_OR_RETURN(const std::uint64_t num_tensors, reader.Read<std::uint64_t>());
  BATON_ASSIGN_OR_RETURN(const std::uint64_t num_pairs, reader.Read<std::uint64_t>());
  BATON_RETURN_IF_ERROR(ReadMetadata(reader, num_pairs, file.metadata));
  BATON_ASSIGN_OR_RETURN(const std::uint64_t alignment, Alignment(file.metadata));
  BATON_ASSIGN_OR_RETURN(std::vector<ListedTensor> list, ReadTensorList(reader, num_tensors));
  // Tensor data begins at the next multiple of the alignment; a file without any may end before.
  const std::uint64_t start = (reader.offset() + alignment - 1) / alignment * alignment;
  const std::span<const std::byte> section =
      start < bytes.size() ? bytes.subspan(start) : std::span<const std::byte>();
  BATON_RETURN_IF_ERROR(PlaceTensors(std::move(list), section, alignment, file.tensors));
  return file;
}

}  // namespace baton::checkpoint
