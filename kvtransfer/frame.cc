#include "kvtransfer/frame.h"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "baton/v1/kv_transfer.pb.h"
#include "common/check.h"
#include "kvtransfer/crc32c.h"

namespace baton::kvtransfer {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written as they lie");

constexpr std::uint32_t kMagic = 0x31564b42;  // "BKV1"
constexpr std::uint8_t kDataType = 128;
constexpr std::uint8_t kChecksummedFlag = 1;
constexpr std::size_t kMaxStatusMessageBytes = 2048;

// Control types are 1 + the index in Message::body.
constexpr std::uint8_t kNumControlTypes = std::variant_size_v<decltype(Message::body)>;

template <class T>
void Store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}
template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

void EncodeHeader(std::uint8_t type, const DataHeader& data, std::uint32_t body_bytes,
                  std::uint32_t body_checksum, std::byte* out) {
  std::memset(out, 0, kFrameHeaderBytes);
  Store(out, kMagic);
  Store(out + 4, type);
  Store(out + 5, data.checksummed ? kChecksummedFlag : std::uint8_t{0});
  Store(out + 6, data.rank);
  Store(out + 8, data.transfer_id);
  Store(out + 16, data.incarnation);
  Store(out + 24, data.layer);
  Store(out + 28, data.first_block);
  Store(out + 32, data.num_blocks);
  Store(out + 36, body_bytes);
  Store(out + 40, body_checksum);
  Store(out + 44, Crc32c(0, out, 44));
}

void ToProto(const ModelFingerprint& from, v1::KvFingerprint* to) {
  to->set_model(from.model);
  to->set_compute(from.compute);
  to->set_kv_dtype(from.kv_dtype);
  to->set_num_layers(from.num_layers);
  to->set_num_kv_heads(from.num_kv_heads);
  to->set_head_dim(from.head_dim);
  to->mutable_windows()->Assign(from.windows.begin(), from.windows.end());
}

void ToProto(const KvCut& from, v1::KvLinkCut* to) {
  to->set_block_size(from.block_size);
  to->set_tensor_parallel_size(from.tensor_parallel_size);
}

KvCut FromProto(const v1::KvLinkCut& from) {
  return {.block_size = from.block_size(), .tensor_parallel_size = from.tensor_parallel_size()};
}

ModelFingerprint FromProto(const v1::KvFingerprint& from) {
  return {.model = from.model(),
          .compute = from.compute(),
          .kv_dtype = from.kv_dtype(),
          .num_layers = from.num_layers(),
          .num_kv_heads = from.num_kv_heads(),
          .head_dim = from.head_dim(),
          .windows = {from.windows().begin(), from.windows().end()}};
}

std::string ValidUtf8Prefix(std::string_view text) {
  std::string out(text.substr(0, kMaxStatusMessageBytes));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';  // protobuf strings must be UTF-8
  }
  return out;
}

std::string EncodeFailure(const absl::Status& why) {
  v1::KvFailure failure;
  failure.set_code(why.ok() ? static_cast<int>(absl::StatusCode::kInternal) : why.raw_code());
  failure.set_message(
      ValidUtf8Prefix(std::string_view(why.message().data(), why.message().size())));
  return failure.SerializeAsString();
}

