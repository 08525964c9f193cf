/*===- Errors.c - Every call that is refused says so ----------------------===*/
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#include "Capi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char message[4096];

/* Null where the status is of this kind and says this. */
static const char *expect(const char *call, AttnStatus status, AttnStatusKind kind, const char *said) {
  const int right = status.kind == kind && status.message && strstr(status.message, said);
  snprintf(message, sizeof message, "%s: %d: %s", call, (int)status.kind,
           status.message ? status.message : "");
  attnStatusFree(status);
  return right ? NULL : message;
}
#define REFUSED(call, kind, said)                                                                            \
  do {                                                                                                       \
    const char *wrong = expect(#call, call, kind, said);                                                     \
    if (wrong)                                                                                               \
      return wrong;                                                                                          \
  } while (0)
#define TRY(call)                                                                                            \
  do {                                                                                                       \
    AttnStatus status = call;                                                                                \
    if (status.kind != AttnStatusOk)                                                                         \
      return expect(#call, status, AttnStatusOk, "");                                                        \
  } while (0)

static const char *compilerErrors(const char *text) {
  AttnCompiled *compiled = NULL;
  AttnTensors *results = NULL;
  AttnBytes *bytes = NULL;
  AttnSource source = sourceOf("func.func @x(");
  REFUSED(attnCompile(&source, AttnFormHost, &compiled), AttnStatusInput, "test:1:13: error: ");
  source = sourceOf(text);
  REFUSED(attnCompile(&source, AttnFormHost | AttnFormHostChecked, &compiled), AttnStatusInput, "forms: ");
  REFUSED(attnCompile(&source, 1024, &compiled), AttnStatusInput, "forms: ");
  REFUSED(attnEmit(&source, "level", &bytes), AttnStatusInput, "level: expected one of problem, online");
  source.target = "sm_70";
  REFUSED(attnCompile(&source, AttnFormHost, &compiled), AttnStatusInput, "target: expected one of sm_80");
  source.target = NULL;
  source.schedule = "none";
  REFUSED(attnCompile(&source, AttnFormHost, &compiled), AttnStatusInput, "schedule: expected one of auto");
  source.schedule = NULL;
  source.entry = "other";
  REFUSED(attnCompile(&source, AttnFormHost, &compiled), AttnStatusInput,
          "no attention function named 'other'");
  source.entry = NULL;
  AttnAsks asks = {.tableCount = 1};
  REFUSED(attnCompileAsked(&source, &asks, AttnFormHost, &compiled), AttnStatusInput,
          "tables: expected 1 names, got null");
  const char *tables[] = {"slopes", NULL};
  asks.tables = tables;
  REFUSED(attnCompileAsked(&source, &asks, AttnFormHost, &compiled), AttnStatusInput,
          "tables: expected none without backward, got 'slopes'");
  asks.backward = true, asks.tableCount = 2;
  REFUSED(attnEmitAsked(&source, &asks, "problem", &bytes), AttnStatusInput,
          "tables: expected a name at index 1, got null");
  asks.tableCount = 0, asks.ordered = (AttnOrder)4;
  REFUSED(attnCompileAsked(&source, &asks, AttnFormHost, &compiled), AttnStatusInput,
          "ordered: expected default (0), fixed (1), any (2) or apart (3), got 4");
  asks.ordered = AttnOrderDefault;
  REFUSED(attnCompileAsked(&source, &asks, AttnFormHost, &compiled), AttnStatusInput,
          "has no backward pass (attn.backward): region 0 is paged");
  asks.backward = false, asks.significanceRows = -1;
  REFUSED(attnCompileAsked(&source, &asks, AttnFormHost, &compiled), AttnStatusInput,
          "significanceRows: expected 1 or more, or 0 for all rows, got -1");
  asks.significanceRows = 0, asks.significance = "most";
  REFUSED(attnReference(&source, &asks, NULL, 0, 1, &results), AttnStatusInput,
          "expected attn.significance = \"max\", \"mean\" or \"sum\", got \"most\"");
  asks.significance = NULL, asks.devicePlan = true;
  TRY(attnCompileAsked(&source, &asks, AttnFormHost, &compiled));
  const int plans = strstr(attnCompiledManifest(compiled), "decode_plan") != NULL;
  attnCompiledDestroy(compiled);
  if (!plans)
    return "attnCompileAsked: expected a kernel that makes plans";
  REFUSED(attnReference(&source, NULL, NULL, 0, 1, &results), AttnStatusInput, "'q'");
  return NULL;
}

static const char *runtimeErrors(AttnDevice *device, AttnKernel *kernel) {
  AttnDevice *other = NULL;
  AttnMemory *memory = NULL;
  AttnKernel *loaded = NULL;
  AttnBatch *batch = NULL;
  AttnPlan *plan = NULL;
  const AttnHostOptions options = {.threads = 5000};
  REFUSED(attnDeviceOpenHost(&options, &other), AttnStatusInput, "threads: expected at most 1024, got 5000");
  REFUSED(attnDeviceOpenCuda(0, "libnothing.so", &other), AttnStatusDevice, "no NVIDIA driver");
  REFUSED(attnMemoryCreate(device, SIZE_MAX, "all", &memory), AttnStatusMemory, "'all'");
  TRY(attnMemoryCreate(device, 16, NULL, &memory));
  REFUSED(attnMemoryCopyIn(memory, 10, "1234567", 7), AttnStatusInput, "got 7 from 10 on");
  REFUSED(attnMemoryCopyIn(memory, SIZE_MAX, "1", 1), AttnStatusInput, "within the memory's 16");
  REFUSED(attnMemoryCopyOut(memory, 0, NULL, 4), AttnStatusInput, "got null");
  attnMemoryDestroy(memory);
  REFUSED(attnKernelLoad(device, "nothing", 7, "x", NULL, &loaded), AttnStatusInput,
          "artifact 'x': not an artifact");

  const int64_t shape[] = {2, 32, 128}, negative[] = {-2, 32, 128};
  AttnTensor tensor = {"q", AttnBF16, 3, shape, NULL};
  REFUSED(attnBatchCreate(kernel, &tensor, 1, NULL, 0, &batch), AttnStatusInput,
          "tensors 'kv.k_pages', 'kv.v_pages', 'kv.block_table', 'kv.lengths' are missing");
  REFUSED(attnBatchCreate(kernel, NULL, 1, NULL, 0, &batch), AttnStatusInput, "got null");
  tensor.shape = negative;
  REFUSED(attnBatchCreate(kernel, &tensor, 1, NULL, 0, &batch), AttnStatusInput,
          "expected a shape of memory");
  tensor.rank = -1;
  REFUSED(attnBatchCreate(kernel, &tensor, 1, NULL, 0, &batch), AttnStatusInput, "0 to 16 dimensions");
  tensor.dtype = (AttnDType)77;
  REFUSED(attnBatchCreate(kernel, &tensor, 1, NULL, 0, &batch), AttnStatusInput, "expected a dtype, got 77");
  tensor.name = NULL;
  REFUSED(attnBatchCreate(kernel, &tensor, 1, NULL, 0, &batch), AttnStatusInput, "tensor 0 has no name");

  const int32_t table[] = {0, 1}, lengths[] = {16, 3};
  const int64_t tableShape[] = {2, 1}, pageShape[] = {2, 16, 8, 128}, two[] = {2};
  const AttnTensor tensors[] = {{"q", AttnBF16, 3, shape, NULL},
                                {"kv.k_pages", AttnBF16, 4, pageShape, NULL},
                                {"kv.v_pages", AttnBF16, 4, pageShape, NULL},
                                {"kv.block_table", AttnI32, 2, tableShape, table},
                                {"kv.lengths", AttnI32, 1, two, lengths}};
  TRY(attnBatchCreate(kernel, tensors, 5, NULL, 0, &batch));
  REFUSED(attnBatchNodes(batch, 0, NULL, 0, NULL), AttnStatusInput, "made from tensors");
  AttnPlanOptions plans = {.strategy = "none"};
  REFUSED(attnPlanCreate(kernel, batch, &plans, 0, &plan), AttnStatusInput,
          "strategy: expected auto, by-query");
  plans.strategy = NULL;
  plans.kernel = 1000;
  REFUSED(attnPlanCreate(kernel, batch, &plans, 0, &plan), AttnStatusInput, "kernel: expected the index");
  plans.kernel = 0;
  plans.limits.rows = -1;
  REFUSED(attnPlanCreate(kernel, batch, &plans, 0, &plan), AttnStatusInput, "limits.rows: expected 0 to");
  TRY(attnPlanCreate(kernel, batch, NULL, 0, &plan));
  const uint64_t addresses[5] = {0};
  const size_t sizes[5] = {0};
  REFUSED(attnPlanRun(plan, addresses, sizes, 4, 0), AttnStatusInput, "each of the 5 buffers, got 4");
  REFUSED(attnPlanRun(plan, addresses, sizes, 5, 0), AttnStatusInput,
          "'q': expected at least 16384 bytes, got 0");
  attnPlanDestroy(plan);
  attnBatchDestroy(batch);
  return NULL;
}

static const char *cacheErrors(AttnKernel *kernel) {
  AttnCache *cache = NULL;
  AttnMovement *movement = NULL;
  AttnCacheClass whole = {"kv", 2, 0, 0, 0};
  REFUSED(attnCacheCreate(0, 0, &whole, 1, &cache), AttnStatusInput, "pageTokens: expected 1 to");
  TRY(attnCacheCreate(16, 0, &whole, 1, &cache));
  AttnNode root = 0, children[2];
  int32_t free = 0;
  TRY(attnCacheCreateRoot(cache, &root));
  REFUSED(attnCacheAppend(cache, root, 100, &movement), AttnStatusMemory, "7 pages asked for, 2 of 2 left");
  REFUSED(attnCacheAppend(cache, 99, 1, &movement), AttnStatusInput, "there is no node 99");
  REFUSED(attnCacheBranch(cache, root, 0, children), AttnStatusInput, "expected 1 to 1048576 children");
  REFUSED(attnCacheFreePages(cache, 1, &free), AttnStatusInput, "head class: expected 0 to 0, got 1");
  const AttnBranch branch = {root, 2, 1};
  REFUSED(attnCacheApply(cache, NULL, 0, NULL, 0, &branch, 1, children, 1, &movement), AttnStatusInput,
          "room for 2 children, got 1");
  TRY(attnCachePrune(cache, root));
  AttnNodeInfo info;
  REFUSED(attnCacheNode(cache, root, &info), AttnStatusInput, "pruned");
  AttnBatchBuilder *builder = NULL;
  const AttnCacheOperand operands[] = {{0, true, true}, {0, true, true}};
  REFUSED(attnBatchBuilderCreate(kernel, operands, 2, 0, &builder), AttnStatusInput, "expected 1 operands");
  attnCacheDestroy(cache);
  return NULL;
}

static const char *formatErrors(void) {
  AttnBytes *bytes = NULL;
  AttnStore store = {"paged", 16, false, 8, 128, 128, "i8", "i4 per 48"};
  REFUSED(attnStoreTensors(&store, &bytes), AttnStatusInput, "value: expected a group of 16, 32, 64 or 128");
  store.value = "i5";
  REFUSED(attnStoreTensors(&store, &bytes), AttnStatusInput, "value: expected a format");
  store.value = "i4", store.store = "stacked";
  REFUSED(attnStoreTensors(&store, &bytes), AttnStatusInput, "got 'stacked'");
  store.store = "dense";
  REFUSED(attnStoreTensors(&store, &bytes), AttnStatusInput, "expected pages of at least 1 token");
  store.page = 0;
  TRY(attnStoreTensors(&store, &bytes));
  const int known = strstr(attnBytesData(bytes), "\"value\":\"i4 per 128\"") != NULL;
  attnBytesDestroy(bytes);
  if (!known)
    return "attnStoreTensors: expected the group that is usual";

  float numbers[32] = {0};
  uint8_t meta[4], codes[16];
  AttnRows rows = {"i4 per 32", 32, numbers, meta, codes, sizeof numbers, sizeof meta, 15, 1};
  REFUSED(attnQuantizeRows(&rows, NULL), AttnStatusInput, "codes: expected 16 bytes for 1 rows");
  rows.codesSize = 16, rows.meta = NULL;
  REFUSED(attnQuantizeRows(&rows, NULL), AttnStatusInput, "meta: expected 4 bytes for 1 rows");
  rows.meta = meta, rows.dim = 0;
  REFUSED(attnDequantizeRows(&rows), AttnStatusInput, "expected rows of 1 to 2^20 features");
  rows.dim = 32;
  numbers[7] = 15, numbers[8] = 1.0f / 0.0f;
  int64_t clamped = 0;
  TRY(attnQuantizeRows(&rows, &clamped));
  numbers[8] = 0, clamped += 10;
  TRY(attnQuantizeRows(&rows, NULL));
  TRY(attnDequantizeRows(&rows));
  return clamped == 11 && numbers[7] == 15 && codes[3] == 0xF0 ? NULL : "attnQuantizeRows: wrong codes";
}

const char *everyErrorIsAStatus(void) {
  char *text = readExample("01_paged_decode/decode.mlir");
  const char *wrong = compilerErrors(text);
  if (!wrong)
    wrong = formatErrors();
  if (wrong)
    return wrong;
  const AttnSource source = sourceOf(text);
  AttnCompiled *compiled = NULL;
  AttnDevice *device = NULL;
  AttnKernel *kernel = NULL;
  TRY(attnCompile(&source, AttnFormHost, &compiled));
  TRY(attnDeviceOpenHost(NULL, &device));
  const AttnBytes *artifact = attnCompiledArtifact(compiled);
  TRY(attnKernelLoad(device, attnBytesData(artifact), attnBytesSize(artifact), NULL, NULL, &kernel));
  wrong = runtimeErrors(device, kernel);
  if (!wrong)
    wrong = cacheErrors(kernel);
  attnKernelDestroy(kernel);
  attnDeviceDestroy(device);
  attnCompiledDestroy(compiled);
  free(text);
  return wrong;
}

const char *nullIsRefused(void) {
  REFUSED(attnCompile(NULL, AttnFormHost, NULL), AttnStatusInput, "null");
  REFUSED(attnEmit(NULL, NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnCompileAsked(NULL, NULL, AttnFormHost, NULL), AttnStatusInput, "null");
  REFUSED(attnEmitAsked(NULL, NULL, NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnReference(NULL, NULL, NULL, 0, 0, NULL), AttnStatusInput, "null");
  REFUSED(attnDeviceOpenHost(NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnDeviceSynchronize(NULL, 0), AttnStatusInput, "null");
  REFUSED(attnDeviceCapture(NULL, 0, NULL), AttnStatusInput, "null");
  REFUSED(attnDeviceHostReport(NULL, NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnMemoryCreate(NULL, 1, NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnMemoryFill(NULL, 0), AttnStatusInput, "null");
  REFUSED(attnKernelLoad(NULL, NULL, 0, NULL, NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnArtifactRead(NULL, 0, NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnArtifactTake(NULL, 0, NULL), AttnStatusInput, "null");
  REFUSED(attnArtifactJoin(NULL, 0, NULL), AttnStatusInput, "null");
  REFUSED(attnStoreTensors(NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnQuantizeRows(NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnDequantizeRows(NULL), AttnStatusInput, "null");
  REFUSED(attnBatchCreate(NULL, NULL, 0, NULL, 0, NULL), AttnStatusInput, "null");
  REFUSED(attnPlanCreate(NULL, NULL, NULL, 0, NULL), AttnStatusInput, "null");
  REFUSED(attnPlanUpdate(NULL, NULL, 0, NULL), AttnStatusInput, "null");
  REFUSED(attnPlanRun(NULL, NULL, NULL, 0, 0), AttnStatusInput, "null");
  REFUSED(attnPlanFix(NULL), AttnStatusInput, "null");
  REFUSED(attnPlanSvg(NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnCacheCreate(16, 0, NULL, 1, NULL), AttnStatusInput, "null");
  REFUSED(attnCacheAppend(NULL, 0, 1, NULL), AttnStatusInput, "null");
  REFUSED(attnBatchBuilderBuild(NULL, NULL, NULL, 0, NULL, 0, NULL, 0, NULL), AttnStatusInput, "null");
  REFUSED(attnMovementExecute(NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnCacheKernelsCreate(NULL, NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnRequantizerCreate(NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnRequantizerReserve(NULL, 1, 1), AttnStatusInput, "null");
  REFUSED(attnRequantizerExecute(NULL, NULL, NULL, NULL, NULL, 0, 0), AttnStatusInput, "null");
  REFUSED(attnRequantizerLaunch(NULL, NULL, NULL, 0, 0, 0), AttnStatusInput, "null");
  REFUSED(attnCacheKernelsMove(NULL, 0, 0, 0), AttnStatusInput, "null");
  REFUSED(attnAppenderCreate(NULL, NULL), AttnStatusInput, "null");
  REFUSED(attnAppenderReserve(NULL, 1), AttnStatusInput, "null");
  REFUSED(attnAppenderLaunch(NULL, NULL, NULL, NULL, 0, 0, 0), AttnStatusInput, "null");
  attnAppenderDestroy(NULL);
  REFUSED(attnTableOperationCreate(NULL, NULL, 0, NULL), AttnStatusInput, "null");
  REFUSED(attnTableOperationLaunch(NULL, NULL, 0, 0), AttnStatusInput, "null");
  attnTableOperationDestroy(NULL);
  attnDeviceDestroy(NULL);
  attnKernelDestroy(NULL);
  attnBatchDestroy(NULL);
  attnPlanDestroy(NULL);
  attnCacheDestroy(NULL);
  attnMovementDestroy(NULL);
  attnCompiledDestroy(NULL);
  if (attnKernelSlot(NULL, 0) || attnPlanRows(NULL) || attnBytesData(NULL) || attnTensorsCount(NULL) ||
      attnMemoryAddress(NULL) || attnDeviceInfo(NULL).kind || attnCompiledManifest(NULL))
    return "null has an answer";
  return NULL;
}
