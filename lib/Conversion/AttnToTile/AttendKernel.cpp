//===- AttendKernel.cpp - The kernel that walks the plan ------------------===//
//
// One kernel serves decode and prefill; the schedule says which.
//
//   for each task of this block            rows that share an accumulator
//     load the rows' queries
//     for each segment of the task         a token range of one instance
//       for each tile of keys              copies run ahead of it
//         scores, mask, online softmax, O += P V
//     merge the warps (decode), normalise
//     write O and LSE, or a part of them
//
// Rows are *packed*: row p of KV head h is query row p / G, query head
// h*G + p % G, so that the heads of a group share every key they read.
//
//===----------------------------------------------------------------------===//
#include "Kernel.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

constexpr double log2e = 1.4426950408889634, ln2 = 0.6931471805599453;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The fields of a segment of the plan (see attn_rt/Plan.h).
struct Segment {
  Value operand, instance, kvBegin, kvEnd, fullBegin, fullEnd, pos0;
};

struct State {
  Value max, sum, acc;
  SmallVector<Value> values() const { return {max, sum, acc}; }
};

class AttendKernel {
public:
  AttendKernel(Chain &chain, ScheduleAttr schedule, gpu::GPUModuleOp module, StringRef name)
      : chain(chain), schedule(schedule), b(module, name, chain.finish.getLoc()),
        rows(schedule.getWarpRows()), keys(schedule.getWarpKeys()),
        scope(schedule.getSplitKeys() ? Scope::Warp : Scope::Block) {}

  void write();

private:
  // Types of the fragments that one warp holds.
  FragmentType rowsOf(Type element, bool partial = false) {
    return b.fragment({Axis::Query}, {rows}, element, partial);
  }
  FragmentType scoresType() { return b.fragment({Axis::Query, Axis::Key}, {rows, keys}, b.getF32Type()); }
  FragmentType accType() {
    return b.fragment({Axis::Query, Axis::Feature}, {rows, chain.valueDim()}, b.getF32Type());
  }

  void writeTask(Value task);
  State initialState(Value flags);
  State walkSegment(unsigned operand, const Segment &segment, const State &state);
  State attendTile(UpdateOp update, unsigned operand, const Segment &segment, Value firstKey, Value keyTile,
                   Value valueTile, const State &state);
  Value visible(VisibilityAttr visibility, int64_t &end, Value distance, Value position);
  Value score(UpdateOp update, ValueRange arguments);
  Value slotOf(UpdateOp update, const Segment &segment, Value token);
  void writeResults(const State &state, Value partial);
  /// Query row and query head of a packed row.
  std::pair<Value, Value> unpack(Value packed) {
    return {b.div(packed, chain.group()),
            b.add(b.mul(kvHead, b.i32(chain.group())), b.rem(packed, chain.group()))};
  }
  std::string tensor(UpdateOp update, StringRef part) {
    return (argumentName(update.getKv()) + "." + part).str();
  }
  /// First packed row of this warp, counted from the task's first.
  Value warpRow() { return schedule.getSplitKeys() ? b.i32(0) : b.mul(warp, b.i32(rows)); }

  Chain &chain;
  ScheduleAttr schedule;
  KernelBuilder b;
  int64_t rows, keys;
  Scope scope;

  // Values of the kernel, then of the task being written.
  Value warp, queryTile, keyRing, valueRing, scratch, toLog2;
  Value packedBegin, packedCount, kvHead, query, queryPosition, queryHead;
};