struct BodyEncoder {
  std::string operator()(const Hello& hello) const {
    v1::KvHello out;
    out.set_protocol_version(hello.protocol_version);
    out.set_worker_id(hello.worker_id);
    out.set_incarnation(hello.incarnation);
    out.set_expected_worker_id(hello.expected_worker_id);
    out.set_expected_incarnation(hello.expected_incarnation);
    ToProto(hello.fingerprint, out.mutable_fingerprint());
    ToProto(hello.cut, out.mutable_cut());
    out.mutable_host()->set_boot_id(hello.host.boot_id);
    out.mutable_host()->set_ipc_namespace(hello.host.ipc_namespace);
    out.mutable_host()->set_mount_namespace(hello.host.mount_namespace);
    if (!hello.ring.path.empty()) {
      out.mutable_ring()->set_path(hello.ring.path);
      out.mutable_ring()->set_nonce(hello.ring.nonce);
    }
    out.set_side_channel(hello.side_channel);
    return out.SerializeAsString();
  }
  std::string operator()(const Welcome& welcome) const {
    v1::KvWelcome out;
    out.set_protocol_version(welcome.protocol_version);
    out.set_worker_id(welcome.worker_id);
    out.set_incarnation(welcome.incarnation);
    out.set_transport(welcome.transport);
    out.set_transport_reason(ValidUtf8Prefix(welcome.transport_reason));
    ToProto(welcome.cut, out.mutable_cut());
    return out.SerializeAsString();
  }
  std::string operator()(const BeginTransfer& begin) const {
    v1::KvBegin out;
    out.set_num_layers(begin.num_layers);
    out.set_num_blocks(begin.num_blocks);
    return out.SerializeAsString();
  }
  std::string operator()(const FinishTransfer& finish) const {
    v1::KvFinish out;
    out.set_num_blocks(finish.num_blocks);
    out.set_token(finish.record.first_token.token);
    out.set_logprob(finish.record.first_token.logprob);
    for (const TokenLogprob& top : finish.record.first_token.top) {
      v1::KvTokenLogprob* entry = out.add_top();
      entry->set_token(top.token);
      entry->set_logprob(top.logprob);
    }
    out.set_finish_reason(static_cast<int>(finish.record.finish));
    return out.SerializeAsString();
  }
  std::string operator()(const AbortTransfer& abort) const { return EncodeFailure(abort.why); }
  std::string operator()(const Refused& refused) const { return EncodeFailure(refused.why); }
  std::string operator()(const RenewLease&) const { return {}; }
  std::string operator()(const Acknowledged&) const { return {}; }
  std::string operator()(const LeaseRenewed&) const { return {}; }
  std::string operator()(const OpenPair& open) const {
    v1::KvOpenPair out;
    out.set_source_rank(open.source_rank);
    out.set_destination_rank(open.destination_rank);
    out.set_id(open.id);
    return out.SerializeAsString();
  }
  std::string operator()(const ClosePairs&) const { return {}; }
  std::string operator()(const AnnounceBlocks& announced) const {
    v1::KvAnnounceBlocks out;
    out.set_source_rank(announced.source_rank);
    out.set_layer(announced.layer);
    out.set_first_block(announced.first_block);
    out.set_num_blocks(announced.num_blocks);
    out.set_direct(announced.direct);
    return out.SerializeAsString();
  }
};

// The decoders fill `to` from a parsed body; false when a value is out of its range.
bool Fill(const v1::KvHello& from, Hello* to) {
  *to = {.protocol_version = from.protocol_version(),
         .worker_id = from.worker_id(),
         .incarnation = from.incarnation(),
         .expected_worker_id = from.expected_worker_id(),
         .expected_incarnation = from.expected_incarnation(),
         .fingerprint = FromProto(from.fingerprint()),
         .cut = FromProto(from.cut()),
         .host = {.boot_id = from.host().boot_id(),
                  .ipc_namespace = from.host().ipc_namespace(),
                  .mount_namespace = from.host().mount_namespace()},
         .ring = {.path = from.ring().path(), .nonce = from.ring().nonce()},
         .side_channel = from.side_channel()};
  return true;
}

bool Fill(const v1::KvWelcome& from, Welcome* to) {
  *to = {.protocol_version = from.protocol_version(),
         .worker_id = from.worker_id(),
         .incarnation = from.incarnation(),
         .transport = from.transport(),
         .transport_reason = from.transport_reason(),
         .cut = FromProto(from.cut())};
  return true;
}

bool Fill(const v1::KvBegin& from, BeginTransfer* to) {
  *to = {.num_layers = from.num_layers(), .num_blocks = from.num_blocks()};
  return true;
}

