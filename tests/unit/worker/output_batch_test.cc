#include "worker/output_batch.h"

#include <gtest/gtest.h>

#include "tests/support/recording_outbox.h"

namespace baton::worker {
namespace {

session::TokenOutput OutputOf(const char* id) {
  session::TokenOutput output;
  output.request_id = id;
  return output;
}

TEST(OutputBatchTest, SendsOneMessagePerSessionAndIsEmptyAgain) {
  RecordingOutbox outbox;
  OutputBatch batch;
  batch.Add({0, 1}, OutputOf("a"));
  batch.Add({1, 1}, OutputOf("b"));
  batch.Add({0, 1}, OutputOf("c"));

  batch.Flush(outbox);
  batch.Flush(outbox);

  ASSERT_EQ(outbox.sent().size(), 2u);
  EXPECT_EQ(outbox.sent()[0].to, (SessionKey{0, 1}));
  const auto& first = std::get<session::StepOutputs>(outbox.sent()[0].message);
  ASSERT_EQ(first.outputs.size(), 2u);
  EXPECT_EQ(first.outputs[0].request_id, "a");
  EXPECT_EQ(first.outputs[1].request_id, "c");
}

}  // namespace
}  // namespace baton::worker
