#include "session/convert.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "absl/strings/str_cat.h"

namespace baton::session {
namespace {

// Draws messages with every field set, within what FromProto accepts.
class RandomMessages {
 public:
  explicit RandomMessages(unsigned seed) : random_(seed) {}

  WorkerMessage Worker() {
    switch (random_() % 7) {
      case 0:
        return Hello{Id(),   random_(), Role(), Fingerprint(), Id(), Id(),
                     Size(), Size(),    Size(), Size(),        Cut()};
      case 1:
        return Heartbeat{Load()};
      case 2:
        return ReserveQueued{Id(), Count()};
      case 3:
        return TicketGranted{Id(), Ticket(), Time()};
      case 4:
        return Outputs();
      case 5:
        return TransferReport{Id(), Times()};
      default:
        return RequestFailed{Id(), Error()};
    }
  }

  RouterMessage Router() {
    switch (random_() % 4) {
      case 0:
        return Welcome{Id(), absl::Milliseconds(1 + random_() % 5000),
                       random_() % 2 == 0 ? absl::OkStatus() : Error()};
      case 1:
        return Reserve{Spec(), random_() % 2 == 0};
      case 2:
        return Prefill{Spec(), Ticket()};
      default:
        return Cancel{Id()};
    }
  }

 private:
  std::int32_t Count() { return static_cast<std::int32_t>(random_() >> 33); }
  std::int32_t Size() { return 1 + static_cast<std::int32_t>(random_() % 100000); }
  std::string Id() { return absl::StrCat("id-", random_()); }
  float Fraction() { return std::uniform_real_distribution<float>(0.0f, 1.0f)(random_); }
  absl::Duration Time() { return absl::Nanoseconds(static_cast<std::int64_t>(random_() >> 20)); }
  absl::Status Error() {
    return absl::Status(static_cast<absl::StatusCode>(1 + random_() % 16),
                        absl::StrCat("reason \xff ", random_()));
  }
  WorkerRole Role() { return static_cast<WorkerRole>(random_() % 3); }
  ModelFingerprint Fingerprint() {
    ModelFingerprint fingerprint{Id(), Id(), Id(), Size(), Size(), Size(), {}};
    if (random_() % 2 == 0) return fingerprint;
    fingerprint.num_layers = 1 + static_cast<int>(random_() % 4);
    for (int i = 0; i < fingerprint.num_layers; ++i) {
      fingerprint.windows.push_back(static_cast<int>(random_() % 100));
    }
    return fingerprint;
  }
  KvCut Cut() {
    return {.block_size = 1 + static_cast<int>(random_() % 64),
            .tensor_parallel_size = 1 + static_cast<int>(random_() % 8)};
  }
  std::vector<std::int32_t> Counts(std::size_t size) {
    std::vector<std::int32_t> counts(size);
    for (std::int32_t& count : counts) count = Count();
    return counts;
  }
  TransferTicket Ticket() {
    TransferTicket ticket{random_(), Id(), random_(), Time(), Id(), 0, {}, Fingerprint(), Cut()};
    ticket.num_tokens = 1 + random_() % 500;
    ticket.blocks = Counts(ticket.cut.BlocksFor(ticket.num_tokens));
    const int num_holes =
        ticket.fingerprint.FirstVisibleToken(ticket.num_tokens) / ticket.cut.block_size;
    std::fill(ticket.blocks.begin(), ticket.blocks.begin() + num_holes, -1);
    return ticket;
  }
  SampledToken Token() {
    SampledToken token{Count(), -Fraction(), {}};
    for (unsigned i = random_() % 4; i > 0; --i) token.top.push_back({Count(), -Fraction()});
    return token;
  }
  std::vector<SampledToken> Tokens() {
    std::vector<SampledToken> tokens(random_() % 4);
    for (SampledToken& token : tokens) token = Token();
    return tokens;
  }
  PhaseTimes Times() {
    PhaseTimes times{Time(), Time(), Time(), Time(), Time(), Count(), Time(), {}};
    for (unsigned i = random_() % 4; i > 0; --i) times.layers.push_back({Count(), Time(), Time()});
    return times;
  }
  WorkerLoad Load() {
    return {{Count(), Count(), Count(), Count(), Count()},
            Count(),
            Count(),
            Count(),
            Fraction() * 1e6,
            random_() % 2 == 0};
  }
  StepOutputs Outputs() {
    StepOutputs step;
    for (unsigned i = random_() % 5; i > 0; --i) {
      step.outputs.push_back({Id(), Count(), Tokens(), static_cast<FinishReason>(random_() % 3),
                              Tokens(), random_() % 2 == 0 ? Times() : PhaseTimes()});
    }
    return step;
  }
  SamplingParams Sampling() {
    SamplingParams params;
    params.temperature = 2 * Fraction();
    params.top_k = Count();
    params.top_p = Fraction();
    params.min_p = Fraction();
    params.repetition_penalty = 0.5f + Fraction();
    params.presence_penalty = 4 * Fraction() - 2;
    params.frequency_penalty = 4 * Fraction() - 2;
    for (unsigned i = random_() % 4; i > 0; --i) {
      params.logit_bias.emplace_back(Count(), 200 * Fraction() - 100);
    }
    params.seed = random_();
    params.max_tokens = Size();
    params.min_tokens = Count();
    params.ignore_eos = random_() % 2 == 0;
    params.stop_token_ids = Counts(random_() % 4);
    params.logprobs = random_() % 2 == 0;
    params.top_logprobs = Count();
    params.prompt_logprobs = random_() % 2 == 0;
    params.num_prompt_logprobs = Count();
    return params;
  }
  RequestSpec Spec() {
    return {Id(), Counts(1 + random_() % 300), Sampling(), static_cast<std::int32_t>(random_()),
            random_() % 2 == 0 ? absl::InfiniteDuration() : Time()};
  }

