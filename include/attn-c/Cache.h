/*===- Cache.h - Sequences over pages -----------------------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * A forest of sequences whose keys and values lie in pages of a pool. It records which page holds which
 * token, and does not own the memory. attn_rt/cache/Cache.h and CacheBatch.h define the operations. A change
 * moves tokens in memory as an AttnMovement says; execute movements in the order of the changes, by kernels
 * or by plain copies.
 *
 *===----------------------------------------------------------------------===*/
#ifndef ATTN_C_CACHE_H
#define ATTN_C_CACHE_H

#include "attn-c/Runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names a node while it lives, and never another node. */
typedef uint64_t AttnNode;

typedef struct AttnCacheClass {
  const char *name;
  int32_t pages;        /* of its pool */
  int32_t recent, sink; /* recent > 0: streaming */
  int32_t draft;
} AttnCacheClass;

typedef struct AttnCache AttnCache;
/* `draftPage` 0: like pageTokens. */
ATTN_C_EXPORT AttnStatus attnCacheCreate(int32_t pageTokens, int32_t draftPage, const AttnCacheClass *classes,
                                         size_t classCount, AttnCache **cache);
ATTN_C_EXPORT void attnCacheDestroy(AttnCache *cache);

/*===--- Changes ------------------------------------------------------------===*/

typedef struct AttnMovement AttnMovement;
typedef struct AttnTokenCopy {
  int32_t headClass, fromPage, fromSlot, toPage, toSlot, tokens;
} AttnTokenCopy;
typedef struct AttnTokenWrite {
  int32_t headClass, row, page, slot, tokens; /* row: of the new tokens of the call */
} AttnTokenWrite;
ATTN_C_EXPORT void attnMovementDestroy(AttnMovement *movement);
ATTN_C_EXPORT int32_t attnMovementRows(const AttnMovement *movement); /* new tokens */
ATTN_C_EXPORT size_t attnMovementCopyCount(const AttnMovement *movement);
ATTN_C_EXPORT size_t attnMovementWriteCount(const AttnMovement *movement);
/* Returns zeros for an index past the last. */
ATTN_C_EXPORT AttnTokenCopy attnMovementCopy(const AttnMovement *movement, size_t index);
ATTN_C_EXPORT AttnTokenWrite attnMovementWrite(const AttnMovement *movement, size_t index);

ATTN_C_EXPORT AttnStatus attnCacheCreateRoot(AttnCache *cache, AttnNode *root);
ATTN_C_EXPORT AttnStatus attnCacheAppend(AttnCache *cache, AttnNode node, int32_t tokens,
                                         AttnMovement **movement);
/* `children` must hold `count` nodes. */
ATTN_C_EXPORT AttnStatus attnCacheBranch(AttnCache *cache, AttnNode node, int32_t count, AttnNode *children);
ATTN_C_EXPORT AttnStatus attnCachePrune(AttnCache *cache, AttnNode node);
ATTN_C_EXPORT AttnStatus attnCacheFork(AttnCache *cache, AttnNode leaf, AttnNode *twin,
                                       AttnMovement **movement);
/* Removes a leaf's last tokens; tokens shared by forks stay with the other leaves. */
ATTN_C_EXPORT AttnStatus attnCacheTruncate(AttnCache *cache, AttnNode leaf, int32_t tokens,
                                           AttnMovement **movement);
ATTN_C_EXPORT AttnStatus attnCacheEvict(AttnCache *cache, AttnNode node);
ATTN_C_EXPORT AttnStatus attnCacheSpeculate(AttnCache *cache, AttnNode leaf, const int32_t *parents,
                                            size_t count, AttnMovement **movement);
/* Keeps the draft's path that ends with `token`; -1: no token. */
ATTN_C_EXPORT AttnStatus attnCacheCommit(AttnCache *cache, AttnNode leaf, int32_t token,
                                         AttnMovement **movement);

typedef struct AttnAppend {
  AttnNode node;
  int32_t tokens;
} AttnAppend;
typedef struct AttnBranch {
  AttnNode node;
  int32_t children, tokens;
} AttnBranch;
/* Does all of it or nothing; prunes come first. `children` must hold the children of all branches. */
ATTN_C_EXPORT AttnStatus attnCacheApply(AttnCache *cache, const AttnNode *prune, size_t pruneCount,
                                        const AttnAppend *append, size_t appendCount,
                                        const AttnBranch *branch, size_t branchCount, AttnNode *children,
                                        size_t room, AttnMovement **movement);

/*===--- Questions ----------------------------------------------------------===*/

