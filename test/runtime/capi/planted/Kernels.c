/*===- Kernels.c - Native code as the compiler writes it ----------*- C -*-===*/
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of the sample manifest, of which only the names matter. They use what a loader must resolve:
 * constants, a function of the library, a function of another section. */
#include <string.h>

static const float table[64] = {1, 2, 3};
extern float sqrtf(float number);

__attribute__((noinline)) static void fill(void **args) { memcpy(args[0], table, sizeof table); }
void decode_rows16(void *lane, void **args) {
  (void)lane;
  fill(args);
}
void decode_rows128(void *lane, void **args) {
  fill(args);
  memset(lane, 0, *(unsigned *)args[1]);
}
void decode_merge(void *lane, void **args) { *(float *)args[0] = sqrtf(*(float *)lane); }
