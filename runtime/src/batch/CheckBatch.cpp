//===- CheckBatch.cpp - What a batch must not say -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/batch/Batch.h"
#include "attn_rt/batch/Visibility.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace attn::rt {

namespace {

constexpr int64_t int32Limit = std::numeric_limits<int32_t>::max();

std::string at(const std::string &tensor, size_t index) {
  return "'" + tensor + "'[" + std::to_string(index) + "]: ";
}

std::string rangeText(int64_t first, int64_t last) {
  return "[" + std::to_string(first) + ", " + std::to_string(last) + ")";
}

/// Checks a list of offsets: from 0, never falling, up to a total.
Status checkOffsets(const std::string &name, const std::vector<int32_t> &offsets, int64_t total, bool exact,
                    const std::string &ofWhat) {
  if (offsets.empty())
    return inputError("'" + name + "': expected at least one element, got none");
  if (offsets.front() != 0)
    return inputError(at(name, 0) + "expected 0, got " + std::to_string(offsets.front()));
  for (size_t i = 1; i < offsets.size(); ++i)
    if (offsets[i] < offsets[i - 1])
      return inputError(at(name, i) + "expected at least " + std::to_string(offsets[i - 1]) +
                        " (the element before), got " + std::to_string(offsets[i]));
  if (offsets.back() > total || (exact && offsets.back() != total))
    return inputError(at(name, offsets.size() - 1) + "expected " + (exact ? "" : "at most ") +
                      std::to_string(total) + " (" + ofWhat + "), got " + std::to_string(offsets.back()));
  return {};
}

/// Names an element: "'kv.lengths'[2]", or "'kv.lengths'[2][5]" for head 5 of a ragged operand.
std::string listText(const std::string &tensor, const OperandBatch &operand, bool ragged, size_t list) {
  const auto heads = static_cast<size_t>(operand.heads);
  return "'" + tensor + "'[" + std::to_string(list / heads) + "]" +
         (ragged ? "[" + std::to_string(list % heads) + "]" : "");
}

/// `stored`: the KV heads of the operand's store.
Status checkRagged(const Argument &argument, const OperandBatch &operand, int64_t stored) {
  const int64_t wanted = argument.ragged ? stored : 1, lengths = std::ssize(operand.lengths);
  if (operand.heads != wanted)
    return inputError("'" + argument.name + ".lengths': expected " + std::to_string(wanted) +
                      (argument.ragged ? " for each instance, one per KV head, got "
                                       : " for each instance, as all KV heads have the same, got ") +
                      std::to_string(operand.heads));
  if (wanted > 0 && lengths % wanted != 0)
    return inputError("'" + argument.name + ".lengths': expected a multiple of " + std::to_string(wanted) +
                      " elements, one per KV head, got " + std::to_string(lengths));
  if (lengths > int32Limit) // kernels count the rows of a table in 32 bits
    return inputError("'" + argument.name + ".lengths': expected at most " + std::to_string(int32Limit) +
                      " elements, got " + std::to_string(lengths));
  return {};
}

Status checkLengths(const Argument &argument, const OperandBatch &operand) {
  const Store store = storeOf(argument);
  const bool isPaged = store.isPaged(), isPacked = store.kind == StoreKind::Packed;
  const int64_t most = isPaged ? store.tokensOf(operand.maxPages) : operand.tokens;
  const auto ofWhat = [&] {
    return isPaged    ? std::to_string(operand.maxPages) + " pages of " + std::to_string(store.tokensOf(1)) +
                            " in '" + argument.name + ".block_table'"
           : isPacked ? "'" + argument.name + ".start'"
                      : "the tokens of '" + argument.name + ".k'";
  };
  for (size_t list = 0; list < operand.lengths.size(); ++list) {
    const size_t i = list / static_cast<size_t>(operand.heads);
    const int64_t capacity = isPacked ? operand.start[i + 1] - operand.start[i] : most;
    const int32_t length = operand.lengths[list];
    if (length < 0 || length > capacity)
      return inputError(listText(argument.name + ".lengths", operand, argument.ragged, list) +
                        ": expected between 0 and " + std::to_string(capacity) + " (" + ofWhat() + "), got " +
                        std::to_string(length));
    if (operand.pos0[i] < 0 || int64_t{operand.pos0[i]} + length > int32Limit)
      return inputError(at(argument.name + ".pos0", i) + "expected between 0 and " +
                        std::to_string(int32Limit - length) + ", got " + std::to_string(operand.pos0[i]));
  }
  return {};
}

Status checkPages(const Argument &argument, const OperandBatch &operand) {
  const Store store = storeOf(argument);
  const auto last = static_cast<uint32_t>(std::min(operand.pages, int32Limit + 1) - 1);
  for (size_t list = 0; list < operand.lengths.size(); ++list) {
    const int64_t used = store.entriesOf(operand.lengths[list]);
    const int32_t *row = operand.blockTable.data() + static_cast<int64_t>(list) * operand.maxPages;
    // The sign of either term is that of a wrong page: operations that every vector unit has.
    uint32_t signs = 0;
    for (int64_t p = 0; p < used; ++p)
      signs |= static_cast<uint32_t>(row[p]) | (last - static_cast<uint32_t>(row[p]));
    if (static_cast<int32_t>(signs) >= 0)
      continue;
    const int32_t *wrong =
        std::find_if(row, row + used, [&](int32_t page) { return page < 0 || page >= operand.pages; });
    return inputError(listText(argument.name + ".block_table", operand, argument.ragged, list) + "[" +
                      std::to_string(wrong - row) + "]: expected a page between 0 and " +
                      std::to_string(operand.pages - 1) + ", got " + std::to_string(*wrong));
  }
  return {};
}

/// Ranges may nest (in a tree) but not cross: crossing ranges come from a mistake in numbering rows, and no
/// order of rows would make each instance's rows contiguous.
Status checkRows(const Argument &argument, const OperandBatch &operand, int64_t rows) {
  const std::string name = argument.name + ".rows";
  const auto text = [&](size_t i) { return rangeText(operand.rowFirst[i], operand.rowLast[i]); };
  const size_t count = operand.instances();
  bool inOrder = true; // one behind the other, as those of sequences that share nothing
  int32_t end = 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t first = operand.rowFirst[i], last = operand.rowLast[i];
    if (first < 0 || first > last || last > rows)
      return inputError(at(name, i) + "expected 0 <= first <= last <= " + std::to_string(rows) +
                        " (the rows of 'q'), got " + text(i));
    inOrder &= first == last || first >= end;
    end = std::max(end, last);
  }
  if (inOrder)
    return {};
  std::vector<size_t> order;
  for (size_t i = 0; i < count; ++i)
    if (operand.rowFirst[i] < operand.rowLast[i])
      order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (operand.rowFirst[a] != operand.rowFirst[b])
      return operand.rowFirst[a] < operand.rowFirst[b];
    return operand.rowLast[a] != operand.rowLast[b] ? operand.rowLast[a] > operand.rowLast[b] : a < b;
  });
  std::vector<size_t> open;
  for (size_t i : order) {
    while (!open.empty() && operand.rowLast[open.back()] <= operand.rowFirst[i])
      open.pop_back();
    if (!open.empty() && operand.rowLast[open.back()] < operand.rowLast[i])
      return inputError("'" + name + "': [" + std::to_string(open.back()) + "] = " + text(open.back()) +
                        " and [" + std::to_string(i) + "] = " + text(i) +
                        " overlap; expected apart or one inside the other");
    open.push_back(i);
  }
  return {};
}

