#include "engine/ops/cpu/task_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace baton::engine::cpu {
namespace {

// Property: the tasks cover every tile of every product with every row once.
TEST(TaskListTest, CoversEveryTileAndRowOnce) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    TaskList tasks;
    std::vector<RowRange> rows(1 + random() % 9);
    std::vector<std::vector<int>> covered;
    std::vector<int> num_tiles;
    int first = 0;
    for (RowRange& range : rows) {
      range = {first, static_cast<int>(random() % (seed % 3 == 0 ? 400 : 9))};
      first += range.count;
      num_tiles.push_back(1 + static_cast<int>(random() % 70));
      covered.emplace_back(static_cast<std::size_t>(num_tiles.back()) * range.count);
      tasks.Add(num_tiles.back(), range);
    }

    const int num_threads = 1 + static_cast<int>(random() % 8);
    const int tiles = seed % 2 == 0 ? tasks.TilesPerTask(num_threads) : 2;
    const int num_tasks = tasks.Cut(tiles);

    for (int i = 0; i < num_tasks; ++i) {
      const TaskList::Task task = tasks.At(i);
      ASSERT_LT(task.first_tile, task.end_tile);
      ASSERT_LE(task.end_tile - task.first_tile, tiles);
      ASSERT_LE(task.end_tile, num_tiles[task.product]);
      ASSERT_GE(task.rows.count, 1);
      ASSERT_LE(task.rows.count, kRowBlock);
      const int local = task.rows.first - rows[task.product].first;
      ASSERT_LE(local + task.rows.count, rows[task.product].count);
      for (int tile = task.first_tile; tile < task.end_tile; ++tile) {
        for (int row = local; row < local + task.rows.count; ++row) {
          ++covered[task.product][tile * rows[task.product].count + row];
        }
      }
    }
    for (const std::vector<int>& counts : covered) {
      EXPECT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; }));
    }
  }
}

TEST(TaskListTest, FewRowsMakeLongRunsAndManyShortOnes) {
  TaskList few;
  few.Add(1000, {0, 1});
  TaskList many;
  many.Add(1000, {0, 64});

  EXPECT_EQ(few.TilesPerTask(2), 16);
  EXPECT_EQ(many.TilesPerTask(2), 2);
}

}  // namespace
}  // namespace baton::engine::cpu
