//===- Artifact.h - A compiled kernel and all there is to know --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The manifest is what plan, session and tools need to know about a compiled
// attention, or operation on a cache (CacheKernel.h): the problem, kernels with parameters and tile sizes,
// what a run launches, reads of a plan and leaves behind. An artifact is the manifest with the code; a file
// holds one or several, of other functions or targets. It is code that will be executed, so a file has a hash
// of all its bytes (Artifact.cpp describes it), and nothing is parsed before its hash was found to be right.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_ARTIFACT_ARTIFACT_H
#define ATTN_RT_ARTIFACT_ARTIFACT_H

#include "attn_rt/artifact/PlanRecords.h"
#include "attn_rt/tensor/Store.h"
#include "attn_rt/tensor/Tensor.h"

#include <numeric>

namespace attn::rt {

inline constexpr int manifestFormat = 5;

enum class VisibilityKind : uint8_t; // attn_rt/artifact/VisibilityTerms.h, where the first is All

/// Who sees a token, as a form. Its sizes are run-time values: a term's are at `end` and behind it in
/// Manifest::ends.
struct Visibility {
  using Kind = VisibilityKind;
  Kind kind{};
  int end = -1;
  std::vector<Visibility> of;
};

/// One parameter of a kernel.
struct Parameter {
  enum class Kind : uint8_t { Buffer, Dim, End, Scale, Map };
  Kind kind = Kind::Buffer;
  std::string name; ///< of a buffer, a dimension or a tensor map
  int index = 0;    ///< of an end
};

/// Of a group of query heads as many as fill the lines of a tile evenly that is copied in boxes.
constexpr int evenHeads(int group) {
  constexpr int lines = 64; // which wgmma takes at once
  return std::gcd(group, lines);
}

/// A kernel works on tiles, a block for each element of its launch, or its warps walk all elements.
struct KernelInfo {
  /// What it does, for people and for operations on a cache. How it is launched says its LaunchInfo.
  enum class Role : uint8_t {
    Attend,
    Merge,
    Plan,
    Gradient,
    Significance,
    Append,
    Move,
    Gather,
    Requantize,
    CountPages,
    ReleasePages,
    TakePages,
    CompactTokens,
    ReviseTokens
  };
  enum class Schedule : uint8_t { Mma, Wgmma };
  std::string name;
  Role role = Role::Attend;
  Schedule schedule = Schedule::Mma; ///< instructions of an attend kernel
  int rows = 0;                      ///< packed query rows of a tile; tokens, where those are held
  int keys = 0;                      ///< keys of a tile; packed query rows, where tokens are held
  int warps = 0;
  int threads = 0;
  int64_t sharedBytes = 0;
  int blocksPerSM = 1;
  int keyAlign = 1;      ///< segments begin at a multiple of this many tokens: boxes must not straddle pages
  int sequencesUpTo = 0; ///< packed rows of a sequence, and tokens of an instance, that it is for; 0: any
  int rowsPerWarp = 0;   ///< elements that a walking warp takes at a time; 0: the kernel has tiles
  int pieces = 1;        ///< walking warps that share those
  std::vector<Parameter> params;
};

/// The manifest's names of roles, in their order.
inline constexpr std::string_view kernelRoleNames[] = {
    "attend",        "merge",      "plan",           "gradient",     "significance",
    "append",        "move",       "gather",         "requantize",   "count_pages",
    "release_pages", "take_pages", "compact_tokens", "revise_tokens"};
inline std::string_view kernelRoleName(KernelInfo::Role role) {
  return kernelRoleNames[static_cast<size_t>(role)];
}
std::optional<KernelInfo::Role> parseKernelRole(std::string_view name);

/// One of the launches that make a run, in the order of Manifest::launches.
struct LaunchInfo {
  std::vector<int> kernels = {}; ///< into Manifest::kernels: one, or one for each of Manifest::plannedKernels
  /// What it has elements for: an array of the plan; empty: the rows that an operation on a cache is given,
  /// or those of a table of pages.
  std::optional<PlanArray> grid = {};
  /// Left out where there are none, unless launches are fixed.
  bool onlyIfFilled = false;
  bool overlapsPrevious = false; ///< LaunchShape::overlapsPrevious

