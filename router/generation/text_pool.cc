#include "router/generation/text_pool.h"

#include <optional>
#include <utility>

namespace baton::router {

TextPool::TextPool(int num_threads, std::size_t max_waiting) : jobs_(max_waiting) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] {
      while (auto job = jobs_.Pop(absl::InfiniteFuture())) (*job)();
    });
  }
}

bool TextPool::Run(absl::AnyInvocable<void()> job) { return jobs_.TryPush(std::move(job)); }

void TextPool::Stop() {
  jobs_.Close();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace baton::router
