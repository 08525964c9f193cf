//===- TokenOrder.cpp - Tasks of tokens that add to rows in order ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// If tasks of tokens also add to the gradients of rows, the sum of a row depends on the
// order of its terms. Here each task names the one `before` it, and adds to a row only
// after that one did. A task posts how far it has come; it walks its rows from the last to
// the first, and so does the next. The task before has all rows of this one, and waited for
// its own predecessor at each of them, so one name is enough.
//
//   A sequence     The tiles of its tokens, from the first: under a causal mask each has
//                  fewer rows than the one before.
//   A tree         Instances whose rows are the rows of others, too: the first tile of a
//                  node follows the last tile of the node above it.
//
// The rows of a task are widened within its instance, where a later task has a row that it
// would not need: the mask hides its tokens there.
//
// A block must not wait for one that has not begun, so a task comes after the one before
// it. Bundles of tiles of one instance and head are listed together: they stay close behind
// each other and share rows' sums in the L2. If they begin together, each waits for the one
// before it:
//
//     time ->
//     block 0   5 4 3 2 1|...       tiles of tokens 0 to 3, whose rows begin at 1, 2, 3 and 4
//     block 1   . 5 4 3 2|...
//     block 2   . . 5 4 3|...
//     block 3   . . . 5 4|...
//
// This is much of a short task. Short tasks that run at once are therefore listed by their
// places in their bundles: the first tiles of all bundles, then the second ones. Blocks are
// free one after the other, so a tile begins when the one before it in its bundle is a little
// ahead. More bundles run at once then, whose rows' sums share the L2, which costs long tasks
// more than it saves.
//
// The bits of an instance are its own: its order and its cuts depend on the tree that it
// belongs to alone. If rows of many instances see one with few tiles (the root of a tree),
// its tasks would be few and long. Then all tasks of the tree are cut at the same rows, where
// an instance begins if possible. So are those of a tree with few tasks.
//
//===----------------------------------------------------------------------===//
#include "plan/TokenTasks.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace attn::rt {

namespace {

/// Tiles of one instance and head that are listed together, and their number where the longest task has no
/// more than `fewRows` tiles of rows. In longer bundles tasks wait for each other more often, in shorter ones
/// rows' sums are read from memory more often.
constexpr size_t bundleTiles = 8, fewRowsBundleTiles = 4;
constexpr int64_t fewRows = 32;
/// The most tiles of rows of a task that is listed by its place in its bundle (docs/rationale/backward.md).
constexpr int64_t shortTiles = 64;
/// A tree of fewer tasks than this is cut, so that any GPU has enough to do at once.
constexpr int64_t fewTasks = 512;
/// The fewest packed rows of a part of such a tree: its start and its sums are little beside it.
constexpr int32_t leastPacked = 8192;

/// An instance of an operand whose rows belong to a tree of instances.
struct Node {
  int32_t operand, instance, rowFirst, rowLast;
  int64_t tasks;       ///< of all heads, before any is cut
  int32_t parent = -1; ///< index of the node above
  int32_t root = 0;
  std::vector<TokenTile> tiles = {};
};

/// The nodes of all operands, each operand's after the other's; a node comes after the one above it.
std::vector<Node> makeNodes(const Manifest &manifest, const Batch &batch) {
  const int64_t tile = tokensOfTile(manifest);
  const auto tasksOf = [&](const OperandBatch &operand, size_t instance) {
    int64_t tasks = 0;
    for (int32_t head = 0; head < operand.heads && operand.heads > 1; ++head)
      tasks += (operand.length(instance, head) + tile - 1) / tile;
    return operand.heads > 1 ? tasks : (operand.lengths[instance] + tile - 1) / tile * manifest.kvHeads;
  };
  std::vector<Node> nodes;
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const OperandBatch &operand = batch.operands[o];
    const auto first = std::ssize(nodes);
    for (size_t i = 0; i < operand.instances(); ++i)
      nodes.push_back({static_cast<int32_t>(o), static_cast<int32_t>(i), operand.rowFirst[i],
                       operand.rowLast[i], tasksOf(operand, i)});
    std::stable_sort(nodes.begin() + first, nodes.end(), [](const Node &a, const Node &b) {
      const auto place = [](const Node &of) {
        return std::tuple(of.rowFirst == of.rowLast, of.rowFirst, -of.rowLast);
      };
      return place(a) < place(b);
    });
    std::vector<int32_t> open;
    for (auto number = static_cast<int32_t>(first); number < std::ssize(nodes); ++number) {
      Node &node = nodes[static_cast<size_t>(number)];
      node.root = number;
      if (node.rowFirst == node.rowLast)
        continue;
      while (!open.empty() && nodes[static_cast<size_t>(open.back())].rowLast <= node.rowFirst)
        open.pop_back();
      if (!open.empty())
        node.parent = open.back(), node.root = nodes[static_cast<size_t>(open.back())].root;
      open.push_back(number);
    }
  }
  return nodes;
}

