//===- AttnHeadClasses.td - Heads that see less ------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_ATTNHEADCLASSES_TD
#define ATTN_DIALECT_ATTN_IR_ATTNHEADCLASSES_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "attn/Dialect/Attn/IR/AttnTypes.td"
include "attn/Dialect/Attn/IR/AttnVisibility.td"
include "mlir/IR/AttrTypeBase.td"

def Attn_HeadClassesAttr : AttrDef<Attn_Dialect, "HeadClasses"> {
  let mnemonic = "head_classes";
  let summary = "classes of KV heads, and the visibility of each";
  let description = [{
    Not all heads of a model use the whole context. DuoAttention (arXiv 2410.10819) distinguishes *retrieval*
    heads, which do, from *streaming* heads, for which only a few first and last tokens matter:

    ```mlir
    %o = attn.attend %q over (%kv see causal)
        heads %classes {retrieval: see all, streaming: see sink(64) | recent(256)}
        : !q, !cache, tensor<8xi32> -> !q
    ```

    A class narrows every region alike: its heads see the tokens of a region that both the region's visibility
    and the class's visibility admit. `see all` leaves the region's visibility as it is.

    The *forms* are compiled. The class of each head is data, as the ends of visibilities are. `%classes`, a
    `tensor<(KV heads)xi32>`, has the number of a class for each KV head. Classes count from 0 in the order of
    the text. One kernel serves all assignments. One plan serves all assignments with equal numbers of heads
    in each class, because a plan names ordinals: heads in the order of their classes.

    *Operands of one class* (`for`) are seen by its heads alone, and their stores hold no others. A class
    then need not keep tokens that it does not see:

    ```mlir
    %o = attn.attend %q over (%full see causal for retrieval), (%recent see causal for streaming)
        heads %classes {retrieval: see all, streaming: see sink(64) | recent(256)}
        : !q, !of_class, !of_class, tensor<8xi32> -> !q
    ```

    Their type has `heads = ?`: the number of these heads is data, too.
  }];
  let parameters = (ins
    ArrayRefParameter<"::mlir::StringAttr", "a name per class">:$names,
    ArrayRefParameter<"::mlir::attn::VisibilityAttr", "the visibility of each class">:$visibility);
  let extraClassDeclaration = [{
    /// More classes than this are rejected as a mistake: kernels hold a mask for each region and class.
    static constexpr size_t kMaxClasses = 16;

    size_t size() const { return getNames().size(); }

    /// Parses `{name: see visibility, ...}`; also used inline after `heads`.
    static FailureOr<HeadClassesAttr> parseClasses(AsmParser &parser);
    void printClasses(AsmPrinter &printer) const;

    /// Whether no class sees anything, whatever the positions.
    bool isStaticallyEmpty() const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_ClassesTensor : Attn_Described<AnyRankedTensor, "the class of each KV head, i32">;

#endif
