//===- Elements.h - MLIR's element types and the runtime's table -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_SUPPORT_ELEMENTS_H
#define ATTN_SUPPORT_ELEMENTS_H

#include "attn_rt/tensor/ElementType.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Types.h"

namespace mlir::attn {

namespace rt = ::attn::rt;

/// What the table of element types says of an MLIR type; null where it does not know it.
const rt::ElementType *findElement(Type type);
/// Of a type that the table knows, because a verifier has asked it; any other ends the process with a
/// message.
const rt::ElementType &elementOf(Type type);
/// The dtype of a type, or an error that names it and those that are known.
FailureOr<rt::DType> dtypeOf(Type type, function_ref<InFlightDiagnostic()> emitError);
/// Whether tensor cores multiply elements of this type as they are.
bool isMultiplied(Type type);
/// By which power of two floats of this type are too small where their bits are those of an f16 (e2m1).
int64_t exponentBelowF16(Type type);
/// Bytes of an element, of whatever integer or float.
inline int64_t bytesOf(Type type) { return type.getIntOrFloatBitWidth() / 8; }

} // namespace mlir::attn

#endif
