//===- TileSchedule.td - Schedules of kernels --------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILESCHEDULE_TD
#define ATTN_DIALECT_TILE_IR_TILESCHEDULE_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Tile_ScheduleKind : I32EnumAttr<"ScheduleKind", "the family of instructions a kernel is built on", [
    I32EnumAttrCase<"Mma", 0, "mma">,
    I32EnumAttrCase<"Wgmma", 1, "wgmma">]> {
  let cppNamespace = "::mlir::tile";
}

def Tile_Epilogue : I32EnumAttr<"Epilogue", "how a kernel writes the rows of its result", [
    I32EnumAttrCase<"Store", 0, "store">,
    I32EnumAttrCase<"Send", 1, "send">]> {
  let cppNamespace = "::mlir::tile";
}

class Tile_Unsaid<string type, string desc> : OptionalParameter<"std::optional<" # type # ">", desc>;

def Tile_ScheduleAttr : AttrDef<Tile_Dialect, "Schedule"> {
  let mnemonic = "schedule";
  let summary = "the tiles, warps and stages of an attend kernel";
  let description = [{
    Holds all decisions about an attend kernel; the passes that write the kernel decide nothing.

    A tile has `rows` packed query rows and `keys` tokens. With `split_keys` every warp has all rows and a
    slice of the keys (decode). It copies its own slice and keeps a partial softmax of its own, merged when
    the task ends. It may then have 8 rows, which are the right operand of MMAs: for quantized stores, with
    `query_in_registers`. Without `split_keys` every warp has 16 rows and reads the block's common tile
    (prefill). `stages` tiles are in flight. `blocks` blocks share a multiprocessor. Under `wgmma`, `warps`
    counts the warps that compute, four to a warpgroup. `query_in_registers` keeps the query fragments in
    registers over the whole loop; under `wgmma`, those of bf16 beside quantized keys, as f16.

    With `value_slices` n, n warps (under wgmma, n warpgroups) share their rows. Each computes all scores of
    these rows, and the accumulator of a slice of the value features: accumulators of more than 256 features
    do not fit the registers of a warp. With `shared_weights`, each of two warps or warpgroups computes the scores
    of one half of a tile's keys, and reads the weights of the other half from shared memory. Under `wgmma` each
    half has two rings, with one stage: of latents the first warpgroup's features and the others, otherwise keys
    and values.

    The following fields may be omitted. Under `mma` they then have the value in parentheses, the only legal
    one; under `wgmma` `--attn-choose-schedule` completes them.

    | field | meaning |
    |---|---|
    | `producers` | warps that only copy (0: all copy and compute) |
    | `producer_registers`, `consumer_registers` | registers of a thread of each role, after the roles part (the number that ptxas assigns) |
    | `query_stages` | tiles of queries in shared memory: with 2 the next task's queries load during the current task (1) |
    | `query_copy` | `gather`, an address for every 16 bytes, or `boxes n`, TMA boxes of n lines each (gather) |
    | `key_copies`, `value_copies` | the copies of each region's keys and values (gather) |
    | `value_boxes` | lines of a box of values, if values lie in shared memory box by box; 0: as one tile (0) |
    | `ping_pong` | ping-pong: a warpgroup starts its MMAs when the previous warpgroup has started its own (false) |
    | `value_slices` | warps, or warpgroups, that share rows: each has a slice of the value features (1) |
    | `shared_weights` | whether warps, or warpgroups, that share rows share weights (false) |
    | `exchange_stages` | tiles through which warpgroups exchange gradients of scores: with 2 they sync once per tile, with 1 twice (1) |
    | `sequences_up_to` | the largest number of packed rows of a sequence, and of tokens of an instance, in plans for this kernel (any) |
    | `epilogue` | `store`, by the threads that hold the rows, or `send`, a TMA store from the queries' stage (store) |

    `shared_bytes` is the shared memory of all of that, by the model that chose it. `--tile-allocate-shared`
    refuses a kernel that needs a different number.

    A function may carry its own list as `tile.schedules = [#tile.schedule<...>, ...]`, complete or not;
    otherwise `--attn-choose-schedule` chooses one per shape. Fields come in any order after the kind.
  }];
  let parameters = (ins "ScheduleKind":$kind, "int64_t":$rows, "int64_t":$keys, "int64_t":$warps,
                        "int64_t":$stages, "int64_t":$blocks, "bool":$splitKeys, "bool":$queryInRegisters,
                        Tile_Unsaid<"int64_t", "warps that only copy">:$producers,
                        Tile_Unsaid<"int64_t", "registers of a thread that copies">:$producerRegisters,
                        Tile_Unsaid<"int64_t", "registers of a thread that computes">:$consumerRegisters,
                        Tile_Unsaid<"int64_t", "tiles of queries in shared memory">:$queryStages,
                        Tile_Unsaid<"int64_t", "lines of a box of queries, or `gathered`">:$queryCopy,
                        OptionalArrayRefParameter<"int64_t", "lines of a box of each region's keys, or `gathered`">:$keyCopies,
                        OptionalArrayRefParameter<"int64_t", "lines of a box of each region's values, or `gathered`">:$valueCopies,
                        Tile_Unsaid<"int64_t", "lines of a box of values in shared memory">:$valueBoxes,
                        Tile_Unsaid<"bool", "whether warpgroups start their MMAs in ping-pong">:$pingPong,
                        Tile_Unsaid<"::mlir::tile::Epilogue", "how results are written">:$epilogue,
                        Tile_Unsaid<"int64_t", "tiles of exchange">:$exchangeStages,
                        Tile_Unsaid<"int64_t", "warps or warpgroups that share rows">:$valueSlices,
                        Tile_Unsaid<"bool", "whether warps or warpgroups that share rows share weights">:$sharedWeights,
                        Tile_Unsaid<"int64_t", "the longest sequences of this schedule">:$sequencesUpTo,
                        Tile_Unsaid<"int64_t", "shared memory of a block">:$sharedBytes);
  let builders = [
    AttrBuilder<(ins "ScheduleKind":$kind, "int64_t":$rows, "int64_t":$keys, "int64_t":$warps, "int64_t":$stages,
                     "int64_t":$blocks, "bool":$splitKeys, "bool":$queryInRegisters), [{
      return $_get($_ctxt, kind, rows, keys, warps, stages, blocks, splitKeys, queryInRegisters, std::nullopt,
                   std::nullopt, std::nullopt, std::nullopt, std::nullopt, ArrayRef<int64_t>(),
                   ArrayRef<int64_t>(), std::nullopt, std::nullopt, std::nullopt, std::nullopt,
                   std::nullopt, std::nullopt, std::nullopt, std::nullopt);
    }]>,
    AttrBuilder<(ins "const ScheduleFields &":$f), [{
      return $_get($_ctxt, f.kind, *f.rows, *f.keys, *f.warps, *f.stages, *f.blocks, *f.splitKeys,
                   *f.queryInRegisters, f.producers, f.producerRegisters, f.consumerRegisters, f.queryStages,
                   f.queryCopy, ArrayRef<int64_t>(f.keyCopies), ArrayRef<int64_t>(f.valueCopies), f.valueBoxes,
                   f.pingPong, f.epilogue, f.exchangeStages, f.valueSlices, f.sharedWeights,
                   f.sequencesUpTo, f.sharedBytes);
    }]>
  ];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The value of `query_copy`, `key_copies` and `value_copies` for a gathered operand; other values are
    /// the lines of a box.
    static constexpr int64_t gathered = 0;
    /// Warps of a warpgroup, the unit of wgmma and of register allocation.
    static constexpr int64_t groupWarps = 4;
    /// Rows of a consumer warpgroup.
    static constexpr int64_t groupRows = 16 * groupWarps;
    /// Rows of a tile whose queries are the right operand of MMAs.
    static constexpr int64_t fewRows = 8;
    bool hasFewRows() const { return getWarpRows() == fewRows; }

    ScheduleFields getFields() const;
    /// Packed rows of one warp, and keys of a tile that one warp scores.
    int64_t getWarpRows() const { return getSplitKeys() ? getRows() : getRows() * getSlices() / getWarps(); }
    int64_t getWarpKeys() const {
      return getKeys() / (getSplitKeys() ? getWarps() : sharesWeights() ? getSlices() : 1);
    }
    int64_t getProducerWarps() const { return getProducers().value_or(0); }
    /// Warps, or warpgroups, that share rows, and the features of the accumulator of each.
    int64_t getSlices() const { return getValueSlices().value_or(1); }
    int64_t getSliceFeatures(int64_t valueDim) const { return valueDim / getSlices(); }
    bool sharesWeights() const { return getSharedWeights().value_or(false); }
    /// Warpgroups that compute.
    int64_t getConsumers() const { return getWarps() / groupWarps; }
    int64_t getThreads() const { return (getProducerWarps() + getWarps()) * 32; }
    /// Warps that share a copy of this scope.
    int64_t getCopyWarps(Scope scope) const {
      return scope == Scope::Block ? getWarps() : scope == Scope::Producers ? getProducerWarps() : 1;
    }
    /// Whether queries, and keys and values of all regions, come by TMA.
    bool loadsQueriesByTma() const { return getQueryCopy().value_or(gathered) != gathered; }
    bool loadsTokensByTma() const {
      return !getKeyCopies().empty() && !llvm::is_contained(getKeyCopies(), gathered);
    }
    int64_t getExchanges() const { return getExchangeStages().value_or(1); }
    bool storesResultsByTma() const { return getEpilogue() == Epilogue::Send; }
    /// Lines of a box of queries in a stage; 0: all of them.
    int64_t getQueryBoxes() const { return storesResultsByTma() ? groupRows : 0; }
    /// Under `split_keys` the warps exchange their accumulators and a (max, sum) pair per row when a task
    /// ends, in the memory of the rings. Each warp writes a share of the columns, at least two blocks of 8.
    int64_t getExchangeBytes(int64_t valueDim) const {
      return getSplitKeys() ? getWarps() * getRows() * (valueDim + 2) * 4 : 0;
    }
    int64_t getColumnShare(int64_t valueDim) const {
      return llvm::alignTo(llvm::divideCeil(valueDim, getWarps()), 16);
    }
    /// Whether `--attn-choose-schedule` has only the shared memory left to set.
    bool isComplete() const;
  }];
}

