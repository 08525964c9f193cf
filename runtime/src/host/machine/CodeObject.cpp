//===- CodeObject.cpp - Native code as bytes ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Little endian, fields in order, lists after their lengths: read once per load,
// so there are no indices and no alignment. One function names the fields of each
// record, for both directions.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/host/CodeObject.h"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <type_traits>

namespace attn::rt::host {

namespace {

constexpr uint64_t magic = 0x65646f636e747461; // "attncode"

class Writer {
public:
  static constexpr bool reads = false;
  std::vector<uint8_t> bytes;

  template <typename T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void operator()(const T &value) {
    append(&value, sizeof(value));
  }
  void operator()(const std::string &text) {
    (*this)(static_cast<uint32_t>(text.size()));
    append(text.data(), text.size());
  }
  template <typename T> void list(const std::vector<T> &items) {
    (*this)(static_cast<uint32_t>(items.size()));
    append(items.data(), items.size() * sizeof(T));
  }
  /// Writes a list of records, each by `fields`.
  template <typename List> void records(const List &items) {
    (*this)(static_cast<uint32_t>(items.size()));
    for (const auto &item : items)
      fields(*this, item);
  }

private:
  void append(const void *from, size_t count) {
    const auto *first = static_cast<const uint8_t *>(from);
    bytes.insert(bytes.end(), first, first + count);
  }
};

/// Reads fields. After a field that does not fit, all later fields are empty.
class Reader {
public:
  static constexpr bool reads = true;
  explicit Reader(std::span<const uint8_t> bytes) : rest_(bytes) {}
  bool failed() const { return failed_; }
  bool atEnd() const { return rest_.empty(); }

  template <typename T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void operator()(T &value) {
    if constexpr (std::same_as<T, bool>) {
      uint8_t byte = 0;
      take(&byte, 1);
      value = byte & 1;
    } else {
      take(&value, sizeof(value));
    }
  }
  void operator()(std::string &text) {
    text.resize(length(1));
    take(text.data(), text.size());
  }
  template <typename T> void list(std::vector<T> &items) {
    items.resize(length(sizeof(T)));
    take(items.data(), items.size() * sizeof(T));
  }
  template <typename T> void records(std::vector<T> &items) {
    items.resize(length(1));
    for (T &item : items)
      fields(*this, item);
  }

private:
  std::span<const uint8_t> rest_;
  bool failed_ = false;

  size_t length(size_t each) {
    uint32_t count = 0;
    take(&count, sizeof(count));
    failed_ |= count > rest_.size() / each;
    return failed_ ? 0 : count;
  }
  void take(void *to, size_t count) {
    failed_ |= count > rest_.size();
    if (failed_ || count == 0)
      return;
    std::memcpy(to, rest_.data(), count);
    rest_ = rest_.subspan(count);
  }
};

template <typename Io, typename Op>
  requires std::same_as<std::remove_const_t<Op>, HostOpInfo>
void fields(Io &io, Op &op) {
  io(op.text);
  io(op.location);
  io(op.access);
  io(op.space);
  io(op.bytes);
  io(op.alignment);
  io(op.invariant);
}

template <typename Io, typename Step>
  requires std::same_as<std::remove_const_t<Step>, WarpStep>
void fields(Io &io, Step &step) {
  auto kind = static_cast<uint8_t>(step.kind);
  io(kind);
  if constexpr (Io::reads)
    step.kind = static_cast<WarpStep::Kind>(kind & 3);
  io(step.count);
  for (auto &word : step.in)
    io(word);
  for (auto &word : step.out)
    io(word);
  io(step.op);
}

template <typename Io, typename Program>
  requires std::same_as<std::remove_const_t<Program>, WarpProgram>
void fields(Io &io, Program &program) {
  io.records(program.steps);
}

template <typename Io, typename Chain>
  requires std::same_as<std::remove_const_t<Chain>, WgmmaChain>
void fields(Io &io, Chain &chain) {
  io(chain.n);
  io(chain.acc);
}

template <typename Io, typename Step>
  requires std::same_as<std::remove_const_t<Step>, WgmmaStep>
void fields(Io &io, Step &step) {
  io(step.op);
  io(step.chain);
  io(step.half);
  io(step.transposed);
  io(step.lhsTransposed);
  io(step.lhs);
  io(step.lhsAddress);
  io(step.rhsAddress);
}

template <typename Io, typename Program>
  requires std::same_as<std::remove_const_t<Program>, WgmmaProgram>
void fields(Io &io, Program &program) {
  io.records(program.chains);
  io.records(program.steps);
}

/// The fields that kernels do not share.
template <typename Io, typename Kernel>
  requires std::same_as<std::remove_const_t<Kernel>, HostKernel>
void fields(Io &io, Kernel &kernel) {
  io(kernel.name);
  io.list(kernel.parameterBytes);
  io(kernel.sharedAlignment);
  io(kernel.staticShared);
  io.list(kernel.writtenParameters);
  io(kernel.writesAnywhere);
  io(kernel.blocksPerMultiprocessor);
  io(kernel.inOrder);
  io(kernel.checked);
}

bool isReported(const HostOpInfo &op) {
  return op.access != Access::Load && op.access != Access::Store && op.access != Access::Atomic;
}

Error malformed(const std::string &name, const std::string &what) {
  return inputError(name + ": host code: " + what);
}

} // namespace

std::string_view thisCpu() {
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  return cpuModels[v3];
}

std::vector<uint8_t> writeCodeObject(const CodeObject &object) {
  Writer out;
  out(magic);
  out(codeVersion);
  out(object.cpu);
  out(object.checked);
  out.records(object.kernels);
  const HostKernel shared = object.kernels.empty() ? HostKernel() : object.kernels.front();
  std::vector<HostOpInfo> ops(shared.ops.begin(), shared.ops.end());
  for (HostOpInfo &op : ops)
    if (!object.checked && !isReported(op))
      op.text = op.location = "";
  out.records(ops);
  out.records(shared.programs);
  out.records(shared.wgmmaPrograms);
  out.list(object.elf);
  return std::move(out.bytes);
}

Result<CodeObject> readCodeObject(std::span<const uint8_t> bytes, const std::string &name) {
  Reader in(bytes);
  uint64_t mark = 0;
  uint32_t version = 0;
  in(mark);
  in(version);
  if (in.failed() || mark != magic)
    return malformed(name, "not made by this compiler");
  if (version != codeVersion)
    return malformed(name, "expected version " + std::to_string(codeVersion) + ", got " +
                               std::to_string(version) + ": compile it again");
  CodeObject object;
  in(object.cpu);
  in(object.checked);
  in.records(object.kernels);
  std::vector<HostOpInfo> ops;
  std::vector<WarpProgram> programs;
  std::vector<WgmmaProgram> wgmmaPrograms;
  in.records(ops);
  in.records(programs);
  in.records(wgmmaPrograms);
  in.list(object.elf);
  if (in.failed() || !in.atEnd())
    return malformed(name, "damaged: its fields do not fill its bytes");
  const SharedList<HostOpInfo> sharedOps(std::move(ops));
  const SharedList<WarpProgram> sharedPrograms(std::move(programs));
  const SharedList<WgmmaProgram> sharedWgmma(std::move(wgmmaPrograms));
  for (HostKernel &kernel : object.kernels) {
    kernel.ops = sharedOps;
    kernel.programs = sharedPrograms;
    kernel.wgmmaPrograms = sharedWgmma;
  }
  return object;
}

} // namespace attn::rt::host
