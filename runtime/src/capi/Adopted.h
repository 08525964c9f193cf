//===- Adopted.h - The caller's memory on the host device -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_CAPI_ADOPTED_H
#define ATTN_RT_CAPI_ADOPTED_H

#include "attn_rt/device/HostDevice.h"

#include <algorithm>
#include <string>
#include <vector>

namespace attn::rt::capi {

/// Memory of the caller, registered on the host device during a launch. The caller's buffers may overlap
/// (keys and values in one tensor), allocations may not.
class Adopted {
public:
  explicit Adopted(HostDevice &device) : device_(device) {}
  ~Adopted() {
    for (const Range &range : ranges_)
      if (range.known)
        (void)device_.release(reinterpret_cast<void *>(range.begin));
  }
  /// The name must outlive this object.
  void add(uint64_t address, size_t bytes, const char *name) {
    if (bytes && !device_.holds(reinterpret_cast<void *>(address), bytes))
      ranges_.push_back({address, address + bytes, name, false});
  }
  Status adopt() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range &a, const Range &b) { return a.begin < b.begin; });
    for (size_t i = 0, next; i < ranges_.size(); i = next) {
      Range &all = ranges_[i];
      std::string label = all.name;
      for (next = i + 1; next < ranges_.size() && ranges_[next].begin < all.end; ++next) {
        all.end = std::max(all.end, ranges_[next].end);
        label += std::string(", ") + ranges_[next].name;
      }
      if (Status status = device_.adopt(reinterpret_cast<void *>(all.begin), all.end - all.begin, label);
          !status)
        return status;
      all.known = true;
    }
    return {};
  }

private:
  struct Range {
    uint64_t begin, end;
    const char *name;
    bool known;
  };
  HostDevice &device_;
  std::vector<Range> ranges_;
};

} // namespace attn::rt::capi

#endif