def Tile_MergeScheduleAttr : AttrDef<Tile_Dialect, "MergeSchedule"> {
  let mnemonic = "merge_schedule";
  let summary = "warps and loads of the merge kernel";
  let description = [{
    `slices` neighbouring warps merge one (row, head) at a time, each some of the columns. `warps` warps make a block,
    and `blocks` blocks share a multiprocessor. A warp reads `parts` parts of a row at once. A function carries it as
    `tile.merge_schedule`.
  }];
  let parameters = (ins "int64_t":$warps, "int64_t":$blocks, "int64_t":$parts,
                        DefaultValuedParameter<"int64_t", "1">:$slices);
  let assemblyFormat = [{
    `<` `warps` `=` $warps `,` `blocks` `=` $blocks `,` `parts` `=` $parts (`,` `slices` `=` $slices^)? `>`
  }];
  let genVerifyDecl = 1;
}

def Tile_ParameterKind : I32EnumAttr<"ParameterKind", "the kind of a kernel's parameter", [
    I32EnumAttrCase<"Buffer", 0, "buffer">,
    I32EnumAttrCase<"Dim", 1, "dim">,
    I32EnumAttrCase<"End", 2, "end">,
    I32EnumAttrCase<"Scale", 3, "scale">,
    I32EnumAttrCase<"Map", 4, "map">]> {
  let cppNamespace = "::mlir::tile";
}

