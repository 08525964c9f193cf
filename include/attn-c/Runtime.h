/*===- Runtime.h - Devices, kernels, plans ------------------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *   AttnDevice *device;  attnDeviceOpenHost(NULL, &device);
 *   AttnKernel *kernel;  attnKernelLoad(device, file, size, "decode.attn", NULL, &kernel);
 *   AttnBatch *batch;    attnBatchCreate(kernel, tensors, count, &batch);
 *   AttnPlan *plan;      attnPlanCreate(kernel, batch, NULL, 0, &plan);
 *   attnPlanRun(plan, addresses, bytes, count, 0);          // for each layer
 *   attnPlanUpdate(plan, batch, 0, NULL);                   // for each step
 *
 * Addresses are of the device's memory; the host device takes any memory of this process. They are the one
 * thing that cannot be checked.
 *
 *===----------------------------------------------------------------------===*/
#ifndef ATTN_C_RUNTIME_H
#define ATTN_C_RUNTIME_H

#include "attn-c/Common.h"

#ifdef __cplusplus
extern "C" {
#endif

/*===--- Devices ------------------------------------------------------------===*/

typedef struct AttnDevice AttnDevice;
/* The executor: any machine. Each option may be 0.
 * A kernel is native code in this process: one that is wrong, or is given wrong addresses, may end it with a
 * signal. Then handlers, which are in place around launches only, name the kernel on standard error and hand
 * on to those that were there before. ATTN_HOST_SIGNALS=0 in the environment leaves them out, too. */
typedef struct AttnHostOptions {
  bool checked;     /* detectors and counters, for kernels with AttnFormHostChecked */
  bool shuffle;     /* lanes, warps and blocks in random order */
  uint32_t threads; /* 0: one per core */
  uint64_t seed;
  bool leaveSignals; /* install no handlers */
} AttnHostOptions;
ATTN_C_EXPORT AttnStatus attnDeviceOpenHost(const AttnHostOptions *options, AttnDevice **device);
/* Lets launches of plans on a host device end early: `interrupted` is asked a few times a second by the
 * thread that called attnPlanRun. Where it gives true, that call fails with AttnStatusDevice; its results are
 * not there, and everything else stays as it was. Null: nobody is asked. Nothing to a GPU. */
ATTN_C_EXPORT AttnStatus attnDeviceSetInterrupt(AttnDevice *device, bool (*interrupted)(void));
/* A GPU through NVIDIA's driver, which is found by this name (null: "libcuda.so.1"). */
ATTN_C_EXPORT AttnStatus attnDeviceOpenCuda(int32_t index, const char *library, AttnDevice **device);
/* 0 where there is no driver. */
ATTN_C_EXPORT int32_t attnCudaDeviceCount(void);
ATTN_C_EXPORT void attnDeviceDestroy(AttnDevice *device);

typedef struct AttnDeviceInfo {
  const char *kind, *name;                                          /* "host" or "cuda" */
  const char *target;                                               /* what to compile for */
  int32_t index, multiprocessors, computeCapability, driverVersion; /* 90; 12040 is CUDA 12.4 */
  int64_t sharedBytes, l2Bytes, memoryBytes;
} AttnDeviceInfo;
ATTN_C_EXPORT AttnDeviceInfo attnDeviceInfo(const AttnDevice *device);
/* Streams are CUstreams of the device's primary context, 0 the default one; the host device takes any. */
ATTN_C_EXPORT AttnStatus attnDeviceSynchronize(AttnDevice *device, uintptr_t stream);

/* Memory of a device. */
typedef struct AttnMemory AttnMemory;
ATTN_C_EXPORT AttnStatus attnMemoryCreate(AttnDevice *device, size_t bytes, const char *label,
                                          AttnMemory **memory);
ATTN_C_EXPORT void attnMemoryDestroy(AttnMemory *memory);
ATTN_C_EXPORT uint64_t attnMemoryAddress(const AttnMemory *memory);
ATTN_C_EXPORT size_t attnMemorySize(const AttnMemory *memory);
/* On the default stream; both wait. */
ATTN_C_EXPORT AttnStatus attnMemoryCopyIn(AttnMemory *memory, size_t offset, const void *from, size_t bytes);
ATTN_C_EXPORT AttnStatus attnMemoryCopyOut(const AttnMemory *memory, size_t offset, void *to, size_t bytes);
ATTN_C_EXPORT AttnStatus attnMemoryFill(AttnMemory *memory, uint8_t byte);
/* NaN everywhere; unwritten again on a checked host device. */
ATTN_C_EXPORT AttnStatus attnMemoryPoison(AttnMemory *memory);

/*===--- Files of artifacts -------------------------------------------------===*/

/* What attn-opt --emit=artifact and attnCompile make: compiled functions, of one or several targets, in one
 * file. Reading it executes nothing; loading a kernel of it does: a file is code, and its hashes find damage,
 * not malice. */
typedef struct AttnArtifact AttnArtifact;
/* Refuses files of another version, and those that are damaged. `name` is for messages; null: "kernel". */
ATTN_C_EXPORT AttnStatus attnArtifactRead(const void *bytes, size_t size, const char *name,
                                          AttnArtifact **artifact);
ATTN_C_EXPORT void attnArtifactDestroy(AttnArtifact *artifact);
/* How many compiled functions there are: a function counts once for each target. */
ATTN_C_EXPORT size_t attnArtifactCount(const AttnArtifact *artifact);
typedef struct AttnArtifactInfo {
  const char *entry, *target;  /* "decode", "sm_90a" */
  const char *producer, *note; /* who compiled it; what attnArtifactJoin was given, or empty */
  bool host, ptx, cubin;       /* the forms of its code */
} AttnArtifactInfo;
/* Of index 0 to count - 1; all null beyond that. Strings live as long as the artifact. */
ATTN_C_EXPORT AttnArtifactInfo attnArtifactInfo(const AttnArtifact *artifact, size_t index);
/* A file of that one alone. */
ATTN_C_EXPORT AttnStatus attnArtifactTake(const AttnArtifact *artifact, size_t index, AttnBytes **bytes);
/* A file, and what to note of all that it holds; null: what is noted there. */
typedef struct AttnArtifactPart {
  const void *bytes;
  size_t size;
  const char *note;
} AttnArtifactPart;
/* One file of all that the parts hold, in their order. */
ATTN_C_EXPORT AttnStatus attnArtifactJoin(const AttnArtifactPart *parts, size_t count, AttnBytes **bytes);

/*===--- Kernels ------------------------------------------------------------===*/

/* A compiled function on a device. Its code is loaded once; plans share it. */
typedef struct AttnKernel AttnKernel;
/* Of a file of artifacts the function `entry` (null: the only one), compiled for the GPU's own target before
 * one that it merely runs. Refuses files as attnArtifactRead does, functions that are not there, code for
 * other targets, and host code of another CPU or version. */
ATTN_C_EXPORT AttnStatus attnKernelLoad(AttnDevice *device, const void *artifact, size_t size,
                                        const char *name, const char *entry, AttnKernel **kernel);
ATTN_C_EXPORT void attnKernelDestroy(AttnKernel *kernel);
ATTN_C_EXPORT const char *attnKernelEntry(const AttnKernel *kernel);
ATTN_C_EXPORT const char *attnKernelManifest(const AttnKernel *kernel); /* JSON */
ATTN_C_EXPORT bool attnKernelIsChecked(const AttnKernel *kernel);
/* An append, a move, a gather or a requantize: for attnCacheKernelsCreate and attnRequantizerCreate, not for
 * plans. */
ATTN_C_EXPORT bool attnKernelIsCacheOperation(const AttnKernel *kernel);
/* What attnPlanRun takes addresses of, in this order; null beyond the last. Queries, keys and values,
 * whatever tensors the scores read, with head classes "ordinal_heads", then "o" and "lse". Tables are the
 * plan's own. */
ATTN_C_EXPORT const char *attnKernelSlot(const AttnKernel *kernel, size_t index);
ATTN_C_EXPORT size_t attnKernelSlotCount(const AttnKernel *kernel);
/* i32[kv_heads] of a layer whose KV heads have these classes: what "ordinal_heads" holds on the device. */
ATTN_C_EXPORT AttnStatus attnKernelOrdinalHeads(const AttnKernel *kernel, const int32_t *classes,
                                                size_t count, int32_t *heads);

/*===--- Stores and formats -------------------------------------------------===*/

/* Where the tokens of a KV operand lie, and how their keys and values are stored, in the words of manifests.
 */
typedef struct AttnStore {
  const char *store; /* "dense", "packed", "paged", "unified" */
  int32_t page;      /* tokens of a page; 0 where there are none */
  bool ragged;       /* each head has lengths and pages of its own */
  int32_t heads;     /* of each token; 0: as many as its head class has */
  int32_t keyDim, valueDim;
  const char *key, *value; /* "bf16", "f8e4m3fn per head", "i4 per 64"; without `per` what is usual */
} AttnStore;
/* The store's own tensors, JSON: {"key": FORMAT, "value": FORMAT, "token_bytes": of one head, "heads_first":
 * whether pages have head behind head, "page_bytes": of a unified page, else 0, "tensors": [{"name":
 * "k_pages", "dtype": "u8", "dims": ["pages", 16, 8, 64], "strided": whether it may lie otherwise than
 * densely, "in_page": the byte of a unified page where it begins, else null}, …]}, whose names follow the
 * operand's and a point. */
ATTN_C_EXPORT AttnStatus attnStoreTensors(const AttnStore *store, AttnBytes **description);

/* Rows of `dim` numbers to codes, and back, as kernels do it. Sizes are in bytes, that of the numbers says
 * how many rows there are. `meta` holds each row's metadata behind the other's: what its format finds by
 * token is written, what is given by tensor or head is read. Numbers that are not finite are clamped, and
 * counted where `notFinite` is not null. */
typedef struct AttnRows {
  const char *format; /* as of a store */
  int64_t dim;
  float *numbers;
  void *meta, *codes;
  size_t numbersSize, metaSize, codesSize;
  float scale; /* of the tensor, where `meta` is by line beside it; others do not read it */
} AttnRows;
ATTN_C_EXPORT AttnStatus attnQuantizeRows(const AttnRows *rows, int64_t *notFinite);
ATTN_C_EXPORT AttnStatus attnDequantizeRows(const AttnRows *rows);

/*===--- Batches ------------------------------------------------------------===*/

/* One problem's sizes and tables, checked. */
typedef struct AttnBatch AttnBatch;
/* Tables (q_start, q_pos, <arg>.lengths, .pos0, .rows, .block_table, .start, classes: i32) with their data,
 * and all other tensors described. What may be left out has its default (attn_rt/batch/Batch.h). `ends`: the
 * sizes of windows and sinks, in the manifest's order; none: as compiled. */
ATTN_C_EXPORT AttnStatus attnBatchCreate(const AttnKernel *kernel, const AttnTensor *tensors, size_t count,
                                         const int32_t *ends, size_t endCount, AttnBatch **batch);
ATTN_C_EXPORT void attnBatchDestroy(AttnBatch *batch);
ATTN_C_EXPORT int64_t attnBatchRows(const AttnBatch *batch);
ATTN_C_EXPORT int64_t attnBatchSequences(const AttnBatch *batch);
/* As the kernel's tensors, by name. */
ATTN_C_EXPORT AttnStatus attnBatchTables(const AttnKernel *kernel, const AttnBatch *batch,
                                         AttnTensors **tables);

/*===--- Plans --------------------------------------------------------------===*/

/* Room for batches to come; what is 0 is the first batch's own. */
typedef struct AttnPlanLimits {
  int64_t rows, groups, instancesPerRow, sharedInstances, sharedRows, tokensPerRow; /* PlanLimits */
  int64_t instances, pages; /* of each operand; columns of block tables (TableRoom) */
} AttnPlanLimits;

/* As PlanOptions (attn_rt/plan/Plan.h). */
typedef struct AttnPlanOptions {
  const char *strategy; /* "flatten", "auto" or another of attn_rt/plan/Strategy.h; null: "flatten" */
  int32_t blocks;       /* 0: as many as suit the device */
  int32_t fixedSplit;   /* 0: none */
  int32_t kernel;       /* plus 1; 0: the one that suits the rows */
  AttnPlanLimits limits;
} AttnPlanOptions;

/* A batch's work with all device memory that it needs. One plan serves every layer; launches of it go to one
 * stream at a time. */
typedef struct AttnPlan AttnPlan;
/* Plans, and copies plan and tables to the device. `options` may be null. */
ATTN_C_EXPORT AttnStatus attnPlanCreate(AttnKernel *kernel, const AttnBatch *batch,
                                        const AttnPlanOptions *options, uintptr_t stream, AttnPlan **plan);
ATTN_C_EXPORT void attnPlanDestroy(AttnPlan *plan);
/* The next step. `extended` (may be null) says whether the plan was only extended. Memory grows where it
 * must. An error leaves the plan as it was, and what recorded launches read. Only where the device fails in a
 * copy is it refused until another update. */
ATTN_C_EXPORT AttnStatus attnPlanUpdate(AttnPlan *plan, const AttnBatch *batch, uintptr_t stream,
                                        bool *extended);
/* The next step in few words, where the plan's batch was made from tensors with one packed operand: each
 * instance has `tokens` tokens more, each row stands so many further behind, and instances begin `apart`
 * tokens apart. The batch itself is changed; an error leaves it and the plan as they were. */
ATTN_C_EXPORT AttnStatus attnPlanGrow(AttnPlan *plan, int32_t tokens, int64_t apart, uintptr_t stream,
                                      bool *extended);
/* Query rows of the batch. */
ATTN_C_EXPORT int64_t attnPlanRows(const AttnPlan *plan);
/* The least bytes that a slot must have now. */
ATTN_C_EXPORT size_t attnPlanSlotBytes(const AttnPlan *plan, size_t slot);
/* Launches, with an address and its bytes for each slot of the kernel ("ordinal_heads" may be 0: the batch's
 * own). Neither allocates nor waits; on the host device the work is done when it returns. */
ATTN_C_EXPORT AttnStatus attnPlanRun(AttnPlan *plan, const uint64_t *addresses, const size_t *bytes,
                                     size_t count, uintptr_t stream);
/* The same of tensors that lie otherwise than densely. `strides`: for each slot null, or the bytes from one
 * index of each dimension to the next, the last the size of an element, of "q", "o" and of keys and values
 * that have no metadata by token; null: none has any. They are multiples of 16 above 0 and below 2^31,
 * elements do not overlap, and pages, or instances, of keys and values lie the same whole number of tokens
 * apart. Strides are data of the launch, as addresses are. */
ATTN_C_EXPORT AttnStatus attnPlanRunStrided(AttnPlan *plan, const uint64_t *addresses, const size_t *bytes,
                                            const int64_t *const *strides, size_t count, uintptr_t stream);
/* From now on launches differ in nothing but what buffers hold, so one can be recorded. What does not fit is
 * refused. */
ATTN_C_EXPORT AttnStatus attnPlanFix(AttnPlan *plan);
/* Plans on the device (attn_rt/plan/DevicePlan.h), of kernels compiled with attn.device_plan. The plan's
 * batch was the largest: as many rows and sequences, tables as wide. `tokens`: of the longest instance to
 * come; 0: as many as the tables have room for. From now on attnPlanMake makes the plan of a step, before its
 * runs, and launches are fixed. */
ATTN_C_EXPORT AttnStatus attnPlanOnDevice(AttnPlan *plan, int64_t tokens, uintptr_t stream);
/* What attnPlanBind takes addresses of, in this order, and the bytes of each; null beyond the last: "plan",
 * the memory that plans are written to and read from, then "q_start", and of each operand "<arg>.lengths",
 * ".pos0" and
 * ".block_table" or ".start". */
ATTN_C_EXPORT const char *attnPlanTable(const AttnPlan *plan, size_t index);
ATTN_C_EXPORT size_t attnPlanTableBytes(const AttnPlan *plan, size_t index);
/* From now on plans are made of these tables (i32, in the device's memory) into this memory, and runs read
 * both; 0: the plan's own memory, or the batch's tables. So several steps' plans may be alive at once. */
ATTN_C_EXPORT AttnStatus attnPlanBind(AttnPlan *plan, const uint64_t *addresses, const size_t *bytes,
                                      size_t count);
/* Launches the kernel that makes the plan. Neither allocates nor waits. */
ATTN_C_EXPORT AttnStatus attnPlanMake(AttnPlan *plan, uintptr_t stream);
/* What was wrong with the last step's tables: a sentence, empty where nothing was. Waits. */
ATTN_C_EXPORT AttnStatus attnPlanFault(AttnPlan *plan, uintptr_t stream, AttnBytes **message);
/* A page of text. */
ATTN_C_EXPORT AttnStatus attnPlanExplain(const AttnPlan *plan, AttnBytes **text);

typedef struct AttnPlanStats {
  int64_t kvBytes, qBytes, partialBytes, metadataBytes, outputBytes, tasks, cuts, mergeRows;
  int32_t blocks, usedBlocks, kernel;
  int32_t extended; /* updates since the plan was last made anew */
  double balance, flops, seconds;
} AttnPlanStats;
ATTN_C_EXPORT AttnPlanStats attnPlanStats(const AttnPlan *plan);

#ifdef __cplusplus
}
#endif

#endif
