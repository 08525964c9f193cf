//===- TileSchedule.td - How a kernel is cut ---------------*- tablegen -*-===//
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

def Tile_Epilogue : I32EnumAttr<"Epilogue", "how the rows of a result leave a kernel", [
    I32EnumAttrCase<"Store", 0, "store">,
    I32EnumAttrCase<"Send", 1, "send">]> {
  let cppNamespace = "::mlir::tile";
}

class Tile_Unsaid<string type, string desc> : OptionalParameter<"std::optional<" # type # ">", desc>;

def Tile_ScheduleAttr : AttrDef<Tile_Dialect, "Schedule"> {
  let mnemonic = "schedule";
  let summary = "how one kernel is cut into tiles, warps and stages";
  let description = [{
    Everything that is decided about an attend kernel; who writes the kernel decides nothing.

    `rows` packed query rows and `keys` tokens per tile. With `split_keys` every warp holds all rows and a slice of
    the keys, copies its own slice and keeps a partial softmax of its own, merged when the task ends (decode). It may
    then have 8 rows, which mmas take from the right: for stores of codes, with `query_in_registers`.
    Without it every warp holds 16 rows and reads the block's common tile (prefill). `stages` tiles are in flight.
    `blocks` of them share a multiprocessor.
    Under `wgmma` the `warps` counted are those that compute, four to a warpgroup.
    `query_in_registers` keeps the query fragments in registers over the whole loop.

    What follows may be left out. Under `mma` that means what the parentheses say, and nothing else can be said;
    under `wgmma` that `--attn-choose-schedule` completes it.

    | field | meaning |
    |---|---|
    | `producers` | warps that only copy (0: all copy and compute) |
    | `producer_registers`, `consumer_registers` | of a thread of each role, once they part (what ptxas gives) |
    | `query_stages` | tiles of queries in shared memory: with 2 the next task's come while this one is computed (1) |
    | `query_copy` | `gather`, an address for every 16 bytes, or `boxes n`, of n lines each, by the copy engine (gather) |
    | `key_copies`, `value_copies` | the same, of each region's keys and values (gather) |
    | `value_boxes` | values lie in shared memory box by box of so many lines, as they come; 0: as one tile (0) |
    | `ping_pong` | a warpgroup starts its mmas when the one before has started its own (false) |
    | `exchange_stages` | tiles in turns by which warpgroups hand each other gradients of scores: with 2 they meet once a tile, else twice (1) |
    | `sequences_up_to` | the kernel is for plans whose sequences have no more packed rows, and instances no more tokens (any) |
    | `epilogue` | `store`, by the threads that hold the rows, or `send`, by the copy engine from the queries' stage (store) |

    `shared_bytes` is what all of that needs, by the model that chose it. `--tile-allocate-shared` refuses a kernel
    that needs anything else.

    A function may carry its own list as `tile.schedules = [#tile.schedule<...>, ...]`, complete or not; otherwise
    `--attn-choose-schedule` chooses one per shape. Fields come in any order behind the kind.
  }];
  let parameters = (ins "ScheduleKind":$kind, "int64_t":$rows, "int64_t":$keys, "int64_t":$warps,
                        "int64_t":$stages, "int64_t":$blocks, "bool":$splitKeys, "bool":$queryInRegisters,
                        Tile_Unsaid<"int64_t", "warps that only copy">:$producers,
                        Tile_Unsaid<"int64_t", "of a thread that copies">:$producerRegisters,
                        Tile_Unsaid<"int64_t", "of a thread that computes">:$consumerRegisters,
                        Tile_Unsaid<"int64_t", "tiles of queries in shared memory">:$queryStages,
                        Tile_Unsaid<"int64_t", "lines of a box of queries, or `gathered`">:$queryCopy,
                        OptionalArrayRefParameter<"int64_t", "the same for each region's keys">:$keyCopies,
                        OptionalArrayRefParameter<"int64_t", "and for its values">:$valueCopies,
                        Tile_Unsaid<"int64_t", "lines of values that lie together">:$valueBoxes,
                        Tile_Unsaid<"bool", "whether warpgroups start their mmas in turns">:$pingPong,
                        Tile_Unsaid<"::mlir::tile::Epilogue", "how results leave">:$epilogue,
                        Tile_Unsaid<"int64_t", "tiles that are exchanged in turns">:$exchangeStages,
                        Tile_Unsaid<"int64_t", "the longest sequences that it is for">:$sequencesUpTo,
                        Tile_Unsaid<"int64_t", "shared memory of a block">:$sharedBytes);
  let builders = [
    AttrBuilder<(ins "ScheduleKind":$kind, "int64_t":$rows, "int64_t":$keys, "int64_t":$warps, "int64_t":$stages,
                     "int64_t":$blocks, "bool":$splitKeys, "bool":$queryInRegisters), [{
      return $_get($_ctxt, kind, rows, keys, warps, stages, blocks, splitKeys, queryInRegisters, std::nullopt,
                   std::nullopt, std::nullopt, std::nullopt, std::nullopt, ArrayRef<int64_t>(),
                   ArrayRef<int64_t>(), std::nullopt, std::nullopt, std::nullopt, std::nullopt,
                   std::nullopt, std::nullopt);
    }]>,
    AttrBuilder<(ins "const ScheduleFields &":$f), [{
      return $_get($_ctxt, f.kind, *f.rows, *f.keys, *f.warps, *f.stages, *f.blocks, *f.splitKeys,
                   *f.queryInRegisters, f.producers, f.producerRegisters, f.consumerRegisters, f.queryStages,
                   f.queryCopy, ArrayRef<int64_t>(f.keyCopies), ArrayRef<int64_t>(f.valueCopies), f.valueBoxes,
                   f.pingPong, f.epilogue, f.exchangeStages, f.sequencesUpTo, f.sharedBytes);
    }]>
  ];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// What `query_copy`, `key_copies` and `value_copies` say of an operand that is gathered; else the lines of
    /// a box.
    static constexpr int64_t gathered = 0;
    /// Warps of a warpgroup: what wgmma computes with and what registers are given to.
    static constexpr int64_t groupWarps = 4;
    /// Rows of a consumer warpgroup.
    static constexpr int64_t groupRows = 16 * groupWarps;
    /// Rows of a tile whose mmas take queries from the right.
    static constexpr int64_t fewRows = 8;
    bool hasFewRows() const { return getWarpRows() == fewRows; }

    ScheduleFields getFields() const;
    /// Packed rows that one warp holds, and keys of a tile that one warp scores.
    int64_t getWarpRows() const { return getSplitKeys() ? getRows() : getRows() / getWarps(); }
    int64_t getWarpKeys() const { return getSplitKeys() ? getKeys() / getWarps() : getKeys(); }
    int64_t getProducerWarps() const { return getProducers().value_or(0); }
    /// Warpgroups that compute.
    int64_t getConsumers() const { return getWarps() / groupWarps; }
    int64_t getThreads() const { return (getProducerWarps() + getWarps()) * 32; }
    /// Warps that share a copy of this scope.
    int64_t getCopyWarps(Scope scope) const {
      return scope == Scope::Block ? getWarps() : scope == Scope::Producers ? getProducerWarps() : 1;
    }
    /// Whether queries, and keys and values of all regions, come in boxes.
    bool loadsQueriesByTma() const { return getQueryCopy().value_or(gathered) != gathered; }
    bool loadsTokensByTma() const {
      return !getKeyCopies().empty() && !llvm::is_contained(getKeyCopies(), gathered);
    }
    int64_t getExchanges() const { return getExchangeStages().value_or(1); }
    bool storesResultsByTma() const { return getEpilogue() == Epilogue::Send; }
    /// Lines of queries that lie together in a stage; 0: all of them.
    int64_t getQueryBoxes() const { return storesResultsByTma() ? groupRows : 0; }
    /// Under `split_keys` the warps exchange their accumulators and a (max, sum) pair per row when a task ends,
    /// in the place of the rings, and each writes a share of the columns, two blocks of 8 at least.
    int64_t getExchangeBytes(int64_t valueDim) const {
      return getSplitKeys() ? getWarps() * getRows() * (valueDim + 2) * 4 : 0;
    }
    int64_t getColumnShare(int64_t valueDim) const {
      return llvm::alignTo(llvm::divideCeil(valueDim, getWarps()), 16);
    }
    /// Whether nothing is left for `--attn-choose-schedule` to say but the shared memory.
    bool isComplete() const;
  }];
}

