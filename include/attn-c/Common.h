/*===- Common.h - Common parts of the C API -----------------------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * Two shared libraries export this API: libattn_runtime.so all of Common.h, Runtime.h, Cache.h and Pages.h,
 * and libattn_compiler.so these and Compiler.h; a program links one of them. These headers are the stable
 * part, whose functions keep their names and meanings within a major version; Unstable.h may change with any
 * version. They are for C and for every language that can call C. docs/embedding.md says more.
 *
 * Rules. Objects are opaque. A function that makes one returns it through its last parameter, and the
 * matching Destroy frees it (null is allowed there, and nowhere else). An object keeps its sources alive, so
 * objects may be destroyed in any order. Functions may be called from any thread; calls on one object are
 * serialized. Given strings and arrays are read before the call returns. Pointers that an object returns are
 * valid until it is changed or destroyed. No exception and no signal leaves a function: its status reports
 * whatever is wrong with a call, and a call that fails changes nothing.
 *
 *===----------------------------------------------------------------------===*/
#ifndef ATTN_C_COMMON_H
#define ATTN_C_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ATTN_C_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these headers, and that of the library, "0.1.0". */
#define ATTN_C_MAJOR 0
#define ATTN_C_MINOR 1
#define ATTN_C_PATCH 0
ATTN_C_EXPORT const char *attnVersion(void);

typedef enum AttnStatusKind {
  AttnStatusOk = 0,
  AttnStatusInput = 1,    /* bad input; the message says what was given and what is legal */
  AttnStatusDevice = 2,   /* the device or its driver refused */
  AttnStatusMemory = 3,   /* the device, the host or a cache has not enough memory */
  AttnStatusCheck = 4,    /* a result or a detector check failed */
  AttnStatusInternal = 5, /* a bug in attn: please report it */
} AttnStatusKind;

/* The outcome of a call. The message is UTF-8, or null. */
typedef struct AttnStatus {
  AttnStatusKind kind;
  char *message;
} AttnStatus;

/* Frees the message, which may be null. */
ATTN_C_EXPORT void attnStatusFree(AttnStatus status);

typedef enum AttnDType {
  AttnF16,
  AttnBF16,
  AttnF32,
  AttnF64,
  AttnI8,
  AttnI16,
  AttnI32,
  AttnI64,
  AttnU8,
  AttnU16,
  AttnU32,
  AttnU64,
  AttnBool,
  AttnF8E4M3FN,
  AttnF8E5M2,
} AttnDType;
/* "f16", "i32", …: the names in manifests; null past the last. */
ATTN_C_EXPORT const char *attnDTypeName(AttnDType dtype);
/* Bytes of an element; 0 past the last. */
ATTN_C_EXPORT size_t attnDTypeSize(AttnDType dtype);

/* A tensor in CPU memory, dense and row-major. If only its size matters, data is null. */
typedef struct AttnTensor {
  const char *name;
  AttnDType dtype;
  int32_t rank;
  const int64_t *shape;
  const void *data;
} AttnTensor;

/* Named tensors that a call returns. */
typedef struct AttnTensors AttnTensors;
ATTN_C_EXPORT size_t attnTensorsCount(const AttnTensors *tensors);
/* The tensor of an index from 0 to count - 1, in the order of their names; all null for other indices. */
ATTN_C_EXPORT AttnTensor attnTensorsGet(const AttnTensors *tensors, size_t index);
ATTN_C_EXPORT void attnTensorsDestroy(AttnTensors *tensors);

/* Bytes that a call returns, followed by an uncounted NUL, so that text is a C string. */
typedef struct AttnBytes AttnBytes;
ATTN_C_EXPORT const char *attnBytesData(const AttnBytes *bytes);
ATTN_C_EXPORT size_t attnBytesSize(const AttnBytes *bytes);
ATTN_C_EXPORT void attnBytesDestroy(AttnBytes *bytes);

#ifdef __cplusplus
}
#endif

#endif
