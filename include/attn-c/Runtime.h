/*===- Runtime.h - Devices, kernels, plans ------------------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *   AttnDevice *device;  attnDeviceOpenHost(NULL, &device);
 *   AttnKernel *kernel;  attnKernelLoad(device, file, size, "decode.attn", NULL, &kernel);
 *   AttnBatch *batch;    attnBatchCreate(kernel, tensors, count, &batch);
 *   AttnPlan *plan;      attnPlanCreate(kernel, batch, NULL, 0, &plan);
 *   attnPlanRun(plan, addresses, bytes, count, 0);          // for each layer
 *   attnPlanUpdate(plan, batch, 0, NULL);                   // for each step
 *
 * Addresses are of the device's memory; the host device takes any memory of this process. Addresses are the
 * only input that cannot be checked.
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
/* The host device, on any machine. Each option may be 0. A kernel is native code in this process: a wrong
 * kernel, or wrong addresses, may end it with a signal. Handlers, in place only around launches, then name
 * the kernel on standard error and call the earlier handlers. ATTN_HOST_SIGNALS=0 in the environment also
 * disables them. */
typedef struct AttnHostOptions {
  bool checked;     /* detectors and counters, for kernels with AttnFormHostChecked */
  bool shuffle;     /* lanes, warps and blocks in random order */
  uint32_t threads; /* 0: one per core */
  uint64_t seed;
  bool leaveSignals; /* install no handlers */
} AttnHostOptions;
ATTN_C_EXPORT AttnStatus attnDeviceOpenHost(const AttnHostOptions *options, AttnDevice **device);
/* Lets launches of plans on a host device end early: the thread that called attnPlanRun calls `interrupted` a
 * few times a second. If it returns true, that call fails with AttnStatusDevice; its results are missing, and
 * everything else is unchanged. Null: no call. No effect on a GPU. */
ATTN_C_EXPORT AttnStatus attnDeviceSetInterrupt(AttnDevice *device, bool (*interrupted)(void));
/* Opens a GPU through NVIDIA's driver, a library of this name (null: "libcuda.so.1"). */
ATTN_C_EXPORT AttnStatus attnDeviceOpenCuda(int32_t index, const char *library, AttnDevice **device);
/* 0 without a driver. */
ATTN_C_EXPORT int32_t attnCudaDeviceCount(void);
ATTN_C_EXPORT void attnDeviceDestroy(AttnDevice *device);

typedef struct AttnDeviceInfo {
  const char *kind, *name;                                          /* "host" or "cuda" */
  const char *target;                                               /* the target to compile for */
  int32_t index, multiprocessors, computeCapability, driverVersion; /* 90; 12040 is CUDA 12.4 */
  int64_t sharedBytes, l2Bytes, memoryBytes;
} AttnDeviceInfo;
ATTN_C_EXPORT AttnDeviceInfo attnDeviceInfo(const AttnDevice *device);
/* Streams are CUstreams of the device's primary context, 0 the default one; the host device takes any. */
ATTN_C_EXPORT AttnStatus attnDeviceSynchronize(AttnDevice *device, uintptr_t stream);
/* The number of a stream's capture into a graph, another for each capture; 0 if there is none. */
ATTN_C_EXPORT AttnStatus attnDeviceCapture(AttnDevice *device, uintptr_t stream, uint64_t *capture);

/* Memory of a device. */
typedef struct AttnMemory AttnMemory;
ATTN_C_EXPORT AttnStatus attnMemoryCreate(AttnDevice *device, size_t bytes, const char *label,
                                          AttnMemory **memory);
ATTN_C_EXPORT void attnMemoryDestroy(AttnMemory *memory);
ATTN_C_EXPORT uint64_t attnMemoryAddress(const AttnMemory *memory);
ATTN_C_EXPORT size_t attnMemorySize(const AttnMemory *memory);
/* Copies on the default stream; both wait. */
ATTN_C_EXPORT AttnStatus attnMemoryCopyIn(AttnMemory *memory, size_t offset, const void *from, size_t bytes);
ATTN_C_EXPORT AttnStatus attnMemoryCopyOut(const AttnMemory *memory, size_t offset, void *to, size_t bytes);
ATTN_C_EXPORT AttnStatus attnMemoryFill(AttnMemory *memory, uint8_t byte);
/* Writes NaN everywhere; marks the memory unwritten on a checked host device. */
ATTN_C_EXPORT AttnStatus attnMemoryPoison(AttnMemory *memory);

/*===--- Files of artifacts -------------------------------------------------===*/

