//===- AttnVisibility.td - Who may see a token -------------*- tablegen -*-===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNVISIBILITY_TD
#define ATTN_DIALECT_ATTN_IR_ATTNVISIBILITY_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Attn_VisibilityKind : I32EnumAttr<"VisibilityKind", "the form of a visibility", [
    I32EnumAttrCase<"All", 0, "all">,
    I32EnumAttrCase<"Causal", 1, "causal">,
    I32EnumAttrCase<"Window", 2, "window">,
    I32EnumAttrCase<"Recent", 3, "recent">,
    I32EnumAttrCase<"Sink", 4, "sink">,
    I32EnumAttrCase<"Or", 5, "or">,
    I32EnumAttrCase<"And", 6, "and">]> {
  let cppNamespace = "::mlir::attn";
}

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
    | `sink(n)` | `k < n` | `[0, n)` |
    | `a \| b` | either does | union |
    | `a and b` | both do | intersection |

    `and` binds tighter than `|`; parentheses group. `and` is also written `*`,
    and the programs accept `&` for it, a character that MLIR's lexer does not
    know (see `Source.h`). `window` and `recent` mean the same; the first names
    a mask, the second what a ring still holds.

    The *form* of a visibility is compiled, its *ends* (the sizes of windows,
    recents and sinks) are run-time values, numbered in the order in which they
    appear in the text. So that one kernel serves every size, simplification
    never compares two different sizes: `causal and window(w)` is `window(w)`
    whatever w is, but `window(4) and window(9)` stays. The one exception is an
    end of zero, which says in the text that nothing is seen.

    ```mlir
    attn.attend %q over (%kv see causal and (sink(64) | recent(256))) : ...
    #attn.visibility<causal and (sink(64) | recent(256))>
    ```
  }];
  let parameters = (ins
    AttrParameter<"::mlir::attn::VisibilityKind", "which term or connective">:$kind,
    AttrParameter<"int64_t", "the end: size of a window, recent or sink; 0 for the other kinds">:$size,
    ArrayRefParameter<"::mlir::attn::VisibilityAttr", "what `or` and `and` connect, two or more">:$operands);
  let builders = [
    AttrBuilder<(ins "VisibilityKind":$kind, CArg<"int64_t", "0">:$size), [{
      return $_get($_ctxt, kind, size, ArrayRef<VisibilityAttr>());
    }]>,
    AttrBuilderWithInferredContext<(ins "VisibilityKind":$kind, "ArrayRef<VisibilityAttr>":$operands), [{
      return $_get(operands.front().getContext(), kind, int64_t(0), operands);
    }]>,
  ];
  let extraClassDeclaration = [{
    /// Whether this kind of term has an end.
    static bool isSized(VisibilityKind kind) {
      return kind == VisibilityKind::Window || kind == VisibilityKind::Recent || kind == VisibilityKind::Sink;
    }

    /// Parses the expression without the enclosing `<` and `>`; also used inline after `see`.
    static FailureOr<VisibilityAttr> parseExpression(AsmParser &parser);
    void printExpression(AsmPrinter &printer) const;

    /// Whether nothing is seen, whatever the positions: an end of zero in the right place.
    bool isStaticallyEmpty() const;

    /// The same set for every value of the ends, with as few terms as the rules of the description reach.
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

def Attn_VisibilityArrayAttr : TypedArrayAttrBase<Attn_VisibilityAttr, "one visibility per KV region">;

#endif
