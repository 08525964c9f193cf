/*===- Pages.h - Pages of many lists, managed on a device ---------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * If heads compress their caches, each KV head of a sequence in a layer is a list of tokens that takes pages
 * from a pool. Two operations change all lists at once through tensors in device memory, also in a captured
 * step. An attn.manage_pages returns pages and takes them. Its tensors, of i32, are
 *
 *   table  [lists, columns]  pages of a list, from the left end on and from the right end on; -1 at first
 *   counts [lists, 2]        numbers of pages at the left and at the right; 0 at first
 *   tokens [lists, 2]        tokens that a list needs pages for; read only
 *   free   [pages]           a ring of the pages that no list holds; every page once at first
 *   span   [2]               their begin in the ring, and their number; 0, pages at first
 *   status [4]               done (1) or not (0), pages requested, pages available, lists too long
 *
 * and its sizes lists, columns, pages. If there are too few pages, or a list takes more than columns, only
 * the status changes. An attn.compact_tokens lists the moves that fill the slots of evicted tokens. Its
 * tensors are table and counts, which it reads, tokens, which it changes, and
 *
 *   keep   [lists, flags]    i8: a flag for each token, not 0 if it stays; a multiple of 16 flags
 *   from   [lists, moves]    slots whose tokens move, as an attn.move takes them; -1 after the last
 *   to     [lists, moves]    slots that they go to
 *   status [1]               the number of unchanged lists is added, which would need more moves
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

/* One of the two operations, for tables of given sizes. */
typedef struct AttnTableOperation AttnTableOperation;
/* Allocates the memory that launches share. */
ATTN_C_EXPORT AttnStatus attnTableOperationCreate(const AttnKernel *kernel, const int64_t *sizes,
                                                  size_t count, AttnTableOperation **operation);
ATTN_C_EXPORT void attnTableOperationDestroy(AttnTableOperation *operation);
/* Launches with tensors on the device at these addresses, multiples of 16, in the order above; neither
 * allocates nor waits. */
ATTN_C_EXPORT AttnStatus attnTableOperationLaunch(AttnTableOperation *operation, const uint64_t *addresses,
                                                  size_t count, uintptr_t stream);

#ifdef __cplusplus
}
#endif

#endif