/* One file of compiled functions, for one or several targets, made by attn-opt --emit=artifact and
 * attnCompile. Reading it executes nothing; loading a kernel of it does: a file is code, and its hashes find
 * damage, not malice. */
typedef struct AttnArtifact AttnArtifact;
/* Refuses files of another version, and damaged files. `name` is for messages; null: "kernel". */
ATTN_C_EXPORT AttnStatus attnArtifactRead(const void *bytes, size_t size, const char *name,
                                          AttnArtifact **artifact);
ATTN_C_EXPORT void attnArtifactDestroy(AttnArtifact *artifact);
/* The number of compiled functions: a function counts once for each target. */
ATTN_C_EXPORT size_t attnArtifactCount(const AttnArtifact *artifact);
typedef struct AttnArtifactInfo {
  const char *entry, *target;  /* "decode", "sm_90a" */
  const char *producer, *note; /* its compiler; the note of attnArtifactJoin, or empty */
  bool host, ptx, cubin;       /* the forms of its code */
} AttnArtifactInfo;
/* The info of index 0 to count - 1; all null for other indices. Strings live as long as the artifact. */
ATTN_C_EXPORT AttnArtifactInfo attnArtifactInfo(const AttnArtifact *artifact, size_t index);
/* Makes a file of one compiled function. */
ATTN_C_EXPORT AttnStatus attnArtifactTake(const AttnArtifact *artifact, size_t index, AttnBytes **bytes);
/* A file, and the note for all of its functions; null: keeps their notes. */
typedef struct AttnArtifactPart {
  const void *bytes;
  size_t size;
  const char *note;
} AttnArtifactPart;
/* Makes one file of all functions of the parts, in their order. */
ATTN_C_EXPORT AttnStatus attnArtifactJoin(const AttnArtifactPart *parts, size_t count, AttnBytes **bytes);

/*===--- Kernels ------------------------------------------------------------===*/

/* A compiled function on a device. Its code is loaded once; plans share it. */
typedef struct AttnKernel AttnKernel;
/* Loads the function `entry` (null: the only one) from a file of artifacts. Prefers code for the GPU's own
 * target to code that the GPU merely runs. Refuses files as attnArtifactRead does, missing functions, code
 * for other targets, and host code of another CPU or version. */
ATTN_C_EXPORT AttnStatus attnKernelLoad(AttnDevice *device, const void *artifact, size_t size,
                                        const char *name, const char *entry, AttnKernel **kernel);
ATTN_C_EXPORT void attnKernelDestroy(AttnKernel *kernel);
ATTN_C_EXPORT const char *attnKernelEntry(const AttnKernel *kernel);
ATTN_C_EXPORT const char *attnKernelManifest(const AttnKernel *kernel); /* JSON */
ATTN_C_EXPORT bool attnKernelIsChecked(const AttnKernel *kernel);
/* Whether it is an append, a move, a gather or a requantize: for attnCacheKernelsCreate,
 * attnRequantizerCreate and attnAppenderCreate, not for plans. */
ATTN_C_EXPORT bool attnKernelIsCacheOperation(const AttnKernel *kernel);
/* Names of the addresses that attnPlanRun takes, in this order; null past the last. Queries, keys and values,
 * the tensors that the scores read, with head classes "ordinal_heads", then "o", "lse" and "output_scales".
 * Tables belong to the plan. */
ATTN_C_EXPORT const char *attnKernelSlot(const AttnKernel *kernel, size_t index);
ATTN_C_EXPORT size_t attnKernelSlotCount(const AttnKernel *kernel);
/* The i32[kv_heads] for a layer whose KV heads have these classes: the content of "ordinal_heads" on the
 * device. */
ATTN_C_EXPORT AttnStatus attnKernelOrdinalHeads(const AttnKernel *kernel, const int32_t *classes,
                                                size_t count, int32_t *heads);

/*===--- Stores and formats -------------------------------------------------===*/