typedef struct AttnNodeInfo {
  AttnNode parent; /* if hasParent */
  bool hasParent, isLeaf, isEvicted;
  int32_t tokens, position; /* number of its own tokens; position of its first token */
  int32_t draftTokens;
} AttnNodeInfo;
ATTN_C_EXPORT AttnStatus attnCacheNode(const AttnCache *cache, AttnNode node, AttnNodeInfo *info);
ATTN_C_EXPORT bool attnCacheContains(const AttnCache *cache, AttnNode node);
ATTN_C_EXPORT int64_t attnCacheNodeCount(const AttnCache *cache);
ATTN_C_EXPORT AttnStatus attnCacheFreePages(const AttnCache *cache, int32_t headClass, int32_t *pages);
ATTN_C_EXPORT AttnStatus attnCacheCheckInvariants(const AttnCache *cache);

typedef struct AttnTokenSpan {
  int32_t firstToken, tokens, page, slot;
} AttnTokenSpan;
/* Lists: `count` receives the number of entries, and at most `room` entries are written. */
ATTN_C_EXPORT AttnStatus attnCacheRoots(const AttnCache *cache, AttnNode *roots, size_t room, size_t *count);
ATTN_C_EXPORT AttnStatus attnCacheChildren(const AttnCache *cache, AttnNode node, AttnNode *children,
                                           size_t room, size_t *count);
ATTN_C_EXPORT AttnStatus attnCachePlaces(const AttnCache *cache, AttnNode node, int32_t headClass,
                                         AttnTokenSpan *spans, size_t room, size_t *count);
/* Spans of a draft's tokens, one span per token. */
ATTN_C_EXPORT AttnStatus attnCacheDraftPlaces(const AttnCache *cache, AttnNode node, int32_t headClass,
                                              AttnTokenSpan *spans, size_t room, size_t *count);

/*===--- Batches ------------------------------------------------------------===*/

/* The part of the cache that an operand of the attention shows. */
typedef struct AttnCacheOperand {
  int32_t headClass;
  bool nodes, drafts;
} AttnCacheOperand;
/* A node's last rows, and then all tokens of its draft. */
typedef struct AttnRowGroup {
  AttnNode node;
  int32_t rows;
  bool draft;
} AttnRowGroup;

typedef struct AttnBatchBuilder AttnBatchBuilder;
/* Operands as in the kernel's manifest. `maxPages` 0: as many columns as the longest run needs. */
ATTN_C_EXPORT AttnStatus attnBatchBuilderCreate(const AttnKernel *kernel, const AttnCacheOperand *operands,
                                                size_t count, int32_t maxPages, AttnBatchBuilder **builder);
ATTN_C_EXPORT void attnBatchBuilderDestroy(AttnBatchBuilder *builder);
/* `classes`: the class of each KV head, if the kernel has head classes; `ends` as for attnBatchCreate. */
ATTN_C_EXPORT AttnStatus attnBatchBuilderBuild(AttnBatchBuilder *builder, const AttnCache *cache,
                                               const AttnRowGroup *groups, size_t count,
                                               const int32_t *classes, size_t classCount, const int32_t *ends,
                                               size_t endCount, AttnBatch **batch);
/* Writes the next step into the batch that was built last; if `updated` is false, build again. */
ATTN_C_EXPORT AttnStatus attnBatchBuilderUpdate(AttnBatchBuilder *builder, const AttnCache *cache,
                                                AttnBatch *batch, bool *updated);
/* For a batch from a builder: the user's row of each row, and the batch's row of each user's row. `room` must
 * be at least the number of rows. */
ATTN_C_EXPORT AttnStatus attnBatchRowMaps(const AttnBatch *batch, int32_t *userRow, int32_t *batchRow,
                                          size_t room);
/* The node of each instance of an operand. */
ATTN_C_EXPORT AttnStatus attnBatchNodes(const AttnBatch *batch, size_t operand, AttnNode *nodes, size_t room,
                                        size_t *count);

/*===--- Memory -------------------------------------------------------------===*/

/* Keys or values of a class in CPU memory, [layers][pages][pageTokens][tokenBytes], and new tokens
 * [layers][rows][tokenBytes]. */
typedef struct AttnPageMemory {
  int32_t headClass, pageTokens, layers;
  int64_t tokenBytes, layerBytes;
  void *pages;
  size_t pagesSize;
  const void *rows; /* may be null if nothing is written */
  size_t rowsSize;
  int64_t rowsLayerBytes;
} AttnPageMemory;
/* Executes by plain copies. Refuses ranges that do not lie within the memory before anything moves. */
ATTN_C_EXPORT AttnStatus attnMovementExecute(const AttnMovement *movement, const AttnPageMemory *memory);

