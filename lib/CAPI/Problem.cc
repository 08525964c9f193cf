//===- Problem.cc - A user's text, in a context of its own ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Problem.h"

#include "attn/Dialect/Attn/IR/Source.h"
#include "attn/Support/Chip.h"

#include "llvm/Support/MemoryBuffer.h"

namespace attn::capi {

static mlir::attn::Asks readAsks(const AttnAsks &given) {
  mlir::attn::Asks asks;
  if (given.backward)
    asks.backward.emplace(given.tables, given.tables + given.tableCount);
  if (given.ordered != AttnOrderDefault)
    asks.ordered = given.ordered == AttnOrderFixed ? mlir::attn::Order::Fixed
                   : given.ordered == AttnOrderAny ? mlir::attn::Order::Any
                                                   : mlir::attn::Order::Apart;
  if (given.significance)
    asks.significance = given.significance;
  if (given.significanceRows)
    asks.significanceRows = given.significanceRows;
  asks.devicePlan = given.devicePlan;
  if (given.numerics)
    asks.numerics = given.numerics;
  return asks;
}

Problem::Problem(const AttnSource &source, const AttnAsks *asks)
    : entry(source.entry ? source.entry : ""), source_(source),
      context_(mlir::attn::allDialects(), mlir::MLIRContext::Threading::DISABLED),
      handler_(sources_, &context_, stream_) {
  if (source.target)
    options.target = source.target;
  if (source.schedule)
    options.schedule = source.schedule;
  if (asks)
    options.asks = readAsks(*asks);
  options.ptx = false;
  context_.printOpOnDiagnostic(false); // the text itself is quoted instead
  context_.getDiagEngine().registerHandler([this](mlir::Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() != mlir::DiagnosticSeverity::Remark)
      return mlir::failure();
    std::string text;
    llvm::raw_string_ostream stream(text);
    if (auto where = diagnostic.getLocation()->findInstanceOf<mlir::FileLineColLoc>())
      stream << where.getFilename().getValue() << ":" << where.getLine() << ":" << where.getColumn() << ": ";
    stream << "remark: " << diagnostic.str();
    remarks.push_back(std::move(text));
    return mlir::success();
  });
}

rt::Status Problem::parse() {
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy({source_.text, source_.size},
                                                     source_.name ? source_.name : "attn");
  if (auto fault = mlir::attn::findSourceFault(buffer->getBuffer()))
    return rt::inputError((buffer->getBufferIdentifier() + ":" + llvm::Twine(fault->line) + ":" +
                           llvm::Twine(fault->column) + ": error: " + fault->message)
                              .str());
  sources_.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  module = mlir::attn::parseSource(sources_, &context_);
  return module ? rt::Status() : error();
}

rt::Error Problem::error() {
  llvm::StringRef text = llvm::StringRef(said_).rtrim();
  return rt::inputError(text.empty() ? "the compiler refused the text and did not say why" : text.str());
}

rt::Status checkSource(const AttnSource *source) {
  if (!source || (source->size && !source->text))
    return rt::inputError("expected a text, got null");
  if (source->size > (size_t{1} << 28))
    return rt::inputError("expected a text of at most 256 MiB, got " + std::to_string(source->size) +
                          " bytes");
  if (source->target && !mlir::attn::findChip(source->target))
    return rt::inputError("target: expected one of " + mlir::attn::listChips() + ", got '" + source->target +
                          "'");
  if (source->schedule && !mlir::attn::isKnownSchedule(source->schedule))
    return rt::inputError("schedule: expected one of " + mlir::attn::listSchedules() + ", got '" +
                          source->schedule + "'");
  return {};
}

rt::Status checkAsks(const AttnAsks *asks) {
  if (!asks)
    return {};
  if (asks->tableCount && !asks->tables)
    return rt::inputError("tables: expected " + std::to_string(asks->tableCount) + " names, got null");
  for (size_t i = 0; i < asks->tableCount; ++i)
    if (!asks->tables[i])
      return rt::inputError("tables: expected a name at index " + std::to_string(i) + ", got null");
  if (asks->tableCount && !asks->backward)
    return rt::inputError("tables: expected none without backward, got '" + std::string(asks->tables[0]) +
                          "'");
  if (asks->ordered > AttnOrderApart)
    return rt::inputError("ordered: expected default (0), fixed (1), any (2) or apart (3), got " +
                          std::to_string(asks->ordered));
  if (asks->significanceRows < 0)
    return rt::inputError("significanceRows: expected 1 or more, or 0 for all rows, got " +
                          std::to_string(asks->significanceRows));
  return {};
}

} // namespace attn::capi
