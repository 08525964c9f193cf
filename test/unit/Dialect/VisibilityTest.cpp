//===- VisibilityTest.cpp - Simplification against the definition ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

#include <random>

using namespace mlir;
using namespace mlir::attn;

namespace {

/// Defines the terms without VisibilityTerms.h.
bool sees(VisibilityAttr visibility, int q, int k) {
  ArrayRef<int64_t> sizes = visibility.getSizes();
  switch (visibility.getKind()) {
  case VisibilityKind::All:
    return true;
  case VisibilityKind::Causal:
    return k <= q;
  case VisibilityKind::Window:
  case VisibilityKind::Recent:
    return 0 <= q - k && q - k < sizes[0];
  case VisibilityKind::Sink:
    return k < sizes[0];
  case VisibilityKind::TwoSided:
    return q - k <= sizes[0] && k - q <= sizes[1];
  case VisibilityKind::Chunk:
    return q / sizes[0] == k / sizes[0];
  case VisibilityKind::Or:
    return llvm::any_of(visibility.getOperands(), [&](VisibilityAttr part) { return sees(part, q, k); });
  case VisibilityKind::And:
    return llvm::all_of(visibility.getOperands(), [&](VisibilityAttr part) { return sees(part, q, k); });
  }
  return false;
}

int terms(VisibilityAttr visibility) {
  int count = 1;
  for (VisibilityAttr part : visibility.getOperands())
    count += terms(part);
  return count;
}

VisibilityAttr random(MLIRContext *context, std::mt19937 &generator, int depth) {
  auto kind = VisibilityKind(generator() % std::size(::attn::rt::visibilityTerms));
  const auto &term = ::attn::rt::termOf(kind);
  if (::attn::rt::isConnective(kind)) {
    if (!depth)
      return VisibilityAttr::get(context, VisibilityKind::Causal);
    SmallVector<VisibilityAttr> parts;
    for (unsigned i = 0, e = 2 + generator() % 2; i != e; ++i)
      parts.push_back(random(context, generator, depth - 1));
    return VisibilityAttr::get(kind, parts);
  }
  SmallVector<int64_t> sizes;
  for (int i = 0; i < term.sizeCount(); ++i)
    sizes.push_back(term.leastSize + int64_t(generator() % 4));
  return VisibilityAttr::get(context, kind, sizes);
}

TEST(VisibilityTest, SimplifyKeepsTheSet) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  std::mt19937 generator(1);
  for (int i = 0; i < 3000; ++i) {
    VisibilityAttr visibility = random(&context, generator, 3), simple = visibility.simplify();
    std::string text;
    llvm::raw_string_ostream(text) << visibility << " -> " << simple;
    EXPECT_LE(terms(simple), terms(visibility)) << text;
    EXPECT_EQ(simple, simple.simplify()) << text;
    bool any = false;
    for (int q = 0; q < 8; ++q)
      for (int k = 0; k < 8; ++k) {
        ASSERT_EQ(sees(visibility, q, k), sees(simple, q, k)) << text << " at q = " << q << ", k = " << k;
        any |= sees(visibility, q, k);
      }
    if (simple.isStaticallyEmpty())
      EXPECT_FALSE(any) << text;
  }
}

TEST(VisibilityTest, EndsInOrderOfAppearance) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  auto window = VisibilityAttr::get(&context, VisibilityKind::Window, {7});
  auto sink = VisibilityAttr::get(&context, VisibilityKind::Sink, {3});
  auto both = VisibilityAttr::get(VisibilityKind::Or, {sink, window});
  SmallVector<int64_t> ends;
  VisibilityAttr::get(VisibilityKind::And, {window, both}).collectEnds(ends);
  EXPECT_EQ(ends, (SmallVector<int64_t>{7, 3, 7}));
}

} // namespace
