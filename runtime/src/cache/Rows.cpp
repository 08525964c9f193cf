//===- Rows.cpp - Lists of slots, checked ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/CacheRows.h"

#include <algorithm>

namespace attn::rt {

namespace {

std::string text(int64_t number) { return std::to_string(number); }

uint64_t entry(int32_t slot, size_t row) {
  return static_cast<uint64_t>(static_cast<uint32_t>(slot)) << 32 | static_cast<uint32_t>(row);
}
int64_t slotOf(uint64_t entry) { return static_cast<int64_t>(entry >> 32); }
int64_t rowOf(uint64_t entry) { return static_cast<int64_t>(entry & 0xffffffff); }

std::string placeText(Place place) { return "slot " + text(place.slot) + " of page " + text(place.page); }

} // namespace

void RowChecker::reserve(size_t rows) {
  reads_.reserve(rows);
  writes_.reserve(rows);
}

Status RowChecker::check(KernelInfo::Role role, const RowLists &lists, int64_t read, int64_t written) {
  const bool reads = role != KernelInfo::Role::Append, writes = role != KernelInfo::Role::Gather;
  const bool twoCaches = role == KernelInfo::Role::Requantize;
  const std::string what = std::string(kernelRoleName(role)) + ": ";
  if ((!reads && !lists.from.empty()) || (!writes && !lists.to.empty()) ||
      (reads && writes && lists.from.size() != lists.to.size()))
    return inputError(what + "expected " +
                      (reads && writes ? "as many slots to read as to write"
                       : reads         ? "only slots to read"
                                       : "only slots to write") +
                      ", got " + text(std::ssize(lists.from)) + " to read and " + text(std::ssize(lists.to)) +
                      " to write");
  reads_.clear();
  writes_.clear();
  const auto outside = [&](size_t row, const char *verb, int32_t slot, int64_t slots) {
    return inputError(what + "row " + text(static_cast<int64_t>(row)) + " " + verb + " slot " + text(slot) +
                      ", but the cache has " + text(slots) + " slots, counted from 0");
  };
  for (size_t row = 0; row < lists.size(); ++row) {
    if (reads && writes && (lists.from[row] < 0) != (lists.to[row] < 0))
      return inputError(what + "row " + text(static_cast<int64_t>(row)) + " is to go from slot " +
                        text(lists.from[row]) + " to slot " + text(lists.to[row]) +
                        ": expected both to be negative, or neither");
    if (reads && lists.from[row] >= read)
      return outside(row, "reads", lists.from[row], read);
    if (writes && lists.to[row] >= written)
      return outside(row, "writes", lists.to[row], written);
    if (writes && lists.to[row] >= 0) {
      writes_.push_back(entry(lists.to[row], row));
      if (reads && !twoCaches)
        reads_.push_back(entry(lists.from[row], row));
    }
  }
  std::sort(writes_.begin(), writes_.end());
  for (size_t i = 1; i < writes_.size(); ++i)
    if (slotOf(writes_[i]) == slotOf(writes_[i - 1]))
      return inputError(what + "rows " + text(rowOf(writes_[i - 1])) + " and " + text(rowOf(writes_[i])) +
                        " both write slot " + text(slotOf(writes_[i])));
  std::sort(reads_.begin(), reads_.end());
  for (size_t r = 0, w = 0; r < reads_.size(); ++r) {
    while (w < writes_.size() && slotOf(writes_[w]) < slotOf(reads_[r]))
      ++w;
    if (w < writes_.size() && slotOf(writes_[w]) == slotOf(reads_[r]))
      return inputError(what + "row " + text(rowOf(reads_[r])) + " reads slot " + text(slotOf(reads_[r])) +
                        ", which row " + text(rowOf(writes_[w])) +
                        " writes: rows are copied in any order, so no slot may be both");
  }
  return {};
}

Status MovementRows::assign(const Movement &movement, int32_t headClass, int32_t pages, int32_t pageTokens) {
  const auto check = [&](const std::string &what, Place place, int32_t tokens) -> Status {
    if (place.page < 0 || place.page >= pages)
      return inputError(what + placeText(place) + ", but the pool has " + text(pages) +
                        " pages, counted from 0");
    if (place.slot < 0 || tokens < 1 || int64_t{place.slot} + tokens > pageTokens)
      return inputError(what + text(tokens) + " tokens from " + placeText(place) +
                        " on, but they must lie within the page's " + text(pageTokens) + " slots");
    return {};
  };
  const auto slotOf = [&](Place place, int32_t token) {
    return static_cast<int32_t>(int64_t{place.page} * pageTokens + place.slot + token);
  };
  writeTo.assign(static_cast<size_t>(movement.rows), -1);
  copyFrom.clear();
  copyTo.clear();
  for (size_t i = 0; i < movement.copies.size(); ++i) {
    const Movement::Copy &copy = movement.copies[i];
    if (copy.headClass != headClass)
      continue;
    const std::string what = "copy " + text(static_cast<int64_t>(i)) + " of the movement ";
    if (Status status = check(what + "reads ", copy.from, copy.tokens); !status)
      return status;
    if (Status status = check(what + "writes ", copy.to, copy.tokens); !status)
      return status;
    for (int32_t token = 0; token < copy.tokens; ++token) {
      copyFrom.push_back(slotOf(copy.from, token));
      copyTo.push_back(slotOf(copy.to, token));
    }
  }
  for (size_t i = 0; i < movement.writes.size(); ++i) {
    const Movement::Write &write = movement.writes[i];
    if (write.headClass != headClass)
      continue;
    const std::string what = "write " + text(static_cast<int64_t>(i)) + " of the movement ";
    if (Status status = check(what + "writes ", write.to, write.tokens); !status)
      return status;
    if (write.row < 0 || int64_t{write.row} + write.tokens > movement.rows)
      return inputError(what + "takes rows from " + text(write.row) + " to " +
                        text(int64_t{write.row} + write.tokens) + ", but it has " + text(movement.rows));
    for (int32_t token = 0; token < write.tokens; ++token) {
      int32_t &to = writeTo[static_cast<size_t>(write.row) + static_cast<size_t>(token)];
      if (to >= 0)
        return inputError(what + "takes row " + text(write.row + token) + ", which goes to slot " + text(to) +
                          " already");
      to = slotOf(write.to, token);
    }
  }
  return {};
}

} // namespace attn::rt
