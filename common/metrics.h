#pragma once
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// Prometheus metrics of one process. Each folder declares its own in one metrics.h: a struct whose
// members are made from a Registry once, at construction; the hot path touches only the members.
namespace baton::metrics {

class Counter {
 public:
  virtual ~Counter() = default;
  virtual void Add(double amount = 1) = 0;
  virtual double value() const = 0;
};
class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void Set(double value) = 0;
  virtual void Add(double amount) = 0;
  virtual double value() const = 0;
};
class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void Observe(double value) = 0;
};

using Labels = std::map<std::string, std::string>;

// Bucket bounds in seconds that resolve p99 from 0.1 ms to 100 s, about 1.5x apart.
const std::vector<double>& SecondsBuckets();

// Owns every metric made from it; references stay valid as long as it lives. Names carry the unit:
// baton_ttft_seconds, baton_kv_transfer_bytes_total. The same (name, labels) gives the same metric.
// Thread-safe.
class Registry {
 public:
  Registry();
  ~Registry();
  Counter& AddCounter(std::string_view name, std::string_view help, const Labels& labels = {});
  Gauge& AddGauge(std::string_view name, std::string_view help, const Labels& labels = {});
  Histogram& AddHistogram(std::string_view name, std::string_view help,
                          const std::vector<double>& bounds = SecondsBuckets(),
                          const Labels& labels = {});
  // Called before each Serialize, to bring gauges up to date.
  void OnCollect(std::function<void()> callback);
  // The Prometheus text format.
  std::string Serialize();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace baton::metrics