void widen(PlanTokenTask &task, int32_t begin, int32_t end) {
  if (begin == end)
    return;
  const bool isEmpty = task.rowBegin == task.rowEnd;
  task.rowBegin = isEmpty ? begin : std::min(task.rowBegin, begin);
  task.rowEnd = isEmpty ? end : std::max(task.rowEnd, end);
}

/// Lets each tile have the rows of all tiles that follow it in its instance and in those below.
void widenRows(std::vector<Node> &nodes) {
  struct Rows {
    int32_t begin = 0, end = 0;
  };
  std::vector<Rows> below(nodes.size());
  for (size_t number = nodes.size(); number-- > 0;) {
    Node &node = nodes[number];
    PlanTokenTask hull{};
    hull.rowBegin = below[number].begin, hull.rowEnd = below[number].end;
    // Heads may have tokens of their own: the tiles of each head follow each other.
    for (auto tile = node.tiles.rbegin(); tile != node.tiles.rend(); ++tile) {
      const bool isLastOfHead = tile == node.tiles.rbegin() || std::prev(tile)->firstHead != tile->firstHead;
      if (isLastOfHead)
        hull.rowBegin = below[number].begin, hull.rowEnd = below[number].end;
      if (!tile->exists)
        continue;
      widen(tile->task, hull.rowBegin, hull.rowEnd);
      widen(hull, tile->task.rowBegin, tile->task.rowEnd);
    }
    if (node.parent < 0)
      continue;
    PlanTokenTask all{};
    Rows &above = below[static_cast<size_t>(node.parent)];
    all.rowBegin = above.begin, all.rowEnd = above.end;
    widen(all, below[number].begin, below[number].end);
    for (const TokenTile &tile : node.tiles)
      widen(all, tile.task.rowBegin, tile.task.rowEnd);
    above = {all.rowBegin, all.rowEnd};
  }
}

/// The nodes of the tree from a root on.
std::span<const Node> treeOf(std::span<const Node> nodes, size_t root) {
  size_t end = root;
  while (end < nodes.size() && nodes[end].root == static_cast<int32_t>(root))
    ++end;
  return nodes.subspan(root, end - root);
}

/// The rows at which the tasks of a tree are cut.
struct Cuts {
  std::vector<int32_t> rows = {}; ///< none: tasks are whole
  bool byCell = false;            ///< whether the tasks of a cell run before those of the next

  int32_t cellOf(int32_t row) const {
    return static_cast<int32_t>(std::upper_bound(rows.begin(), rows.end(), row) - rows.begin());
  }
};

/// Cells have at most so many rows, and begin where an instance does if one begins there.
Cuts cutsOf(const Manifest &manifest, const Batch &batch, std::span<const Node> tree) {
  Cuts cuts;
  int64_t tasks = 0;
  for (const Node &node : tree) {
    tasks += node.tasks;
    cuts.byCell |= isCutIntoWindows(manifest, batch.operands[static_cast<size_t>(node.operand)],
                                    static_cast<size_t>(node.instance));
  }
  const int32_t begin = tree.front().rowFirst, end = tree.front().rowLast;
  int32_t window = windowRows(manifest);
  if (!cuts.byCell) {
    if (!cutsTokens(manifest) || tasks == 0 || tasks >= fewTasks)
      return {};
    const int64_t parts = (fewTasks + tasks - 1) / tasks;
    window = std::max(static_cast<int32_t>((end - begin + parts - 1) / parts),
                      std::max(leastPacked / manifest.groupSize(), 1));
  }
  std::vector<int32_t> begins;
  int32_t coveredTo = 0; // by a node that fits a cell
  for (const Node &node : tree) {
    if (node.rowFirst >= coveredTo)
      begins.push_back(node.rowFirst);
    if (node.rowLast - node.rowFirst <= window)
      coveredTo = std::max(coveredTo, node.rowLast);
  }
  for (int32_t row = begin; end - row > window;) {
    const auto next = std::upper_bound(begins.begin(), begins.end(), row + window);
    const bool hasBegin = next != begins.begin() && *std::prev(next) > row;
    cuts.rows.push_back(row = hasBegin ? *std::prev(next) : row + window);
  }
  return cuts;
}