/* Pages of a class on a device. */
typedef struct AttnDevicePages {
  int32_t headClass, pages, pageTokens, layers;
  uint64_t k, v;
  int64_t kLayerBytes, vLayerBytes; /* any, with one layer */
  /* Metadata of quantized values, by line or given; 0 for other formats. */
  uint64_t kMeta, vMeta;
  int64_t kMetaLayerBytes, vMetaLayerBytes;
  uint64_t status;   /* an i32 to which the append adds the count of numbers that cannot be quantized; or 0 */
  int64_t pageBytes; /* from a unified page to the next; 0 for other pages */
  /* The f32 scale of all keys, and of all values, beside metadata by line; or 0. */
  uint64_t kScale, vScale;
  int64_t kScaleLayerBytes, vScaleLayerBytes;
} AttnDevicePages;
/* Bytes from a page, a token and a head to the next; zeros: they lie densely, as the cache's store says. */
typedef struct AttnPageStrides {
  int64_t betweenPages, betweenTokens, betweenHeads;
} AttnPageStrides;
/* Pages whose lines lie anywhere: strides of quantized values and of their metadata. */
typedef struct AttnStridedPages {
  AttnDevicePages pages;
  AttnPageStrides k, v, kMeta, vMeta;
} AttnStridedPages;
/* New tokens on a device, [layers][count][heads][dim], for layers from `firstLayer` on; 0 layers: all. */
typedef struct AttnDeviceRows {
  uint64_t k, v;
  int64_t count, kLayerBytes, vLayerBytes;
  int32_t firstLayer, layers;
} AttnDeviceRows;

typedef struct AttnCacheKernels AttnCacheKernels;
ATTN_C_EXPORT AttnStatus attnCacheKernelsCreate(const AttnKernel *append, const AttnKernel *move,
                                                AttnCacheKernels **kernels);
ATTN_C_EXPORT void attnCacheKernelsDestroy(AttnCacheKernels *kernels);
/* Reserves memory for movements of this many new and copied tokens; the pages must outlive the kernels. */
ATTN_C_EXPORT AttnStatus attnCacheKernelsReserve(AttnCacheKernels *kernels, const AttnDevicePages *pages,
                                                 int64_t newTokens, int64_t copiedTokens);
/* Neither allocates nor waits; lists go to the device with the first layer in which a movement is executed.
 * `rows` may be null if nothing is written. Refused during a capture of the stream. */
ATTN_C_EXPORT AttnStatus attnCacheKernelsExecute(AttnCacheKernels *kernels, const AttnMovement *movement,
                                                 const AttnDeviceRows *rows, uintptr_t stream);
/* Writes new tokens, up to rows->count, whose number and slots lie on the device as in an AttnStepTables; may
 * be captured. */
ATTN_C_EXPORT AttnStatus attnCacheKernelsAppend(AttnCacheKernels *kernels, uint64_t list, size_t listBytes,
                                                const AttnDeviceRows *rows, uintptr_t stream);

/* Copies tokens from slots to slots, in all layers. The list lies on the device. The first of 8 words is the
 * number of copies, at most the copied tokens reserved for. Then follow the source slots, space for the
 * reserved number rounded up to a multiple of 8, and as many destination slots. A copy is skipped if both
 * slots are negative; no slot may be both read and written, or written twice. May be captured. */
ATTN_C_EXPORT AttnStatus attnCacheKernelsMove(AttnCacheKernels *kernels, uint64_t list, size_t listBytes,
                                              uintptr_t stream);

/* Checks that the nodes of row groups live; the error names the group of a node that does not. */
ATTN_C_EXPORT AttnStatus attnCacheCheckGroups(const AttnCache *cache, const AttnRowGroup *groups,
                                              size_t count);

/*===--- Tables of steps ----------------------------------------------------===*/

/* The tables of any step within a capacity, at fixed addresses of one block of memory. Launches of the plan's
 * kernel, the append and the attention over them can be recorded once (attn_rt/cache/StepTables.h). */
typedef struct AttnStepTables AttnStepTables;
/* The part of the cache that one operand of the attention shows, and entries of a sequence in its block
 * table. */
typedef struct AttnStepOperand {
  AttnCacheOperand shown;
  int32_t pages;
} AttnStepOperand;
/* Operands as in the kernel's manifest. */
ATTN_C_EXPORT AttnStatus attnStepTablesCreate(const AttnKernel *kernel, const AttnCache *cache,
                                              int32_t sequences, int32_t rows, int32_t newTokens,
                                              const AttnStepOperand *operands, size_t count,
                                              AttnStepTables **tables);
ATTN_C_EXPORT void attnStepTablesDestroy(AttnStepTables *tables);
/* The int32 words of all tables. */
ATTN_C_EXPORT size_t attnStepTablesWords(const AttnStepTables *tables);
/* Names as in a plan's tables, and "new_tokens"; null past the last. */
ATTN_C_EXPORT const char *attnStepTablesName(const AttnStepTables *tables, size_t index);
/* The first word of a table, and its number of words. */
ATTN_C_EXPORT AttnStatus attnStepTablesPlace(const AttnStepTables *tables, size_t index, size_t *first,
                                             size_t *words);