/* The store of a KV operand, and the formats of its keys and values, in the words of manifests. */
typedef struct AttnStore {
  const char *store; /* "dense", "packed", "paged", "unified" */
  int32_t page;      /* tokens of a page; 0 without pages */
  bool ragged;       /* each head has its own lengths and pages */
  int32_t heads;     /* heads of each token; 0: those of its head class */
  int32_t keyDim, valueDim;
  const char *key, *value; /* "bf16", "f8e4m3fn per head", "i4 per 64"; without `per` the usual one.
                            * "f8e4m3fn per 128 rest 64": lines of 656 bytes, whose value is "key".
                            * "key": a value is the first `valueDim` features of its key */
} AttnStore;
/* The store's own tensors, as JSON: {"key": FORMAT, "value": FORMAT, "token_bytes": of one head,
 * "heads_first": whether a page holds its heads one after the other, "page_bytes": of a unified page, else 0,
 * "tensors": [{"name": "k_pages", "dtype": "u8", "dims": ["pages", 16, 8, 64], "strided": whether it may have
 * strides, "in_page": the byte of a unified page where it begins, else null}, …]}. Full names are the
 * operand's name, a point and this name. */
ATTN_C_EXPORT AttnStatus attnStoreTensors(const AttnStore *store, AttnBytes **description);

/* Quantizes rows of `dim` numbers, and dequantizes them, as kernels do. Sizes are in bytes; the size of the
 * numbers gives the number of rows. `meta` holds the metadata of all rows, one after the other: metadata by
 * token is written, scales per tensor or head are read; lines that hold their scales have none. Numbers that
 * are not finite are clamped, and counted if `notFinite` is not null. */
typedef struct AttnRows {
  const char *format; /* like a store's */
  int64_t dim;
  float *numbers;
  void *meta, *codes;
  size_t numbersSize, metaSize, codesSize;
  float scale; /* the tensor's scale, for formats that have one beside `meta` by line; else ignored */
} AttnRows;
ATTN_C_EXPORT AttnStatus attnQuantizeRows(const AttnRows *rows, int64_t *notFinite);
ATTN_C_EXPORT AttnStatus attnDequantizeRows(const AttnRows *rows);

/*===--- Batches ------------------------------------------------------------===*/

/* One problem's sizes and tables, checked. */
typedef struct AttnBatch AttnBatch;
/* Takes tables (q_start, q_pos, <arg>.lengths, .pos0, .rows, .block_table, .start, classes: i32) with their
 * data, and descriptions of all other tensors. Optional tensors have defaults (attn_rt/batch/Batch.h).
 * `ends`: the sizes of windows and sinks, in the manifest's order; none: as compiled. */
ATTN_C_EXPORT AttnStatus attnBatchCreate(const AttnKernel *kernel, const AttnTensor *tensors, size_t count,
                                         const int32_t *ends, size_t endCount, AttnBatch **batch);
ATTN_C_EXPORT void attnBatchDestroy(AttnBatch *batch);
ATTN_C_EXPORT int64_t attnBatchRows(const AttnBatch *batch);
ATTN_C_EXPORT int64_t attnBatchSequences(const AttnBatch *batch);
/* Returns the tables as the kernel's tensors, by name. */
ATTN_C_EXPORT AttnStatus attnBatchTables(const AttnKernel *kernel, const AttnBatch *batch,
                                         AttnTensors **tables);

/*===--- Plans --------------------------------------------------------------===*/

/* Capacity for later batches; 0 takes the first batch's own number. */
typedef struct AttnPlanLimits {
  int64_t rows, groups, instancesPerRow, sharedInstances, sharedRows, tokensPerRow; /* PlanLimits */
  int64_t instances, pages; /* instances of each operand; columns of block tables (TableRoom) */
} AttnPlanLimits;

/* Options of planning, see PlanOptions (attn_rt/plan/Plan.h). */
typedef struct AttnPlanOptions {
  const char *strategy; /* "flatten", "auto" or another of attn_rt/plan/Strategy.h; null: "flatten" */
  int32_t blocks;       /* 0: chosen for the device */
  int32_t fixedSplit;   /* 0: none */
  int32_t kernel;       /* index plus 1; 0: chosen for the rows */
  AttnPlanLimits limits;
} AttnPlanOptions;

/* A batch's work with all device memory that it needs. One plan serves every layer; its launches use one
 * stream at a time. */
typedef struct AttnPlan AttnPlan;
/* Plans, and copies plan and tables to the device. `options` may be null. */
ATTN_C_EXPORT AttnStatus attnPlanCreate(AttnKernel *kernel, const AttnBatch *batch,
                                        const AttnPlanOptions *options, uintptr_t stream, AttnPlan **plan);
ATTN_C_EXPORT void attnPlanDestroy(AttnPlan *plan);
/* Plans the next step. `extended` (may be null) says whether the plan was only extended. Memory grows if
 * necessary. An error leaves the plan unchanged, and so the memory that recorded launches read. If the device
 * fails in a copy, the plan is refused until another update. */