void AttendKernel::write() {
  // The order of parameters: what the user passes, what the plan says, scalars.
  Type element = chain.element(), i32 = b.getI32Type(), f32 = b.getF32Type();
  b.buffer("q", element);
  b.buffer("q_pos", i32);
  b.buffer("o", element);
  if (chain.finish.getLse())
    b.buffer("lse", f32);
  Value blockTasks = b.buffer("plan.block_tasks", i32);
  b.buffer("plan.tasks", i32);
  b.buffer("plan.segments", i32);
  b.buffer("partial.o", f32);
  b.buffer("partial.lse", f32);

  MLIRContext *context = b.getContext();
  warp = WarpIdOp::create(b, i32);
  toLog2 = b.createOrFold<arith::MulFOp>(b.scale(), b.f32(log2e));
  auto sharedType = [&](Axis axis, int64_t lines, int64_t features) {
    return SharedType::get(context, axis, lines, Axis::Feature, features, element, false);
  };
  auto ring = [&](int64_t features) {
    auto type = RingType::get(context, schedule.getStages(), sharedType(Axis::Key, keys, features));
    return AllocOp::create(b, type, Value(), /*per_warp=*/schedule.getSplitKeys(), IntegerAttr());
  };
  queryTile = AllocOp::create(b, sharedType(Axis::Query, schedule.getRows(), chain.keyDim()), Value(), false,
                              IntegerAttr());
  keyRing = ring(chain.keyDim());
  valueRing = ring(chain.valueDim());
  if (schedule.getSplitKeys()) {
    // Accumulators of all warps, and a (max, sum) pair per row.
    int64_t bytes = schedule.getWarps() * (rows * chain.valueDim() * 4 + rows * 8);
    scratch = AllocOp::create(b, ScratchType::get(context, bytes), keyRing, false, IntegerAttr());
  }

  Value block = BlockIdOp::create(b, i32);
  Value first = b.read(blockTasks, b.wide(block)), last = b.read(blockTasks, b.wide(b.add(block, b.i32(1))));
  auto loop = scf::ForOp::create(b, first, last, b.i32(1));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    writeTask(loop.getInductionVar());
  }
  b.kernel->setAttr("tile.schedule", schedule);
  b.kernel->setAttr("tile.blocks_per_sm", b.getI32IntegerAttr(schedule.getBlocks()));
  b.finish(schedule.getWarps() * 32);
}

void AttendKernel::writeTask(Value task) {
  Type i32 = b.getI32Type();
  SmallVector<Value> fields = b.record(b.buffer("plan.tasks", i32), task);
  packedBegin = fields[0], packedCount = fields[1], kvHead = fields[2];
  Value partial = fields[5], flags = fields[6];

  // Queries: through shared memory into registers, or left there.
  Value end = b.add(packedBegin, packedCount);
  auto gather =
      GatherOp::create(b, packedBegin, end, ValueRange{b.buffer("q", chain.element())}, ValueRange{b.i64(0)},
                       ValueRange{queryTile}, ArrayRef<int64_t>{chain.keyDim()}, Scope::Block);
  b.fill(gather.getSlot(), {i32}, [&](ValueRange line) {
    auto [row, head] = unpack(line[0]);
    return b.add(b.mul(row, b.i32(chain.queryHeads())), head);
  });
  CommitOp::create(b);
  WaitOp::create(b, 0);
  SyncOp::create(b, Scope::Block);
  query = queryTile;
  if (schedule.getQueryInRegisters())
    query =
        LoadOp::create(b, b.fragment({Axis::Query, Axis::Feature}, {rows, chain.keyDim()}, chain.element()),
                       queryTile, warpRow());

  // Rows past the task's last repeat it: their positions must be readable, their results are dropped.
  Value firstRow = b.add(packedBegin, warpRow()), lastRow = b.add(end, b.i32(-1));
  auto packedRow = [&](Value line) { return b.min(b.add(firstRow, line), lastRow); };
  auto positions = LoadVectorOp::create(b, rowsOf(i32), b.buffer("q_pos", i32));
  b.fill(positions.getIndex(), {i32},
         [&](ValueRange line) { return b.wide(unpack(packedRow(line[0])).first); });
  queryPosition = positions;
  queryHead = b.map(rowsOf(i32), ValueRange{CoordinatesOp::create(b, rowsOf(i32), b.i32(0))},
                    [&](ValueRange line) { return unpack(packedRow(line[0])).second; });

  State state = initialState(flags);
  Value segments = b.buffer("plan.segments", i32);
  auto loop = scf::ForOp::create(b, fields[3], fields[4], b.i32(1), state.values());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> s = b.record(segments, loop.getInductionVar());
    Segment segment{s[0], s[1], s[2], s[3], s[4], s[5], s[6]};
    ValueRange carried = loop.getRegionIterArgs();
    State inner{carried[0], carried[1], carried[2]};
    for (unsigned operand = 0; operand < chain.updates.size(); ++operand)
      inner = walkSegment(operand, segment, inner);
    scf::YieldOp::create(b, inner.values());
  }
  writeResults({loop.getResult(0), loop.getResult(1), loop.getResult(2)}, partial);
}