/* Makes the movement's rows the next new tokens of the step. */
ATTN_C_EXPORT AttnStatus attnStepTablesTake(AttnStepTables *tables, const AttnCache *cache,
                                            const AttnMovement *movement);
/* Appends to leaves, as attnCacheApply does; the rows are the next new tokens of the step. */
ATTN_C_EXPORT AttnStatus attnStepTablesAppend(AttnStepTables *tables, AttnCache *cache,
                                              const AttnAppend *append, size_t count);
/* Makes the tables of a step, and copies to `address` the words that they fill or that the last update left
 * uncopied. Only launches read that memory, in the order of the updates. Neither allocates nor waits. The new
 * tokens taken so far become this step's, and later ones the next step's. Errors change nothing. */
ATTN_C_EXPORT AttnStatus attnStepTablesUpdate(AttnStepTables *tables, const AttnCache *cache,
                                              const AttnRowGroup *groups, size_t count, uint64_t address,
                                              size_t size, uintptr_t stream);
/* Checks that the cache has changed no node with rows of the latest step, as a replay of its launches
 * requires. May be called from any thread. */
ATTN_C_EXPORT AttnStatus attnStepTablesCheck(AttnStepTables *tables);
/* Query rows of the latest step. */
ATTN_C_EXPORT int64_t attnStepTablesRows(const AttnStepTables *tables);

/* Requantizes slots of a cache into slots of another cache with fewer bits: an attn.requantize. */
typedef struct AttnRequantizer AttnRequantizer;
ATTN_C_EXPORT AttnStatus attnRequantizerCreate(const AttnKernel *requantize, AttnRequantizer **requantizer);
ATTN_C_EXPORT void attnRequantizerDestroy(AttnRequantizer *requantizer);
/* Reserves memory for lists of this many slots in this many layers. */
ATTN_C_EXPORT AttnStatus attnRequantizerReserve(AttnRequantizer *requantizer, int64_t slots, int32_t layers);
/* Requantizes slot from[i] of the pages `source` to slot to[i] of the pages `target`, which has the status,
 * in as many layers as reserved; skipped if both are negative. Neither allocates nor waits. */
ATTN_C_EXPORT AttnStatus attnRequantizerExecute(AttnRequantizer *requantizer, const AttnDevicePages *source,
                                                const AttnDevicePages *target, const int32_t *from,
                                                const int32_t *to, size_t count, uintptr_t stream);
/* Requantizes slots of a list on the device, as attnCacheKernelsMove takes it. May be captured. */
ATTN_C_EXPORT AttnStatus attnRequantizerLaunch(AttnRequantizer *requantizer, const AttnDevicePages *source,
                                               const AttnDevicePages *target, uint64_t list, size_t listBytes,
                                               uintptr_t stream);

/* Writes new tokens to any pages, and may normalize or rotate their keys and queries on the way: an
 * attn.append with a norm or a rotation, or `strided`. */
typedef struct AttnAppender AttnAppender;
/* What such an append reads beside keys and values, on the device. Addresses are multiples of 16, and 0 where
 * the append has no such part. */
typedef struct AttnPrologue {
  uint64_t q, rotated; /* may be equal */
  uint64_t kNorm, qNorm, cos, sin;
  uint64_t positions; /* i32[rows], of an append that rotates */
  int64_t tableRows;  /* positions that cos and sin have */
  /* Bytes from a row to the next, multiples of 16; 0: rows lie densely. */
  int64_t kRowBytes, vRowBytes, qRowBytes, rotatedRowBytes;
  /* Bytes from a head to the next, of queries of latents, multiples of 16; 0: heads lie densely. */
  int64_t qHeadBytes, rotatedHeadBytes;
} AttnPrologue;
ATTN_C_EXPORT AttnStatus attnAppenderCreate(const AttnKernel *append, AttnAppender **appender);
ATTN_C_EXPORT void attnAppenderDestroy(AttnAppender *appender);
/* Fixes the most rows of later launches, which decides the grid. */
ATTN_C_EXPORT AttnStatus attnAppenderReserve(AttnAppender *appender, int64_t rows);
/* Writes one layer's new tokens. The list lies on the device. The first of 8 words is the number of rows, at
 * most rows->count. Then follow the slots, space for the reserved number rounded up to a multiple of 8. Keys
 * and values are not written where a slot is negative or past the pages. Neither allocates nor waits; may be
 * captured. */
ATTN_C_EXPORT AttnStatus attnAppenderLaunch(AttnAppender *appender, const AttnStridedPages *pages,
                                            const AttnDeviceRows *rows, const AttnPrologue *prologue,
                                            uint64_t list, size_t listBytes, uintptr_t stream);

#ifdef __cplusplus
}
#endif

#endif
