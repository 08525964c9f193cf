//===- AttnTypes.td - KV operands and softmax states -------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_ATTNTYPES_TD
#define ATTN_DIALECT_ATTN_IR_ATTNTYPES_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Attn_Store : I32EnumAttr<"Store", "how a token of an instance maps to memory", [
    I32EnumAttrCase<"Dense", 0, "dense">,
    I32EnumAttrCase<"Packed", 1, "packed">,
    I32EnumAttrCase<"Paged", 2, "paged">,
    I32EnumAttrCase<"Unified", 3, "unified">]> {
  let cppNamespace = "::mlir::attn";
}

// The prose of an operand is the summary of its constraint, because both the generated reference and the
// verifier's message print the summary.
class Attn_Described<TypeConstraint base, string prose> : Type<base.predicate, prose, base.cppType>;

class Attn_Type<string name, string typeMnemonic> : TypeDef<Attn_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Attn_Per : I32EnumAttr<"Per", "which quantized elements share metadata", [
    I32EnumAttrCase<"Tensor", 1, "tensor">,
    I32EnumAttrCase<"Head", 2, "head">,
    I32EnumAttrCase<"Token", 3, "token">,
    I32EnumAttrCase<"Group", 4, "group">]> {
  let cppNamespace = "::mlir::attn";
}

