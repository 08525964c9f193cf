//===- TypedAttr.h - Attributes between passes ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_SUPPORT_TYPEDATTR_H
#define ATTN_SUPPORT_TYPEDATTR_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"

namespace mlir::attn {

/// A discardable attribute of a dialect, with the name and type that the dialect's TableGen declares.
template <typename Helper> struct TypedAttr {
  using Type = decltype(std::declval<Helper &>().getAttr(nullptr));

  constexpr operator StringRef() const { return Helper::getNameStr(); }
  /// Returns the attribute; null if the operation has none of this type.
  Type get(Operation *op) const { return op->getAttrOfType<Type>(Helper::getNameStr()); }
  bool isOn(Operation *op) const { return op->hasAttr(Helper::getNameStr()); }
  void set(Operation *op, Type value) const { op->setAttr(Helper::getNameStr(), value); }
  /// Sets an attribute without a value.
  void mark(Operation *op) const { op->setAttr(Helper::getNameStr(), UnitAttr::get(op->getContext())); }
  void remove(Operation *op) const { op->removeAttr(Helper::getNameStr()); }
};

template <typename Helper> Diagnostic &operator<<(Diagnostic &diagnostic, TypedAttr<Helper>) {
  return diagnostic << StringRef(Helper::getNameStr());
}
template <typename Helper> InFlightDiagnostic operator<<(InFlightDiagnostic &&diagnostic, TypedAttr<Helper>) {
  return std::move(diagnostic) << StringRef(Helper::getNameStr());
}
template <typename Helper> InFlightDiagnostic &operator<<(InFlightDiagnostic &diagnostic, TypedAttr<Helper>) {
  return diagnostic << StringRef(Helper::getNameStr());
}

} // namespace mlir::attn

#endif
