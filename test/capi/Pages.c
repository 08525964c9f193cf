/*===- Pages.c - Pages of many lists, in C --------------------------------===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===*/
#include "Tries.h"

#include <string.h>

enum { lists = 2, columns = 5, pages = 6 };

static const char text[] =
    "func.func @manage(%table: tensor<?x?xi32> {attn.name = \"table\"},\n"
    "    %counts: tensor<?x2xi32> {attn.name = \"counts\"}, %tokens: tensor<?x2xi32> {attn.name = "
    "\"tokens\"},\n"
    "    %free: tensor<?xi32> {attn.name = \"free\"}, %span: tensor<2xi32> {attn.name = \"span\"},\n"
    "    %status: tensor<4xi32> {attn.name = \"status\"}) {\n"
    "  attn.manage_pages %table counts %counts of %tokens left 4 right 8 free %free span %span status "
    "%status\n"
    "      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>\n"
    "  return\n"
    "}\n";

/* Each at a multiple of 16. */
static struct {
  int32_t table[lists * columns + 2], counts[4], tokens[4], free[pages + 2], span[4], status[4];
} at __attribute__((aligned(16)));

static bool holds(const int32_t *found, size_t count, const int32_t *expected) {
  return memcmp(found, expected, count * sizeof(int32_t)) == 0;
}

static const char *launch(AttnTableOperation *operation) {
  const uint64_t tables[] = {(uintptr_t)at.table, (uintptr_t)at.counts, (uintptr_t)at.tokens,
                             (uintptr_t)at.free,  (uintptr_t)at.span,   (uintptr_t)at.status};
  const int32_t first[] = {5, 9, 0, 8}, second[] = {4, 9, 16, 0}, third[] = {0, 0, 16, 0};
  memset(at.table, 0xff, sizeof at.table);
  for (int32_t i = 0; i < pages; ++i)
    at.free[i] = i;
  at.span[1] = pages;

  memcpy(at.tokens, first, sizeof first);
  TRY(attnTableOperationLaunch(operation, tables, 6, 0));
  EXPECT(holds(at.status, 4, (const int32_t[]){1, 5, 6, 0}));
  EXPECT(holds(at.table, 10, (const int32_t[]){0, 1, -1, 2, 3, -1, -1, -1, -1, 4}));
  EXPECT(holds(at.span, 2, (const int32_t[]){5, 1}));

  memcpy(at.tokens, second, sizeof second);
  TRY(attnTableOperationLaunch(operation, tables, 6, 0));
  EXPECT(holds(at.status, 4, (const int32_t[]){0, 4, 3, 0}));
  EXPECT(holds(at.counts, 4, (const int32_t[]){2, 2, 0, 1}) && holds(at.span, 2, (const int32_t[]){5, 1}));

  memcpy(at.tokens, third, sizeof third);
  TRY(attnTableOperationLaunch(operation, tables, 6, 0));
  EXPECT(holds(at.status, 4, (const int32_t[]){1, 4, 6, 0}));
  EXPECT(holds(at.table, 10, (const int32_t[]){-1, -1, -1, -1, -1, 5, 0, 1, 2, -1}));
  EXPECT(holds(at.span, 2, (const int32_t[]){3, 2}));

  uint64_t odd[6];
  memcpy(odd, tables, sizeof odd);
  odd[1] += 8;
  AttnStatus status = attnTableOperationLaunch(operation, odd, 6, 0);
  EXPECT(status.kind == AttnStatusInput && strstr(status.message, "expected 'counts' at a multiple of 16"));
  attnStatusFree(status);
  return NULL;
}

const char *managesPages(void) {
  const AttnSource source = sourceOf(text);
  const AttnHostOptions options = {.checked = true, .seed = 5};
  AttnCompiled *compiled = NULL;
  AttnDevice *device = NULL;
  AttnKernel *kernel = NULL;
  AttnTableOperation *operation = NULL;
  TRY(attnCompile(&source, AttnFormHostChecked, &compiled));
  TRY(attnDeviceOpenHost(&options, &device));
  const AttnBytes *artifact = attnCompiledArtifact(compiled);
  TRY(attnKernelLoad(device, attnBytesData(artifact), attnBytesSize(artifact), "test", NULL, &kernel));
  attnCompiledDestroy(compiled);

  const int64_t sizes[] = {lists, columns, pages}, wide[] = {lists, 1 << 30, pages},
                none[] = {lists, columns, 0};
  AttnStatus status = attnTableOperationCreate(kernel, sizes, 2, &operation);
  EXPECT(status.kind == AttnStatusInput &&
         strstr(status.message, "the sizes lists, columns, pages, got 2 numbers"));
  attnStatusFree(status);
  status = attnTableOperationCreate(kernel, wide, 3, &operation);
  EXPECT(status.kind == AttnStatusInput &&
         strstr(status.message, "expected at most 1073741823 columns of 2"));
  attnStatusFree(status);
  status = attnTableOperationCreate(kernel, none, 3, &operation);
  EXPECT(status.kind == AttnStatusInput && strstr(status.message, "got 0; nearest legal: 1"));
  attnStatusFree(status);

  TRY(attnTableOperationCreate(kernel, sizes, 3, &operation));
  attnKernelDestroy(kernel);
  const char *wrong = launch(operation);
  attnTableOperationDestroy(operation);
  AttnHostReport report;
  AttnBytes *said = NULL;
  TRY(attnDeviceHostReport(device, &report, &said));
  EXPECT(report.clean);
  attnBytesDestroy(said);
  attnDeviceDestroy(device);
  return wrong;
}
