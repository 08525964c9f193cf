//===- AttnKernelOps.td - Online operations in a kernel ----*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parts of tensors
// ================
//
// An online operation says what is computed, not on how much of it at a time: a
// chain of updates over a part of the rows and a part of a region's tokens is
// the same chain, by the algebra of AttnOnlineOps.td. So a kernel is made of the
// same operations as the function it comes from, in loops, on *parts*:
//
//   attn.rows      the rows of one task of the plan, a part of the query
//   attn.tokens    the tokens of one tile, a part of a region
//   attn.staged    either, with copies of it on the chip
//   attn.one_of    one of several updates of a state: a tile is of one region
//
// A part has the type of the whole; how many rows and tokens it has is up to the
// kernel's schedule. States of parts need not be finished by the kernel that began
// them: `attn.write` may store one as output and LSE (the unit in which l = 1), and
// the kernel that merges finds it there:
//
//   attn.parts     the union of what other kernels have stored for a row
//   attn.stored    32 of those states, or what is left of them
//   attn.warps     the union of what the warps of a block hold for the same rows
//
// What any of these operations does to one tile, it says itself, in an
// implementation of OnlineOpInterface (attn/Conversion/OnlineOpInterface.td).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNKERNELOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNKERNELOPS_TD

include "attn/Dialect/Attn/IR/AttnHeadClasses.td"
include "attn/Dialect/Attn/IR/AttnTypes.td"