  /// Whether but for their kernels both are the same.
  bool isLike(const LaunchInfo &other) const {
    return grid == other.grid && onlyIfFilled == other.onlyIfFilled &&
           overlapsPrevious == other.overlapsPrevious;
  }
  /// The manifest's name of its grid: that of the array, or "rows".
  std::string_view gridName() const;
  /// The kernel where a plan is for number `choice` of Manifest::plannedKernels.
  int kernelFor(size_t choice) const { return kernels[kernels.size() == 1 ? 0 : choice]; }
};

/// The grid of a name; an error says what else there is.
Result<std::optional<PlanArray>> parseGrid(std::string_view name);

/// A tensor that bulk copies read boxes of (BulkTensor.h), over one of the buffers. Dimensions are counted
/// from the innermost one.
struct TensorMapInfo {
  /// `value` times the product of the named dimensions.
  struct Extent {
    int64_t value = 1;
    std::vector<std::string> of;
  };
  std::string name, buffer;
  DType dtype = DType::BF16;
  std::vector<Extent> dims;
  std::vector<int64_t> strides; ///< in bytes, of dimensions 1 and on
  /// Names of dimensions that strides are multiplied by, "" where by none; none at all: by none.
  std::vector<std::string> times;
  std::vector<int32_t> box;
  int swizzle = 0; ///< span in bytes; 0 is none
};

/// A dimension as written: a name, or a number where the name is empty.
struct DimInfo {
  std::string name;
  int64_t value = 0;
};

/// A tensor that a run leaves behind. Its named dimensions are those that kernels know ("rows").
struct ResultInfo {
  std::string name;
  DType dtype = DType::F32;
  std::vector<DimInfo> dims;
  /// Its shape where dimensions have these sizes; an error names one that has none.
  Result<std::vector<int64_t>> shape(const std::map<std::string, int32_t> &sizes) const;
};

struct Argument {
  enum class Role : uint8_t { Query, KV, Sink, Tensor, Classes, Rows, Slots, Status, Pages };
  using Store = StoreKind;
  std::string name;
  Role role = Role::Tensor;
  // Of a plain tensor:
  DType dtype = DType::F32;
  std::vector<DimInfo> dims;
  // Of a KV operand:
  Store store = Store::Paged;
  int page = 0;
  int kvHeads = 0;     ///< 0: as many as its head class has
  int headClass = -1;  ///< the class whose heads alone it holds; -1: it holds those of all
  bool ragged = false; ///< each head it holds has lengths and pages of its own
  int keyDim = 0, valueDim = 0;
  Format keyFormat = Format::plain(DType::BF16), valueFormat = Format::plain(DType::BF16);
};

/// A class of KV heads, and what it sees of whatever the operands show. Which head belongs to which class is
/// the run-time tensor `classes`.
struct HeadClassInfo {
  std::string name;
  Visibility visibility;
};

/// One `(argument see visibility)` of the attention.
struct OperandInfo {
  std::string argument;
  int argumentIndex = 0; ///< into Manifest::arguments
  Visibility visibility;
};

struct Manifest {
  std::string producer, entry, target, schedule, problem;
  std::string contentHash; ///< key of caches, see computeContentHash
  int ptxVersion = 0;
  int qHeads = 1, kvHeads = 1, keyDim = 0, valueDim = 0;
  DType dtype = DType::BF16;
  double scale = 1;
  bool sinkLogits = false;
  bool approximate = false; ///< the score region uses approximate functions
  std::optional<double> tolerance;
  int significanceRows = 0; ///< the last so many of each sequence count; 0: all
  std::vector<int32_t> ends;
  std::vector<Argument> arguments;
  std::vector<ResultInfo> results;
  std::vector<OperandInfo> operands;
  std::vector<HeadClassInfo> headClasses; ///< empty: all heads see alike
  std::vector<KernelInfo> kernels;
  std::vector<LaunchInfo> launches; ///< of a run, in order
  std::vector<TensorMapInfo> tensorMaps;

