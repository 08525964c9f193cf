//===- FakeCuda.cc - A library that pretends to be a CUDA driver ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Enough of the driver's ABI, on the memory of the process, to provoke every error
// of the cuda device on a machine without a GPU. Environment variables choose how it
// misbehaves:
//   FAKE_CUDA_VERSION  what cuDriverGetVersion says (13000)
//   FAKE_CUDA_INIT     the result of cuInit
//   FAKE_CUDA_COUNT    number of devices (1)
//   FAKE_CUDA_ATTRIBUTE the attribute that cuDeviceGetAttribute fails to read
//   FAKE_CUDA_NAME     the result of cuDeviceGetName
//   FAKE_CUDA_TOTAL    the result of cuDeviceTotalMem
//   FAKE_CUDA_LOAD     the result of loading a module
//   FAKE_CUDA_MAP      the result of encoding a tensor map
//   FAKE_CUDA_SYNC     the result of waiting for the stream
//   FAKE_CUDA_CAPTURE  the result of ending a capture
//   FAKE_CUDA_MEMORY   bytes of its memory (1 MiB)
// Its kernels are those of the PTX, and "axpy". They do nothing, but launches and
// captures are counted: fakeCudaCounters returns the counters, fakeCudaStream the stream
// of the last launch. Built with FAKE_CUDA_OLD it lacks a required function, with
// FAKE_CUDA_NO_MAPS the functions for tensor maps and graphs.
//
//===----------------------------------------------------------------------===//
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

int setting(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value ? atoi(value) : otherwise;
}

const size_t capacity = static_cast<size_t>(setting("FAKE_CUDA_MEMORY", 1 << 20));
std::recursive_mutex lock; ///< threads have their own devices, but share one driver
std::map<uint64_t, size_t> allocations;
size_t used = 0;
bool recorded[64];
uintptr_t events = 0;
void *capturing = nullptr; // the stream in capture
unsigned long long captures = 0;
bool invalidated = false;
struct Graph {
  int launches = 0, overlapping = 0;
};
Graph captured;
// Launches run, launches run by graphs, overlapping launches of these, graphs, pinned bytes and modules
// alive.
int counters[6] = {};

// Copies to the device, waits for it, allocations of any kind.
int traffic[3] = {};

void *lastStream = nullptr;

int launch(void *stream, bool overlaps) {
  lastStream = stream;
  if (capturing && stream == capturing) {
    if (invalidated)
      return 901;
    ++captured.launches;
    captured.overlapping += overlaps;
  } else {
    ++counters[0];
  }
  return 0;
}

} // namespace

EXPORT const int *fakeCudaCounters() { return counters; }
EXPORT const int *fakeCudaTraffic() { return traffic; }
EXPORT void *fakeCudaStream() { return lastStream; }

