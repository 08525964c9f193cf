/*===- step.c - Steps of decoding, in C ---------------------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *   step serve.attn [--device host|cuda]
 *
 * Two sequences grow by a token per step and attend. All values of sequence s are the number s + 1, so its
 * rows must be that number.
 *
 *===----------------------------------------------------------------------===*/
#include <attn-c/Cache.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  pages = 16,
  pageTokens = 16,
  kvRow = 2 * 64,
  queryRow = 8 * 64,
  sequences = 2,
  prompt = 40,
  steps = 5
};

/* Prints the error and exits: status 1 is a wrong result, 2 any other error. */
static void check(AttnStatus status, const char *call) {
  if (status.kind == AttnStatusOk)
    return;
  fprintf(stderr, "step: error: %s: %s\n", call, status.message);
  attnStatusFree(status);
  exit(2);
}
#define CHECK(call) check(call, #call)

static AttnMemory *allocate(AttnDevice *device, size_t numbers, const char *label) {
  AttnMemory *memory;
  CHECK(attnMemoryCreate(device, numbers * sizeof(uint16_t), label, &memory));
  return memory;
}

static void *readFile(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) {
    fprintf(stderr, "step: error: cannot open '%s'\n", path);
    exit(2);
  }
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  void *bytes = malloc(*size + 1);
  *size = fread(bytes, 1, *size, file);
  fclose(file);
  return bytes;
}

/* Appends to both sequences, and writes keys and values of the new tokens. */
static void append(AttnCache *cache, AttnCacheKernels *kernels, const AttnRowGroup *groups, int32_t tokens,
                   AttnMemory *keys, AttnMemory *values) {
  const AttnAppend appends[] = {{groups[0].node, tokens}, {groups[1].node, tokens}};
  AttnMovement *movement;
  CHECK(attnCacheApply(cache, NULL, 0, appends, sequences, NULL, 0, NULL, 0, &movement));
  static uint16_t rows[sequences * prompt * kvRow];
  const size_t count = (size_t)(sequences * tokens), numbers = count * kvRow;
  for (size_t i = 0; i < numbers; ++i)
    rows[i] = (uint16_t)(0x3e00 + i % 191); /* some numbers above 0.125 */
  CHECK(attnMemoryCopyIn(keys, 0, rows, numbers * 2));
  for (size_t i = 0; i < numbers; ++i)
    rows[i] = i < numbers / sequences ? 0x3f80 : 0x4000; /* 1 and 2 */
  CHECK(attnMemoryCopyIn(values, 0, rows, numbers * 2));
  const AttnDeviceRows given = {
      attnMemoryAddress(keys), attnMemoryAddress(values), (int64_t)count, 0, 0, 0, 0};
  CHECK(attnCacheKernelsExecute(kernels, movement, &given, 0));
  attnMovementDestroy(movement);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: step FILE.attn [--device host|cuda]\n");
    return 2;
  }
  AttnDevice *device;
  if (argc > 3 && !strcmp(argv[2], "--device") && !strcmp(argv[3], "cuda"))
    CHECK(attnDeviceOpenCuda(0, NULL, &device));
  else
    CHECK(attnDeviceOpenHost(NULL, &device));
  size_t size;
  void *file = readFile(argv[1], &size);
  AttnKernel *attend, *appender, *mover;
  CHECK(attnKernelLoad(device, file, size, argv[1], "attend", &attend));
  CHECK(attnKernelLoad(device, file, size, argv[1], "append", &appender));
  CHECK(attnKernelLoad(device, file, size, argv[1], "move", &mover));
  free(file);

  const size_t pool = pages * pageTokens * kvRow;
  AttnMemory *k = allocate(device, pool, "keys"), *v = allocate(device, pool, "values");
  AttnMemory *newK = allocate(device, sequences * prompt * kvRow, "new keys");
  AttnMemory *newV = allocate(device, sequences * prompt * kvRow, "new values");
  AttnMemory *q = allocate(device, sequences * queryRow, "queries");
  AttnMemory *o = allocate(device, sequences * queryRow, "outputs");
  CHECK(attnMemoryFill(q, 0x3e)); /* each number 0x3e3e */

  AttnCache *cache;
  const AttnCacheClass whole = {"kv", pages, 0, 0, 0};
  CHECK(attnCacheCreate(pageTokens, 0, &whole, 1, &cache));
  AttnCacheKernels *kernels;
  const AttnDevicePages memory = {.pages = pages,
                                  .pageTokens = pageTokens,
                                  .layers = 1,
                                  .k = attnMemoryAddress(k),
                                  .v = attnMemoryAddress(v)};
  CHECK(attnCacheKernelsCreate(appender, mover, &kernels));
  CHECK(attnCacheKernelsReserve(kernels, &memory, sequences * prompt, 1));
  AttnRowGroup groups[sequences] = {{.rows = 1}, {.rows = 1}};
  for (int s = 0; s < sequences; ++s)
    CHECK(attnCacheCreateRoot(cache, &groups[s].node));
  append(cache, kernels, groups, prompt, newK, newV);

  const AttnCacheOperand operand = {0, true, true};
  AttnBatchBuilder *builder;
  AttnBatch *batch;
  AttnPlan *plan;
  CHECK(attnBatchBuilderCreate(attend, &operand, 1, pages, &builder));
  CHECK(attnBatchBuilderBuild(builder, cache, groups, sequences, NULL, 0, NULL, 0, &batch));
  CHECK(attnPlanCreate(attend, batch, NULL, 0, &plan));
  const uint64_t addresses[] = {attnMemoryAddress(q), attnMemoryAddress(k), attnMemoryAddress(v),
                                attnMemoryAddress(o)};
  const size_t sizes[] = {attnMemorySize(q), attnMemorySize(k), attnMemorySize(v), attnMemorySize(o)};
  for (int step = 0; step < steps; ++step) {
    append(cache, kernels, groups, 1, newK, newV);
    bool updated;
    CHECK(attnBatchBuilderUpdate(builder, cache, batch, &updated));
    CHECK(attnPlanUpdate(plan, batch, 0, NULL));
    CHECK(attnPlanRun(plan, addresses, sizes, 4, 0)); /* for each layer */
    uint16_t rows[sequences * queryRow];
    CHECK(attnMemoryCopyOut(o, 0, rows, sizeof rows));
    for (int i = 0; i < sequences * queryRow; ++i)
      if (rows[i] != (i < queryRow ? 0x3f80 : 0x4000)) {
        fprintf(stderr, "step %d: number %d of the output is 0x%04x\n", step, i, rows[i]);
        return 1;
      }
  }
  printf("%d steps of %d sequences on %s, attn %s\n", steps, sequences, attnDeviceInfo(device).name,
         attnVersion());

  /* Any order is legal: an object keeps the objects that it was made from alive. */
  attnDeviceDestroy(device);
  attnKernelDestroy(attend), attnKernelDestroy(appender), attnKernelDestroy(mover);
  attnPlanDestroy(plan), attnBatchDestroy(batch), attnBatchBuilderDestroy(builder);
  attnCacheKernelsDestroy(kernels), attnCacheDestroy(cache);
  attnMemoryDestroy(k), attnMemoryDestroy(v), attnMemoryDestroy(newK), attnMemoryDestroy(newV);
  attnMemoryDestroy(q), attnMemoryDestroy(o);
  return 0;
}
