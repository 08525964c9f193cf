//===- AttnPageOps.td - Pages of many lists, managed on the device -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// If heads compress their caches, each KV head of a sequence in a layer is a separate list of tokens. All
// lists take pages from one pool. Device memory records the owner of each page, so that a captured step may
// change it:
//
//   table    the pages of each list, one row per list. A list's tokens of one
//            precision fill pages from the left end of its row on, the tokens of the
//            other from the right end, so that neither has a limit of its own.
//            Columns between them hold -1.
//   counts   the number of pages of a list at the left and at the right
//   free     the pages of no list: a ring, of which `span` says where the free
//            pages begin and how many there are
//
// Other operations of this file merge the states of ranks. All have memory of named sizes and nothing else.
// They have a header of their own (PageOps.h): few files know them.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNPAGEOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNPAGEOPS_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "attn/Dialect/Attn/IR/AttnTypes.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Attn_PagesTensor<string what> : Attn_Described<AnyRankedTensor, what>;

def Attn_ManagePagesOp : Op<Attn_Dialect, "manage_pages", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "gives every list the pages that its tokens take";
  let description = [{
    A list of `tokens[l] = (n, m)` tokens takes `ceil(n / left)` pages at the left end of its row and
    `ceil(m / right)` at the right end. First, pages that a list has beyond those go to the free list, in the
    order of lists and columns. Then pages that lists lack come from the free list, in the same order. Pages
    that stay are not moved.

    All of that is done, or nothing. Nothing is done if the free list and the returned pages are too few, or
    if a list has negative tokens or needs more than its row. Then only `status` changes: whether it was done
    (1 or 0), the pages requested, the pages available, and the number of lists that requested more than a row
    holds.

    The result depends only on the contents of memory, and not on the number of blocks.

    ```mlir
    attn.manage_pages %table counts %counts of %tokens left 32 right 64 free %free span %span status %status
        : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
    ```
  }];
  let arguments = (ins
    Attn_PagesTensor<"pages of each list, `tensor<?x?xi32>`">:$table,
    Attn_PagesTensor<"pages that lists hold at the left and at the right, `tensor<?x2xi32>`">:$counts,
    Attn_PagesTensor<"tokens of each list at the left and at the right, `tensor<?x2xi32>`">:$tokens,
    Arg<I64Attr, "tokens of a page at the left, 1 to 8 or a multiple of 16 up to 2048">:$left,
    Arg<I64Attr, "tokens of a page at the right, 1 to 8 or a multiple of 16 up to 2048">:$right,
    Attn_PagesTensor<"the ring of pages that no list holds, `tensor<?xi32>`">:$free,
    Attn_PagesTensor<"the begin and the number of its free pages, `tensor<2xi32>`">:$span,
    Attn_PagesTensor<"the outcome, `tensor<4xi32>`">:$status);
  let assemblyFormat = [{
    $table `counts` $counts `of` $tokens `left` $left `right` $right `free` $free `span` $span `status` $status attr-dict
    `:` type($table) `,` type($counts) `,` type($tokens) `,` type($free) `,` type($span) `,` type($status)
  }];
  let hasVerifier = 1;
}

