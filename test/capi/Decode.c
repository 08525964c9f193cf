/*===- Decode.c - A step of decoding, in C --------------------------------===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * Two sequences of a cache grow by a token, attend, and are compared with the float64 reference.
 *
 *===----------------------------------------------------------------------===*/
#include "Capi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  pages = 8,
  pageTokens = 16,
  heads = 8,
  group = 4,
  dim = 128,
  sequences = 2,
  rowElements = heads * group * dim
};

static char message[4096];

/* Keeps the first failure. */
static int failed(const char *what, AttnStatus status) {
  if (status.kind == AttnStatusOk)
    return 0;
  snprintf(message, sizeof message, "%s: %d: %s", what, (int)status.kind,
           status.message ? status.message : "");
  attnStatusFree(status);
  return 1;
}
#define TRY(call)                                                                                            \
  if (failed(#call, call))                                                                                   \
  return message
#define EXPECT(condition)                                                                                    \
  if (!(condition))                                                                                          \
  return #condition

char *readExample(const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", ATTN_EXAMPLES, name);
  FILE *file = fopen(path, "rb");
  char *text = calloc(1, 1 << 16);
  if (!file || !text || fread(text, 1, (1 << 16) - 1, file) == 0)
    exit(3);
  fclose(file);
  return text;
}

AttnSource sourceOf(const char *text) {
  AttnSource source = {text, strlen(text), "test", NULL, NULL, NULL};
  return source;
}

static uint16_t bfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static float widen(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void fill(uint16_t *numbers, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    numbers[i] = bfloat16((float)(int32_t)seed / 2147483648.0f);
  }
}

static const AttnTensor *find(const AttnTensors *tensors, const char *name, AttnTensor *found) {
  for (size_t i = 0; i < attnTensorsCount(tensors); ++i) {
    *found = attnTensorsGet(tensors, i);
    if (!strcmp(found->name, name))
      return found;
  }
  return NULL;
}

/* The worst row and head of what was computed. */
static double worstOf(const uint16_t *o, const double *reference) {
  double worst = 0;
  for (int row = 0; row < sequences * heads * group; ++row) {
    double difference = 0, norm = 0;
    for (int d = 0; d < dim; ++d) {
      const double exact = reference[row * dim + d], error = widen(o[row * dim + d]) - exact;
      difference += error * error;
      norm += exact * exact;
    }
    worst = fmax(worst, sqrt(difference / norm));
  }
  return worst;
}

static uint16_t q[sequences * rowElements], o[sequences * rowElements];
static uint16_t k[pages * pageTokens * heads * dim], v[pages * pageTokens * heads * dim];
static float lse[sequences * heads * group];

static const char *compare(const AttnSource *source, const AttnKernel *kernel, const AttnBatch *batch) {
  AttnTensors *tables = NULL, *results = NULL;
  TRY(attnBatchTables(kernel, batch, &tables));
  AttnTensor table, tensors[16];
  size_t count = attnTensorsCount(tables);
  EXPECT(find(tables, "kv.block_table", &table) && table.dtype == AttnI32 && table.shape[0] == sequences);
  for (size_t i = 0; i < count; ++i)
    tensors[i] = attnTensorsGet(tables, i);
  const int64_t qShape[] = {sequences, heads * group, dim}, pageShape[] = {pages, pageTokens, heads, dim};
  const AttnTensor data[] = {{"q", AttnBF16, 3, qShape, q},
                             {"kv.k_pages", AttnBF16, 4, pageShape, k},
                             {"kv.v_pages", AttnBF16, 4, pageShape, v}};
  memcpy(tensors + count, data, sizeof data);
  TRY(attnReference(source, NULL, tensors, count + 3, 1, &results));
  AttnTensor exact;
  EXPECT(find(results, "o", &exact) && exact.dtype == AttnF64 && exact.shape[0] == sequences);
  EXPECT(worstOf(o, exact.data) < 8e-3);
  EXPECT(find(results, "lse", &exact));
  for (int i = 0; i < sequences * heads * group; ++i)
    EXPECT(fabs(((const double *)exact.data)[i] - lse[i]) < 2e-3);
  attnTensorsDestroy(results);
  attnTensorsDestroy(tables);
  return NULL;
}

const char *decodeOfACache(void) {
  char *text = readExample("01_paged_decode/decode.mlir");
  const AttnSource source = sourceOf(text);
  AttnCompiled *compiled = NULL;
  TRY(attnCompile(&source, AttnFormHostChecked | AttnFormPtx, &compiled));
  EXPECT(strstr(attnCompiledManifest(compiled), "\"decode\""));
  EXPECT(strstr(attnCompiledRemark(compiled, 0), "test:13:1: remark: schedule") &&
         !attnCompiledRemark(compiled, 9));
  EXPECT(attnCompiledSeconds(compiled, 0) > 0 && attnCompiledSeconds(compiled, AttnFormPtx) > 0);

  AttnHostOptions options = {.checked = true, .seed = 5};
  AttnDevice *device = NULL;
  TRY(attnDeviceOpenHost(&options, &device));
  AttnKernel *kernel = NULL;
  const AttnBytes *artifact = attnCompiledArtifact(compiled);
  TRY(attnKernelLoad(device, attnBytesData(artifact), attnBytesSize(artifact), "test", NULL, &kernel));
  attnCompiledDestroy(compiled);
  EXPECT(attnKernelIsChecked(kernel) && attnKernelSlotCount(kernel) == 5);
  EXPECT(!strcmp(attnKernelSlot(kernel, 3), "o") && !attnKernelSlot(kernel, 5));

  AttnCacheClass whole = {"kv", pages, 0, 0, 0};
  AttnCache *cache = NULL;
  TRY(attnCacheCreate(pageTokens, 0, &whole, 1, &cache));
  AttnRowGroup groups[sequences] = {{0, 1, false}, {0, 1, false}};
  AttnMovement *movement = NULL;
  for (int s = 0; s < sequences; ++s) {
    TRY(attnCacheCreateRoot(cache, &groups[s].node));
    TRY(attnCacheAppend(cache, groups[s].node, 20 + 13 * s, &movement));
    EXPECT(attnMovementRows(movement) == 20 + 13 * s && attnMovementWriteCount(movement) == (size_t)(2 + s));
    attnMovementDestroy(movement);
  }
  fill(q, sizeof q / 2, 1);
  fill(k, sizeof k / 2, 2);
  fill(v, sizeof v / 2, 3);

  const AttnCacheOperand operand = {0, true, true};
  AttnBatchBuilder *builder = NULL;
  AttnBatch *batch = NULL;
  AttnPlan *plan = NULL;
  TRY(attnBatchBuilderCreate(kernel, &operand, 1, 4, &builder));
  TRY(attnBatchBuilderBuild(builder, cache, groups, sequences, NULL, 0, NULL, 0, &batch));
  TRY(attnPlanCreate(kernel, batch, NULL, 0, &plan));
  const uint64_t addresses[] = {(uintptr_t)q, (uintptr_t)k, (uintptr_t)v, (uintptr_t)o, (uintptr_t)lse};
  const size_t sizes[] = {sizeof q, sizeof k, sizeof v, sizeof o, sizeof lse};
  for (int step = 0; step < 3; ++step) {
    const AttnAppend appends[] = {{groups[0].node, 1}, {groups[1].node, 1}};
    TRY(attnCacheApply(cache, NULL, 0, appends, 2, NULL, 0, NULL, 0, &movement));
    uint16_t rows[2 * heads * dim];
    fill(rows, 2 * heads * dim, 10u + (uint32_t)step);
    AttnPageMemory memory = {0, pageTokens, 1, heads * dim * 2, 0, k, sizeof k, rows, sizeof rows, 0};
    TRY(attnMovementExecute(movement, &memory));
    memory.pages = v;
    TRY(attnMovementExecute(movement, &memory));
    attnMovementDestroy(movement);
    bool updated = false, extended = false;
    TRY(attnBatchBuilderUpdate(builder, cache, batch, &updated));
    TRY(attnPlanUpdate(plan, batch, 0, &extended));
    EXPECT(updated && extended);
    memset(o, 0xff, sizeof o);
    TRY(attnPlanRun(plan, addresses, sizes, 5, 0));
    const char *wrong = compare(&source, kernel, batch);
    if (wrong)
      return wrong;
  }
  AttnHostReport report;
  AttnBytes *said = NULL;
  TRY(attnDeviceHostReport(device, &report, &said));
  EXPECT(report.clean && report.races == 0 && report.bytesRead > 0 && attnBytesSize(said) == 0);
  attnBytesDestroy(said);
  AttnBytes *explained = NULL;
  TRY(attnPlanExplain(plan, &explained));
  EXPECT(strstr(attnBytesData(explained), "2 rows of 2 sequences"));
  attnBytesDestroy(explained);
  EXPECT(attnPlanStats(plan).extended == 3 && attnPlanRows(plan) == 2);

  /* In the worst order. */
  attnDeviceDestroy(device);
  attnKernelDestroy(kernel);
  attnCacheDestroy(cache);
  attnBatchBuilderDestroy(builder);
  attnBatchDestroy(batch);
  TRY(attnPlanRun(plan, addresses, sizes, 5, 0));
  attnPlanDestroy(plan);
  free(text);
  return NULL;
}