/// Lists the tasks of trees.
class OrderedList {
public:
  /// `atOnce`: tasks that run at once.
  OrderedList(const Manifest &manifest, const Batch &batch, int64_t atOnce, TokenCutter &cutter)
      : manifest_(manifest), batch_(batch), atOnce_(atOnce), cutter_(cutter) {}

  void addTree(std::span<const Node> nodes, size_t root);
  /// Sorts the tasks, names those before them, and adds tasks of tokens that no row sees.
  void finish(const std::vector<Node> &nodes, std::vector<PlanTokenTask> &tasks);

private:
  /// `key`: of tasks that are listed together; lists of greater keys come first.
  struct Task {
    PlanTokenTask task;
    int64_t key;
    int32_t cell; ///< listed after all others, cell by cell; -1: by `key`
  };
  /// Adds the tasks of a head for some tiles of a node, those of a cell together.
  void addBundle(const Node &node, std::span<const TokenTile> tiles, int32_t head, const Cuts &cuts);
  /// The last task of a node, head and cell so far; of the node above it if it has none.
  int32_t taskBefore(int32_t node, int32_t head, int32_t cell) const;
  /// Tiles of rows in which these rows of all heads of a group fit.
  int64_t tilesOf(int64_t rows) const {
    return (rows * manifest_.groupSize() + rowsOfTile(manifest_) - 1) / rowsOfTile(manifest_);
  }
  bool isShort(const PlanTokenTask &task) const { return tilesOf(task.rowBegin - task.rowEnd) <= shortTiles; }
  /// The numbers of all tasks in their order.
  std::vector<int32_t> order() const;

  const Manifest &manifest_;
  const Batch &batch_;
  int64_t atOnce_;
  TokenCutter &cutter_;
  std::vector<Task> tasks_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> last_; ///< task by node, head and cell
  std::span<const Node> nodes_;
};

int32_t OrderedList::taskBefore(int32_t node, int32_t head, int32_t cell) const {
  for (; node >= 0; node = nodes_[static_cast<size_t>(node)].parent)
    if (const auto found = last_.find({node, head, cell}); found != last_.end())
      return found->second;
  return -1;
}

void OrderedList::addBundle(const Node &node, std::span<const TokenTile> tiles, int32_t head,
                            const Cuts &cuts) {
  const auto number = static_cast<int32_t>(&node - nodes_.data());
  std::vector<std::vector<PlanTokenTask>> cells(cuts.rows.size() + 1);
  for (const TokenTile &tile : tiles) {
    PlanTokenTask task = tile.task;
    task.ordinal = head;
    std::vector<PlanTokenTask> parts;
    if (tile.rows() > 0)
      cutter_.addCutAt(task, cuts.rows, parts);
    for (const PlanTokenTask &part : parts)
      cells[static_cast<size_t>(cuts.cellOf(part.rowBegin))].push_back(part);
  }
  for (int32_t cell = 0; cell < std::ssize(cells); ++cell) {
    const std::vector<PlanTokenTask> &parts = cells[static_cast<size_t>(cell)];
    for (PlanTokenTask part : parts) {
      part.before = taskBefore(number, head, cell);
      std::swap(part.rowBegin, part.rowEnd); // walked from the last
      last_[{number, head, cell}] = static_cast<int32_t>(tasks_.size());
      tasks_.push_back({part, parts.front().rowEnd - parts.front().rowBegin, cuts.byCell ? cell : -1});
    }
  }
}

void OrderedList::addTree(std::span<const Node> nodes, size_t root) {
  nodes_ = nodes;
  const std::span<const Node> tree = treeOf(nodes, root);
  const Cuts cuts = cutsOf(manifest_, batch_, tree);
  const int64_t rows = tree.front().rowLast - tree.front().rowFirst;
  const size_t most = tilesOf(rows) <= fewRows ? fewRowsBundleTiles : bundleTiles;
  for (const Node &node : tree)
    for (size_t begin = 0, end = 0; begin < node.tiles.size(); begin = end) {
      const TokenTile &first = node.tiles[begin];
      while (end < node.tiles.size() && end - begin < most && node.tiles[end].firstHead == first.firstHead)
        ++end;
      for (int32_t head = first.firstHead; head < first.endHead; ++head)
        addBundle(node, std::span(node.tiles).subspan(begin, end - begin), head, cuts);
    }
}

