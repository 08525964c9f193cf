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

/* Computes the float64 meaning of the text. Tensors have the names of the manifest. Results are "o" f64[rows,
 * q_heads, value_dim] and "lse" f64[rows, q_heads], and "output_scales", of that shape, if the text returns
 * them; for an operation on a cache, the tensors that it writes.
 * Optional tensors have defaults. `asks` null: no requests beside the text. `threads` 0: one per core. */
ATTN_C_EXPORT AttnStatus attnReference(const AttnSource *source, const AttnAsks *asks,
                                       const AttnTensor *tensors, size_t count, uint32_t threads,
                                       AttnTensors **results);
/* Computes the gradients of a text on tensors that include `do` and possibly `dlse`: `dq`, `<name>.dk`,
 * `<name>.dv`, `dsink_logits`, `d<table>`, in f64 (attn/Reference/Reference.h). */
ATTN_C_EXPORT AttnStatus attnReferenceGradients(const AttnSource *source, const AttnTensor *tensors,
                                                size_t count, uint32_t threads, AttnTensors **results);

/* Findings and counters of a checked host device since the last reset. */
typedef struct AttnHostReport {
  uint64_t races, uninitialized, outOfBounds, misaligned, sync, deadlocks;
  uint64_t bytesRead, bytesWritten, bytesPartials, flops;
  double sectorEfficiency, bankConflicts, seconds;
  bool clean;
} AttnHostReport;
/* `text` describes the findings and may be null. Refused on other devices. */
ATTN_C_EXPORT AttnStatus attnDeviceHostReport(AttnDevice *device, AttnHostReport *report, AttnBytes **text);
ATTN_C_EXPORT AttnStatus attnDeviceResetReport(AttnDevice *device);

/* Work of a host device since the last reset (attn_rt/device/HostDevice.h). */
typedef struct AttnHostWork {
  uint64_t launches, copies, allocations;
  uint64_t shapes, arguments; /* hashes */
} AttnHostWork;
ATTN_C_EXPORT AttnStatus attnDeviceHostWork(AttnDevice *device, AttnHostWork *work, bool reset);

/* The least work of the problem itself, for every way to compute it (attn_rt/plan/Plan.h). */
typedef struct AttnFloor {
  int64_t queryBytes, kvBytes, tableBytes, resultBytes;
  double usefulFlops;
} AttnFloor;
ATTN_C_EXPORT AttnStatus attnBatchFloor(const AttnKernel *kernel, const AttnBatch *batch, AttnFloor *floor);

#ifdef __cplusplus
}
#endif

#endif
