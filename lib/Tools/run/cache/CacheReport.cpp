//===- CacheReport.cpp - Reports of attn-run about copied rows ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CacheReport.h"

#include "run/report/HostCounters.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>

using namespace attn;
using namespace attn::run;
using llvm::formatv;

double CacheRecord::amplification() const {
  double moved = static_cast<double>(host->counters.bytesRead + host->counters.bytesWritten);
  return floor > 0 ? moved / static_cast<double>(floor) : 0;
}

std::string run::firstDifference(const std::string &name, const rt::Tensor &got, const rt::Tensor &expected) {
  if (got.shape != expected.shape || got.bytes.size() != expected.bytes.size())
    return name + " has shape " + rt::shapeText(got.shape) + " instead of " + rt::shapeText(expected.shape);
  const size_t size = rt::dtypeSize(got.dtype);
  int64_t first = -1, count = 0;
  for (int64_t i = 0; i < got.elements(); ++i)
    if (std::memcmp(&got.bytes[i * size], &expected.bytes[i * size], size) != 0) {
      first = first < 0 ? i : first;
      ++count;
    }
  if (!count)
    return "";
  std::string index;
  int64_t rest = first;
  for (size_t axis = got.shape.size(); axis-- > 0; rest /= got.shape[axis])
    index = std::to_string(rest % got.shape[axis]) + (index.empty() ? "" : ", ") + index;
  const auto bits = [&](const rt::Tensor &tensor) {
    uint64_t value = 0;
    std::memcpy(&value, &tensor.bytes[first * size], size);
    return llvm::utohexstr(value, /*LowerCase=*/true, /*Width=*/2 * size);
  };
  return formatv("{0}[{1}] has the bits 0x{2}, expected 0x{3}; {4} elements differ", name, index, bits(got),
                 bits(expected), count);
}

std::string run::cacheSummary(const CacheRecord &record) {
  const rt::Manifest &m = record.manifest;
  const rt::KernelInfo &kernel = *m.rowCopy();
  std::string text;
  llvm::raw_string_ostream out(text);
  out << formatv("{0}: {1} rows of a cache of {2} slots, {3} layers, {4} heads, dim {5}{6}, {7}\n", m.entry,
                 record.tensors.rows, record.tensors.slots, record.tensors.layers, m.kvHeads, m.keyDim,
                 m.keyDim == m.valueDim ? "" : formatv("/{0}", m.valueDim).str(), rt::dtypeName(m.dtype));
  out << formatv("  kernel    {0} for {1}: {2} blocks x {3} threads\n", kernel.name, m.target, record.blocks,
                 kernel.threads);
  out << formatv("  time      {0} in {1:f1} ms", record.loadMs ? "loaded" : "compiled",
                 record.loadMs ? record.loadMs : record.compileMs);
  if (record.host)
    out << formatv(", native code for the CPU in {0:f1} ms", record.hostCodeMs);
  out << formatv(", ran in {0:f4} ms on {1}", record.runMs, record.deviceName);
  if (!record.host)
    out << formatv(", {0:f1} GB/s", static_cast<double>(record.floor) / record.runMs * 1e-6);
  out << "\n";
  if (record.host) {
    const rt::host::Counters &c = record.host->counters;
    out << formatv("  memory    read {0} B, wrote {1} B: {2:f3} times the floor ({3})\n", c.bytesRead,
                   c.bytesWritten, record.amplification(), budgetText(record.amplification(), 1.03, true));
    out << formatv("  access    {0:f3} of every sector used ({1})\n", c.sectorEfficiency(),
                   budgetText(c.sectorEfficiency(), 0.97, false));
    out << detectorsLine(*record.host);
  }
  if (!record.failure.empty())
    out << "wrong: " << record.failure << "\n";
  else if (record.checked)
    out << "right: every bit is the reference's\n";
  return text;
}

std::string run::cacheJson(const CacheRecord &record) {
  const rt::Manifest &m = record.manifest;
  llvm::json::Object object{
      {"entry", m.entry},
      {"device", record.device},
      {"device_name", record.deviceName},
      {"target", m.target},
      {"schedule", m.schedule},
      {"kernel", m.rowCopy()->name},
      {"blocks", record.blocks},
      {"layers", record.tensors.layers},
      {"rows", record.tensors.rows},
      {"slots", record.tensors.slots},
      {"compile_ms", record.compileMs},
      {"run_ms", record.runMs},
      {"repeat", record.repeats},
      {"bytes_floor", record.floor},
      {"passed", record.failure.empty()},
  };
  if (record.loadMs)
    object["load_ms"] = record.loadMs;
  if (!record.failure.empty())
    object["failure"] = record.failure;
  else if (record.checked)
    object["rel_err"] = 0.0;
  if (record.host) {
    addHostCounters(object, *record.host, record.amplification());
    object["host_code_ms"] = record.hostCodeMs;
    object["flops_useful"] = 0;
  }
  std::string text;
  llvm::raw_string_ostream(text) << formatv("{0:2}\n", llvm::json::Value(std::move(object)));
  return text;
}
