#pragma once
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "common/check.h"

namespace baton::testing {

// A new directory under the system's temporary one, removed with its contents at the end.
class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton-test-XXXXXX").string();
    BATON_CHECK(::mkdtemp(pattern.data()) != nullptr, "cannot make a temporary directory");
    path_ = pattern;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  std::string path() const { return path_.string(); }

  // Writes a file, whose name may begin with folders, and returns its path.
  std::string Write(const std::string& name, std::span<const std::byte> bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream stream(file, std::ios::binary | std::ios::trunc);
    stream.write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    stream.close();
    BATON_CHECK(stream.good(), "cannot write a temporary file");
    return file.string();
  }
  std::string Write(const std::string& name, std::string_view text) const {
    return Write(name, std::as_bytes(std::span(text)));
  }
  void Remove(const std::string& name) const { std::filesystem::remove(path_ / name); }

 private:
  std::filesystem::path path_;
};

}  // namespace baton::testing