/// Kernels count the slots of one head in 32 bits.
Status checkSlots(const Argument &argument, const OperandBatch &operand, int64_t heads) {
  const int64_t tokens =
      storeOf(argument).slots(static_cast<int64_t>(operand.instances()), operand.tokens, operand.pages);
  if (heads == 0 || tokens <= int32Limit / heads)
    return {};
  return inputError("'" + argument.name + "': expected at most " + std::to_string(int32Limit / heads) +
                    " tokens of " + std::to_string(heads) + " heads in its store, got " +
                    std::to_string(tokens));
}

} // namespace

Status checkClasses(const Manifest &manifest, const std::vector<int32_t> &classes) {
  if (manifest.headClasses.empty())
    return {};
  if (static_cast<int>(classes.size()) != manifest.kvHeads)
    return inputError("'classes': expected " + std::to_string(manifest.kvHeads) +
                      " elements, one per KV head, got " + std::to_string(classes.size()));
  std::string names;
  for (const HeadClassInfo &headClass : manifest.headClasses)
    names += (names.empty() ? "" : ", ") + headClass.name;
  const int64_t last = static_cast<int64_t>(manifest.headClasses.size()) - 1;
  for (size_t i = 0; i < classes.size(); ++i)
    if (classes[i] < 0 || classes[i] > last)
      return inputError(at("classes", i) + "expected a class between 0 and " + std::to_string(last) + " (" +
                        names + "), got " + std::to_string(classes[i]));
  return {};
}