def Attn_QuantizedType : Attn_Type<"Quantized", "quantized"> {
  let summary = "quantized elements of keys or values, of 8 bits and less";
  let description = [{
    A key or value consists of quantized elements, its *codes*, and of metadata that several of them share:

    | code | value | `per` | metadata of keys of an argument `kv` (`v` likewise) |
    |---|---|---|---|
    | `f8E4M3FN`, `f8E5M2` | `code * scale` | `tensor` | `kv.k_scales f32[1]` |
    | | | `head` | `kv.k_scales f32[heads]` |
    | | | `token` (of one head) | `kv.k_scales f32`, by line |
    | floats in blocks | `code * scale`, in some `* tensor_scale` | as many neighbouring features of a token and head as `attn_rt/tensor/Format.h` says, with the type of their scales | `kv.k_scales`, by line, each a byte for each block, and as many as make a multiple of four; `kv.k_tensor_scale f32[1]` |
    | `f8E4M3FN`, `rest` | `code * scale`; `code` of the rest | 128 neighbouring features of a token and head | none: an f32 each in the line |
    | `i8`, `i4`, `i2`: unsigned | `code * scale + zero` | 16, 32, 64, 128, or the dim: neighbouring features of a token and head | `kv.k_meta f16`, by line, each `[dim / per, 2]`: scale, zero |

    Metadata *by line* is `[pages, heads, P, ...]` in a paged store, so that a head's metadata of a page is
    contiguous. It is `[pages, P, ...]` in a unified store, `[tokens, heads, ...]` in a packed one and
    `[instances, tokens, heads, ...]` in a dense one. All scales are finite and above 0.

    With `rest = 64` the last 64 features are bf16. A line of 576 features is 656 bytes, as vLLM, SGLang and
    FlashMLA store latents: 512 quantized features, four scales, the rest. Its tensor is `u8[..., heads, 656]`.

    Integers and f4E2M1FN are packed little end first: feature `f` lies in bits `f % (8/bits) * bits` of byte
    `f * bits / 8` of its row, and their tensor is `u8[..., heads, dim * bits / 8]`. Rows are copied 16 bytes
    at a time, so dims are multiples of the number of elements in 16 bytes.

    ```mlir
    !attn.quantized<i4, per = 64>
    !attn.quantized<f8E4M3FN, per = token>
    !attn.quantized<f8E4M3FN, per = 128, rest = 64>
    !attn.quantized<f4E2M1FN, per = 32, scale = f8E8M0FNU>
    !attn.quantized<f4E2M1FN, per = 16, scale = f8E4M3FN>
    ```
  }];
  let parameters = (ins
    TypeParameter<"::mlir::Type", "a quantized element">:$element,
    TypeParameter<"::mlir::attn::Per", "which elements share metadata">:$per,
    TypeParameter<"int64_t", "neighbouring features of a group, 0 without groups">:$group,
    TypeParameter<"::mlir::Type", "type of a block's scale, null if scales are as wide as others">:$scale,
    TypeParameter<"int64_t", "the last features of a line, which are bf16; 0 if all are quantized">:$rest);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_KVType : Attn_Type<"KV", "kv"> {
  let summary = "a KV operand: a collection of instances of keys and values";
  let description = [{
    A KV operand is a collection of instances (one per sequence, one shared by
    many, ...), addressed by instance and KV head. Each instance has a length,
    the position of its first token and the range of query rows that see it;
    the *store* maps its tokens to memory:

    | store | token `t` of instance `i` | tensors of an argument `kv` |
    |---|---|---|
    | `dense` | row `t` of plane `i` | `kv.k`, `kv.v`: `[instances, tokens, heads, dim]` |
    | `packed` | row `start[i] + t` | `kv.k`, `kv.v`: `[tokens, heads, dim]`, `kv.start i32[instances + 1]` |
    | `paged<P>` | slot `t % P` of page `block_table[i][t / P]` | `kv.k_pages`, `kv.v_pages`: `[pages, P, heads, dim]`, `kv.block_table i32[instances, max_pages]` |

    | `unified<P>` | slot `t % P` of page `block_table[i][h][t / P]` | `kv.k_pages`, `kv.v_pages`: `[pages, P, dim]`, `kv.block_table i32[instances, heads, max_pages]` |

    (`attn_rt/tensor/Store.h` defines these maps for all components; pages of quantized elements with metadata
    by line are `[pages, heads, P, dim]`), all with `kv.lengths` and `kv.pos0`, both `i32[instances]`, and
    optionally `kv.rows i32[instances, 2]`.

    *Ragged* stores keep a list of tokens per head. Their lengths are `i32[instances, heads]` and, if paged,
    their tables `i32[instances, heads, max_pages]`. A token's slot is that of its head only: slice `h` of
    page `block_table[i][h][t / P]` holds tokens of head `h`. So each head has free pages of its own, and the
    same page may hold other tokens for another head. The position of a head's token is `pos0` plus its index
    in that head's list, and visibility applies to these positions. If no `q_pos` says otherwise, the rows
    of a sequence end where its longest head does.

    Pages of a *unified* store belong to no head: each holds P tokens of whichever head's list names it,
    elements and metadata of keys and values side by side. Its tensors are views into one memory
    `[pages, bytes]`, whose `bytes` the launch gives. Operands of several formats, and of several `P`, may
    share it. A unified store is always ragged.

    Elements of f16 and bf16 are stored unchanged, in the type of the queries; other elements are quantized,
    see `!attn.quantized`. Keys and values may be stored differently.

    In a latent store a value is the first features of its token's key, `value = first<512>`: one line of
    memory, one tensor (`kv.k` or `kv.k_pages`), one copy to shared memory. Multi-head latent attention
    (DeepSeek-V2, arXiv 2405.04434) stores 512 features of a latent and 64 rotated ones; heads that use their
    keys as values are `first<dim>`. Such keys may also be f8E4M3FN with a scale per tensor, head or token; the
    value shares the scale. With a `rest`, the value is the quantized features, all of them.

    `heads = ?` is the store of one head class (`AttnHeadClasses.td`): it holds the heads of that class only,
    in their order, and `heads` in the table is the number that the run-time tensor `classes` assigns to it.

    ```mlir
    !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
    !attn.kv<dense, heads = 1, dim = 192, value_dim = 128, key = f16, value = f16>
    !attn.kv<paged<64>, heads = 1, dim = 576, key = bf16, value = first<512>>
    !attn.kv<paged<64>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>>
    !attn.kv<paged<16>, heads = ?, dim = 128, key = bf16, value = bf16>
    !attn.kv<paged<16>, ragged, heads = 8, dim = 128, key = bf16, value = bf16>
    !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 64>>
    !attn.kv<unified<32>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 64>>
    ```
  }];
  let parameters = (ins
    TypeParameter<"::mlir::attn::Store", "how tokens map to memory">:$store,
    TypeParameter<"int64_t", "tokens per page, 1 to 8 or a multiple of 16 up to 2048; 0 unless there are pages">:$page,
    TypeParameter<"bool", "whether every KV head has a length and pages of its own">:$ragged,
    TypeParameter<"int64_t", "KV heads, dynamic in the store of one head class">:$heads,
    TypeParameter<"int64_t", "features of a key, a multiple of 8 from 8 to 256, or of 32 up to 576">:$keyDim,
    TypeParameter<"int64_t", "features of a value, by default as many; a multiple of 8 up to 256, 384 or 512">:$valueDim,
    TypeParameter<"::mlir::Type", "element type of keys: f16, bf16 or quantized">:$key,
    TypeParameter<"::mlir::Type", "element type of values: f16, bf16 or quantized">:$value,
    TypeParameter<"bool", "whether a value is the first features of its token's key">:$latent);
  let extraClassDeclaration = [{
    /// Whether this is the store of one head class.
    bool isOfClass() const { return ShapedType::isDynamic(getHeads()); }
    /// Whether tokens lie in pages that a block table names.
    bool isPaged() const { return hasPages(getStore()); }
    static bool hasPages(::mlir::attn::Store store) {
      return store == ::mlir::attn::Store::Paged || store == ::mlir::attn::Store::Unified;
    }
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_StateType : Attn_Type<"State", "state"> {
  let summary = "the state of a partial softmax, one per query row and head";
  let description = [{
    For every row and query head, a maximum `m`, a sum `l` and an accumulator `acc` of `value_dim` features,
    all f32: enough to join a softmax over *part* of the keys with the rest. `AttnOnlineOps.td` has the
    algebra.

    ```mlir
    !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let parameters = (ins
    TypeParameter<"int64_t", "query heads">:$heads,
    TypeParameter<"int64_t", "features of the accumulator">:$valueDim);
  let assemblyFormat = "`<` `heads` `=` $heads `,` `value_dim` `=` $valueDim `>`";
  let genVerifyDecl = 1;
}

def Attn_Stationary : I32EnumAttr<"Stationary", "the operand of a kernel that stays while the kernel walks the other", [
    I32EnumAttrCase<"Rows", 0, "rows">,
    I32EnumAttrCase<"Tokens", 1, "tokens">,
    I32EnumAttrCase<"Keys", 2, "keys">,
    I32EnumAttrCase<"Values", 3, "values">]> {
  let description = [{
    Tokens are keys and values. A gradient kernel may have only one of the two stationary, to compute the
    gradient of `keys` or of `values`.
  }];
  let cppNamespace = "::mlir::attn";
  let genSpecializedAttr = 0;
}

def Attn_StationaryAttr : EnumAttr<Attn_Dialect, Attn_Stationary, "stationary"> {
  let assemblyFormat = "`<` $value `>`";
}

def Attn_FusedPart : I32EnumAttr<"FusedPart", "a kernel's part in sums of rows' gradients that several kernels add to", [
    I32EnumAttrCase<"Begin", 0, "begin">,
    I32EnumAttrCase<"Add", 1, "add">,
    I32EnumAttrCase<"AddInOrder", 2, "add_in_order">,
    I32EnumAttrCase<"End", 3, "end">]> {
  let cppNamespace = "::mlir::attn";
  let genSpecializedAttr = 0;
}
def Attn_FusedPartAttr : EnumAttr<Attn_Dialect, Attn_FusedPart, "fused_part"> {
  let assemblyFormat = "`<` $value `>`";
}

def Attn_GradientType : Attn_Type<"Gradient", "gradient"> {
  let summary = "a sum of gradients: of query rows, or of the keys and values of tokens";
  let description = [{
    With stationary rows, an accumulator of `key_dim` features for each row and query head. With stationary
    tokens, accumulators of `key_dim` and of `value_dim` features for each token and KV head, or one of them
    (`of = keys`, `of = values`). All are f32. Zeros and addition make it a monoid, so tokens of rows, and
    rows of tokens, may come in any order and grouping: `AttnGradientOps.td`.

    ```mlir
    !attn.gradient<of = rows, heads = 32, key_dim = 128, value_dim = 128>
    ```
  }];
  let parameters = (ins
    EnumParameter<Attn_Stationary>:$of,
    TypeParameter<"int64_t", "query heads">:$heads,
    TypeParameter<"int64_t", "features of a key">:$keyDim,
    TypeParameter<"int64_t", "features of a value">:$valueDim);
  let assemblyFormat = [{
    `<` `of` `=` $of `,` `heads` `=` $heads `,` `key_dim` `=` $keyDim `,` `value_dim` `=` $valueDim `>`
  }];
}

def Attn_Mmas : I32EnumAttr<"Mmas", "which instructions multiply", [
    I32EnumAttrCase<"Mma", 0, "mma">,
    I32EnumAttrCase<"Wgmma", 1, "wgmma">,
    I32EnumAttrCase<"Started", 2, "started">]> {
  let cppNamespace = "::mlir::attn";
}

def Attn_Together : I32EnumAttr<"Together", "the reduction over the heads of a group", [
    I32EnumAttrCase<"Max", 0, "max">,
    I32EnumAttrCase<"Mean", 1, "mean">,
    I32EnumAttrCase<"Sum", 2, "sum">]> {
  let cppNamespace = "::mlir::attn";
  let genSpecializedAttr = 0;
}

def Attn_TogetherAttr : EnumAttr<Attn_Dialect, Attn_Together, "together"> {
  let assemblyFormat = "`<` $value `>`";
}

def Attn_SignificanceType : Attn_Type<"Significance", "significance"> {
  let summary = "the significance of tokens over the rows so far";
  let description = [{
    For each token and query head, the sum over rows of the token's weight, f32. Written out, it is one number
    per head group, reduced as `of` says. Zeros and addition make it a monoid: `AttnSignificanceOps.td`.

    ```mlir
    !attn.significance<of = max, heads = 32>
    ```
  }];
  let parameters = (ins
    EnumParameter<Attn_Together>:$of,
    TypeParameter<"int64_t", "query heads">:$heads);
  let assemblyFormat = "`<` `of` `=` $of `,` `heads` `=` $heads `>`";
}

#endif
