//===- Artifact.h - A compiled kernel and all there is to know --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The manifest is what plan, session and tools need to know about a compiled
// attention, or operation on a cache (CacheKernel.h): the problem, kernels with parameters and tile sizes,
// the launches of a run, the plan's arrays that they read, and the results. An artifact is the manifest with
// the code; a file holds one or several, of different functions or targets. Its code will be executed, so a
// file has a hash of all its bytes (Artifact.cpp describes it), and nothing is parsed before the hash was
// verified.
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

/// The expression of a visibility. Its sizes are run-time values: those of a term are in Manifest::ends from
/// index `end` on.
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

/// Query heads of a group per TMA box: as many as evenly fill the lines of a tile.
constexpr int evenHeads(int group) {
  constexpr int lines = 64; // which wgmma takes at once
  return std::gcd(group, lines);
}

/// A kernel works on tiles, a block for each element of its launch, or its warps walk over all elements.
struct KernelInfo {
  /// The kernel's work, for people and for operations on a cache. LaunchInfo says how it is launched.
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
    ReviseTokens,
    MergeStates,
    ExchangeStates
  };
  enum class Schedule : uint8_t { Mma, Wgmma };
  std::string name;
  Role role = Role::Attend;
  Schedule schedule = Schedule::Mma; ///< instructions of an attend kernel
  int rows = 0;                      ///< packed query rows of a tile; if keys are stationary: tokens
  int keys = 0;                      ///< keys of a tile; if keys are stationary: packed query rows
  int warps = 0;
  int threads = 0;
  int64_t sharedBytes = 0;
  int blocksPerSM = 1;
  int keyAlign = 1; ///< segments begin at a multiple of this many tokens: boxes must not cross pages
  /// The most packed rows of a sequence, or tokens of an instance, that it serves; 0: any.
  int sequencesUpTo = 0;
  int rowsPerWarp = 0; ///< elements that a walking warp does at a time; 0: the kernel has tiles
  int pieces = 1;      ///< walking warps that share these elements
  /// Whether a task of several parts folds them, and needs memory for its rows' totals (taskFolds).
  bool folds = false;
  std::vector<Parameter> params;
};

/// The names of roles in manifests, in the order of the enumeration.
inline constexpr std::string_view kernelRoleNames[] = {
    "attend",         "merge",         "plan",         "gradient",       "significance",  "append",
    "move",           "gather",        "requantize",   "count_pages",    "release_pages", "take_pages",
    "compact_tokens", "revise_tokens", "merge_states", "exchange_states"};
/// The manifest's name of a role, and its inverse.
inline std::string_view kernelRoleName(KernelInfo::Role role) {
  return kernelRoleNames[static_cast<size_t>(role)];
}
std::optional<KernelInfo::Role> parseKernelRole(std::string_view name);

/// One of the launches of a run, in the order of Manifest::launches.
struct LaunchInfo {
  std::vector<int> kernels = {}; ///< into Manifest::kernels: one, or one for each of Manifest::plannedKernels
  /// The array of the plan with an element for each block of the launch. Empty: the rows of an operation on a
  /// cache, or of a table of pages.
  std::optional<PlanArray> grid = {};
  /// The launch is skipped if there are no elements, unless launches are fixed.
  bool onlyIfFilled = false;
  bool overlapsPrevious = false; ///< LaunchShape::overlapsPrevious

  /// Whether both are the same except for their kernels.
  bool isLike(const LaunchInfo &other) const {
    return grid == other.grid && onlyIfFilled == other.onlyIfFilled &&
           overlapsPrevious == other.overlapsPrevious;
  }
  /// The grid's name in manifests: the name of the array, or "rows".
  std::string_view gridName() const;
  /// The kernel of a plan made for number `choice` of Manifest::plannedKernels.
  int kernelFor(size_t choice) const { return kernels[kernels.size() == 1 ? 0 : choice]; }
};

/// Finds a grid by name; an error lists the legal names.
Result<std::optional<PlanArray>> parseGrid(std::string_view name);