def Attn_CompactTokensOp : Op<Attn_Dialect, "compact_tokens", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "lists the moves that fill the slots of evicted tokens";
  let description = [{
    Each list has tokens at the left end of its row, or with `right` at the right end. The tokens whose flag
    in `keep` is not 0 stay: `k` of them. Among these, the tokens at indices from `k` on move, in their order, to
    the indices below `k` whose tokens are evicted. The j-th moves from slot `from[l, j]` to slot `to[l, j]`,
    as an `attn.move` reads them; after the last there are -1. The number of the list's tokens becomes `k`. A
    list has no order for attention, so this moves as few tokens as possible, and no slot is both read and
    written. The next `attn.manage_pages` returns the pages that are left over.

    A list is unchanged, with -1 in all columns, if it needs more moves than `from` has columns. It is also
    unchanged if it has more tokens than `keep` or than its pages hold. The number of such lists is added to
    `status`. A list has a multiple of 16 flags, as many as a lane reads at once.

    ```mlir
    attn.compact_tokens %table counts %counts of %tokens page 32 keep %keep from %from to %to status %status
        : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?x?xi8>, tensor<?x?xi32>, tensor<?x?xi32>, tensor<1xi32>
    ```
  }];
  let arguments = (ins
    Attn_PagesTensor<"pages of each list, `tensor<?x?xi32>`">:$table,
    Attn_PagesTensor<"pages that lists hold at the left and at the right, `tensor<?x2xi32>`">:$counts,
    Attn_PagesTensor<"tokens of each list at the left and at the right, `tensor<?x2xi32>`">:$tokens,
    Arg<UnitAttr, "the tokens at the right end are compacted">:$right,
    Arg<I64Attr, "tokens of a page at that end, 1 to 8 or a multiple of 16 up to 2048">:$page_tokens,
    Attn_PagesTensor<"a flag for each token, by list and index, `tensor<?x?xi8>`">:$keep,
    Attn_PagesTensor<"slots whose tokens move, by list, `tensor<?x?xi32>`">:$from,
    Attn_PagesTensor<"slots that they go to, `tensor<?x?xi32>`">:$to,
    Attn_PagesTensor<"number of unchanged lists, `tensor<1xi32>`">:$status);
  let assemblyFormat = [{
    $table `counts` $counts `of` $tokens (`right` $right^)? `page` $page_tokens `keep` $keep `from` $from `to` $to
    `status` $status attr-dict
    `:` type($table) `,` type($counts) `,` type($tokens) `,` type($keep) `,` type($from) `,` type($to) `,` type($status)
  }];
  let hasVerifier = 1;
}

