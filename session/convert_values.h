#pragma once
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/session.pb.h"
#include "session/messages.h"

// The parts that session messages are made of, to and from their wire form; see convert.h.
namespace baton::session {

// Field checks; the errors are kInvalidArgument and name `field`.
absl::Status CheckId(const std::string& id, const char* field);
absl::Status CheckRange(double value, double min, double max, const char* field);  // NaN fails

// Nanoseconds; beyond the range of int64 saturates.
std::int64_t ToNanoseconds(absl::Duration duration);

void ToProto(const absl::Status& status, v1::Status* out);
void ToProto(const TransferTicket& ticket, v1::TransferTicket* out);
void ToProto(const ModelFingerprint& fingerprint, v1::ModelFingerprint* out);
void ToProto(const KvCut& cut, v1::KvCut* out);
void ToProto(const SampledToken& token, v1::SampledToken* out);
void ToProto(const SamplingParams& params, v1::SamplingParams* out);
void ToProto(const PhaseTimes& times, v1::PhaseTimes* out);
void ToProto(const WorkerLoad& load, v1::Heartbeat* out);
void ToProto(const RequestSpec& spec, v1::RequestSpec* out);

// `out` is undefined after an error.
absl::Status FromProto(const v1::Status& in, absl::Status* out);
absl::Status FromProto(const v1::TransferTicket& in, TransferTicket* out);
absl::Status FromProto(const v1::ModelFingerprint& in, ModelFingerprint* out);
absl::Status FromProto(const v1::KvCut& in, KvCut* out);
absl::Status FromProto(const v1::SampledToken& in, SampledToken* out);
absl::Status FromProto(const v1::SamplingParams& in, SamplingParams* out);
absl::Status FromProto(const v1::PhaseTimes& in, PhaseTimes* out);
absl::Status FromProto(const v1::Heartbeat& in, WorkerLoad* out);
absl::Status FromProto(const v1::RequestSpec& in, RequestSpec* out);

}  // namespace baton::session
