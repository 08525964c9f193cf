//===- Report.cpp - Reports of attn-run -----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Report.h"

#include "HostCounters.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <numeric>

using namespace attn;
using namespace attn::run;
using llvm::formatv;

namespace {

constexpr double lseTolerance = 2e-3;
/// Budgets of decode on this device, from 512 tokens on: printed beside the counts.
constexpr double amplificationLimit = 1.03, sectorBudget = 0.97, bankBudget = 0.02;

/// Returns for example "1.2 MB", decimal.
std::string bytesText(double bytes) {
  for (auto [unit, name] : {std::pair(1e9, "GB"), std::pair(1e6, "MB"), std::pair(1e3, "KB")})
    if (bytes >= unit)
      return formatv("{0:f2} {1}", bytes / unit, name);
  return formatv("{0:f0} B", bytes);
}

std::string plural(int64_t count, const char *noun) {
  return formatv("{0} {1}{2}", count, noun, count == 1 ? "" : "s");
}

/// Returns the tokens of all instances of an operand: "512" or "100..2000".
std::string lengthsText(const rt::OperandBatch &operand) {
  if (operand.lengths.empty())
    return "no";
  auto [low, high] = std::minmax_element(operand.lengths.begin(), operand.lengths.end());
  return *low == *high ? formatv("{0}", *low).str() : formatv("{0}..{1}", *low, *high).str();
}

std::string storeText(const rt::Argument &argument) {
  const rt::Store store = rt::storeOf(argument);
  std::string text = store.text() + (store.ragged && !store.isUnified() ? " ragged" : "");
  const rt::Format keys = store.keys.format, values = store.values.format;
  if (keys.isPlain() && values.isPlain())
    return text;
  return formatv("{0} of {1}{2}", text, keys.text(), keys == values ? "" : "/" + values.text());
}

} // namespace

Tolerances Tolerances::of(const rt::Manifest &manifest) {
  // With few features a row's output may by chance be small beside its values: see attn.attend, "Numerics".
  const int features =
      manifest.isBackward() ? std::min(manifest.keyDim, manifest.valueDim) : manifest.valueDim;
  const rt::ResultInfo *output = manifest.findResult("o");
  const rt::DType dtype = output ? output->dtype : manifest.dtype;
  const double few = std::max(1.0, 32.0 / features);
  double relErr = rt::elementType(dtype).tolerance * few;
  // The largest output is off by about as much as all are, before they are rounded to e4m3.
  const double scales = 2 * rt::elementType(manifest.dtype).tolerance * few;
  // A gradient of scores is p (dp - delta), where delta comes from the rounded output. In rows that see few
  // tokens, the remaining difference has a few times the rounding of an output, and has no bound: past this
  // limit, the effect of that rounding is computed (withDeltaErrors).
  if (manifest.isBackward())
    relErr *= 4;
  if (!manifest.tolerance)
    return {relErr, lseTolerance, scales};
  return {std::max(relErr, *manifest.tolerance), std::max(lseTolerance, *manifest.tolerance),
          std::max(scales, *manifest.tolerance)};
}

double RunRecord::amplification() const {
  if (!host)
    return 0;
  const rt::host::Counters &counters = host->counters;
  double floor = static_cast<double>(rt::problemFloor(manifest, batch).bytes());
  double moved = static_cast<double>(counters.bytesRead + counters.bytesWritten - counters.bytesPartials);
  return floor > 0 ? moved / floor : 0;
}

double RunRecord::amplificationBudget() const {
  int64_t mostRows = 0;
  for (size_t s = 0; s < batch.sequences(); ++s)
    mostRows = std::max<int64_t>(mostRows, batch.qStart[s + 1] - batch.qStart[s]);
  int64_t packed = mostRows * manifest.groupSize();
  return amplificationLimit * static_cast<double>(packed <= 16 ? 1 : (packed + 127) / 128);
}

std::string RunRecord::withoutBudgets() const {
  constexpr int32_t shortest = 512;
  if (manifest.isBackward())
    return "is for a forward pass";
  for (const rt::OperandBatch &operand : batch.operands)
    for (int32_t length : operand.lengths)
      if (length < shortest)
        return "is for lengths from 512 on";
  return "";
}