/// A tensor that TMA loads read boxes of (BulkTensor.h), over one of the buffers. Dimensions are counted from
/// the innermost one.
struct TensorMapInfo {
  /// `value` times the product of the named dimensions.
  struct Extent {
    int64_t value = 1;
    std::vector<std::string> of;
  };
  std::string name, buffer;
  DType dtype = DType::BF16;
  std::vector<Extent> dims;
  std::vector<int64_t> strides; ///< in bytes, of dimensions 1 and up
  /// For each stride, the name of a dimension that multiplies it, or "". Empty: no stride is multiplied.
  std::vector<std::string> times;
  std::vector<int32_t> box;
  int swizzle = 0; ///< span in bytes; 0 is none
};

/// A dimension as written: a name, or a number if the name is empty.
struct DimInfo {
  std::string name;
  int64_t value = 0;
};

/// A result of a run. Its named dimensions are those that kernels know ("rows").
struct ResultInfo {
  std::string name;
  DType dtype = DType::F32;
  std::vector<DimInfo> dims;
  /// Its shape, given the sizes of dimensions; an error names a dimension without a size.
  Result<std::vector<int64_t>> shape(const std::map<std::string, int32_t> &sizes) const;
};

struct Argument {
  enum class Role : uint8_t {
    Query,
    KV,
    Sink,
    Tensor,
    Classes,
    Rows,
    Slots,
    Status,
    Pages,
    Gate,
    OutputScale
  };
  using Store = StoreKind;
  std::string name;
  Role role = Role::Tensor;
  // A plain tensor:
  DType dtype = DType::F32;
  std::vector<DimInfo> dims;
  // A KV operand:
  Store store = Store::Paged;
  int page = 0;
  int kvHeads = 0;     ///< 0: as many as its head class has
  int headClass = -1;  ///< the class whose heads the operand holds; -1: it holds the heads of all classes
  bool ragged = false; ///< each of its heads has lengths and pages of its own
  bool latent = false; ///< a value is the first features of its token's key
  int keyDim = 0, valueDim = 0;
  Format keyFormat = Format::plain(DType::BF16), valueFormat = Format::plain(DType::BF16);
};

/// A class of KV heads, and what it sees of the operands' visible tokens. The run-time tensor `classes` says
/// which head belongs to which class.
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

/// The numerics contract of an attention's kernels: all that decides the bits of a row beside its query, the
/// keys that it sees and the score region. Kernels for one chip with equal contracts give equal bits
/// (docs/rationale/planner.md).
struct NumericsInfo {
  KernelInfo::Schedule instructions = KernelInfo::Schedule::Mma; ///< of both products
  int keys = 0;          ///< tokens of a softmax step; tiles begin at multiples of it
  int streams = 1;       ///< warps or warpgroups among which a tile's tokens are divided, each with a sum
  bool keysLeft = false; ///< whether keys are the left operand of the products
  DType weights = DType::BF16; ///< the element to which weights are rounded before the second product
  int split = 0;               ///< parts end at multiples of this many tokens
  DType output = DType::BF16;  ///< the element to which outputs are rounded; e4m3: multiples of their scale
  bool outputScales = false;   ///< whether kernels make that scale, of each row and head
  bool operator==(const NumericsInfo &) const = default;
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
  std::optional<NumericsInfo> numerics; ///< none: bits may depend on the plan and on the kernel
  int significanceRows = 0; ///< only the last `significanceRows` rows of each sequence count; 0: all do
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
  /// Whether a plan assigns the kernels' work, as for everything but operations on caches and on tables of
  /// pages.
  bool hasPlan() const { return !rowCopy() && !managesPages(); }
  /// Adds a kernel to the last launch if that launch is like `launch` and of the same role, else as a new
  /// launch.
  void addKernel(KernelInfo kernel, LaunchInfo launch);
  /// The first launch over an array of the plan; null if there is none.
  const LaunchInfo *findLaunch(PlanArray grid) const;
  /// Whether a plan has tasks of tokens, for their gradients or their significance; and which of the two a
  /// run computes.
  bool walksTokens() const { return findLaunch(PlanArray::TokenTasks) != nullptr; }
  bool isBackward() const { return tokensAre(KernelInfo::Role::Gradient); }
  bool weighsTokens() const { return tokensAre(KernelInfo::Role::Significance); }
  /// Whether a run also returns the results of the first operand alone. Its tasks have all tokens of a row,
  /// since a part of a row could not give them.
  bool returnsFirst() const { return findResult("first_o") != nullptr; }
  /// Whether plans read each sequence by its own rows, and never cut a task.
  bool plansWhole() const { return isBackward() || returnsFirst(); }
  /// The launch of the kernel that makes plans, which no run launches by itself; null if there is none.
  const LaunchInfo *planLaunch() const;
  /// The kernels among which a planner chooses: those of the launch over the plan's blocks.
  std::span<const int> plannedKernels() const;
  bool isPlanned(int kernel) const;
  const ResultInfo *findResult(std::string_view name) const;
  /// Bytes of all results, given the sizes of dimensions.
  int64_t resultBytes(const std::map<std::string, int32_t> &sizes) const;
  int groupSize() const { return qHeads / kvHeads; }
  /// Bytes of the output's gate for so many rows; 0 without a gate.
  int64_t gateBytes(int64_t rows) const;
  size_t classCount() const { return headClasses.empty() ? 1 : headClasses.size(); }
  /// The intersection of the visibilities of an operand and of a head class. Heads see nothing of an operand
  /// of another class (`isSeenBy`).
  Visibility visibilityOf(size_t operand, size_t headClass) const;
  /// Whether heads of a class see tokens of an operand: it holds the heads of all classes, or of this one.
  bool isSeenBy(size_t operand, size_t headClass) const {
    const int only = argumentOf(operands[operand]).headClass;
    return only < 0 || only == static_cast<int>(headClass);
  }
  /// Whether heads that are otherwise alike may have different work.
  bool hasRaggedOperand() const;
  /// Whether a plan depends on which heads are in each class, not only on how many: if heads of all classes
  /// have lengths of their own. (A store of one class has the lengths of the class's heads, in order.)
  bool plansByHead() const;
  const Argument &argumentOf(const OperandInfo &operand) const {
    return arguments[static_cast<size_t>(operand.argumentIndex)];
  }
  const KernelInfo *findKernel(std::string_view name) const;
  const TensorMapInfo *findTensorMap(std::string_view name) const;

private:
  /// Whether the launch over tokens has this role.
  bool tokensAre(KernelInfo::Role role) const;
};

