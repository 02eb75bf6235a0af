#include "common/metrics.h"

#include <cmath>
#include <mutex>
#include <tuple>
#include <utility>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace baton::metrics {
namespace {

class CounterImpl final : public Counter {
 public:
  explicit CounterImpl(prometheus::Counter& counter) : counter_(counter) {}
  void Add(double amount) override { counter_.Increment(amount); }
  double value() const override { return counter_.Value(); }

 private:
  prometheus::Counter& counter_;
};

class GaugeImpl final : public Gauge {
 public:
  explicit GaugeImpl(prometheus::Gauge& gauge) : gauge_(gauge) {}
  void Set(double value) override { gauge_.Set(value); }
  void Add(double amount) override { gauge_.Increment(amount); }
  double value() const override { return gauge_.Value(); }

 private:
  prometheus::Gauge& gauge_;
};

class HistogramImpl final : public Histogram {
 public:
  explicit HistogramImpl(prometheus::Histogram& histogram) : histogram_(histogram) {}
  void Observe(double value) override { histogram_.Observe(value); }

 private:
  prometheus::Histogram& histogram_;
};

}  // namespace

const std::vector<double>& SecondsBuckets() {
  static const std::vector<double> buckets = [] {
    std::vector<double> bounds;
    // 1, 1.5, 2.2, 3.3, 4.7, 6.8 in each decade: round numbers about 1.5x apart.
    for (const double decade : {1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1}) {
      for (const double step : {1.0, 1.5, 2.2, 3.3, 4.7, 6.8}) bounds.push_back(decade * step);
    }
    bounds.push_back(100.0);
    return bounds;
  }();
  return buckets;
}

class Registry::State {
 public:
  using Key = std::pair<std::string, Labels>;
  prometheus::Registry registry;
  std::mutex mutex;
  std::map<Key, std::unique_ptr<Counter>> counters;
  std::map<Key, std::unique_ptr<Gauge>> gauges;
  std::map<Key, std::unique_ptr<Histogram>> histograms;
  std::vector<std::function<void()>> on_collect;
};

Registry::Registry() : state_(std::make_unique<State>()) {}
Registry::~Registry() = default;

Counter& Registry::AddCounter(std::string_view name, std::string_view help, const Labels& labels) {
  std::lock_guard lock(state_->mutex);
  auto& slot = state_->counters[{std::string(name), labels}];
  if (slot == nullptr) {
    auto& family = prometheus::BuildCounter()
                       .Name(std::string(name))
                       .Help(std::string(help))
                       .Register(state_->registry);
    slot = std::make_unique<CounterImpl>(family.Add(labels));
  }
  return *slot;
}

Gauge& Registry::AddGauge(std::string_view name, std::string_view help, const Labels& labels) {
  std::lock_guard lock(state_->mutex);
  auto& slot = state_->gauges[{std::string(name), labels}];
  if (slot == nullptr) {
    auto& family = prometheus::BuildGauge()
                       .Name(std::string(name))
                       .Help(std::string(help))
                       .Register(state_->registry);
    slot = std::make_unique<GaugeImpl>(family.Add(labels));
  }
  return *slot;
}

Histogram& Registry::AddHistogram(std::string_view name, std::string_view help,
                                  const std::vector<double>& bounds, const Labels& labels) {
  std::lock_guard lock(state_->mutex);
  auto& slot = state_->histograms[{std::string(name), labels}];
  if (slot == nullptr) {
    auto& family = prometheus::BuildHistogram()
                       .Name(std::string(name))
                       .Help(std::string(help))
                       .Register(state_->registry);
    slot = std::make_unique<HistogramImpl>(
        family.Add(labels, prometheus::Histogram::BucketBoundaries(bounds.begin(), bounds.end())));
  }
  return *slot;
}

void Registry::OnCollect(std::function<void()> callback) {
  std::lock_guard lock(state_->mutex);
  state_->on_collect.push_back(std::move(callback));
}

std::string Registry::Serialize() {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard lock(state_->mutex);
    callbacks = state_->on_collect;
  }
  for (const auto& callback : callbacks) callback();
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

}  // namespace baton::metrics
