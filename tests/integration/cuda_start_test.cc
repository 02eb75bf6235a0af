// The program linked with the real CUDA libraries, on a machine that may have no driver.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/command_outcome.h"
#include "tests/support/test_paths.h"

namespace baton::testing {
namespace {

TEST(CudaStartTest, StartsWithoutADriverAndSaysWhatBackendCudaLacks) {
  const std::string baton = BATON_DEVICE_BINARY;
  EXPECT_EQ(RunCommand(baton + " --help").code, 0);
  if (std::system("command -v nvidia-smi >/dev/null") == 0) GTEST_SKIP() << "there is a driver";

  const CommandOutcome outcome =
      RunCommand("timeout 60 " + baton + " decode --role both --backend cuda --model " +
                 ModelsDir() + "/tiny/target");

  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("no usable GPU"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace baton::testing