def Tile_BlocksAttr : AttrDef<Tile_Dialect, "Blocks"> {
  let mnemonic = "blocks";
  let summary = "neighbouring features that share a scale of 8 bits";
  let description = [{`#tile.blocks<8 of 16, f8E4M3FN>`: eight blocks of 16 features with scales of e4m3.}];
  let parameters = (ins AttrParameter<"int64_t", "blocks of a line">:$count,
                        AttrParameter<"int64_t", "features of a block: 16 or more, a power of two">:$size,
                        AttrParameter<"::mlir::Type", "f8E4M3FN, whose sign is ignored, or f8E8M0FNU">:$scale);
  let assemblyFormat = "`<` $count `of` $size `,` $scale `>`";
  let genVerifyDecl = 1;
}

def Tile_ParameterAttr : AttrDef<Tile_Dialect, "Parameter"> {
  let mnemonic = "parameter";
  let summary = "the source of a kernel's parameter at launch";
  let description = [{
    A tensor by its name, a dimension by its name, an end of a visibility by its index, the scale, or a tensor map
    by its name in the kernel's `tile.tensor_maps`. The manifest lists a kernel's parameters in order.
  }];
  let parameters = (ins "ParameterKind":$kind, StringRefParameter<"name of the tensor or dimension", "\"\"">:$name,
                        DefaultValuedParameter<"int64_t", "0">:$index);
  let assemblyFormat = "`<` $kind (`,` $name^)? (`index` $index^)? `>`";
}

def Tile_TensorMapAttr : AttrDef<Tile_Dialect, "TensorMap"> {
  let mnemonic = "tensor_map";
  let summary = "a tensor as TMA sees it: axes of bytes, a box, a swizzle";
  let description = [{
    Axis i, counted from the innermost, has `extents[i]` elements times the product of the run-time dimensions
    that `dims[i]` names. Its elements are `strides[i]` bytes apart, times the run-time dimension `times[i]`
    where that names one; the innermost elements are adjacent, so their stride is the element's size. A copy
    moves a `box`, the innermost axis side by side, into shared memory with the swizzle of that many bytes.
    The launch encodes the map for the device.
  }];
  let parameters = (ins StringRefParameter<"name of the map">:$name, StringRefParameter<"the tensor">:$buffer,
                        "Type":$element, "DenseI64ArrayAttr":$extents, "ArrayAttr":$dims,
                        "DenseI64ArrayAttr":$strides, "DenseI64ArrayAttr":$box, "int64_t":$swizzle,
                        OptionalParameter<"ArrayAttr">:$times);
  let assemblyFormat = [{
    `<` $name `of` $buffer `,` $element `,` `extents` `=` $extents `,` `dims` `=` $dims `,` `strides` `=` $strides `,`
    `box` `=` $box `,` `swizzle` `=` $swizzle (`,` `times` `=` $times^)? `>`
  }];
  let genVerifyDecl = 1;
}

#endif
