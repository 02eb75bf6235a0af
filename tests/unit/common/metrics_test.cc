#include "common/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::metrics {
namespace {

using ::testing::HasSubstr;

TEST(MetricsTest, SerializesCountersGaugesAndHistograms) {
  Registry registry;
  registry.AddCounter("baton_requests_total", "Requests.", {{"code", "200"}}).Add(3);
  registry.AddGauge("baton_running", "Running.").Set(2);
  registry.AddHistogram("baton_ttft_seconds", "TTFT.", {0.1, 1.0}).Observe(0.5);

  const std::string text = registry.Serialize();

  EXPECT_THAT(text, HasSubstr("# HELP baton_requests_total Requests."));
  EXPECT_THAT(text, HasSubstr("baton_requests_total{code=\"200\"} 3"));
  EXPECT_THAT(text, HasSubstr("baton_running 2"));
  EXPECT_THAT(text, HasSubstr("baton_ttft_seconds_bucket{le=\"0.1\"} 0"));
  EXPECT_THAT(text, HasSubstr("baton_ttft_seconds_bucket{le=\"1\"} 1"));
}

TEST(MetricsTest, GivesTheSameMetricForTheSameNameAndLabels) {
  Registry registry;
  Counter& first = registry.AddCounter("baton_x_total", "X.", {{"a", "1"}});
  Counter& second = registry.AddCounter("baton_x_total", "X.", {{"a", "1"}});

  EXPECT_EQ(&first, &second);
}

TEST(MetricsTest, CallsCollectorsBeforeSerializing) {
  Registry registry;
  Gauge& gauge = registry.AddGauge("baton_now", "Now.");
  registry.OnCollect([&gauge] { gauge.Set(42); });

  EXPECT_THAT(registry.Serialize(), HasSubstr("baton_now 42"));
}

TEST(MetricsTest, SecondsBucketsRise) {
  const auto& buckets = SecondsBuckets();
  for (size_t i = 1; i < buckets.size(); ++i) EXPECT_LT(buckets[i - 1], buckets[i]);
}

}  // namespace
}  // namespace baton::metrics