struct Artifact {
  Manifest manifest;
  std::string ptx;                          ///< all kernels in one module
  std::vector<std::vector<uint8_t>> cubins; ///< a module for each kernel; empty if ptxas was not available
  std::vector<uint8_t> hostCode;            ///< a CodeObject (host/CodeObject.h); empty if not asked for
  std::string note; ///< a note of the file's maker to its reader; the runtime does not read it
};

/// The first bytes of a file of artifacts, and the version of its format: others are refused.
inline constexpr std::string_view artifactMagic = "attnfile";
inline constexpr uint32_t artifactVersion = 1;
/// Whether bytes begin as a file of artifacts does. Does not check the rest.
bool isArtifactFile(std::string_view bytes);

/// 32 hexadecimal digits of XXH3-128.
std::string hashBytes(std::string_view bytes);
/// The hash of the inputs that decide the code: problem, target, schedule and producer.
std::string computeContentHash(const Manifest &manifest);

/// The store of a KV operand.
Store storeOf(const Argument &argument);

/// A tensor for which a launch accepts strides: queries, quantized keys and values, the output, and all parts
/// of unified pages.
struct StridedTensor {
  std::string name;
  DType dtype = DType::BF16;
  std::vector<DimInfo> dims; ///< names of the kernels' dimensions
  bool unified = false;      ///< a part of unified pages, which may lie apart but are dense themselves
};
/// The tensors of an attention that accept strides; an operand's keys come right before its values.
std::vector<StridedTensor> stridedTensors(const Manifest &manifest);

/// Reads a manifest and checks that this runtime can plan and launch what it describes. Errors carry the path
/// of the fault: "manifest.kernels[1].rows: …".
Result<Manifest> parseManifest(std::string_view json);
/// Writes pretty-printed JSON that parseManifest reads.
std::string writeManifest(const Manifest &manifest);

/// Reads all artifacts of a file, at least one. Refuses other versions and damaged files; `name` is the
/// file's name in messages.
Result<std::vector<Artifact>> readArtifacts(std::string_view bytes, std::string_view name);
Result<std::vector<Artifact>> readArtifactsFile(const std::string &path);
/// Writes artifacts in the form that readArtifacts reads. The file is written whole or not at all.
std::string writeArtifacts(std::span<const Artifact> artifacts);
Status writeArtifactsFile(const std::string &path, std::span<const Artifact> artifacts);

} // namespace attn::rt

#endif