ATTN_C_EXPORT AttnStatus attnPlanUpdate(AttnPlan *plan, const AttnBatch *batch, uintptr_t stream,
                                        bool *extended);
/* Plans the next step of a batch made from tensors with one packed operand. Each instance gets `tokens` more
 * tokens, each row's position moves by as many, and instances begin `apart` tokens apart. The batch itself is
 * changed; an error leaves it and the plan unchanged. */
ATTN_C_EXPORT AttnStatus attnPlanGrow(AttnPlan *plan, int32_t tokens, int64_t apart, uintptr_t stream,
                                      bool *extended);
/* Query rows of the batch. */
ATTN_C_EXPORT int64_t attnPlanRows(const AttnPlan *plan);
/* The least bytes that a slot's tensor must have now. */
ATTN_C_EXPORT size_t attnPlanSlotBytes(const AttnPlan *plan, size_t slot);
/* Launches, with an address and its bytes for each slot of the kernel ("ordinal_heads" may be 0: the batch's
 * own). Neither allocates nor waits; on the host device the work is done when it returns. */
ATTN_C_EXPORT AttnStatus attnPlanRun(AttnPlan *plan, const uint64_t *addresses, const size_t *bytes,
                                     size_t count, uintptr_t stream);
/* Launches on strided tensors. `strides` has an entry per slot: null, or the bytes between indices of each
 * dimension, the last being the size of an element. "q", "o", and keys and values without metadata by token
 * may have strides; null: none has any. Strides are multiples of 16 above 0 and below 2^31, and elements do
 * not overlap. Pages, or instances, of keys and values are an equal whole number of tokens apart. Strides are
 * data of the launch, as addresses are. */
ATTN_C_EXPORT AttnStatus attnPlanRunStrided(AttnPlan *plan, const uint64_t *addresses, const size_t *bytes,
                                            const int64_t *const *strides, size_t count, uintptr_t stream);
/* Fixes launches: from now on they differ only in the contents of buffers, so one can be recorded. Steps that
 * do not fit are refused. */
ATTN_C_EXPORT AttnStatus attnPlanFix(AttnPlan *plan);
/* Plans on the device (attn_rt/plan/DevicePlan.h), for kernels compiled with attn.device_plan. The plan's
 * batch was the largest: later steps have at most its rows, sequences and table widths. `tokens`: tokens of
 * the longest instance to come; 0: as many as the tables have space for. From now on attnPlanMake makes the
 * plan of a step, before its runs, and launches are fixed. */
ATTN_C_EXPORT AttnStatus attnPlanOnDevice(AttnPlan *plan, int64_t tokens, uintptr_t stream);
/* Names of the addresses that attnPlanBind takes, in this order, and the bytes of each; null past the last.
 * First "plan", the memory that plans are written to and read from, then "q_start", and for each operand
 * "<arg>.lengths", ".pos0" and ".block_table" or ".start". */
ATTN_C_EXPORT const char *attnPlanTable(const AttnPlan *plan, size_t index);
ATTN_C_EXPORT size_t attnPlanTableBytes(const AttnPlan *plan, size_t index);
/* Binds addresses: from now on plans are made from these tables (i32, in the device's memory) into this
 * memory, and runs read both; 0: the plan's own memory, or the batch's tables. So plans of several steps may
 * be alive at once. */
ATTN_C_EXPORT AttnStatus attnPlanBind(AttnPlan *plan, const uint64_t *addresses, const size_t *bytes,
                                      size_t count);
/* Launches the kernel that makes the plan. Neither allocates nor waits. */
ATTN_C_EXPORT AttnStatus attnPlanMake(AttnPlan *plan, uintptr_t stream);
/* Describes the fault of the last step's tables in a sentence, empty without a fault. Waits. */
ATTN_C_EXPORT AttnStatus attnPlanFault(AttnPlan *plan, uintptr_t stream, AttnBytes **message);
/* Describes the plan on a page of text. */
ATTN_C_EXPORT AttnStatus attnPlanExplain(const AttnPlan *plan, AttnBytes **text);

typedef struct AttnPlanStats {
  int64_t kvBytes, qBytes, partialBytes, metadataBytes, outputBytes, tasks, cuts, mergeRows;
  int32_t blocks, usedBlocks, kernel;
  int32_t extended; /* updates since the last new plan */
  double balance, flops, seconds;
} AttnPlanStats;
ATTN_C_EXPORT AttnPlanStats attnPlanStats(const AttnPlan *plan);

#ifdef __cplusplus
}
#endif

#endif
