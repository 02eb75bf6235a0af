// The tables of all families, seen together.
#include "checkpoint/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;

// A name that two families claimed would go to whichever comes first.
TEST(FamilyTest, EveryNameBelongsToOneFamily) {
  std::set<std::string_view> names;
  std::set<std::string_view> classes;
  std::set<std::string_view> model_types;
  std::set<std::pair<std::string_view, bool>> gguf;  // and whether it has experts
  for (const Family* family : Families()) {
    SCOPED_TRACE(std::string(family->name));
    EXPECT_TRUE(names.insert(family->name).second);
    EXPECT_FALSE(family->classes.empty());
    EXPECT_FALSE(family->model_types.empty());
    for (const std::string_view name : family->classes) EXPECT_TRUE(classes.insert(name).second);
    for (const std::string_view type : family->model_types) {
      EXPECT_TRUE(model_types.insert(type).second);
    }
    for (const std::string_view name : family->gguf) {
      EXPECT_TRUE(gguf.insert({name, !family->experts.count_key.empty()}).second);
    }
  }
}

TEST(FamilyTest, EveryTensorHasOneRule) {
  for (const Family* family : Families()) {
    SCOPED_TRACE(std::string(family->name));
    std::set<std::string_view> canonical;
    for (const auto rules : family->tensors) {
      for (const TensorRule& rule : rules) {
        EXPECT_TRUE(canonical.insert(rule.canonical).second) << rule.canonical;
        EXPECT_FALSE(rule.huggingface.empty()) << rule.canonical;
        EXPECT_FALSE(rule.gguf.empty()) << rule.canonical;
      }
    }
  }
}

TEST(FamilyTest, ExpertsTellFamiliesOfOneNameApart) {
  const auto plain = FindFamily(FileFormat::kGguf, "llama");
  const auto experts = FindFamily(FileFormat::kGguf, "llama", true);
  const auto only_plain = FindFamily(FileFormat::kGguf, "qwen2", true);

  ASSERT_TRUE(plain.ok() && experts.ok() && only_plain.ok());
  EXPECT_EQ((*plain)->name, "llama");
  EXPECT_EQ((*experts)->name, "mixtral");
  EXPECT_EQ((*only_plain)->name, "qwen2");  // which then refuses the experts
}

TEST(FamilyTest, AnUnknownNameGetsTheListOfKnownOnes) {
  const auto gguf = FindFamily(FileFormat::kGguf, "mamba");
  const auto huggingface = FindFamily(FileFormat::kHuggingFace, "MambaForCausalLM");

  EXPECT_EQ(gguf.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(gguf.status().message()),
              HasSubstr("'mamba'; supported: llama, qwen2, qwen3, qwen3moe, phi3, gemma, gemma2, "
                        "gemma3, smollm3"));
  EXPECT_THAT(std::string(huggingface.status().message()),
              HasSubstr("supported: LlamaForCausalLM, MistralForCausalLM, "));
  EXPECT_EQ(FindFamilyByModelType("mamba"), nullptr);
}

}  // namespace
}  // namespace baton::checkpoint
