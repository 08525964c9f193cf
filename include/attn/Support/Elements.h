//===- Elements.h - MLIR's element types and the runtime's table -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_SUPPORT_ELEMENTS_H
#define ATTN_SUPPORT_ELEMENTS_H

#include "attn_rt/tensor/ElementType.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Types.h"

namespace mlir::attn {

namespace rt = ::attn::rt;

/// Returns the entry of an MLIR type in the table of element types; null if it has none.
const rt::ElementType *findElement(Type type);
/// Returns the entry of a type that a verifier has checked; any other type ends the process with a message.
const rt::ElementType &elementOf(Type type);
/// Returns the dtype of a type, or an error that names it and the known types.
FailureOr<rt::DType> dtypeOf(Type type, function_ref<InFlightDiagnostic()> emitError);
/// Whether tensor cores multiply elements of this type without a conversion.
bool isMultiplied(Type type);
/// Returns the power of two by which floats of this type (e2m1) are too small if their bits are read as an
/// f16.
int64_t exponentBelowF16(Type type);
/// Returns the bytes of an element, any integer or float.
inline int64_t bytesOf(Type type) { return type.getIntOrFloatBitWidth() / 8; }

} // namespace mlir::attn

#endif
