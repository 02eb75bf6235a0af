#include "tests/support/double_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton::testing {
namespace {

using engine::Activation;
using engine::LayerPlan;
using engine::ModelPlan;
using Row = std::vector<double>;
using Rows = std::vector<Row>;

double Cap(double value, double cap) { return cap == 0 ? value : cap * std::tanh(value / cap); }

double Act(Activation activation, double z) {
  switch (activation) {
    case Activation::kSilu:
      return z / (1 + std::exp(-z));
    case Activation::kGelu:
      return z * (1 + std::erf(z * std::numbers::sqrt2 / 2)) / 2;
    case Activation::kGeluTanh:
      return z / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
  }
  return 0;
}

double Product(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void Add(Row& to, const Row& what, double factor = 1) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * what[i];
}

class Model {
 public:
  Model(const checkpoint::Checkpoint& checkpoint, const ModelPlan& plan, const TurnFunction& turn)
      : checkpoint_(checkpoint), plan_(plan), turn_(turn) {}

  Rows Logits(std::span<const std::int32_t> tokens) const {
    Rows x;
    for (const std::int32_t token : tokens) {
      x.push_back(Read("token_embedding.weight")[token]);
      for (double& value : x.back()) value *= plan_.embedding_scale;
    }
    for (std::size_t layer = 0; layer < plan_.layers.size(); ++layer) {
      ComputeLayer(plan_.layers[layer], absl::StrCat("layers.", layer, "."), x);
    }
    for (Row& row : x) {
      row = Linear(plan_.tied_embeddings ? "token_embedding" : "output",
                   Norm("output_norm", plan_.norm_eps, row));
      for (double& logit : row) logit = Cap(logit, plan_.logit_softcap);
    }
    return x;
  }

 private:
  Rows Read(const std::string& name) const {
    const checkpoint::Tensor* tensor = checkpoint_.Find(name);
    BATON_CHECK(tensor != nullptr, "the model has the tensor");
    Rows rows;
    std::vector<float> row(static_cast<std::size_t>(tensor->columns()));
    for (std::int64_t r = 0; r < tensor->rows(); ++r) {
      checkpoint::DequantizeRow(tensor->dtype, tensor->data.data() + r * tensor->row_bytes(),
                                tensor->columns(), row.data());
      rows.emplace_back(row.begin(), row.end());
    }
    return rows;
  }

  Row Linear(const std::string& name, const Row& x) const {
    Row out;
    for (const Row& weights : Read(name + ".weight")) out.push_back(Product(weights, x));
    if (checkpoint_.Find(name + ".bias") != nullptr) Add(out, Read(name + ".bias")[0]);
    return out;
  }

  Row Norm(const std::string& name, double eps, Row x) const {
    const Row weight = Read(name + ".weight")[0];
    const double scale = 1 / std::sqrt(Product(x, x) / static_cast<double>(x.size()) + eps);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * (weight[i] + plan_.norm_offset);
    return x;
  }

  // The heads of a projection of `x`, normalized and turned where `norm` names one and `position`
  // is not negative.
  Rows Heads(const LayerPlan& layer, const std::string& name, const std::string& norm, const Row& x,
             int position) const {
    const Row joined = Linear(name, x);
    Rows heads;
    for (std::size_t begin = 0; begin < joined.size(); begin += layer.head_dim) {
      const auto first = joined.begin() + static_cast<std::ptrdiff_t>(begin);
      Row head(first, first + layer.head_dim);
      if (!norm.empty()) head = Norm(norm, layer.norm_eps, head);
      if (position >= 0) TurnHead(layer.rope, position, head);
      heads.push_back(std::move(head));
    }
    return heads;
  }

  void TurnHead(int index, int position, Row& head) const {
    const engine::Rope& rope = plan_.ropes[index];
    for (int pair = 0; pair < rope.dim / 2; ++pair) {
      double& a = head[rope.interleaved ? 2 * pair : pair];
      double& b = head[rope.interleaved ? 2 * pair + 1 : pair + rope.dim / 2];
      const Turn turn = turn_(index, position, pair);
      const double turned = a * turn.cos - b * turn.sin;
      b = b * turn.cos + a * turn.sin;
      a = turned;
    }
  }

