//===- AttnVisibility.td - Which tokens a row sees ---------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Visibility is interval algebra
// ==============================
//
// A mask over rows and tokens has as many bits as the score matrix has numbers. Every mask of a published
// model can be given by two integers per row: a row at position q sees the positions of an interval
//
//   [lo(q), hi(q))        with ends that never decrease as q increases
//
//   all        [0, inf)             window(l, r)  [q - l, q + 1 + r)
//   causal     [0, q + 1)           sink(n)       [0, n)
//   window(w)  [q + 1 - w, q + 1)   chunk(n)      [q - q mod n, q - q mod n + n)
//
// or of a union of a few. These unions are closed under the usual combinations:
//
//   intersection   [max lo, min hi): one interval again, and a conjunction of
//                  unions is the union of the pairwise intersections;
//   union          the list of both, merged where they touch.
//
// So `causal and (sink(64) | recent(256))` is `[0, min(64, q + 1))` and
// `[q - 255, q + 1)`: two intervals however long the sequence is.
//
// The representation pays because ends move monotonically with q. So for a *tile* of rows [q0, q1] and tokens
// [k0, k1) a few compares decide
//
//   empty     no row sees any of it          k0 >= hi(q1)  or  k1 <= lo(q0)
//   full      every row sees all of it       lo(q1) <= k0  and  k1 <= hi(q0)
//   partial   otherwise: mask by comparing, two compares per interval
//
// (for one interval; with several a tile is full if one of them covers it, and
// empty if all miss it). Empty tiles are never visited, full ones run a loop
// without mask code, and no mask is ever stored. The other axis works the same
// way and is data, not text: which *rows* see an instance is one range of rows.
//
// Each term is defined in one place, attn_rt/artifact/VisibilityTerms.h: its word,
// its sizes, its interval over an abstract arithmetic.
//
// The form is compiled, the ends are arguments of the kernel. Simplification
// below therefore reasons on forms: `a` implies `b` if it does for every value
// of the ends. That keeps one kernel valid for all sizes, and is all it needs,
// since an end that happens to make a term redundant costs one compare.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNVISIBILITY_TD
#define ATTN_DIALECT_ATTN_IR_ATTNVISIBILITY_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Attn_VisibilityAttr : AttrDef<Attn_Dialect, "Visibility"> {
  let mnemonic = "visibility";
  let summary = "the positions a query row sees, as an expression over intervals";
  let description = [{
    For a row at position `q` and a token at position `k`:

    | term | sees the token when | as an interval `[lo(q), hi(q))` |
    |---|---|---|
    | `all` | always | `[0, inf)` |
    | `causal` | `k <= q` | `[0, q + 1)` |
    | `window(w)`, `recent(w)` | `0 <= q - k < w` | `[q + 1 - w, q + 1)` |
    | `window(l, r)` | `q - l <= k <= q + r` | `[q - l, q + 1 + r)` |
    | `sink(n)` | `k < n` | `[0, n)` |
    | `chunk(n)` | `k` and `q` are in the same run of `n` positions | `[q - q mod n, q - q mod n + n)` |
    | `a \| b` | either does | union |
    | `a and b` | both do | intersection |

    `and` binds tighter than `|`; parentheses group. `and` is also written `*`, and the programs accept `&`
    for it, a character that MLIR's lexer does not know (see `Source.h`). `window` and `recent` mean the same:
    `window` names a mask, `recent` the last tokens that a ring buffer still holds.

    The *form* of a visibility is compiled. Its *ends* (the sizes of windows, recents, sinks and chunks) are
    run-time values, numbered in the order of the text. So that one kernel serves every size, simplification
    never compares two different sizes: `causal and window(w)` is `window(w)` whatever w is, but
    `window(4) and window(9)` stays. The one exception is an end of zero, which says in the text that nothing
    is seen.

    ```mlir
    %o = attn.attend %q over (%kv see causal and (sink(64) | recent(256))) : !q, !cache -> !q

    #attn.visibility<causal and (sink(64) | recent(256))>
    ```
  }];
  let parameters = (ins
    AttrParameter<"::attn::rt::VisibilityKind", "which term or connective">:$kind,
    ArrayRefParameter<"int64_t", "the sizes of a term, as many as it has">:$sizes,
    ArrayRefParameter<"::mlir::attn::VisibilityAttr", "operands of `or` and `and`, two or more">:$operands);
  let builders = [
    AttrBuilder<(ins "VisibilityKind":$kind, CArg<"ArrayRef<int64_t>", "{}">:$sizes), [{
      return $_get($_ctxt, kind, sizes, ArrayRef<VisibilityAttr>());
    }]>,
    AttrBuilderWithInferredContext<(ins "VisibilityKind":$kind, "ArrayRef<VisibilityAttr>":$operands), [{
      return $_get(operands.front().getContext(), kind, ArrayRef<int64_t>(), operands);
    }]>,
  ];
  let extraClassDeclaration = [{
    /// Parses the expression without the enclosing `<` and `>`; also used inline after `see`.
    static FailureOr<VisibilityAttr> parseExpression(AsmParser &parser);
    void printExpression(AsmPrinter &printer) const;

    /// Whether the set is empty for all positions: an end of zero in the right term.
    bool isStaticallyEmpty() const;

    /// Returns an equal visibility for every value of the ends, with the fewest terms that the rules reach.
    VisibilityAttr simplify() const;

    /// Whether every position seen through `a` is seen through `b`, for every value of the ends.
    static bool implies(VisibilityAttr a, VisibilityAttr b);

    /// Union and intersection of simplified parts, simplified.
    static VisibilityAttr unite(MLIRContext *context, ArrayRef<VisibilityAttr> parts);
    static VisibilityAttr intersect(MLIRContext *context, ArrayRef<VisibilityAttr> parts);

    /// Appends the ends in order of appearance.
    void collectEnds(SmallVectorImpl<int64_t> &ends) const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_VisibilityArrayAttr : TypedArrayAttrBase<Attn_VisibilityAttr, "the visibility of each region, in the order of the regions">;

#endif