State AttendKernel::initialState(Value flags) {
  Type f32 = b.getF32Type();
  State state{b.splat(b.f32(-infinity), rowsOf(f32)), b.splat(b.f32(0), rowsOf(f32, /*partial=*/true)),
              b.splat(b.f32(0), accType())};
  if (!chain.init.getSinks())
    return state;

  // The sink is a token with a score and no value. One share of a row's keys counts it, in one warp and one
  // lane.
  Value sinks = b.buffer(argumentName(chain.init.getSinks()), f32);
  Value counts =
      b.compare(arith::CmpIPredicate::ne, b.createOrFold<arith::AndIOp>(flags, b.i32(1)), b.i32(0));
  if (schedule.getSplitKeys())
    counts = b.createOrFold<arith::AndIOp>(counts, b.compare(arith::CmpIPredicate::eq, warp, b.i32(0)));
  Value oneLane =
      b.compare(arith::CmpIPredicate::eq,
                b.createOrFold<arith::AndIOp>(LaneIdOp::create(b, b.getI32Type()), b.i32(3)), b.i32(0));
  // Before the operation whose region uses them.
  Value lastRow = b.add(b.add(packedBegin, packedCount), b.i32(-1)), firstRow = b.add(packedBegin, warpRow());
  auto logits = LoadVectorOp::create(b, rowsOf(f32), sinks);
  b.fill(logits.getIndex(), {b.getI32Type()},
         [&](ValueRange line) { return b.wide(unpack(b.min(b.add(firstRow, line[0]), lastRow)).second); });
  // The running maximum is in the unit of raw scores, or of log2 where a score region stands between.
  bool raw = !chain.updates.empty() && chain.updates.front().getScore().empty();
  state.max = b.map(rowsOf(f32), ValueRange{logits}, [&](ValueRange logit) -> Value {
    Value scaled = raw ? arith::DivFOp::create(b, logit[0], b.scale()).getResult()
                       : arith::MulFOp::create(b, logit[0], b.f32(log2e)).getResult();
    return b.select(counts, scaled, b.f32(-infinity));
  });
  state.sum = b.map(rowsOf(f32, true), ValueRange{logits}, [&](ValueRange logit) -> Value {
    Value finite = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, logit[0], b.f32(-infinity));
    Value one =
        b.select(b.createOrFold<arith::AndIOp>(b.createOrFold<arith::AndIOp>(counts, oneLane), finite),
                 b.f32(1), b.f32(0));
    return one;
  });
  return state;
}

/// Slot of a token in the operand's store: the same for keys and values.
Value AttendKernel::slotOf(UpdateOp update, const Segment &segment, Value token) {
  KVType type = update.getKv().getType();
  Type i32 = b.getI32Type();
  switch (type.getStore()) {
  case Store::Dense:
    return b.add(b.mul(segment.instance, b.dimension(tensor(update, "tokens"))), token);
  case Store::Packed:
    return b.add(b.read(b.buffer(tensor(update, "start"), i32), b.wide(segment.instance)), token);
  case Store::Paged: {
    Value row = b.mul(b.wide(segment.instance), b.wide(b.dimension(tensor(update, "max_pages"))));
    Value index = b.add(row, b.wide(b.div(token, type.getPage())));
    Value page = b.read(b.buffer(tensor(update, "block_table"), i32), index);
    return b.add(b.mul(page, b.i32(type.getPage())), b.rem(token, type.getPage()));
  }
  }
  llvm_unreachable("unknown store");
}