std::string RunRecord::withoutSectorBudget() const {
  constexpr int64_t sector = 32;
  for (const rt::OperandInfo &operand : manifest.operands) {
    const rt::Store store = rt::storeOf(manifest.argumentOf(operand));
    if (store.keys.format.rowBytes(store.keys.dim) % sector ||
        store.values.format.rowBytes(store.values.dim) % sector)
      return "is for heads of whole sectors";
  }
  return withoutBudgets();
}

std::vector<std::string> RunRecord::missedBudgets() const {
  std::vector<std::string> missed;
  if (!host || !withoutBudgets().empty())
    return missed;
  if (amplification() > amplificationBudget())
    missed.push_back("amplification");
  if (withoutSectorBudget().empty() && host->counters.sectorEfficiency() < sectorBudget)
    missed.push_back("sector_efficiency");
  if (host->counters.bankConflicts() > bankBudget)
    missed.push_back("bank_conflicts");
  return missed;
}

std::string run::summaryText(const RunRecord &record) {
  const rt::Manifest &m = record.manifest;
  const rt::Batch &batch = record.batch;
  std::string text;
  llvm::raw_string_ostream out(text);
  out << formatv("{0}: {1}, {2}, {3}/{4} heads, dim {5}{6}, {7}\n", m.entry,
                 plural(static_cast<int64_t>(batch.sequences()), "sequence"), plural(batch.rows, "query row"),
                 m.qHeads, m.kvHeads, m.keyDim,
                 m.keyDim == m.valueDim ? "" : formatv("/{0}", m.valueDim).str(), rt::dtypeName(m.dtype));
  for (size_t i = 0; i < batch.operands.size(); ++i) {
    const rt::OperandBatch &operand = batch.operands[i];
    const rt::Argument &argument = m.argumentOf(m.operands[i]);
    out << formatv("  {0,-9} {1}, {2} of {3} tokens{4}\n", argument.name, storeText(argument),
                   plural(static_cast<int64_t>(operand.instances()), "instance"), lengthsText(operand),
                   argument.ragged ? " a head" : "");
  }
  if (!m.headClasses.empty())
    out << formatv("  KV heads  {0}\n", rt::classHeadsText(m, record.plan.classHeads));
  const rt::KernelInfo &kernel = m.kernels[static_cast<size_t>(record.plan.kernel)];
  out << formatv(
      "  kernel    {0} for {1}: {2} x {3} threads, {4} of shared memory, tile {5} rows x {6} keys\n",
      kernel.name, m.target, plural(record.plan.blocks, "block"), kernel.threads,
      bytesText(static_cast<double>(kernel.sharedBytes)), kernel.rows, kernel.keys);
  out << formatv("  work      {0}, {1} cut for balance, {2} to merge\n",
                 plural(record.plan.stats.tasks, "task"), record.plan.stats.cuts,
                 plural(static_cast<int64_t>(record.plan.mergeRows.size()), "row"));
  out << formatv("  time      {0} in {1:f1} ms", record.loadMs ? "loaded" : "compiled",
                 record.loadMs ? record.loadMs : record.compileMs);
  if (record.host)
    out << formatv(", native code for the CPU in {0:f1} ms", record.hostCodeMs);
  out << formatv(", ran in {0:f3} ms on {1}", record.runMs, record.deviceName);
  if (record.gpu)
    out << formatv(", predicted {0:f3} ms{1}", record.plan.stats.estimatedSeconds * 1e3,
                   record.device == "host" ? formatv(" on an {0}", std::string(record.gpu->name)).str() : "");
  out << "\n";
  if (record.comparison) {
    Tolerances tolerance = Tolerances::of(m);
    out << formatv("  error     {0:e2} at the worst row and head (tolerance {1:e1})",
                   record.comparison->relErr, tolerance.relErr);
    if (record.comparison->maxErrLse)
      out << formatv(", LSE {0:e2} ({1:e1})", *record.comparison->maxErrLse, tolerance.lse);
    out << "\n";
  }
  if (record.host) {
    const rt::host::Counters &c = record.host->counters;
    const std::string without = record.withoutBudgets();
    out << formatv("  memory    read {0}, wrote {1}: {2:f3} times the floor ({3}); partials {4}\n",
                   bytesText(static_cast<double>(c.bytesRead)),
                   bytesText(static_cast<double>(c.bytesWritten)), record.amplification(),
                   budgetText(record.amplification(), record.amplificationBudget(), true, without),
                   bytesText(static_cast<double>(c.bytesPartials)));
    out << formatv("  access    {0:f3} of every sector used ({1}), bank conflicts {2:f3} ({3})\n",
                   c.sectorEfficiency(),
                   budgetText(c.sectorEfficiency(), sectorBudget, false, record.withoutSectorBudget()),
                   c.bankConflicts(), budgetText(c.bankConflicts(), bankBudget, true, without));
    out << detectorsLine(*record.host);
  }
  if (!record.failure.empty())
    out << "wrong: " << record.failure << "\n";
  else if (record.comparison)
    out << "right: within tolerance of the float64 reference"
        << (record.missedBudgets().empty() ? "\n" : "; a budget is missed\n");
  return text;
}

