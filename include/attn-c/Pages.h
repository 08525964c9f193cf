/*===- Pages.h - Pages of many lists, managed on a device ---------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * Where heads compress what they keep, each KV head of a sequence in a layer is a list of tokens that takes
 * pages from a pool. An attn.manage_pages gives pages back and takes them, for all lists at once, by tensors
 * in device memory: in a captured step, too.
 *
 *===----------------------------------------------------------------------===*/
#ifndef ATTN_C_PAGES_H
#define ATTN_C_PAGES_H

#include "attn-c/Runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Addresses of tensors of i32 on the device, multiples of 16. At first a table holds -1, counts are 0, `free`
 * holds every page once, and `span` is {0, pages}. */
typedef struct AttnPageTables {
  uint64_t table;  /* [lists, columns]: pages of a list, from the left end on and from the right end on */
  uint64_t counts; /* [lists, 2]: how many there are at the left and at the right */
  uint64_t tokens; /* [lists, 2]: tokens that a list is to have pages for; is read */
  uint64_t free;   /* [pages]: a ring of the pages that no list holds */
  uint64_t span;   /* [2]: where in the ring they begin, and how many there are */
  uint64_t
      status; /* [4]: done (1) or not (0), pages asked for, pages that were there, lists that fit no row */
} AttnPageTables;

typedef struct AttnPageManager AttnPageManager;
/* Allocates what launches share. `manage`: an attn.manage_pages. */
ATTN_C_EXPORT AttnStatus attnPageManagerCreate(const AttnKernel *manage, int64_t lists, int64_t columns,
                                               int64_t pages, AttnPageManager **manager);
ATTN_C_EXPORT void attnPageManagerDestroy(AttnPageManager *manager);
/* Lets every list hold the pages that its tokens take; neither allocates nor waits. Whether there were enough
 * pages says the status, in device memory: where there were not, nothing else has changed. */
ATTN_C_EXPORT AttnStatus attnPageManagerLaunch(AttnPageManager *manager, const AttnPageTables *tables,
                                               uintptr_t stream);

#ifdef __cplusplus
}
#endif

#endif