State AttendKernel::walkSegment(unsigned operand, const Segment &segment, const State &state) {
  UpdateOp update = chain.updates[operand];
  KVType type = update.getKv().getType();
  Type element = chain.element();
  bool paged = type.getStore() == Store::Paged;
  Value keySource = b.buffer(tensor(update, paged ? "k_pages" : "k"), element);
  Value valueSource = b.buffer(tensor(update, paged ? "v_pages" : "v"), element);

  // A segment of another operand has no tiles here.
  Value end = segment.kvEnd;
  if (chain.updates.size() > 1)
    end =
        b.select(b.compare(arith::CmpIPredicate::eq, segment.operand, b.i32(operand)), end, segment.kvBegin);
  Value length = b.sub(end, segment.kvBegin);
  Value tiles = b.div(b.add(length, b.i32(schedule.getKeys() - 1)), schedule.getKeys());
  Value keyOrigin = b.wide(b.mul(kvHead, b.i32(type.getKeyDim())));
  Value valueOrigin = b.wide(b.mul(kvHead, b.i32(type.getValueDim())));

  auto loop = scf::ForOp::create(b, b.i32(0), tiles, b.i32(1), state.values());
  loop->setAttr("tile.stages", b.getI64IntegerAttr(schedule.getStages()));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value firstKey = b.add(segment.kvBegin, b.mul(loop.getInductionVar(), b.i32(schedule.getKeys())));
  if (schedule.getSplitKeys())
    firstKey = b.add(firstKey, b.mul(warp, b.i32(keys)));
  auto slot = [&](Value ring) {
    return SlotOp::create(b, cast<RingType>(ring.getType()).getTile(), ring, b.i32(0));
  };
  Value keyTile = slot(keyRing), valueTile = slot(valueRing);
  auto gather = GatherOp::create(
      b, firstKey, segment.kvEnd, ValueRange{keySource, valueSource}, ValueRange{keyOrigin, valueOrigin},
      ValueRange{keyTile, valueTile},
      ArrayRef<int64_t>{type.getHeads() * type.getKeyDim(), type.getHeads() * type.getValueDim()}, scope);
  b.fill(gather.getSlot(), {b.getI32Type()},
         [&](ValueRange token) { return slotOf(update, segment, token[0]); });
  CommitOp::create(b);
  WaitOp::create(b, 0);
  SyncOp::create(b, scope);
  ValueRange carried = loop.getRegionIterArgs();
  State next = attendTile(update, operand, segment, firstKey, keyTile, valueTile,
                          {carried[0], carried[1], carried[2]});
  SyncOp::create(b, scope);
  scf::YieldOp::create(b, next.values());
  return {loop.getResult(0), loop.getResult(1), loop.getResult(2)};
}

/// Whether a row at position q sees position p, with `distance` = q - p.
Value AttendKernel::visible(VisibilityAttr visibility, int64_t &end, Value distance, Value position) {
  auto notNegative = [&] { return b.compare(arith::CmpIPredicate::sge, distance, b.i32(0)); };
  switch (visibility.getKind()) {
  case VisibilityKind::All:
    return b.createOrFold<arith::ConstantIntOp>(1, 1);
  case VisibilityKind::Causal:
    return notNegative();
  case VisibilityKind::Window:
  case VisibilityKind::Recent: // 0 <= distance < size, as one unsigned compare
    return b.compare(arith::CmpIPredicate::ult, distance, b.end(end++));
  case VisibilityKind::Sink:
    return b.less(position, b.end(end++));
  case VisibilityKind::Or:
  case VisibilityKind::And: {
    Value result;
    for (VisibilityAttr part : visibility.getOperands()) {
      Value seen = visible(part, end, distance, position);
      if (!result)
        result = seen;
      else if (visibility.getKind() == VisibilityKind::Or)
        result = b.createOrFold<arith::OrIOp>(result, seen);
      else
        result = b.createOrFold<arith::AndIOp>(result, seen);
    }
    return result;
  }
  }
  llvm_unreachable("unknown visibility");
}

/// The score region in log2 units, from the scaled score, head and positions.
Value AttendKernel::score(UpdateOp update, ValueRange arguments) {
  IRMapping mapping;
  Block &block = update.getScore().front();
  mapping.map(block.getArguments(), arguments);
  auto inside = [&](Value value) -> Value {
    if (Value mapped = mapping.lookupOrNull(value))
      return mapped;
    Operation *constant = value.getDefiningOp(); // defined outside: only constants and arguments are
    Value copy = b.clone(*constant)->getResult(cast<OpResult>(value).getResultNumber());
    mapping.map(value, copy);
    return copy;
  };
  for (Operation &op : block.without_terminator()) {
    if (auto read = dyn_cast<attn::ReadOp>(op)) {
      // Row-major element index; each index is clamped into its extent.
      auto type = cast<RankedTensorType>(read.getTensor().getType());
      StringRef name = argumentName(read.getTensor());
      Value index = b.i64(0);
      for (auto [d, i] : llvm::enumerate(read.getIndices())) {
        Value extent =
            type.isDynamicDim(d) ? b.dimension((name + ".dim" + Twine(d)).str()) : b.i32(type.getDimSize(d));
        Value clamped = b.max(b.min(inside(i), b.add(extent, b.i32(-1))), b.i32(0));
        index = b.add(b.mul(index, b.wide(extent)), b.wide(clamped));
      }
      mapping.map(read.getResult(), b.read(b.buffer(name, type.getElementType()), index));
      continue;
    }
    for (Value operand : op.getOperands())
      (void)inside(operand);
    b.clone(op, mapping);
  }
  Value result = inside(block.getTerminator()->getOperand(0));
  return arith::MulFOp::create(b, result, b.f32(log2e));
}

