//===- CudaApi.cpp - The part of the CUDA driver API in use ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda/CudaApi.h"

#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>

namespace attn::rt::cuda {

namespace {

Error deviceError(std::string message) { return {ErrorKind::Device, std::move(message)}; }

Error tooOld(int version, const std::string &because) {
  return deviceError("cuda: the NVIDIA driver is too old: it supports CUDA " +
                     (version ? versionText(version) : std::string("of an unknown version")) + because +
                     "; CUDA " + versionText(oldestDriver) + " (driver 450) or later is needed");
}

Result<std::unique_ptr<Api>> load(const std::string &library) {
  void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *reason = dlerror();
    return deviceError("cuda: no NVIDIA driver: cannot load " +
                       std::string(reason ? reason : library.c_str()));
  }
  auto api = std::make_unique<Api>();
  std::string missing;
#define ATTN_LOOK_UP(name, parameters)                                                                       \
  api->name = reinterpret_cast<CUresult(*) parameters>(dlsym(handle, #name));
#define ATTN_REQUIRE(name, parameters)                                                                       \
  if (!api->name && missing.empty())                                                                         \
    missing = #name;
  ATTN_CUDA_REQUIRED(ATTN_LOOK_UP)
  ATTN_CUDA_REQUIRED(ATTN_REQUIRE)
  ATTN_CUDA_OPTIONAL(ATTN_LOOK_UP)
#undef ATTN_LOOK_UP
#undef ATTN_REQUIRE
  if (api->cuDriverGetVersion)
    (void)api->cuDriverGetVersion(&api->driverVersion);
  if (!missing.empty())
    return tooOld(api->driverVersion, " and lacks '" + missing + "'");
  if (api->driverVersion < oldestDriver)
    return tooOld(api->driverVersion, "");
  if (CUresult result = api->cuInit(0); result == noDevice)
    return deviceError("cuda: the NVIDIA driver finds no device");
  else if (result != success)
    return api->error(result, "initializing the driver");
  return api;
}

} // namespace

std::string versionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Error Api::error(CUresult result, const std::string &action) const {
  const char *name = nullptr, *text = nullptr;
  (void)cuGetErrorName(result, &name);
  (void)cuGetErrorString(result, &text);
  return {result == outOfMemory ? ErrorKind::Memory : ErrorKind::Device,
          "cuda: " + action + " failed: " + (name ? name : "error " + std::to_string(result)) +
              (text ? " (" + std::string(text) + ")" : "")};
}

Result<const Api *> loadApi(const std::string &library) {
  // Never unloaded: the driver keeps threads of its own.
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Api>> loaded;
  std::lock_guard lock(mutex);
  std::unique_ptr<Api> &entry = loaded[library];
  if (!entry) {
    Result<std::unique_ptr<Api>> api = load(library);
    if (!api)
      return api.error();
    entry = std::move(*api);
  }
  return entry.get();
}

} // namespace attn::rt::cuda
