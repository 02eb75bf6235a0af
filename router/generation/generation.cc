#include "router/generation/generation.h"

#include <utility>

namespace baton::router {

class Generation::ChoiceSink final : public SequenceSink {
 public:
  ChoiceSink(std::shared_ptr<Generation> generation, int choice)
      : generation_(std::move(generation)), choice_(choice) {}
  bool OnTokens(const NewTokens& news) override { return generation_->OnTokens(choice_, news); }
  void OnFailed(const absl::Status& status) override { generation_->Fail(status); }

 private:
  const std::shared_ptr<Generation> generation_;
  const int choice_;
};

Generation::Generation(std::shared_ptr<const PreparedRequest> request, const ServedModel& model,
                       std::shared_ptr<GenerationOutput> output, std::function<void()> cancel_rest)
    : request_(std::move(request)),
      model_(model),
      output_(std::move(output)),
      cancel_rest_(std::move(cancel_rest)) {}

std::vector<SequenceRequest> Generation::MakeSequences(const std::string& request_id,
                                                       absl::Time arrival, absl::Time deadline) {
  std::vector<SequenceRequest> sequences;
  num_open_ = request_->num_choices();
  choices_.reserve(num_open_);
  for (int choice = 0; choice < num_open_; ++choice) {
    choices_.emplace_back(*model_.tokenizer, request_->answer, choice);
    SequenceRequest sequence;
    sequence.request_id = request_id;
    sequence.index = choice;
    sequence.prompt = request_->prompts[choice / request_->n].tokens;
    sequence.sampling = request_->SamplingOf(choice);
    sequence.priority = request_->priority;
    sequence.arrival = arrival;
    sequence.deadline = deadline;
    sequence.sink = std::make_shared<ChoiceSink>(shared_from_this(), choice);
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

bool Generation::OnTokens(int choice, const NewTokens& news) {
  if (over_) return false;
  ChoiceDelta delta = choices_[choice].Append(news);
  const bool finished = delta.finished();
  if (!output_->OnDelta(std::move(delta))) {
    over_ = true;
    cancel_rest_();
    return false;
  }
  if (!finished) return true;
  if (--num_open_ > 0) return false;
  over_ = true;
  Usage usage;
  for (const PreparedPrompt& prompt : request_->prompts) {
    usage.num_prompt_tokens += static_cast<std::int64_t>(prompt.tokens.size());
  }
  for (const ChoiceText& text : choices_) usage.num_completion_tokens += text.num_tokens();
  output_->OnDone(usage);
  return false;
}

void Generation::Fail(const absl::Status& status) {
  if (over_) return;
  over_ = true;
  output_->OnFailed(status);
  cancel_rest_();
}

}  // namespace baton::router
