//===- RowGroups.h - What a step appends, and its rows ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_PYTHON_ROWGROUPS_H
#define ATTN_PYTHON_ROWGROUPS_H

#include "Binding.h"

#include "attn-c/Cache.h"

namespace attn::python {

/// What a step appends, as the C API takes it: to each node its number of tokens, or one to all. Python's own
/// whole numbers are read here, as the nodes of a step are many; of whatever else there is `read` makes one,
/// or raises: it takes "append" or "tokens", and the value.
class Appends {
public:
  Appends(const py::list &nodes, const py::object &tokens, const py::function &read);
  const AttnAppend *data() const { return appends_.data(); }
  size_t size() const { return appends_.size(); }
  int64_t tokens() const { return tokens_; }

private:
  std::vector<AttnAppend> appends_;
  int64_t tokens_ = 0; ///< of all
};

/// The requests of a step as the C API takes them. Most are a node, or a tuple with it, and are read here: a
/// step of many sequences would else spend its time in Python. Whatever else there is `read` decides, which
/// takes the index and the request and gives (node, rows, draft), or raises.
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
  int64_t rows_ = 0; ///< without those of drafts
};

} // namespace attn::python

#endif