bool Fill(const v1::KvFinish& from, FinishTransfer* to) {
  if (from.finish_reason() < 0 || from.finish_reason() > static_cast<int>(FinishReason::kLength)) {
    return false;
  }
  to->num_blocks = from.num_blocks();
  to->record.finish = static_cast<FinishReason>(from.finish_reason());
  to->record.first_token.token = from.token();
  to->record.first_token.logprob = from.logprob();
  for (const v1::KvTokenLogprob& top : from.top()) {
    to->record.first_token.top.push_back({.token = top.token(), .logprob = top.logprob()});
  }
  return true;
}

bool Fill(const v1::KvOpenPair& from, OpenPair* to) {
  *to = {.source_rank = from.source_rank(),
         .destination_rank = from.destination_rank(),
         .id = from.id()};
  return from.id().size() <= kMaxPairIdBytes;
}

bool Fill(const v1::KvAnnounceBlocks& from, AnnounceBlocks* to) {
  *to = {.source_rank = from.source_rank(),
         .layer = from.layer(),
         .first_block = from.first_block(),
         .num_blocks = from.num_blocks(),
         .direct = from.direct()};
  return from.source_rank() >= 0 && from.source_rank() < kMaxTensorParallelSize &&
         from.layer() >= 0 && from.first_block() >= 0 && from.num_blocks() >= 1 &&
         from.num_blocks() <= kMaxBlocksPerFrame &&
         from.first_block() <= std::numeric_limits<std::int32_t>::max() - from.num_blocks();
}

bool Fill(const v1::KvFailure& from, absl::Status* to) {
  if (from.code() <= 0 || from.code() > 16) return false;
  *to = absl::Status(static_cast<absl::StatusCode>(from.code()), from.message());
  return true;
}

template <class Proto, class Target>
bool Parse(std::span<const std::byte> body, Target* to) {
  Proto proto;
  return proto.ParseFromArray(body.data(), static_cast<int>(body.size())) && Fill(proto, to);
}

struct BodyDecoder {
  std::span<const std::byte> body;
  bool operator()(Hello& to) const { return Parse<v1::KvHello>(body, &to); }
  bool operator()(Welcome& to) const { return Parse<v1::KvWelcome>(body, &to); }
  bool operator()(BeginTransfer& to) const { return Parse<v1::KvBegin>(body, &to); }
  bool operator()(FinishTransfer& to) const { return Parse<v1::KvFinish>(body, &to); }
  bool operator()(AbortTransfer& to) const { return Parse<v1::KvFailure>(body, &to.why); }
  bool operator()(Refused& to) const { return Parse<v1::KvFailure>(body, &to.why); }
  bool operator()(RenewLease&) const { return body.empty(); }
  bool operator()(Acknowledged&) const { return body.empty(); }
  bool operator()(LeaseRenewed&) const { return body.empty(); }
  bool operator()(OpenPair& to) const { return Parse<v1::KvOpenPair>(body, &to); }
  bool operator()(ClosePairs&) const { return body.empty(); }
  bool operator()(AnnounceBlocks& to) const { return Parse<v1::KvAnnounceBlocks>(body, &to); }
};

// Makes `body` hold a default value of the alternative with this index.
template <std::size_t I = 0>
void EmplaceIndex(std::size_t index, decltype(Message::body)* body) {
  if constexpr (I < kNumControlTypes) {
    if (index == I) {
      body->emplace<I>();
    } else {
      EmplaceIndex<I + 1>(index, body);
    }
  }
}

}  // namespace

std::array<std::byte, kFrameHeaderBytes> EncodeDataHeader(const DataHeader& header,
                                                          std::size_t block_bytes) {
  const std::size_t body =
      header.num_blocks * (block_bytes + (header.checksummed ? sizeof(std::uint32_t) : 0));
  std::array<std::byte, kFrameHeaderBytes> out;
  EncodeHeader(kDataType, header, static_cast<std::uint32_t>(body), 0, out.data());
  return out;
}

