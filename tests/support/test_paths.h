#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace baton::testing {

inline std::string FromEnvironment(const char* variable, const std::string& otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// Reference outputs: $BATON_GOLDEN_DIR, default tests/golden.
inline std::string GoldenDir() {
  return FromEnvironment("BATON_GOLDEN_DIR", BATON_SOURCE_DIR "/tests/golden");
}

// The committed models: $BATON_MODELS_DIR, default models.
inline std::string ModelsDir() {
  return FromEnvironment("BATON_MODELS_DIR", BATON_SOURCE_DIR "/models");
}

// The downloaded default chat model: $BATON_SMOLLM2, else where the download script puts it; empty
// when it is not there.
inline std::string SmolLm2Path() {
  const std::string cache =
      FromEnvironment("XDG_CACHE_HOME", FromEnvironment("HOME", "/root") + "/.cache");
  const std::string path =
      FromEnvironment("BATON_SMOLLM2", cache + "/baton/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  return std::filesystem::exists(path) ? path : "";
}

}  // namespace baton::testing