std::vector<int32_t> OrderedList::order() const {
  std::vector<int32_t> order(tasks_.size()), levels(tasks_.size()), places(tasks_.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<int32_t>(i);
  const auto keyOf = [&](int32_t number) {
    const Task &task = tasks_[static_cast<size_t>(number)];
    // The tasks of a cell share rows' sums: those of a head follow each other.
    return task.cell < 0 ? std::tuple(-1, -task.key, 0)
                         : std::tuple(task.cell, int64_t{0}, task.task.ordinal);
  };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return keyOf(a) < keyOf(b); });
  for (int64_t begin = 0, end = 0; begin < std::ssize(order); begin = end) {
    end = std::min(begin + atOnce_, int64_t{std::ssize(order)});
    const std::span<int32_t> some(order.begin() + begin, order.begin() + end);
    if (!std::all_of(some.begin(), some.end(),
                     [&](int32_t number) { return isShort(tasks_[static_cast<size_t>(number)].task); }))
      continue;
    for (int64_t i = begin; i < end; ++i) {
      const auto number = static_cast<size_t>(order[static_cast<size_t>(i)]);
      const int32_t before = tasks_[number].task.before;
      places[number] = static_cast<int32_t>(i);
      const bool waits = before >= 0 && places[static_cast<size_t>(before)] >= begin;
      levels[number] = waits ? levels[static_cast<size_t>(before)] + 1 : 0;
    }
    std::stable_sort(some.begin(), some.end(), [&](int32_t a, int32_t b) {
      return levels[static_cast<size_t>(a)] < levels[static_cast<size_t>(b)];
    });
  }
  return order;
}

void OrderedList::finish(const std::vector<Node> &nodes, std::vector<PlanTokenTask> &tasks) {
  std::vector<int32_t> places(tasks_.size());
  for (int32_t number : order()) {
    PlanTokenTask task = tasks_[static_cast<size_t>(number)].task;
    if (task.before >= 0)
      task.before = places[static_cast<size_t>(task.before)];
    places[static_cast<size_t>(number)] = static_cast<int32_t>(tasks.size());
    tasks.push_back(task);
  }
  for (const Node &node : nodes)
    for (const TokenTile &tile : node.tiles)
      for (int32_t head = tile.firstHead; head < tile.endHead && tile.rows() == 0; ++head) {
        tasks.push_back(tile.task);
        tasks.back().ordinal = head;
        tasks.back().before = -1;
      }
}

} // namespace

bool addsInOrder(const Manifest &manifest) {
  const LaunchInfo *launch = manifest.findLaunch(PlanArray::TokenTasks);
  if (!launch)
    return false;
  const auto &params = manifest.kernels[static_cast<size_t>(launch->kernels.front())].params;
  return std::any_of(params.begin(), params.end(), [](const Parameter &param) {
    return param.name == planArrayName(PlanArray::Semaphores);
  });
}

void listInOrder(const Manifest &manifest, const Batch &batch, std::vector<TokenTile> tiles, int64_t atOnce,
                 TokenCutter &cutter, std::vector<PlanTokenTask> &tasks) {
  std::vector<Node> nodes = makeNodes(manifest, batch);
  std::map<std::pair<int32_t, int32_t>, size_t> nodeOf;
  for (size_t number = 0; number < nodes.size(); ++number)
    nodeOf[{nodes[number].operand, nodes[number].instance}] = number;
  for (TokenTile &tile : tiles)
    nodes[nodeOf.at({tile.task.operand, tile.task.instance})].tiles.push_back(tile);
  widenRows(nodes);
  OrderedList list(manifest, batch, atOnce, cutter);
  for (size_t number = 0; number < nodes.size(); ++number)
    if (nodes[number].root == static_cast<int32_t>(number))
      list.addTree(nodes, number);
  list.finish(nodes, tasks);
}

TokenParts countOrderedParts(const Manifest &manifest, const Batch &batch) {
  TokenParts found;
  const std::vector<Node> nodes = makeNodes(manifest, batch);
  for (size_t root = 0; root < nodes.size(); ++root) {
    if (nodes[root].root != static_cast<int32_t>(root))
      continue;
    const std::span<const Node> tree = treeOf(nodes, root);
    const Cuts cuts = cutsOf(manifest, batch, tree);
    for (const Node &node : tree) {
      const int64_t parts = cuts.cellOf(node.rowLast - 1) - cuts.cellOf(node.rowFirst) + 1;
      if (node.rowFirst == node.rowLast || parts == 1)
        continue;
      found.tasks += node.tasks, found.parts += node.tasks * parts;
    }
  }
  return found;
}

} // namespace attn::rt