/// One tile of keys: what every attention kernel does in its innermost loop.
State AttendKernel::attendTile(UpdateOp update, unsigned operand, const Segment &segment, Value firstKey,
                               Value keyTile, Value valueTile, const State &state) {
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  Value line = schedule.getQueryInRegisters() ? Value() : warpRow();
  Value scores = DotOp::create(b, scoresType(), query, line, keyTile, b.splat(b.f32(0), scoresType()));
  FragmentType keysType = b.fragment({Axis::Key}, {keys}, i32);
  Value token = CoordinatesOp::create(b, keysType, firstKey);

  Value unit = toLog2; // from the unit of the scores to log2
  if (!update.getScore().empty()) {
    scores =
        b.map(scoresType(), ValueRange{scores, queryHead, queryPosition, token}, [&](ValueRange v) -> Value {
          Value scaled = arith::MulFOp::create(b, v[0], b.scale());
          return score(update, {scaled, v[1], v[2], b.add(segment.pos0, v[3])});
        });
    unit = Value();
  }

  // The plan knows which tokens every row of the task sees; a tile within them needs no mask.
  Value lastKey = b.add(firstKey, b.i32(keys));
  Value partial =
      b.createOrFold<arith::OrIOp>(b.less(firstKey, segment.fullBegin), b.less(segment.fullEnd, lastKey));
  auto mask = MaskOp::create(b, scoresType(), scores, ValueRange{queryPosition, token}, partial);
  b.fill(mask.getVisible(), {i32, i32}, [&](ValueRange v) -> Value {
    int64_t end = 0;
    for (unsigned before = 0; before < operand; ++before) {
      SmallVector<int64_t> ends;
      chain.updates[before].getVisibility().collectEnds(ends);
      end += ends.size();
    }
    Value position = b.add(segment.pos0, v[1]);
    Value seen = visible(update.getVisibility(), end, b.sub(v[0], position), position);
    return b.createOrFold<arith::AndIOp>(seen, b.less(v[1], segment.kvEnd));
  });
  scores = mask;

  auto scaled = [&](Value x) -> Value { return unit ? arith::MulFOp::create(b, x, unit).getResult() : x; };
  Value tileMax = ReduceOp::create(b, rowsOf(f32), Combine::Max, scores);
  Value max = b.map(rowsOf(f32), ValueRange{state.max, tileMax},
                    [&](ValueRange v) -> Value { return arith::MaxNumFOp::create(b, v[0], v[1]); });
  // -inf - -inf must not become NaN in rows that have seen nothing yet.
  Value center = b.map(rowsOf(f32), ValueRange{max}, [&](ValueRange v) -> Value {
    Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, v[0], b.f32(-infinity));
    return b.select(nothing, b.f32(0), v[0]);
  });
  Value base = b.map(rowsOf(f32), ValueRange{center},
                     [&](ValueRange v) -> Value { return arith::NegFOp::create(b, scaled(v[0])); });
  // Subtract before scaling: where the maximum stays, the decay is 1 to the bit, however products are fused.
  Value decay = b.map(rowsOf(f32), ValueRange{state.max, center}, [&](ValueRange v) -> Value {
    return math::Exp2Op::create(b, scaled(arith::SubFOp::create(b, v[0], v[1])));
  });
  Value weights = b.map(scoresType(), ValueRange{scores, base}, [&](ValueRange v) -> Value {
    Value exponent = unit ? math::FmaOp::create(b, v[0], unit, v[1]).getResult()
                          : arith::AddFOp::create(b, v[0], v[1]).getResult();
    return math::Exp2Op::create(b, exponent);
  });
  Value tileSum = ReduceOp::create(b, rowsOf(f32, true), Combine::Add, weights);
  Value sum = b.map(rowsOf(f32, true), ValueRange{state.sum, decay, tileSum},
                    [&](ValueRange v) -> Value { return math::FmaOp::create(b, v[0], v[1], v[2]); });
  Value acc = b.map(accType(), ValueRange{state.acc, decay},
                    [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], v[1]); });
  Value packed = CastOp::create(b, scoresType().withElement(chain.element()), weights);
  acc = DotOp::create(b, accType(), packed, Value(), valueTile, acc);
  return {max, sum, acc};
}