EXPORT int cuGetErrorName(int error, const char **name) {
  switch (error) {
  case 2:
    *name = "CUDA_ERROR_OUT_OF_MEMORY";
    return 0;
  case 218:
    *name = "CUDA_ERROR_INVALID_PTX";
    return 0;
  case 700:
    *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
    return 0;
  case 999:
    return 1; // an error that even the driver has no name for
  default:
    *name = "CUDA_ERROR_OF_THE_FAKE";
    return 0;
  }
}
EXPORT int cuGetErrorString(int error, const char **text) {
  *text = error == 700 ? "an illegal memory access was encountered" : nullptr;
  return *text ? 0 : 1;
}
EXPORT int cuDriverGetVersion(int *version) {
  *version = setting("FAKE_CUDA_VERSION", 13000);
  return 0;
}
EXPORT int cuInit(unsigned) { return setting("FAKE_CUDA_INIT", 0); }
EXPORT int cuDeviceGetCount(int *count) {
  *count = setting("FAKE_CUDA_COUNT", 1);
  return 0;
}
EXPORT int cuDeviceGet(int *device, int index) {
  *device = index;
  return 0;
}
EXPORT int cuDeviceGetName(char *name, int size, int) {
  snprintf(name, static_cast<size_t>(size), "Fake 9000");
  return setting("FAKE_CUDA_NAME", 0);
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int) {
  const std::map<int, int> values = {{1, 1024}, {16, 4}, {38, 1 << 20}, {75, 9}, {76, 0}, {97, 232448}};
  *value = values.at(attribute);
  return setting("FAKE_CUDA_ATTRIBUTE", 0) == attribute ? 999 : 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int) {
  *bytes = capacity;
  return setting("FAKE_CUDA_TOTAL", 0);
}
EXPORT int cuDevicePrimaryCtxRetain(void **context, int) {
  std::lock_guard guard(lock);
  *context = &allocations;
  return 0;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
EXPORT int cuCtxPushCurrent_v2(void *) { return 0; }
EXPORT int cuCtxPopCurrent_v2(void **context) {
  *context = nullptr;
  return 0;
}
EXPORT int cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
  std::lock_guard guard(lock);
  ++traffic[2];
  *memory = malloc(bytes + 64);
  *static_cast<size_t *>(*memory) = bytes;
  *memory = static_cast<char *>(*memory) + 64;
  counters[4] += static_cast<int>(bytes);
  return 0;
}
EXPORT int cuMemFreeHost(void *memory) {
  std::lock_guard guard(lock);
  memory = static_cast<char *>(memory) - 64;
  counters[4] -= static_cast<int>(*static_cast<size_t *>(memory));
  free(memory);
  return 0;
}
EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total) {
  std::lock_guard guard(lock);
  *available = capacity - used;
  *total = capacity;
  return 0;
}
EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  std::lock_guard guard(lock);
  ++traffic[2];
  if (bytes == 0)
    return 1;
  if (bytes > capacity - used)
    return 2;
  *address = reinterpret_cast<uint64_t>(aligned_alloc(256, (bytes + 255) / 256 * 256));
  allocations[*address] = bytes;
  used += bytes;
  return 0;
}
EXPORT int cuMemFree_v2(uint64_t address) {
  std::lock_guard guard(lock);
  auto found = allocations.find(address);
  if (found == allocations.end())
    return 1;
  used -= found->second;
  allocations.erase(found);
  free(reinterpret_cast<void *>(address));
  return 0;
}
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *) {
  std::lock_guard guard(lock);
  ++traffic[0];
  memcpy(reinterpret_cast<void *>(to), from, bytes);
  return 0;
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *) {
  memcpy(to, reinterpret_cast<void *>(from), bytes);
  return 0;
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *) {
  memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
  return 0;
}
EXPORT int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, void *) {
  memset(reinterpret_cast<void *>(to), byte, bytes);
  return 0;
}
EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
  std::lock_guard guard(lock);
  const int result = setting("FAKE_CUDA_LOAD", 0);
  // A cubin is for another chip unless it holds the text of a kernel.
  if (memcmp(image,
             "\x7f"
             "ELF",
             4) == 0 &&
      !strstr(static_cast<const char *>(image), ".entry"))
    return 209;
  if (result != 0)
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == 5)
        strcpy(static_cast<char *>(values[i]), "ptxas fatal: line 3 of the fake");
  if (result == 0) {
    *module = new std::string(static_cast<const char *>(image));
    ++counters[5];
  }
  return result;
}
EXPORT int cuModuleUnload(void *module) {
  std::lock_guard guard(lock);
  delete static_cast<std::string *>(module);
  --counters[5];
  return 0;
}
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) {
  std::lock_guard guard(lock);
  *function = &recorded;
  const std::string entry = std::string(".entry ") + name + "(";
  return !strcmp(name, "axpy") || static_cast<std::string *>(module)->find(entry) != std::string::npos ? 0
                                                                                                       : 500;
}
#ifndef FAKE_CUDA_OLD
EXPORT int cuFuncSetAttribute(void *, int, int) { return 0; }
#endif
#ifndef FAKE_CUDA_NO_MAPS
// Writes the arguments one after another, not in NVIDIA's form, so that a test can read them.
EXPORT int cuTensorMapEncodeTiled(void *map, int dtype, unsigned rank, void *base, const uint64_t *extents,
                                  const uint64_t *strides, const unsigned *box, const unsigned *steps,
                                  int interleave, int swizzle, int promotion, int fill) {
  uint32_t words[32] = {};
  unsigned n = 0;
  for (int value : {dtype, static_cast<int>(rank), interleave, swizzle, promotion, fill})
    words[n++] = static_cast<uint32_t>(value);
  auto put = [&](uint64_t value) {
    words[n++] = static_cast<uint32_t>(value);
    words[n++] = static_cast<uint32_t>(value >> 32);
  };
  put(reinterpret_cast<uint64_t>(base));
  for (unsigned i = 0; i < rank; ++i)
    put(extents[i] - 1); // as the hardware counts
  for (unsigned i = 0; i + 1 < rank; ++i)
    words[n++] = static_cast<uint32_t>(strides[i] / 16);
  for (unsigned i = 0; i < rank; ++i)
    words[n++] = box[i] << 8 | steps[i];
  memcpy(map, words, sizeof words);
  return setting("FAKE_CUDA_MAP", 0);
}
#endif
EXPORT int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          void *stream, void **, void **) {
  std::lock_guard guard(lock);
  return launch(stream, false);
}
EXPORT int cuLaunchKernelEx(const void *config, void *, void **, void **) {
  std::lock_guard guard(lock);
  void *stream = nullptr;
  memcpy(&stream, static_cast<const char *>(config) + 32, sizeof stream);
  return launch(stream, true);
}
#ifndef FAKE_CUDA_NO_MAPS
EXPORT int cuStreamCreate(void **stream, unsigned) {
  std::lock_guard guard(lock);
  *stream = &captured;
  return 0;
}
EXPORT int cuStreamDestroy_v2(void *) { return 0; }
EXPORT int cuStreamBeginCapture_v2(void *stream, int) {
  std::lock_guard guard(lock);
  if (!stream) // the legacy default stream cannot be captured
    return 900;
  capturing = stream;
  ++captures;
  invalidated = false;
  captured = {};
  return 0;
}
EXPORT int cuStreamEndCapture(void *, void **graph) {
  std::lock_guard guard(lock);
  capturing = nullptr;
  if (const int result = setting("FAKE_CUDA_CAPTURE", 0))
    return result;
  *graph = new Graph(captured);
  ++counters[3];
  return 0;
}
// Fails with 900 for a captured stream, and invalidates the capture, as an H200 does (driver 580.159).
EXPORT int cuStreamGetId(void *stream, unsigned long long *number) {
  std::lock_guard guard(lock);
  if (capturing && stream == capturing) {
    invalidated = true;
    return 900;
  }
  *number = reinterpret_cast<uintptr_t>(stream);
  return 0;
}
EXPORT int cuStreamIsCapturing(void *stream, int *status) {
  std::lock_guard guard(lock);
  *status = capturing && stream == capturing;
  return 0;
}
EXPORT int cuStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *number, void **,
                                     const void **, size_t *) {
  std::lock_guard guard(lock);
  *status = capturing && stream == capturing;
  *number = captures;
  return 0;
}
EXPORT int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long) {
  std::lock_guard guard(lock);
  *executable = new Graph(*static_cast<Graph *>(graph));
  ++counters[3];
  return 0;
}
EXPORT int cuGraphLaunch(void *executable, void *) {
  std::lock_guard guard(lock);
  counters[1] += static_cast<Graph *>(executable)->launches;
  counters[2] += static_cast<Graph *>(executable)->overlapping;
  return 0;
}
EXPORT int cuGraphExecDestroy(void *executable) {
  std::lock_guard guard(lock);
  delete static_cast<Graph *>(executable);
  --counters[3];
  return 0;
}
EXPORT int cuGraphDestroy(void *graph) {
  std::lock_guard guard(lock);
  delete static_cast<Graph *>(graph);
  --counters[3];
  return 0;
}
#endif
EXPORT int cuStreamSynchronize(void *) {
  std::lock_guard guard(lock);
  ++traffic[1];
  return setting("FAKE_CUDA_SYNC", 0);
}
EXPORT int cuEventCreate(void **event, unsigned) {
  std::lock_guard guard(lock);
  *event = reinterpret_cast<void *>(1 + events++ % 63);
  recorded[reinterpret_cast<uintptr_t>(*event)] = false;
  return 0;
}
EXPORT int cuEventDestroy_v2(void *) { return 0; }
EXPORT int cuEventRecord(void *event, void *) {
  std::lock_guard guard(lock);
  recorded[reinterpret_cast<uintptr_t>(event)] = true;
  return 0;
}
EXPORT int cuEventSynchronize(void *) {
  std::lock_guard guard(lock);
  ++traffic[1];
  return 0;
}
EXPORT int cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
  std::lock_guard guard(lock);
  *milliseconds = 0.5f;
  return recorded[reinterpret_cast<uintptr_t>(begin)] && recorded[reinterpret_cast<uintptr_t>(end)] ? 0 : 400;
}