def Attn_ReviseTokensOp : Op<Attn_Dialect, "revise_tokens", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "decides which token of each list is demoted to fewer bits, and which is evicted";
  let description = [{
    One step of a policy by which heads compress their caches, such as DiffKV's (arXiv 2412.03131). A list has
    `high[l]` tokens in many bits at the left end of its row of the table, and `low[l]` in few bits at the
    right end. `seen[l]` tokens came so far, the newest of them at the left, and `prompt[l]` of these with the
    prompt. The weight that the newest row gave each token is added to its score: `worth_high[l, i]` and
    `worth_low[l, i]`, as attention stores it. The score and the position of a token are stored by page: token
    `t` of page `p` at `score[p, t]`.

    The policy is two regions of scalars. `rank` returns the worth of a token. It takes the token's score, the
    number of rows that were counted for it, its position, and `seen[l]`. Counted rows, from 1 on, are all
    since the token came; for a prompt's tokens they are the last `rows` of the prompt and all since. `rows` 0
    counts all rows of the prompt. The last `window` tokens of a list stay at the left. Among the others, the
    token of least rank is found at either end; of equal ranks, the earlier token.

    `decide` takes rank and existence of three tokens: the one that leaves the window, the least one at the
    left and the least one at the right. Then follow `high[l]`, `low[l]`, `seen[l]`, `limits[l, 0]` and
    `limits[l, 1]`. Its `attn.decide` has a decision for each. The token that leaves the window and the least
    one at the left may be demoted or evicted. The least one at the right may be evicted in favour of a
    demoted one. At most one token leaves the left end: the first with such a decision.

    A list with `sees[l, 1]` other than 0 streams: its rows see the first `sees[l, 0]` tokens and the last
    `sees[l, 1]`, the newest among them. The token that leaves the last ones is evicted, unless it is one of
    the first, and nothing else is decided.

    The demoted token must be requantized from slot `down_from[l]` at the left to slot `down_to[l]` at the
    right. Then, if it was not the last at the left, the last token at the left moves from `move_from[l]` to
    `move_to[l]`. -1 stands for no move. `high`, `low`, scores and positions are changed already. The list
    needs a page for one more token at the right. Nothing is changed where `done[0]` is 0, as
    `attn.manage_pages` leaves it, or where a list has no tokens.

    ```mlir
    attn.revise_tokens %table high %high low %low seen %seen prompt %prompt limits %limits sees %sees score %score
        position %position worth %worth_high, %worth_low done %done demote %down_from to %down_to move %move_from to %move_to
        left 32 right 64 window 64 rows 0
        rank {
        ^bb0(%sum: f32, %rows: i32, %at: i32, %tokens: i32):
          attn.rank %sum
        } decide {
        ^bb0(%leaving: f32, %leaves: i1, %least: f32, %is_least: i1, %lowest: f32, %is_lowest: i1,
             %left: i32, %right: i32, %tokens: i32, %first: f32, %second: f32):
          %never = arith.constant false
          attn.decide leaving demoted %never gone %leaves, least demoted %never gone %never, lowest gone %never
        }
        : tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xi32>,
          tensor<?x?xf32>, tensor<?x?xi32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<4xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>,
          tensor<?xi32>
    ```
  }];
  let arguments = (ins
    Attn_PagesTensor<"pages of each list, `tensor<?x?xi32>`">:$table,
    Attn_PagesTensor<"tokens of each list at the left, `tensor<?xi32>`">:$high,
    Attn_PagesTensor<"tokens of each list at the right, `tensor<?xi32>`">:$low,
    Attn_PagesTensor<"tokens that each list has seen, `tensor<?xi32>`">:$seen,
    Attn_PagesTensor<"of these, those of its prompt, `tensor<?xi32>`">:$prompt,
    Attn_PagesTensor<"the thresholds of each list, `tensor<?x2xf32>`">:$limits,
    Attn_PagesTensor<"the first and the last tokens that a row of each list sees, `tensor<?x2xi32>`">:$sees,
    Attn_PagesTensor<"scores of tokens so far, by page and slot, `tensor<?x?xf32>`">:$score,
    Attn_PagesTensor<"positions of tokens, by page and slot, `tensor<?x?xi32>`">:$position,
    Attn_PagesTensor<"weights of tokens at the left for the newest row, by list and index, `tensor<?x?xf32>`">:$worth_high,
    Attn_PagesTensor<"weights of tokens at the right, `tensor<?x?xf32>`">:$worth_low,
    Attn_PagesTensor<"whether lists have the pages that they need, `tensor<4xi32>`">:$done,
    Attn_PagesTensor<"slots at the left that are requantized, `tensor<?xi32>`">:$down_from,
    Attn_PagesTensor<"slots at the right that they go to, `tensor<?xi32>`">:$down_to,
    Attn_PagesTensor<"slots at the left that move, `tensor<?xi32>`">:$move_from,
    Attn_PagesTensor<"slots that they go to, `tensor<?xi32>`">:$move_to,
    Arg<I64Attr, "tokens of a page at the left, 1 to 8 or a multiple of 16 up to 2048">:$left,
    Arg<I64Attr, "tokens of a page at the right, 1 to 8 or a multiple of 16 up to 2048">:$right,
    Arg<I64Attr, "number of last tokens that stay, from 1 on">:$window,
    Arg<I64Attr, "number of last rows of a prompt that were counted; 0: all">:$rows);
  let regions = (region SizedRegion<1>:$rank, SizedRegion<1>:$decide);
  let assemblyFormat = [{
    $table `high` $high `low` $low `seen` $seen `prompt` $prompt `limits` $limits `sees` $sees `score` $score
    `position` $position `worth` $worth_high `,` $worth_low `done` $done `demote` $down_from `to` $down_to `move` $move_from `to` $move_to
    `left` $left `right` $right `window` $window `rows` $rows `rank` $rank `decide` $decide attr-dict
    `:` type($table) `,` type($high) `,` type($low) `,` type($seen) `,` type($prompt) `,` type($limits) `,` type($sees) `,` type($score) `,`
        type($position) `,` type($worth_high) `,` type($worth_low) `,` type($done) `,` type($down_from) `,` type($down_to) `,`
        type($move_from) `,` type($move_to)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Attn_RankOp : Op<Attn_Dialect, "rank", [Pure, Terminator, HasParent<"ReviseTokensOp">]> {
  let summary = "ends the rank region of a policy";
  let arguments = (ins Arg<F32, "the worth of the token: the least is evicted first">:$rank);
  let assemblyFormat = "$rank attr-dict";
}

def Attn_DecideOp : Op<Attn_Dialect, "decide", [Pure, Terminator, HasParent<"ReviseTokensOp">]> {
  let summary = "ends the decide region of a policy";
  let arguments = (ins
    Arg<I1, "whether the token that leaves the window is demoted">:$leaving_demoted,
    Arg<I1, "whether it is evicted">:$leaving_gone,
    Arg<I1, "whether the token of least rank at the left is demoted">:$least_demoted,
    Arg<I1, "whether it is evicted">:$least_gone,
    Arg<I1, "whether the one at the right is evicted, where another is demoted">:$lowest_gone);
  let assemblyFormat = [{
    `leaving` `demoted` $leaving_demoted `gone` $leaving_gone `,` `least` `demoted` $least_demoted `gone` $least_gone `,` `lowest` `gone` $lowest_gone
    attr-dict
  }];
}

//===----------------------------------------------------------------------===//
// States of ranks
//===----------------------------------------------------------------------===//

// The states of an attention over the tokens of several ranks: for each item, a row's head, an output of
// `words` pairs of 16-bit elements, and an LSE in float32. A rank's *slot* has the outputs of all items, the LSEs
// of all items, and 0 to 3 words more: a multiple of 16 bytes.

def Attn_MergeStatesOp : Op<Attn_Dialect, "merge_states", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "merges the states of ranks, whose slots lie one after the other";
  let description = [{
    Sums are made in float32, in the order of ranks, and rounded once. A rank without tokens has LSE -inf and
    output 0. A NaN of a rank becomes NaN.

    ```mlir
    attn.merge_states %memory to %result, %total ranks 4 element bf16
        : tensor<?x?xi32>, tensor<?xf32>, tensor<4x?xi32>
    ```
  }];
  let arguments = (ins
    Attn_PagesTensor<"outputs over the tokens of all ranks, `tensor<?x?xi32>`">:$result,
    Attn_PagesTensor<"their LSEs, `tensor<?xf32>`">:$total,
    Attn_PagesTensor<"a slot of each rank, `tensor<ranks x ? x i32>`">:$memory,
    Arg<I64Attr, "ranks, 2 to 32">:$ranks,
    Arg<TypeAttr, "bf16 or f16">:$element);
  let assemblyFormat = [{
    $memory `to` $result `,` $total `ranks` $ranks `element` $element attr-dict
    `:` type($result) `,` type($total) `,` type($memory)
  }];
  let hasVerifier = 1;
}

def Attn_ExchangeStatesOp : Op<Attn_Dialect, "exchange_states", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "writes a rank's states into the memory of all ranks, waits for theirs, and merges";
  let description = [{
    Every rank launches it as often as the others, with the same sizes and number of blocks. Memory that all
    ranks can write has a *region* for each rank. `places[r]` says where the region of rank r begins, in words
    from `memory` on: 64 bits, the lower word first. A region has 2048 signals for each rank, and then two sets
    of a slot for each rank, which launches use in turns. A signal counts the launches of one warp of one rank.
    So a fast rank overwrites a slot only when the slow one has signalled its next launch, and has read it.

    `state` is the rank's own: whether a rank was missed, the number of this rank, the milliseconds to wait for
    a signal, an unused word, and the launches of each of 2048 warps. If rank r does not signal in time, `status[r]` becomes
    1, results are NaN, and later launches wait for a millisecond only.

    The results are those of `attn.merge_states`, to the bit.

    ```mlir
    attn.exchange_states %out, %lse through %memory at %places state %state status %status to %result, %total ranks 4 element bf16
        : tensor<?x?xi32>, tensor<?xf32>, tensor<?x?xi32>, tensor<?xf32>, tensor<?x?xi32>, tensor<4x2xi32>, tensor<2052xi32>, tensor<4xi32>
    ```
  }];
  let arguments = (ins
    Attn_PagesTensor<"outputs over the tokens of all ranks, `tensor<?x?xi32>`">:$result,
    Attn_PagesTensor<"their LSEs, `tensor<?xf32>`">:$total,
    Attn_PagesTensor<"this rank's outputs, `tensor<?x?xi32>`">:$out,
    Attn_PagesTensor<"this rank's LSEs, `tensor<?xf32>`">:$lse,
    Attn_PagesTensor<"this rank's region, or the regions of all, `tensor<?x?xi32>`">:$memory,
    Attn_PagesTensor<"where regions begin, `tensor<ranks x 2 x i32>`">:$places,
    Attn_PagesTensor<"this rank's state, `tensor<2052xi32>`">:$state,
    Attn_PagesTensor<"ranks that were missed, `tensor<ranks x i32>`">:$status,
    Arg<I64Attr, "ranks, 2 to 32">:$ranks,
    Arg<TypeAttr, "bf16 or f16">:$element);
  let assemblyFormat = [{
    $out `,` $lse `through` $memory `at` $places `state` $state `status` $status `to` $result `,` $total
    `ranks` $ranks `element` $element attr-dict
    `:` type($result) `,` type($total) `,` type($out) `,` type($lse) `,` type($memory) `,` type($places) `,`
        type($state) `,` type($status)
  }];
  let hasVerifier = 1;
}

#endif