void AttendKernel::writeResults(const State &state, Value partial) {
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  bool raw = !chain.updates.empty() && chain.updates.front().getScore().empty();
  Value unit = raw ? toLog2 : b.f32(1);
  Value max = state.max, sum = CompleteOp::create(b, rowsOf(f32), state.sum), acc = state.acc;

  // Which lines and columns this warp writes.
  Value lines = b.sub(packedCount, warpRow()), column, lseLines = lines;
  IntegerAttr columns;
  FragmentType outType = accType();
  if (schedule.getSplitKeys()) {
    int64_t share = llvm::alignTo(llvm::divideCeil(chain.valueDim(), schedule.getWarps()), 16);
    outType = b.fragment({Axis::Query, Axis::Feature}, {rows, share}, f32);
    SyncOp::create(b, Scope::Block); // the rings are free for the exchange
    auto merge = MergeWarpsOp::create(b, rowsOf(f32), rowsOf(f32), outType, max, sum, acc, scratch, unit,
                                      warp, b.getI64IntegerAttr(schedule.getWarps()));
    max = merge.getMergedMax(), sum = merge.getMergedSum(), acc = merge.getMergedAcc();
    column = b.mul(warp, b.i32(share));
    if (share * schedule.getWarps() > chain.valueDim())
      columns = b.getI64IntegerAttr(chain.valueDim());
    lseLines = b.select(b.compare(arith::CmpIPredicate::eq, warp, b.i32(0)), lines, b.i32(0));
  }

  Value inverse = b.map(rowsOf(f32), ValueRange{sum}, [&](ValueRange v) -> Value {
    Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, v[0], b.f32(0));
    return b.select(some, ReciprocalOp::create(b, v[0]), b.f32(0));
  });
  Value output = b.map(outType, ValueRange{acc, inverse},
                       [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], v[1]); });
  Value lse = b.map(rowsOf(f32), ValueRange{max, sum}, [&](ValueRange v) -> Value {
    Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, v[1], b.f32(0));
    Value log = arith::AddFOp::create(b, arith::MulFOp::create(b, v[0], unit), math::Log2Op::create(b, v[1]));
    return b.select(some, arith::MulFOp::create(b, log, b.f32(ln2)), b.f32(-infinity));
  });

  auto store = [&](Value fragment, Value buffer, Value lineCount, Value col, IntegerAttr cols,
                   function_ref<Value(Value)> index) {
    auto op = StoreOp::create(b, fragment, buffer, lineCount, col, cols);
    b.fill(op.getIndex(), {i32}, [&](ValueRange line) { return index(line[0]); });
  };
  Value first = b.add(packedBegin, warpRow());
  auto rowAndHead = [&](Value line) {
    auto [row, head] = unpack(b.add(first, line));
    return b.add(b.mul(b.wide(row), b.i64(chain.queryHeads())), b.wide(head));
  };
  auto partialRow = [&](Value line) { return b.wide(b.add(b.add(partial, warpRow()), line)); };
  Value isPart = b.compare(arith::CmpIPredicate::sge, partial, b.i32(0));
  Value outBuffer = b.buffer("o", chain.element()), partBuffer = b.buffer("partial.o", f32),
        partLse = b.buffer("partial.lse", f32);
  auto branch = scf::IfOp::create(b, isPart, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenYield());
  store(output, partBuffer, lines, column, columns,
        [&](Value line) { return b.mul(partialRow(line), b.i64(chain.valueDim())); });
  store(lse, partLse, lseLines, Value(), IntegerAttr(), [&](Value line) { return partialRow(line); });
  b.setInsertionPoint(branch.elseYield());
  store(output, outBuffer, lines, column, columns,
        [&](Value line) { return b.mul(rowAndHead(line), b.i64(chain.valueDim())); });
  if (chain.finish.getLse())
    store(lse, b.buffer("lse", f32), lseLines, Value(), IntegerAttr(), rowAndHead);
  if (!schedule.getSplitKeys()) { // the next task overwrites the queries that slower warps may still read
    b.setInsertionPointAfter(branch);
    SyncOp::create(b, Scope::Block);
  }
}

} // namespace

void attn::writeAttendKernel(Chain &chain, ScheduleAttr schedule, gpu::GPUModuleOp module, StringRef name) {
  AttendKernel(chain, schedule, module, name).write();
}