  void ComputeLayer(const LayerPlan& layer, const std::string& prefix, Rows& x) const {
    std::vector<Rows> queries, keys, values;  // [position][head][head_dim]
    for (std::size_t p = 0; p < x.size(); ++p) {
      const int position = static_cast<int>(p);
      const Row normed = Norm(prefix + "attention_norm", layer.norm_eps, x[p]);
      const auto norm = [&](const char* name) { return layer.qk_norm ? prefix + name : ""; };
      queries.push_back(Heads(layer, prefix + "q", norm("q_norm"), normed, position));
      keys.push_back(Heads(layer, prefix + "k", norm("k_norm"), normed, position));
      values.push_back(Heads(layer, prefix + "v", "", normed, -1));
    }
    for (std::size_t p = 0; p < x.size(); ++p) {
      Row attention;
      for (int head = 0; head < layer.num_heads; ++head) {
        const Row out = Attend(layer, queries[p][head], static_cast<int>(p),
                               head / (layer.num_heads / layer.num_kv_heads), keys, values);
        attention.insert(attention.end(), out.begin(), out.end());
      }
      Row added = Linear(prefix + "o", attention);
      if (layer.post_norms) added = Norm(prefix + "attention_post_norm", layer.norm_eps, added);
      Add(x[p], added);
      const Row normed = Norm(prefix + "mlp_norm", layer.norm_eps, x[p]);
      added = layer.num_experts > 0 ? Experts(layer, prefix, normed) : Mlp(layer, prefix, normed);
      if (layer.post_norms) added = Norm(prefix + "mlp_post_norm", layer.norm_eps, added);
      Add(x[p], added);
    }
  }

  static Row Attend(const LayerPlan& layer, const Row& q, int position, int kv_head,
                    const std::vector<Rows>& keys, const std::vector<Rows>& values) {
    Row out(q.size(), 0.0);
    double total = 0;
    for (int p = 0; p <= position; ++p) {
      if (layer.window > 0 && position - p >= layer.window) continue;
      const double score =
          Cap(layer.attention_scale * Product(q, keys[p][kv_head]), layer.attention_softcap);
      const double weight = std::exp(score);  // scores of tests are far from overflow
      total += weight;
      Add(out, values[p][kv_head], weight);
    }
    for (double& value : out) value /= total;
    return out;
  }

  Row Mlp(const LayerPlan& layer, const std::string& prefix, const Row& x) const {
    Row gate = Linear(prefix + "gate", x);
    const Row up = Linear(prefix + "up", x);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = Act(layer.activation, gate[i]) * up[i];
    return Linear(prefix + "down", gate);
  }

  Row Experts(const LayerPlan& layer, const std::string& prefix, const Row& x) const {
    Row probabilities = Linear(prefix + "router", x);
    double total = 0;
    for (double& p : probabilities) total += p = std::exp(p);
    for (double& p : probabilities) p /= total;
    std::vector<int> order(probabilities.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return probabilities[a] > probabilities[b]; });
    order.resize(layer.experts_per_token);
    double chosen = 0;
    for (const int expert : order) chosen += probabilities[expert];
    Row sum(x.size(), 0.0);
    for (const int expert : order) {
      const double weight =
          layer.normalize_expert_weights ? probabilities[expert] / chosen : probabilities[expert];
      Add(sum, Mlp(layer, absl::StrCat(prefix, "experts.", expert, "."), x), weight);
    }
    return sum;
  }

  const checkpoint::Checkpoint& checkpoint_;
  const ModelPlan& plan_;
  const TurnFunction& turn_;
};

}  // namespace

std::vector<std::vector<double>> DoubleForward(const checkpoint::Checkpoint& checkpoint,
                                               const engine::ModelPlan& plan,
                                               std::span<const std::int32_t> tokens,
                                               const TurnFunction& turn) {
  return Model(checkpoint, plan, turn).Logits(tokens);
}

}  // namespace baton::testing