  /// The kernel of an operation on a cache; null for an attention.
  const KernelInfo *rowCopy() const;
  /// Whether it is an operation on a table of pages.
  bool managesPages() const { return !kernels.empty() && kernels[0].role >= KernelInfo::Role::CountPages; }
  /// Whether a plan says what its kernels do, as it does for all but operations on caches and tables of
  /// pages.
  bool hasPlan() const { return !rowCopy() && !managesPages(); }
  /// Adds a kernel to the last launch, where that is like this one and of the same role, else behind it.
  void addKernel(KernelInfo kernel, LaunchInfo launch);
  /// The first launch over an array of the plan; null where there is none.
  const LaunchInfo *findLaunch(PlanArray grid) const;
  /// Whether a plan has tasks for tokens, of their gradients or their significance, and which of the two a
  /// run makes.
  bool walksTokens() const { return findLaunch(PlanArray::TokenTasks) != nullptr; }
  bool isBackward() const { return tokensAre(KernelInfo::Role::Gradient); }
  bool weighsTokens() const { return tokensAre(KernelInfo::Role::Significance); }
  /// Whether a run gives the results of the first operand alone beside those of all: by tasks that have all
  /// of a row's tokens, as no part of a row could.
  bool returnsFirst() const { return findResult("first_o") != nullptr; }
  /// Whether plans read each sequence by its own rows, and never cut a task.
  bool plansWhole() const { return isBackward() || returnsFirst(); }
  /// The launch of the kernel that makes plans, which no run makes by itself; null where there is none.
  const LaunchInfo *planLaunch() const;
  /// The kernels among which a planner chooses: those of the launch with a block for each of the plan's.
  std::span<const int> plannedKernels() const;
  bool isPlanned(int kernel) const;
  const ResultInfo *findResult(std::string_view name) const;
  /// Bytes of all results, where dimensions have these sizes.
  int64_t resultBytes(const std::map<std::string, int32_t> &sizes) const;
  int groupSize() const { return qHeads / kvHeads; }
  size_t classCount() const { return headClasses.empty() ? 1 : headClasses.size(); }
  /// What heads of a class see of an operand: the intersection of what both say. Of an operand of another
  /// class they see nothing (`isSeenBy`).
  Visibility visibilityOf(size_t operand, size_t headClass) const;
  bool isSeenBy(size_t operand, size_t headClass) const {
    const int only = argumentOf(operands[operand]).headClass;
    return only < 0 || only == static_cast<int>(headClass);
  }
  /// Whether heads that are alike in all else may have different work.
  bool hasRaggedOperand() const;
  /// Whether a plan depends on which head is in which class, and not on how many are: where heads of all
  /// classes have lengths of their own. (A store of one class has those of the class's heads, in order.)
  bool plansByHead() const;
  const Argument &argumentOf(const OperandInfo &operand) const {
    return arguments[static_cast<size_t>(operand.argumentIndex)];
  }
  const KernelInfo *findKernel(std::string_view name) const;
  const TensorMapInfo *findTensorMap(std::string_view name) const;

private:
  /// Whether a launch over tokens is of that role.
  bool tokensAre(KernelInfo::Role role) const;
};

struct Artifact {
  Manifest manifest;
  std::string ptx;                          ///< all kernels in one module
  std::vector<std::vector<uint8_t>> cubins; ///< a module for each kernel; empty where ptxas was not at hand
  std::vector<uint8_t> hostCode; ///< a CodeObject (host/CodeObject.h); empty where none was asked for
  std::string note;              ///< of whoever made the file, for whoever reads it; nothing here does
};

/// How a file of artifacts begins, and the version of its format: others are refused.
inline constexpr std::string_view artifactMagic = "attnfile";
inline constexpr uint32_t artifactVersion = 1;
bool isArtifactFile(std::string_view bytes);

/// 32 hexadecimal digits of XXH3-128.
std::string hashBytes(std::string_view bytes);
/// The hash of what decides the code: problem, target, schedule and producer.
std::string computeContentHash(const Manifest &manifest);

/// The store of a KV operand.
Store storeOf(const Argument &argument);

/// A tensor that a launch may find lying as its owner lays it: queries, codes of keys and values, the output,
/// and all that unified pages have.
struct StridedTensor {
  std::string name;
  DType dtype = DType::BF16;
  std::vector<DimInfo> dims; ///< names as kernels know them
  bool unified = false;      ///< a part of unified pages, which lie apart and dense in themselves
};
/// Those of an attention; keys and values one behind the other.
std::vector<StridedTensor> stridedTensors(const Manifest &manifest);

/// Reads a manifest and checks that it describes something this runtime can plan and launch. Errors carry the
/// path of what is wrong: "manifest.kernels[1].rows: …".
Result<Manifest> parseManifest(std::string_view json);
/// Pretty-printed JSON; parseManifest reads it back.
std::string writeManifest(const Manifest &manifest);

/// All that a file holds, at least one. Refuses files of another version, and damaged ones; `name` is the
/// file's, for messages.
Result<std::vector<Artifact>> readArtifacts(std::string_view bytes, std::string_view name);
Result<std::vector<Artifact>> readArtifactsFile(const std::string &path);
std::string writeArtifacts(std::span<const Artifact> artifacts);
Status writeArtifactsFile(const std::string &path, std::span<const Artifact> artifacts);

} // namespace attn::rt

#endif