def Attn_RowsOp : Attn_Op<"rows", [AttrSizedOperandSegments, AllTypesMatch<["query", "result"]>]> {
  let summary = "the rows of a task";
  let description = [{
    `count` packed rows of one KV head from `begin` on: packed row `p` of KV head `h` is query row `p / G` and query head
    `h * G + p % G`, G query heads to a KV head. This warp holds those from the task's row `first` on, as many as the
    schedule gives it. Lines behind the last row repeat it; what they compute is dropped. Where four warps multiply as
    one, `group` is the first row of this warp's four.

    `sink`, where there are sink logits: whether these rows count the sink, which one share of a row's keys does.
    `scores`, in a kernel that may store scores: whether those of these rows are stored.

    ```mlir
    %rows = attn.rows %q [%begin for %count] head %head ordinal %ordinal from %first : !q
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "the query">:$query,
    Arg<I32, "first packed row">:$begin,
    Arg<I32, "how many there are">:$count,
    Arg<I32, "the KV head">:$head,
    Arg<I32, "its number among the heads, in the order of their classes">:$ordinal,
    Arg<I32, "this warp's first row, counted from the task's">:$first,
    Arg<Optional<I32>, "its warpgroup's first row">:$group,
    Arg<Optional<I32>, "its class">:$headClass,
    Arg<Optional<I1>, "whether this warp's rows count the sink">:$sink,
    Arg<Optional<I1>, "whether their scores are stored">:$scores);
  let results = (outs Attn_Described<AnyRankedTensor, "these rows">:$result);
  let assemblyFormat = [{
    $query `[` $begin `for` $count `]` `head` $head `ordinal` $ordinal `from` $first (`group` $group^)?
    (`class` $headClass^)? (`sink` $sink^)? (`scores` $scores^)? attr-dict `:` type($query)
  }];
}

def Attn_TokensOp : Attn_Op<"tokens", [AllTypesMatch<["kv", "result"]>]> {
  let summary = "the tokens of a tile";
  let description = [{
    Those of an instance from `first` on, as many as the schedule says, but none from `end` on. All rows of the task see
    those in `[full_begin, full_end)`. The position of token 0 is `pos0`. `first_ordinal` is the first ordinal of the task's
    class of heads (see `attn.rows`).

    ```mlir
    %tile = attn.tokens %kv [%instance] from %first to %end full %b to %e pos0 %p first_ordinal %s : !cache
    ```
  }];
  let arguments = (ins
    Attn_Described<Attn_KVType, "the region">:$kv,
    Arg<I32, "which instance of it; negative: a list of the plan (page size 1)">:$instance,
    Arg<I32, "the tile's first token">:$first,
    Arg<I32, "end of the tokens that exist">:$end,
    Arg<I32, "where those begin that every row sees">:$fullBegin,
    Arg<I32, "where they end">:$fullEnd,
    Arg<I32, "position of token 0">:$pos0,
    Arg<I32, "first ordinal of the task's class">:$firstOrdinal);
  let results = (outs Attn_Described<Attn_KVType, "these tokens">:$result);
  let assemblyFormat = [{
    $kv `[` $instance `]` `from` $first `to` $end `full` $fullBegin `to` $fullEnd `pos0` $pos0 `first_ordinal` $firstOrdinal
    attr-dict `:` qualified(type($kv))
  }];
}

def Attn_StagedOp : Attn_Op<"staged", [Pure, AllTypesMatch<["part", "result"]>]> {
  let summary = "a part of a tensor, with copies of it on the chip";
  let description = [{
    Of rows the copy is a shared tile or a fragment with this warp's rows; of tokens a shared tile of keys, one of
    values and, for each of the two that has metadata by line, one of that.

    ```mlir
    %t = attn.staged %tile in %keys, %values : !cache in !keys, !keys
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyType, "rows or tokens">:$part,
    Variadic<AnyType>:$copies);
  let results = (outs Attn_Described<AnyType, "the same">:$result);
  let assemblyFormat = "$part `in` $copies attr-dict `:` qualified(type($part)) `in` type($copies)";
}

def Attn_OneOfOp : Attn_Op<"one_of"> {
  let summary = "one of several updates of a state";
  let description = [{
    A tile of a kernel's loop is of one region. That which `operand` says, in the order of the text, updates the state;
    the others are never computed. All update the same state and differ in their tokens and in what is seen of them, so
    that their code may stand once.

    ```mlir
    %u0 = attn.update %s, %rows, %tile0 see all scale 0.08838835 : !q, !dense -> !state
    %u1 = attn.update %s, %rows, %tile1 see causal scale 0.08838835 : !q, !cache -> !state
    %t = attn.one_of %operand of %u0, %u1 : !state, !state -> !state
    ```
  }];
  let arguments = (ins
    Arg<I32, "which of them">:$operand,
    Variadic<Attn_Described<AnyTypeOf<[Attn_StateType, Attn_GradientType]>, "the updated states, or gradients">>:$states);
  let results = (outs Attn_Described<AnyTypeOf<[Attn_StateType, Attn_GradientType]>, "that one">:$result);
  let assemblyFormat = "$operand `of` $states attr-dict `:` type($states) `->` qualified(type($result))";
  let hasVerifier = 1;
}

def Attn_PartsOp : Attn_Op<"parts"> {
  let summary = "the union of the states that the attend kernels have stored for each row";
  let description = [{
    What the merge kernel finishes. Its rows and their states are lists of the plan. With `by_ordinal` the plan numbers
    heads by their ordinals (see `attn.rows`).

    ```mlir
    %s = attn.parts %q kv_heads 8 : !q -> !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "the query rows whose state this is">:$query,
    I64Attr:$kv_heads,
    UnitAttr:$by_ordinal);
  let results = (outs Attn_Described<Attn_StateType, "the state">:$state);
  let assemblyFormat = [{
    $query `kv_heads` $kv_heads (`by_ordinal` $by_ordinal^)? attr-dict `:` type($query) `->` qualified(type($state))
  }];
}

def Attn_StoredOp : Attn_Op<"stored"> {
  let summary = "the union of up to 32 states that were stored";
  let description = [{
    `number`, which differs between lanes, says where this lane's is; lanes from `count` on have none.

    ```mlir
    %s = attn.stored [%number] count %count : !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let arguments = (ins
    Arg<I32, "each lane's own: which of the stored states">:$number,
    Arg<I32, "how many there are, 32 and more: all lanes have one">:$count);
  let results = (outs Attn_Described<Attn_StateType, "their union">:$state);
  let assemblyFormat = "`[` $number `]` `count` $count attr-dict `:` qualified(type($state))";
}

def Attn_WarpsOp : Attn_Op<"warps", [AllTypesMatch<["part", "state"]>]> {
  let summary = "the union of the states that the warps of a block hold for the same rows";
  let description = [{
    Afterwards every warp holds a share of the accumulator's columns.

    ```mlir
    %all = attn.warps %s : !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let arguments = (ins Attn_Described<Attn_StateType, "this warp's state">:$part);
  let results = (outs Attn_Described<Attn_StateType, "the union of all">:$state);
  let assemblyFormat = "$part attr-dict `:` qualified(type($state))";
}

def Attn_WriteOp : Attn_Op<"write", [AttrSizedOperandSegments]> {
  let summary = "writes what was finished: the output and LSE of rows, or a state to be merged with others";
  let description = [{
    Of `rows` what this warp holds of them, as a state of number `part` on where that is not negative. Of a single row,
    which a warp finishes alone, to the output's `row`.

    ```mlir
    attn.write %o, %lse of %rows part %part : !q, !lse of !q
    attn.write %o, %lse to %row : !q, !lse
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "the output">:$output,
    Optional<Attn_Described<AnyRankedTensor, "the LSE">>:$lse,
    Optional<Attn_Described<AnyRankedTensor, "the rows">>:$rows,
    Arg<Optional<I32>, "number of the rows' first state, or negative">:$part,
    Arg<Optional<I64>, "a row and head of the output">:$row);
  let assemblyFormat = [{
    $output (`,` $lse^)? (`of` $rows^ `part` $part)? (`to` $row^)? attr-dict
    `:` type($output) (`,` type($lse)^)? (`of` type($rows)^)?
  }];
  let hasVerifier = 1;
}

#endif
