/*===- Pages.h - Pages of many lists, managed on a device ---------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * Where heads compress what they keep, each KV head of a sequence in a layer is a list of tokens that takes
 * pages from a pool. Two operations change all lists at once by tensors in device memory, in a captured step,
 * too. An attn.manage_pages gives pages back and takes them. Its tensors, of i32, are
 *
 *   table  [lists, columns]  pages of a list, from the left end on and from the right end on; -1 at first
 *   counts [lists, 2]        how many there are at the left and at the right; 0 at first
 *   tokens [lists, 2]        tokens that a list is to have pages for; is read
 *   free   [pages]           a ring of the pages that no list holds; every page once at first
 *   span   [2]               where in the ring they begin, and how many there are; 0, pages at first
 *   status [4]               done (1) or not (0), pages asked for, pages that were there, lists too long
 *
 * and its sizes lists, columns, pages. Where there are too few pages, or a list takes more than columns, the
 * status alone has changed. An attn.compact_tokens says which tokens move where others go: its tensors are
 * table and counts, which it reads, tokens, which it changes, and
 *
 *   keep   [lists, flags]    i8: a flag for each token, not 0 where it stays; a multiple of 16 of them
 *   from   [lists, moves]    slots whose tokens move, as an attn.move takes them; -1 behind the last
 *   to     [lists, moves]    where they go
 *   status [1]               is added how many lists stayed as they were, as they would take more moves
 *
 * with the sizes lists, columns, flags, moves.
 *
 *===----------------------------------------------------------------------===*/
#ifndef ATTN_C_PAGES_H
#define ATTN_C_PAGES_H

#include "attn-c/Runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One of the two, for tables of some size. */
typedef struct AttnTableOperation AttnTableOperation;
/* Allocates what launches share. */
ATTN_C_EXPORT AttnStatus attnTableOperationCreate(const AttnKernel *kernel, const int64_t *sizes,
                                                  size_t count, AttnTableOperation **operation);
ATTN_C_EXPORT void attnTableOperationDestroy(AttnTableOperation *operation);
/* Of tensors on the device at these addresses, multiples of 16, in the order above; neither allocates nor
 * waits. */
ATTN_C_EXPORT AttnStatus attnTableOperationLaunch(AttnTableOperation *operation, const uint64_t *addresses,
                                                  size_t count, uintptr_t stream);

#ifdef __cplusplus
}
#endif

#endif
