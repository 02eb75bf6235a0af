#include "kvtransfer/cuda/kernels/copy_pieces.h"

#include <algorithm>
#include <random>

#include "tests/support/cuda_test.h"

namespace baton::kvtransfer::cuda {
namespace {

class CopyPiecesTest : public testing::CudaTest {
 protected:
  // The bytes of `to` after copying; those that no piece names stay 0xFF or what they were.
  void Run(const std::vector<CopyPiece>& pieces) {
    std::uint64_t largest = 0;
    for (const CopyPiece& piece : pieces) largest = std::max(largest, piece.bytes);
    const auto list = ToDevice(pieces);
    testing::ExpectCuda(
        CopyPieces(list.as<CopyPiece>(), static_cast<int>(pieces.size()), largest, stream()));
    testing::ExpectCuda(cudaStreamSynchronize(stream()));
  }
};

// Property: every byte of every piece arrives, and nothing else is written.
TEST_F(CopyPiecesTest, MovesExactlyWhatThePiecesName) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    constexpr std::size_t kUnits = 6000;  // of 16 bytes
    std::vector<unsigned char> bytes(kUnits * 16);
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random() % 251);
    std::vector<unsigned char> expected(bytes.size(), 0x5A);
    const auto from = ToDevice(bytes), to = ToDevice(expected);
    std::vector<CopyPiece> pieces;
    // Pieces in order of their destination, with gaps; sources anywhere.
    for (std::size_t at = random() % 4; at < kUnits;) {
      const std::size_t units = 1 + random() % (seed % 2 == 0 ? 8 : 1500);
      const std::size_t end = std::min(kUnits, at + units);
      const std::size_t source = random() % (kUnits - (end - at) + 1);
      pieces.push_back({from.data() + source * 16, to.data() + at * 16, (end - at) * 16});
      std::copy_n(bytes.begin() + source * 16, (end - at) * 16, expected.begin() + at * 16);
      at = end + random() % 3;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);

    Run(pieces);

    EXPECT_EQ(ToHost<unsigned char>(to, expected.size()), expected);
  }
}

TEST_F(CopyPiecesTest, RefusesBadArguments) {
  const auto list = OnDevice(sizeof(CopyPiece));
  EXPECT_EQ(CopyPieces(list.as<CopyPiece>(), 0, 0, stream()), cudaSuccess);
  EXPECT_EQ(CopyPieces(list.as<CopyPiece>(), -1, 16, stream()), cudaErrorInvalidValue);
  EXPECT_EQ(CopyPieces(list.as<CopyPiece>(), 1, 24, stream()), cudaErrorInvalidValue);
  EXPECT_EQ(CopyPieces(list.as<CopyPiece>(), 1, 0, stream()), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace baton::kvtransfer::cuda
