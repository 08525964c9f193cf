//===- Inputs.h - Tensors for a problem -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What attn-run computes on when it is given no file. The data is made to find
// mistakes, not to flatter: pages are scattered over the pool and shuffled,
// the pool has pages nobody lists, and everything a kernel has no business
// reading (unlisted pages, the tails of listed ones, gaps) holds NaN, the
// unused entries of a block table an index far out of range.
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
  std::string instancesDim, tokensDim; ///< what the file calls its two dynamic dimensions
  Store store = Store::Dense;
  int64_t page = 0, heads = 0, keyDim = 0, valueDim = 0;
  rt::Format key = rt::Format::plain(rt::DType::BF16), value = key;
  /// Of the heads that alone it holds, as many as are in the class. -1: it holds `heads`; 0 are those of a
  /// class whose region has vanished from the problem, because nothing of it is seen.
  int headClass = -1;
  bool ragged = false; ///< each head has lengths and pages of its own

  /// With so many heads; 0: nobody knows yet.
  rt::Store layout(int64_t heads) const {
    return {store, page, ragged, heads, {'k', keyDim, key}, {'v', valueDim, value}};
  }
};

/// The query, sink logits, or a table that a score region reads. A dynamic dimension is -1 in `shape` and has
/// a name.
struct TensorArgument {
  std::string name;
  rt::DType dtype = rt::DType::F32;
  std::vector<int64_t> shape;
  std::vector<std::string> dims;
};

/// The head class of each KV head, and what the file calls the classes.
struct ClassesArgument {
  int64_t heads = 0;
  std::vector<std::string> names;
};

/// The arguments of an attention function, as far as tensors for it need to know them.
struct Arguments {
  TensorArgument query;
  std::vector<KVArgument> kv;
  std::vector<TensorArgument> others;
  std::optional<ClassesArgument> classes;
};

/// Generates every input tensor under the names of the operand model. Sequences have `q_len` rows, the last
/// ones of their tokens. A KV argument whose instances dimension is not `batch` is shared: its instances (one
/// unless --dim says otherwise) divide the sequences among them in order. Where a sequence has several KV
/// arguments, the tokens of each follow those of the one before; where arguments are of head classes, those
/// of one before that the same heads see, and the last of each class ends where the sequence does. KV heads
/// take turns in their classes, unless --dim says how many are in a class; they are then drawn. Of a ragged
/// argument --dim draws a length for every head of every instance, which is as long as its longest head.
rt::Result<rt::TensorMap> generateInputs(const Arguments &arguments, Dims &dims, uint64_t seed);

/// The same for step number `step` of the workload called `name` (a forest, from
/// attn_rt/workload/Workload.h). How nodes become instances is told in Forest.cpp; each head of a ragged
/// argument keeps a drawn number of a node's tokens. Refuses, naming step and node: more rows than tokens, no
/// rows, paths of more tokens than 31 bits count; a workload of other heads than the function's, and sizes in
/// `dims` that follow from the workload.
rt::Result<rt::TensorMap> generateForest(const Arguments &arguments, const rt::Workload &workload,
                                         const std::string &name, int64_t step, Dims &dims, uint64_t seed);

/// Every tensor must belong to an argument; a misspelt one would be silently replaced by a default.
rt::Status checkNames(const Arguments &arguments, const rt::TensorMap &tensors);

} // namespace attn::run

#endif