def Tile_MergeScheduleAttr : AttrDef<Tile_Dialect, "MergeSchedule"> {
  let mnemonic = "merge_schedule";
  let summary = "how the kernel that merges parts is cut into warps and loads";
  let description = [{
    A warp merges one (row, head) at a time, `warps` of them make a block, and `blocks` share a multiprocessor.
    `parts` of a row are read at once. A function carries it as `tile.merge_schedule`.
  }];
  let parameters = (ins "int64_t":$warps, "int64_t":$blocks, "int64_t":$parts);
  let assemblyFormat = "`<` `warps` `=` $warps `,` `blocks` `=` $blocks `,` `parts` `=` $parts `>`";
  let genVerifyDecl = 1;
}

def Tile_ParameterKind : I32EnumAttr<"ParameterKind", "what a kernel's parameter is", [
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
  let description = [{`#tile.blocks<8 of 16, f8E4M3FN>`: eight blocks of 16 features, whose scales are e4m3.}];
  let parameters = (ins AttrParameter<"int64_t", "how many blocks a line has">:$count,
                        AttrParameter<"int64_t", "features of a block: 16 or more, a power of two">:$size,
                        AttrParameter<"::mlir::Type", "f8E4M3FN, whose sign does not count, or f8E8M0FNU">:$scale);
  let assemblyFormat = "`<` $count `of` $size `,` $scale `>`";
  let genVerifyDecl = 1;
}

def Tile_ParameterAttr : AttrDef<Tile_Dialect, "Parameter"> {
  let mnemonic = "parameter";
  let summary = "where the launch finds the value of a kernel's parameter";
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
  let summary = "a tensor as bulk copies see it: axes of bytes, a box, a swizzle";
  let description = [{
    Axis i, counted from the innermost, has `extents[i]` elements times the product of the run-time dimensions that
    `dims[i]` names; `strides[i]` bytes lie between its elements (the innermost are adjacent: its stride is the
    element's size), times the run-time dimension `times[i]` where that names one. A copy moves a `box`, the innermost axis side by side, into shared memory with the swizzle of
    that many bytes. The launch encodes it for the device.
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