namespace {

Status checkOperand(const Argument &argument, const OperandBatch &operand, int64_t stored, int64_t rows) {
  if (Status s = checkRagged(argument, operand, stored); !s)
    return s;
  const auto count = [&](const char *what, size_t has) -> Status {
    if (has == operand.instances())
      return {};
    return inputError("'" + argument.name + "." + what + "': expected " +
                      std::to_string(operand.instances()) + " elements, one per length, got " +
                      std::to_string(has));
  };
  if (Status s = count("pos0", operand.pos0.size()); !s)
    return s;
  if (Status s = count("rows", std::min(operand.rowFirst.size(), operand.rowLast.size())); !s)
    return s;
  if (argument.store == Argument::Store::Packed) {
    if (Status s = count("start", operand.start.empty() ? 0 : operand.start.size() - 1); !s)
      return s;
    if (Status s = checkOffsets(argument.name + ".start", operand.start, operand.tokens, false,
                                "the tokens of '" + argument.name + ".k'");
        !s)
      return s;
  }
  if (Status s = checkLengths(argument, operand); !s)
    return s;
  if (storeOf(argument).isPaged()) {
    if (operand.blockTable.size() != operand.lengths.size() * static_cast<size_t>(operand.maxPages))
      return inputError("'" + argument.name + ".block_table': expected " +
                        std::to_string(operand.lengths.size()) + " rows of " +
                        std::to_string(operand.maxPages));
    if (Status s = checkPages(argument, operand); !s)
      return s;
  }
  return checkRows(argument, operand, rows);
}

} // namespace

Status checkBatch(const Manifest &manifest, const Batch &batch) {
  // Output rows and packed rows are counted in 32 bits by the plan and the kernels.
  const int64_t rowLimit = int32Limit / manifest.qHeads;
  if (batch.rows < 0 || batch.rows > rowLimit)
    return inputError("'q': expected at most " + std::to_string(rowLimit) + " rows of " +
                      std::to_string(manifest.qHeads) + " heads, got " + std::to_string(batch.rows));
  if (Status s = checkOffsets("q_start", batch.qStart, batch.rows, true, "the rows of 'q'"); !s)
    return s;
  if (static_cast<int64_t>(batch.qPos.size()) != batch.rows)
    return inputError("'q_pos': expected " + std::to_string(batch.rows) + " elements, one per row, got " +
                      std::to_string(batch.qPos.size()));
  if (batch.operands.size() != manifest.operands.size())
    return inputError("expected " + std::to_string(manifest.operands.size()) + " operands, got " +
                      std::to_string(batch.operands.size()));
  if (!batch.ends.empty() && batch.ends.size() != manifest.ends.size())
    return inputError("'ends': expected " + std::to_string(manifest.ends.size()) + " elements, got " +
                      std::to_string(batch.ends.size()));
  for (size_t i = 0; i < batch.ends.size(); ++i)
    if (const int32_t least = leastSize(manifest, i); batch.ends[i] < least)
      return inputError(at("ends", i) + "expected at least " + std::to_string(least) + ", got " +
                        std::to_string(batch.ends[i]));
  if (Status s = checkClasses(manifest, batch.classes); !s)
    return s;
  const std::vector<int32_t> heads = classHeads(manifest, batch);
  for (size_t i = 0; i < batch.operands.size(); ++i) {
    const Argument &argument = manifest.argumentOf(manifest.operands[i]);
    const int64_t stored =
        argument.headClass < 0 ? manifest.kvHeads : heads[static_cast<size_t>(argument.headClass)];
    if (Status s = checkOperand(argument, batch.operands[i], stored, batch.rows); !s)
      return s;
    if (argument.headClass >= 0)
      if (Status s = checkSlots(argument, batch.operands[i], stored); !s)
        return s;
  }
  return {};
}

} // namespace attn::rt
