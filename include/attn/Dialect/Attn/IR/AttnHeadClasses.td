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
  let summary = "classes of KV heads, and what each sees of the regions";
  let description = [{
    Not all heads of a model use the whole context. DuoAttention (arXiv
    2410.10819) finds *retrieval* heads, which do, and *streaming* heads, to
    which a few first and last tokens are all that matters:

    ```mlir
    %o = attn.attend %q over (%kv see causal)
        heads %classes {retrieval: see all, streaming: see sink(64) | recent(256)}
        : !q, !cache, tensor<8xi32> -> !q
    ```

    A class narrows every region alike: its heads see of a region what both the
    region's visibility and the class's admit. `see all` leaves a class what
    the regions show.

    The *forms* are compiled. Which head is in which class is data, as the ends
    of visibilities are: `%classes` is a `tensor<(KV heads)xi32>` with the
    number of a class, in the order of the text from 0, for each KV head. One
    kernel serves all assignments, and one plan all with as many heads in each
    class: it speaks of ordinals, heads in the order of their classes.

    *Operands of one class* (`for`) are seen by its heads alone, and their
    stores hold no others, so that a class need not keep what it does not see:

    ```mlir
    %o = attn.attend %q over (%full see causal for retrieval), (%recent see causal for streaming)
        heads %classes {retrieval: see all, streaming: see sink(64) | recent(256)}
        : !q, !of_class, !of_class, tensor<8xi32> -> !q
    ```

    Their type has `heads = ?`: how many heads that are is data, too.
  }];
  let parameters = (ins
    ArrayRefParameter<"::mlir::StringAttr", "a name per class">:$names,
    ArrayRefParameter<"::mlir::attn::VisibilityAttr", "what a class sees of the regions">:$visibility);
  let extraClassDeclaration = [{
    /// More are taken for a mistake: kernels hold a mask for each region and class.
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