std::string run::reportJson(const RunRecord &record) {
  const rt::Manifest &m = record.manifest;
  llvm::json::Object object{
      {"entry", m.entry},
      {"device", record.device},
      {"device_name", record.deviceName},
      {"target", m.target},
      {"schedule", m.schedule},
      {"kernel", m.kernels[static_cast<size_t>(record.plan.kernel)].name},
      {"strategy", std::string(rt::strategyNames[static_cast<size_t>(record.strategy)])},
      {"blocks", record.plan.blocks},
      {"sequences", static_cast<int64_t>(record.batch.sequences())},
      {"rows", record.batch.rows},
      {"compile_ms", number(record.compileMs)},
      {"run_ms", number(record.runMs)},
      {"predicted_ms", record.gpu ? number(record.plan.stats.estimatedSeconds * 1e3) : nullptr},
      {"predicted_for", record.gpu ? llvm::json::Value(std::string(record.gpu->name)) : nullptr},
      {"repeat", record.repeats},
      {"passed", record.failure.empty()},
  };
  const rt::PlanStats &plan = record.plan.stats;
  object["kv_bytes"] = plan.kvBytes;
  object["partial_bytes"] = plan.partialBytes;
  object["metadata_bytes"] = plan.metadataBytes;
  object["planned_bytes"] = plan.bytes();
  object["tasks"] = plan.tasks;
  object["balance"] = number(plan.balance);
  if (!m.headClasses.empty()) {
    llvm::json::Object classes;
    for (size_t c = 0; c < m.headClasses.size(); ++c)
      classes[m.headClasses[c].name] = record.plan.classHeads[c];
    object["head_classes"] = std::move(classes);
  }
  if (record.loadMs)
    object["load_ms"] = number(record.loadMs);
  if (!record.failure.empty())
    object["failure"] = record.failure;
  if (record.comparison) {
    Tolerances tolerance = Tolerances::of(m);
    object["rel_err"] = number(record.comparison->relErr);
    object["rel_err_tolerance"] = tolerance.relErr;
    if (record.comparison->maxErrLse) {
      object["max_err_lse"] = number(*record.comparison->maxErrLse);
      object["max_err_lse_tolerance"] = tolerance.lse;
    }
  }
  if (record.host) {
    rt::ProblemFloor floor = rt::problemFloor(m, record.batch);
    addHostCounters(object, *record.host, record.amplification());
    object["host_code_ms"] = number(record.hostCodeMs);
    object["missed_budgets"] =
        record.withoutBudgets().empty() ? llvm::json::Value(record.missedBudgets()) : nullptr;
    object["bytes_floor"] = floor.bytes();
    object["flops_useful"] = number(floor.usefulFlops);
  }
  std::string text;
  llvm::raw_string_ostream(text) << formatv("{0:2}\n", llvm::json::Value(std::move(object)));
  return text;
}
