//===- CudaApi.h - The part of the CUDA driver API in use -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Declarations of the driver's stable C ABI, and the table of functions that are
// looked up in it. The two functions that turn errors into text come first, so that
// any later failure can be named.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CUDA_CUDAAPI_H
#define ATTN_RT_CUDA_CUDAAPI_H

#include "attn_rt/support/Status.h"

#include <cstddef>
#include <cstdint>

namespace attn::rt::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = uint64_t;
using CUcontext = struct CUctx_st *;
using CUmodule = struct CUmod_st *;
using CUfunction = struct CUfunc_st *;
using CUstream = struct CUstream_st *;
using CUevent = struct CUevent_st *;
using CUgraph = struct CUgraph_st *;
using CUgraphExec = struct CUgraphExec_st *;

/// CUlaunchAttribute and CUlaunchConfig.
struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int flag;
  } value;
};
struct LaunchConfig {
  unsigned grid[3], block[3], sharedBytes;
  CUstream stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};
enum : int { programmaticStreamSerialization = 6 };
enum : int { captureThreadLocal = 1 };     ///< CUstreamCaptureMode: other threads are unaffected
enum : unsigned { streamNonBlocking = 1 }; ///< CUstream_flags

enum : CUresult {
  success = 0,
  outOfMemory = 2,
  noDevice = 100,
  noBinaryForGpu = 209,
  invalidPtx = 218,
  unsupportedPtxVersion = 222,
  notFound = 500,
};
enum Attribute : int {
  threadsPerBlock = 1,
  multiprocessorCount = 16,
  l2CacheSize = 38,
  computeCapabilityMajor = 75,
  computeCapabilityMinor = 76,
  sharedBytesPerBlockOptin = 97,
};
enum JitOption : int { errorLogBuffer = 5, errorLogBufferSize = 6 };
enum FunctionAttribute : int { maxDynamicSharedBytes = 8 };
/// Enumerations of tensor maps: CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapL2promotion,
/// CUtensorMapFloatOOBfill.
enum MapDType : int { mapU8 = 0, mapU16, mapU32, mapI32, mapF16 = 6, mapF32 = 7, mapBF16 = 9 };
enum : int { mapNoInterleave = 0, mapPromote128 = 2, mapFillZeros = 0 };

// X(name, parameters): looked up by exactly this name.
#define ATTN_CUDA_REQUIRED(X)                                                                                \
  X(cuGetErrorName, (CUresult, const char **))                                                               \
  X(cuGetErrorString, (CUresult, const char **))                                                             \
  X(cuDriverGetVersion, (int *))                                                                             \
  X(cuInit, (unsigned))                                                                                      \
  X(cuDeviceGetCount, (int *))                                                                               \
  X(cuDeviceGet, (CUdevice *, int))                                                                          \
  X(cuDeviceGetName, (char *, int, CUdevice))                                                                \
  X(cuDeviceGetAttribute, (int *, int, CUdevice))                                                            \
  X(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                               \
  X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                       \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                                \
  X(cuCtxPushCurrent_v2, (CUcontext))                                                                        \
  X(cuCtxPopCurrent_v2, (CUcontext *))                                                                       \
  X(cuMemGetInfo_v2, (size_t *, size_t *))                                                                   \
  X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                  \
  X(cuMemHostAlloc, (void **, size_t, unsigned))                                                             \
  X(cuMemFreeHost, (void *))                                                                                 \
  X(cuMemFree_v2, (CUdeviceptr))                                                                             \
  X(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                     \
  X(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                           \
  X(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                      \
  X(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                         \
  X(cuModuleLoadDataEx, (CUmodule *, const void *, unsigned, int *, void **))                                \
  X(cuModuleUnload, (CUmodule))                                                                              \
  X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                             \
  X(cuFuncSetAttribute, (CUfunction, int, int))                                                              \
  X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,       \
                     CUstream, void **, void **))                                                            \
  X(cuStreamSynchronize, (CUstream))                                                                         \
  X(cuEventCreate, (CUevent *, unsigned))                                                                    \
  X(cuEventDestroy_v2, (CUevent))                                                                            \
  X(cuEventRecord, (CUevent, CUstream))                                                                      \
  X(cuEventSynchronize, (CUevent))                                                                           \
  X(cuEventElapsedTime, (float *, CUevent, CUevent))

/// Functions that only some kernels need, looked up in the same way; null if the driver is older.
#define ATTN_CUDA_OPTIONAL(X)                                                                                \
  X(cuStreamCreate, (CUstream *, unsigned))                                                                  \
  X(cuStreamDestroy_v2, (CUstream))                                                                          \
  X(cuStreamGetId, (CUstream, unsigned long long *))                                                         \
  X(cuStreamIsCapturing, (CUstream, int *))                                                                  \
  X(cuStreamGetCaptureInfo_v2, (CUstream, int *, unsigned long long *, CUgraph *, const void **, size_t *))  \
  X(cuStreamBeginCapture_v2, (CUstream, int))                                                                \
  X(cuStreamEndCapture, (CUstream, CUgraph *))                                                               \
  X(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                               \
  X(cuGraphLaunch, (CUgraphExec, CUstream))                                                                  \
  X(cuGraphExecDestroy, (CUgraphExec))                                                                       \
  X(cuGraphDestroy, (CUgraph))                                                                               \
  X(cuLaunchKernelEx, (const LaunchConfig *, CUfunction, void **, void **))                                  \
  X(cuTensorMapEncodeTiled, (void *, int, unsigned, void *, const uint64_t *, const uint64_t *,              \
                             const unsigned *, const unsigned *, int, int, int, int))

/// The oldest supported driver: PTX 7.0 for sm_80 came with CUDA 11.0.
inline constexpr int oldestDriver = 11000;

struct Api {
#define ATTN_DECLARE(name, parameters) CUresult(*name) parameters = nullptr;
  ATTN_CUDA_REQUIRED(ATTN_DECLARE)
  ATTN_CUDA_OPTIONAL(ATTN_DECLARE)
#undef ATTN_DECLARE
  int driverVersion = 0;

  /// "cuda: <action> failed: CUDA_ERROR_… (in words)".
  Error error(CUresult result, const std::string &action) const;
};

/// Loads and initializes the driver once for each library name; the table is never freed.
Result<const Api *> loadApi(const std::string &library);

/// The text of a version: "12.4" for 12040.
std::string versionText(int version);

} // namespace attn::rt::cuda

#endif
