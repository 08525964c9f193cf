//===- Attn.h - The attn dialect --------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_ATTN_H
#define ATTN_DIALECT_ATTN_IR_ATTN_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "attn_rt/artifact/VisibilityTerms.h"
namespace mlir::attn {
using ::attn::rt::VisibilityKind;
}
#include "attn/Dialect/Attn/IR/AttnEnums.h.inc"
#include "attn/Support/TypedAttr.h"
#define GET_ATTRDEF_CLASSES
#include "attn/Dialect/Attn/IR/AttnAttributes.h.inc"
#include "attn/Dialect/Attn/IR/AttnDialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "attn/Dialect/Attn/IR/AttnTypes.h.inc"
namespace mlir::attn {
class ScoreFnOp; // StepOps.h; it also has a score region
}
#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnOps.h.inc"

namespace mlir::attn {
/// The attributes that passes set for later passes (AttnDialect.td).
inline constexpr TypedAttr<AttnDialect::BackwardAttrHelper> backwardAttr;
inline constexpr TypedAttr<AttnDialect::OrderedAttrHelper> orderedAttr;
/// The value of `attn.ordered` for gradients in two launches.
inline constexpr llvm::StringLiteral orderedApart = "apart";
inline constexpr TypedAttr<AttnDialect::SignificanceAttrHelper> significanceAttr;
inline constexpr TypedAttr<AttnDialect::SignificanceRowsAttrHelper> significanceRowsAttr;
inline constexpr TypedAttr<AttnDialect::DevicePlanAttrHelper> devicePlanAttr;
inline constexpr TypedAttr<AttnDialect::NumericsAttrHelper> numericsAttr;
inline constexpr TypedAttr<AttnDialect::FusedAttrHelper> fusedAttr;
inline constexpr TypedAttr<AttnDialect::SplitsTokensAttrHelper> splitsTokensAttr;
inline constexpr TypedAttr<AttnDialect::PlansAttrHelper> plansAttr;
inline constexpr TypedAttr<AttnDialect::GradientAttrHelper> gradientAttr;
inline constexpr TypedAttr<AttnDialect::FusedPartAttrHelper> fusedPartAttr;
inline constexpr TypedAttr<AttnDialect::TablesAttrHelper> tablesAttr;
inline constexpr TypedAttr<AttnDialect::OperandAttrHelper> operandAttr;
inline constexpr TypedAttr<AttnDialect::FirstEndAttrHelper> firstEndAttr;
inline constexpr TypedAttr<AttnDialect::FirstClassEndAttrHelper> firstClassEndAttr;
inline constexpr TypedAttr<AttnDialect::FormAttrHelper> formAttr;
inline constexpr TypedAttr<AttnDialect::RowSumsAttrHelper> rowSumsAttr;
inline constexpr TypedAttr<AttnDialect::SumsPartsAttrHelper> sumsPartsAttr;
inline constexpr TypedAttr<AttnDialect::StoresScoresAttrHelper> storesScoresAttr;
inline constexpr TypedAttr<AttnDialect::WeighsScoresAttrHelper> weighsScoresAttr;
inline constexpr TypedAttr<AttnDialect::WeighsTokensAttrHelper> weighsTokensAttr;
inline constexpr TypedAttr<AttnDialect::StartsNextAttrHelper> startsNextAttr;
inline constexpr TypedAttr<AttnDialect::FirstAttrHelper> firstAttr;

inline bool keepsTokens(Stationary stationary) { return stationary != Stationary::Rows; }
} // namespace mlir::attn

#endif
