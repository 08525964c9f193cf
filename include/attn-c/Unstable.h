/*===- Unstable.h - For tests and laboratories --------------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * May change with any version.
 *
 *===----------------------------------------------------------------------===*/
#ifndef ATTN_C_UNSTABLE_H
#define ATTN_C_UNSTABLE_H

#include "attn-c/Compiler.h"
#include "attn-c/Runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The float64 meaning of the text, on tensors named as in the design's table: "o" f64[rows, q_heads,
 * value_dim] and "lse" f64[rows, q_heads]; of an operation on a cache the tensors that it leaves. What may be
 * left out has its default. `asks` null: nothing beside the text. `threads` 0: one per core. */
ATTN_C_EXPORT AttnStatus attnReference(const AttnSource *source, const AttnAsks *asks,
                                       const AttnTensor *tensors, size_t count, uint32_t threads,
                                       AttnTensors **results);
/* The gradients of the same text and tensors, with `do` and possibly `dlse` among these: `dq`, `<name>.dk`,
 * `<name>.dv`, `dsink_logits`, `d<table>`, in f64 (attn/Reference/Reference.h). */
ATTN_C_EXPORT AttnStatus attnReferenceGradients(const AttnSource *source, const AttnTensor *tensors,
                                                size_t count, uint32_t threads, AttnTensors **results);

/* What a checked host device found and counted since the last reset. */
typedef struct AttnHostReport {
  uint64_t races, uninitialized, outOfBounds, misaligned, sync, deadlocks;
  uint64_t bytesRead, bytesWritten, bytesPartials, flops;
  double sectorEfficiency, bankConflicts, seconds;
  bool clean;
} AttnHostReport;
/* `text` describes the findings and may be null. Refused on other devices. */
ATTN_C_EXPORT AttnStatus attnDeviceHostReport(AttnDevice *device, AttnHostReport *report, AttnBytes **text);
ATTN_C_EXPORT AttnStatus attnDeviceResetReport(AttnDevice *device);

/* What a host device was asked to do since the last reset (attn_rt/device/HostDevice.h). */
typedef struct AttnHostWork {
  uint64_t launches, copies, allocations;
  uint64_t shapes, arguments; /* hashes */
} AttnHostWork;
ATTN_C_EXPORT AttnStatus attnDeviceHostWork(AttnDevice *device, AttnHostWork *work, bool reset);

/* What the problem itself needs, however it is computed (attn_rt/plan/Plan.h). */
typedef struct AttnFloor {
  int64_t queryBytes, kvBytes, tableBytes, resultBytes;
  double usefulFlops;
} AttnFloor;
ATTN_C_EXPORT AttnStatus attnBatchFloor(const AttnKernel *kernel, const AttnBatch *batch, AttnFloor *floor);

#ifdef __cplusplus
}
#endif

#endif
