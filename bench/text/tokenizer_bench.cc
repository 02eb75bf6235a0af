// Speed of tokenizers on one core.
//   tokenizer_bench TEXT_FILE MODEL... [--repeats N]
// MODEL is a tokenizer.json, a folder with one, or a GGUF file. For each: encoding and decoding the
// text, as the median of N runs (default 7) of at least 4 MB each, and encoding a megabyte of each
// of some texts that no pre-tokenizer cuts, where time must stay in proportion to length.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "text/tokenizer.h"

namespace baton::bench {
namespace {

struct Flags {
  std::string text_file;
  std::vector<std::string> models;
  int repeats = 7;
};

bool ParseFlags(int argc, char** argv, Flags& flags) {
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--repeats") == 0 && i + 1 < argc) {
      flags.repeats = std::max(1, std::atoi(argv[++i]));
    } else if (argv[i][0] == '-') {
      return false;
    } else {
      names.emplace_back(argv[i]);
    }
  }
  if (names.size() < 2) return false;
  flags.text_file = names.front();
  flags.models.assign(names.begin() + 1, names.end());
  return true;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<std::unique_ptr<text::Tokenizer>> Load(const std::string& model) {
  checkpoint::TextAssets assets;
  std::filesystem::path path = model;
  if (path.extension() == ".gguf") {
    auto opened = checkpoint::Checkpoint::Open(model);
    if (!opened.ok()) return opened.status();
    assets = (*opened)->text_assets();
  } else {
    if (std::filesystem::is_directory(path)) path /= "tokenizer.json";
    assets.tokenizer_json = ReadFile(path.string());
  }
  return text::Tokenizer::Create(assets);
}

// Time this thread has had, so that a busy machine tells the same.
double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Work>
double MedianSeconds(int repeats, Work work) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const double start = ThreadSeconds();
    work();
    seconds.push_back(ThreadSeconds() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

std::string Repeat(const std::string& part, std::size_t num_bytes) {
  std::string out;
  while (out.size() < num_bytes) out += part;
  return out;
}

void Measure(const text::Tokenizer& tokenizer, const std::string& text, const Flags& flags) {
  std::vector<std::int32_t> ids;
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  const double encode = MedianSeconds(flags.repeats, [&] { ids = tokenizer.Encode(text); });
  std::size_t decoded = 0;
  const double decode = MedianSeconds(flags.repeats, [&] {
    decoded = tokenizer.Decode(ids, /*skip_special_tokens=*/false).size();
  });
  std::printf("  encode %7.1f MB/s  %6.2f M tokens/s  %.2f bytes/token   decode %7.1f MB/s\n",
              megabytes / encode, static_cast<double>(ids.size()) / encode / 1e6,
              static_cast<double>(text.size()) / static_cast<double>(ids.size()),
              static_cast<double>(decoded) / 1e6 / decode);
  const std::pair<const char*, std::string> hostile[] = {
      {"a", "a"},
      {"ab", "ab"},
      {"space", " "},
      {"newline", "\n"},
      {"digits", "7"},
      {"!", "!"},
      {"' ", "'"},
      {"space newline", " \n"},
      {"e acute", "\u00e9"},
      {"CJK", "\u6f22\u5b57"},
      {"aA", "aA"},
  };
  std::printf("  one megabyte of ");
  for (const auto& [name, part] : hostile) {
    const std::string one = Repeat(part, 1'000'000);
    const double seconds = MedianSeconds(1, [&] { ids = tokenizer.Encode(one); });
    std::printf("%s: %.0f ms  ", name, seconds * 1e3);
  }
  std::printf("\n");
}

int Run(const Flags& flags) {
  const std::string file = ReadFile(flags.text_file);
  if (file.empty()) {
    std::fprintf(stderr, "cannot read %s\n", flags.text_file.c_str());
    return 1;
  }
  const std::string text = Repeat(file, 4'000'000);
  for (const std::string& model : flags.models) {
    const auto tokenizer = Load(model);
    std::printf("%s\n", model.c_str());
    if (!tokenizer.ok()) {
      std::printf("  %s\n", std::string(tokenizer.status().message()).c_str());
      continue;
    }
    Measure(**tokenizer, text, flags);
  }
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  baton::bench::Flags flags;
  if (!baton::bench::ParseFlags(argc, argv, flags)) {
    std::fprintf(stderr, "usage: tokenizer_bench TEXT_FILE MODEL... [--repeats N]\n");
    return 2;
  }
  return baton::bench::Run(flags);
}