std::string EncodeMessage(const Message& message) {
  const std::string body = std::visit(BodyEncoder{}, message.body);
  BATON_CHECK(body.size() <= kMaxControlBodyBytes, "a control frame outgrew its bound");
  std::string frame(kFrameHeaderBytes, '\0');
  DataHeader ids{.transfer_id = message.transfer_id, .incarnation = message.incarnation};
  EncodeHeader(static_cast<std::uint8_t>(1 + message.body.index()), ids,
               static_cast<std::uint32_t>(body.size()), Crc32c(0, body.data(), body.size()),
               reinterpret_cast<std::byte*>(frame.data()));
  return frame + body;
}

std::uint32_t BlockChecksumSeed(const DataHeader& header, int index) {
  const std::int64_t identity[] = {static_cast<std::int64_t>(header.transfer_id),
                                   static_cast<std::int64_t>(header.incarnation), header.rank,
                                   header.layer, header.first_block + index};
  return Crc32c(0, identity, sizeof(identity));
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes) {
    return absl::DataLossError(absl::StrFormat("KV frame truncated: %d bytes, header has %d",
                                               bytes.size(), kFrameHeaderBytes));
  }
  const std::byte* at = bytes.data();
  if (Load<std::uint32_t>(at) != kMagic) {
    return absl::DataLossError("not a KV frame: wrong magic number");
  }
  if (Load<std::uint32_t>(at + 44) != Crc32c(0, at, 44)) {
    return absl::DataLossError("KV frame header damaged: checksum does not match");
  }
  FrameHeader header;
  header.type = Load<std::uint8_t>(at + 4);
  header.is_data = header.type == kDataType;
  const auto flags = Load<std::uint8_t>(at + 5);
  header.data = {.transfer_id = Load<std::uint64_t>(at + 8),
                 .incarnation = Load<std::uint64_t>(at + 16),
                 .rank = Load<std::uint16_t>(at + 6),
                 .layer = Load<std::int32_t>(at + 24),
                 .first_block = Load<std::int32_t>(at + 28),
                 .num_blocks = Load<std::int32_t>(at + 32),
                 .checksummed = (flags & kChecksummedFlag) != 0};
  header.body_bytes = Load<std::uint32_t>(at + 36);
  header.body_checksum = Load<std::uint32_t>(at + 40);
  const bool known = header.is_data || (header.type >= 1 && header.type <= kNumControlTypes);
  if (!known || (flags & ~kChecksummedFlag) != 0 || header.data.layer < 0 ||
      header.data.first_block < 0 || header.data.num_blocks < 0 ||
      header.data.num_blocks > std::numeric_limits<std::int32_t>::max() - header.data.first_block) {
    return absl::DataLossError(absl::StrFormat(
        "KV frame of unknown kind: type %d, flags %d; do both workers run the same version?",
        header.type, flags));
  }
  return header;
}

absl::StatusOr<Message> DecodeMessage(const FrameHeader& header, std::span<const std::byte> body) {
  if (header.is_data || header.body_bytes != body.size() || body.size() > kMaxControlBodyBytes) {
    return absl::DataLossError(absl::StrFormat("KV control frame has %d bytes, header says %d",
                                               body.size(), header.body_bytes));
  }
  if (Crc32c(0, body.data(), body.size()) != header.body_checksum) {
    return absl::DataLossError("KV control frame damaged: checksum does not match");
  }
  Message message{
      .transfer_id = header.data.transfer_id, .incarnation = header.data.incarnation, .body = {}};
  EmplaceIndex(header.type - 1, &message.body);
  if (!std::visit(BodyDecoder{body}, message.body)) {
    return absl::DataLossError(
        absl::StrFormat("KV control frame of type %d cannot be parsed", header.type));
  }
  return message;
}

}  // namespace baton::kvtransfer
