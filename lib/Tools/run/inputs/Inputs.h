//===- Inputs.h - Tensors for a problem -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The input of attn-run without a file. The data is made to find mistakes: pages are scattered over the pool
// and shuffled, and the pool has pages that no table lists. Everything that a kernel must not read (unlisted
// pages, the tails of listed ones, gaps) holds NaN; the unused entries of a block table hold an index far out
// of range.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_TOOLS_RUN_INPUTS_INPUTS_H
#define ATTN_TOOLS_RUN_INPUTS_INPUTS_H

#include "Dims.h"

#include "attn_rt/tensor/Store.h"
#include "attn_rt/tensor/Tensor.h"
#include "attn_rt/workload/Workload.h"

#include <optional>
#include <string>
#include <vector>

namespace attn::run {

using Store = rt::StoreKind;

struct KVArgument {
  std::string name;
  std::string instancesDim, tokensDim; ///< names of its two dynamic dimensions in the file
  Store store = Store::Dense;
  int64_t page = 0, heads = 0, keyDim = 0, valueDim = 0;
  rt::Format key = rt::Format::plain(rt::DType::BF16), value = key;
  /// The class whose heads alone it holds, as many as are in the class. -1: it holds `heads`; 0 for a class
  /// whose region has vanished from the problem, because nothing of it is visible.
  int headClass = -1;
  bool ragged = false; ///< whether each head has its own lengths and pages
  bool latent = false; ///< whether a value is the first features of its key

  /// Returns the store with this number of heads; 0: not known yet.
  rt::Store layout(int64_t heads) const {
    return {store, page, ragged, heads, {'k', keyDim, key}, {latent ? 'k' : 'v', valueDim, value}};
  }
};

/// The query, sink logits, a gate, a scale of outputs, or a table that a score region reads. A dynamic
/// dimension is -1 in `shape` and has a name.
struct TensorArgument {
  std::string name;
  rt::DType dtype = rt::DType::F32;
  std::vector<int64_t> shape;
  std::vector<std::string> dims;
};

/// The head class of each KV head, and the names of the classes in the file.
struct ClassesArgument {
  int64_t heads = 0;
  std::vector<std::string> names;
};

/// The arguments of an attention function, as far as generated tensors depend on them.
struct Arguments {
  TensorArgument query;
  std::vector<KVArgument> kv;
  std::vector<TensorArgument> others;
  std::optional<ClassesArgument> classes;
};

/// Generates every input tensor under the names of the manifest. Sequences have `q_len` rows, the last ones
/// of their tokens. A KV argument whose instances dimension is not `batch` is shared: its instances (one
/// unless --dim says otherwise) divide the sequences among them in order. If a sequence has several KV
/// arguments, the tokens of each follow those of the previous one. Arguments of head classes follow the
/// previous argument that the same heads see, and the last of each class ends where the sequence does. KV
/// heads are assigned to classes in turn, unless --dim gives the number of heads of a class; they are then
/// drawn. For a ragged argument, --dim draws a length for every head of every instance, which is as long as
/// its longest head.
rt::Result<rt::TensorMap> generateInputs(const Arguments &arguments, Dims &dims, uint64_t seed);

/// Generates the inputs of step number `step` of the workload called `name` (a forest, from
/// attn_rt/workload/Workload.h). Forest.cpp describes how nodes become instances; each head of a ragged
/// argument keeps a drawn number of a node's tokens. Refuses, naming step and node: more rows than tokens, no
/// rows, and paths of more tokens than 31 bits count. Also refuses a workload of other heads than the
/// function's, and sizes in `dims` that follow from the workload.
rt::Result<rt::TensorMap> generateForest(const Arguments &arguments, const rt::Workload &workload,
                                         const std::string &name, int64_t step, Dims &dims, uint64_t seed);

/// Checks that every tensor belongs to an argument: a misspelt one would be silently replaced by a default.
rt::Status checkNames(const Arguments &arguments, const rt::TensorMap &tensors);

} // namespace attn::run

#endif