  std::mt19937_64 random_;
};

// Property: every message comes back as it was, through the bytes of the wire.
TEST(ConvertTest, WorkerMessagesComeBackAsTheyWere) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const WorkerMessage message = RandomMessages(seed).Worker();

    v1::WorkerMessage wire;
    ASSERT_TRUE(wire.ParseFromString(ToProto(message).SerializeAsString()));
    const auto back = FromProto(wire);

    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == message) << wire.ShortDebugString();
  }
}

TEST(ConvertTest, RouterMessagesComeBackAsTheyWere) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RouterMessage message = RandomMessages(seed).Router();

    v1::RouterMessage wire;
    ASSERT_TRUE(wire.ParseFromString(ToProto(message).SerializeAsString()));
    const auto back = FromProto(wire);

    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == message) << wire.ShortDebugString();
  }
}

// Property: bytes of a peer gone wrong give a message or an error, never a crash.
TEST(ConvertTest, DamagedBytesNeverCrash) {
  google::protobuf::LogSilencer silencer;  // protobuf prints a line per bad string
  int refused = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    std::string bytes = ToProto(RandomMessages(seed).Router()).SerializeAsString();
    for (int flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }

    v1::RouterMessage wire;
    if (!wire.ParseFromString(bytes) || !FromProto(wire).ok()) ++refused;
  }
  EXPECT_GT(refused, 0);
}

absl::Status ErrorOf(const v1::RouterMessage& wire) { return FromProto(wire).status(); }

v1::RouterMessage GoodPrefill() {
  RouterMessage message;
  for (unsigned seed = 0; !std::holds_alternative<Prefill>(message); ++seed) {
    message = RandomMessages(seed).Router();
  }
  return ToProto(message);
}

TEST(ConvertTest, RefusesAMessageOfNoKind) {
  EXPECT_EQ(ErrorOf(v1::RouterMessage()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FromProto(v1::WorkerMessage()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ConvertTest, RefusesAnEmptyRequestIdByName) {
  v1::RouterMessage wire = GoodPrefill();
  wire.mutable_prefill()->mutable_spec()->clear_request_id();

  const absl::Status error = ErrorOf(wire);

  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(error.message().find("request_id"), absl::string_view::npos) << error;
}

TEST(ConvertTest, RefusesSamplingThatIsNotANumber) {
  v1::RouterMessage wire = GoodPrefill();
  wire.mutable_prefill()->mutable_spec()->mutable_sampling()->set_temperature(
      std::numeric_limits<float>::quiet_NaN());

  EXPECT_EQ(ErrorOf(wire).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ConvertTest, RefusesATicketWhoseBlocksDoNotCoverItsTokens) {
  v1::RouterMessage wire = GoodPrefill();
  wire.mutable_prefill()->mutable_ticket()->mutable_blocks()->Add(3);

  EXPECT_EQ(ErrorOf(wire).code(), absl::StatusCode::kInvalidArgument);
}

// 10 tokens in blocks of 4, in 2 layers with these windows; the first block has no destination.
v1::RouterMessage PrefillWithAHole(const std::vector<std::int32_t>& windows) {
  v1::RouterMessage wire = GoodPrefill();
  v1::TransferTicket& ticket = *wire.mutable_prefill()->mutable_ticket();
  ticket.set_num_tokens(10);
  const std::vector<std::int32_t> blocks = {-1, 5, 6};
  ticket.mutable_blocks()->Assign(blocks.begin(), blocks.end());
  ticket.mutable_cut()->set_block_size(4);
  ticket.mutable_fingerprint()->set_num_layers(2);
  ticket.mutable_fingerprint()->mutable_windows()->Assign(windows.begin(), windows.end());
  return wire;
}

TEST(ConvertTest, RefusesATicketWithoutABlockThatALayerNeeds) {
  EXPECT_TRUE(ErrorOf(PrefillWithAHole({4, 7})).ok());  // position 10 sees from 7 and 4 on

  EXPECT_EQ(ErrorOf(PrefillWithAHole({4, 8})).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf(PrefillWithAHole({4, 0})).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf(PrefillWithAHole({})).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ConvertTest, RefusesWindowsThatDoNotFitTheLayers) {
  for (const std::vector<std::int32_t>& windows :
       {std::vector<std::int32_t>{4}, {4, 4, 4}, {4, -1}}) {
    EXPECT_EQ(ErrorOf(PrefillWithAHole(windows)).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ConvertTest, RefusesAFailureWithoutAnError) {
  v1::WorkerMessage wire;
  wire.mutable_request_failed()->set_request_id("r");

  EXPECT_EQ(FromProto(wire).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ConvertTest, RefusesAHeartbeatIntervalThatWouldSpin) {
  v1::RouterMessage wire;
  wire.mutable_welcome()->set_router_id("r");
  wire.mutable_welcome()->set_heartbeat_interval_ns(1);

  EXPECT_EQ(ErrorOf(wire).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::session
