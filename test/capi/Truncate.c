/*===- Truncate.c - Sequences that are cut, in C --------------------------===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===*/
#include "Tries.h"

#include <string.h>

const char *truncatesACache(void) {
  const AttnCacheClass whole = {"kv", 8, 0, 0, 0};
  AttnCache *cache = NULL;
  AttnNode leaf = 0, twin = 0;
  AttnMovement *movement = NULL;
  TRY(attnCacheCreate(4, 0, &whole, 1, &cache));
  TRY(attnCacheCreateRoot(cache, &leaf));
  TRY(attnCacheAppend(cache, leaf, 14, &movement));
  attnMovementDestroy(movement);
  TRY(attnCacheFork(cache, leaf, &twin, &movement));
  attnMovementDestroy(movement);

  /* Two tokens of its own, and six that it shares: what stays of the page that is cut is copied. */
  TRY(attnCacheTruncate(cache, leaf, 8, &movement));
  EXPECT(attnMovementRows(movement) == 0 && attnMovementWriteCount(movement) == 0);
  EXPECT(attnMovementCopyCount(movement) == 1 && attnMovementCopy(movement, 0).tokens == 2);
  attnMovementDestroy(movement);
  AttnNodeInfo info;
  TRY(attnCacheNode(cache, leaf, &info));
  EXPECT(info.position + info.tokens == 6);
  TRY(attnCacheNode(cache, twin, &info));
  EXPECT(info.position + info.tokens == 14);
  TRY(attnCacheCheckInvariants(cache));

  AttnStatus status = attnCacheTruncate(cache, leaf, 7, &movement);
  EXPECT(status.kind == AttnStatusInput && strstr(status.message, "it has 6 tokens"));
  attnStatusFree(status);
  attnCacheDestroy(cache);
  return NULL;
}
