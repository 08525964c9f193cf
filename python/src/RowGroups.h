//===- RowGroups.h - New tokens of a step, and its rows ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_PYTHON_ROWGROUPS_H
#define ATTN_PYTHON_ROWGROUPS_H

#include "Binding.h"

#include "attn-c/Cache.h"

namespace attn::python {

/// The new tokens of a step, as the C API takes them: a number of tokens for each node, or one for all.
/// Python's ints are read here, as a step has many nodes. `read` converts any other value to an int, or
/// raises; its arguments are "append" or "tokens", and the value.
class Appends {
public:
  Appends(const py::list &nodes, const py::object &tokens, const py::function &read);
  const AttnAppend *data() const { return appends_.data(); }
  size_t size() const { return appends_.size(); }
  int64_t tokens() const { return tokens_; }

private:
  std::vector<AttnAppend> appends_;
  int64_t tokens_ = 0; ///< the sum over all nodes
};

/// The requests of a step as the C API takes them. Most are a node, or a tuple with it, and are read here: a
/// step of many sequences would otherwise spend its time in Python. `read` converts any other request to
/// (node, rows, draft), or raises; its arguments are the index and the request.
class RowGroups {
public:
  RowGroups(const py::list &requests, const py::function &read);
  const AttnRowGroup *data() const { return groups_.data(); }
  size_t size() const { return groups_.size(); }
  int64_t rows() const { return rows_; }
  /// The nodes whose drafts are rows, too.
  const std::vector<AttnNode> &drafts() const { return drafts_; }

private:
  std::vector<AttnRowGroup> groups_;
  std::vector<AttnNode> drafts_;
  int64_t rows_ = 0; ///< without the rows of drafts
};

} // namespace attn::python

#endif
