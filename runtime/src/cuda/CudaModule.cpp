//===- CudaModule.cpp - Code on a GPU -------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda/CudaModule.h"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace attn::rt::cuda {

namespace {

Error deviceError(std::string message) { return {ErrorKind::Device, std::move(message)}; }

/// The word after a PTX directive: for ".version 8.0", "8.0".
std::string directive(std::string_view ptx, std::string_view name) {
  const size_t at = ptx.find(name);
  if (at == std::string_view::npos)
    return {};
  const size_t begin = ptx.find_first_not_of(" \t", at + name.size());
  if (begin == std::string_view::npos)
    return {};
  return std::string(ptx.substr(begin, ptx.find_first_of(" \t\r\n,", begin) - begin));
}

/// The CUDA version whose driver was the first to accept this version of PTX ("CUDA 12.0" for 8.0); PTX ISA,
/// release notes.
std::string cudaOfPtx(const std::string &version) {
  static const std::map<std::string, const char *> table = {
      {"7.0", "11.0"}, {"7.1", "11.1"}, {"7.2", "11.2"}, {"7.3", "11.3"}, {"7.4", "11.4"},
      {"7.5", "11.5"}, {"7.6", "11.6"}, {"7.7", "11.7"}, {"7.8", "11.8"}, {"8.0", "12.0"},
      {"8.1", "12.1"}, {"8.2", "12.2"}, {"8.3", "12.3"}, {"8.4", "12.4"}, {"8.5", "12.5"},
      {"8.6", "12.7"}, {"8.7", "12.8"}, {"8.8", "12.9"}, {"9.0", "13.0"}, {"9.1", "13.1"}};
  auto found = table.find(version);
  return found == table.end() ? "a later CUDA" : std::string("CUDA ") + found->second;
}

/// Checks the target: sm_90a runs on 9.0 alone; sm_80 on 8.0 and everything later.
Status checkTarget(const ModuleSource &source, const DeviceProperties &properties) {
  const std::string target = directive(source.ptx, ".target");
  if (!target.starts_with("sm_"))
    return {};
  char *suffix = nullptr;
  const long wanted = std::strtol(target.c_str() + 3, &suffix, 10);
  const bool exact = *suffix == 'a', family = *suffix == 'f';
  const int has = properties.computeCapability;
  if ((exact && wanted == has) || (family && wanted / 10 == has / 10 && wanted <= has) ||
      (!exact && !family && wanted <= has))
    return {};
  return deviceError("cuda: module '" + source.name + "' was compiled for " + target + ", but '" +
                     properties.name + "' is sm_" + std::to_string(has) +
                     (exact ? ", and code for " + target + " runs on no other" : ""));
}

/// Modules of the driver, unloaded by the destructor. The context must be current when they are loaded.
class Loaded {
public:
  Loaded(const Api &api, CUcontext context) : api_(api), context_(context) {}
  Loaded(Loaded &&) = default;
  ~Loaded() { clear(); }

  CUresult add(const void *image, std::span<int> options = {}, void **values = nullptr) {
    CUmodule module = nullptr;
    const CUresult result = api_.cuModuleLoadDataEx(&module, image, static_cast<unsigned>(options.size()),
                                                    options.data(), values);
    if (result == success)
      modules_.push_back(module);
    return result;
  }
  void clear() {
    Current current(api_, context_);
    for (CUmodule module : modules_)
      (void)api_.cuModuleUnload(module);
    modules_.clear();
  }
  /// Finds a function in the module that has it.
  CUresult find(CUfunction &function, const std::string &name) const {
    CUresult result = success;
    for (CUmodule module : modules_)
      if (result = api_.cuModuleGetFunction(&function, module, name.c_str()); result != notFound)
        break;
    return result;
  }

private:
  const Api &api_;
  CUcontext context_;
  std::vector<CUmodule> modules_;
};

class CudaModule final : public Module {
public:
  CudaModule(const Api &api, CUcontext context, Loaded loaded, std::string name, int64_t sharedLimit)
      : api_(api), context_(context), loaded_(std::move(loaded)), name_(std::move(name)),
        sharedLimit_(sharedLimit) {}

  Result<Kernel *> kernel(const std::string &name, int64_t sharedBytes) override {
    if (sharedBytes > sharedLimit_)
      return deviceError("cuda: kernel '" + name + "' asks for " + std::to_string(sharedBytes) +
                         " bytes of shared memory; at most " + std::to_string(sharedLimit_) +
                         " are possible on this device");
    Current current(api_, context_);
    auto [entry, isNew] = kernels_.try_emplace(name);
    if (isNew) {
      CUfunction function = nullptr;
      if (CUresult result = loaded_.find(function, name); result != success) {
        kernels_.erase(entry);
        return api_.error(result, "finding kernel '" + name + "' in module '" + name_ + "'");
      }
      entry->second = std::make_unique<CudaKernel>();
      entry->second->function = function;
      entry->second->name = name;
    }
    // The driver needs a request for more than 48 KiB.
    if (CUresult result = api_.cuFuncSetAttribute(entry->second->function, maxDynamicSharedBytes,
                                                  static_cast<int>(sharedBytes));
        result != success)
      return api_.error(result, "reserving " + std::to_string(sharedBytes) +
                                    " bytes of shared memory for kernel '" + name + "'");
    return entry->second.get();
  }

private:
  const Api &api_;
  CUcontext context_;
  Loaded loaded_;
  std::string name_;
  int64_t sharedLimit_;
  std::map<std::string, std::unique_ptr<CudaKernel>> kernels_;
};

} // namespace

Result<std::unique_ptr<Module>> loadModule(const Api &api, CUcontext context,
                                           const DeviceProperties &properties, const ModuleSource &source) {
  if (source.ptx.empty() && source.cubins.empty())
    return deviceError("cuda: module '" + source.name + "' has no code for this device");
  Current current(api, context);
  Loaded loaded(api, context);
  CUresult result = noBinaryForGpu;
  for (const std::vector<uint8_t> &cubin : source.cubins)
    if (result = loaded.add(cubin.data()); result != success)
      break;
  if (result != success && source.ptx.empty())
    return api.error(result, "loading a cubin of module '" + source.name + "'");
  std::string log(16384, '\0');
  if (result != success) {
    loaded.clear();
    if (Status s = checkTarget(source, properties); !s)
      return s.error();
    int options[] = {errorLogBuffer, errorLogBufferSize};
    void *values[] = {log.data(), reinterpret_cast<void *>(log.size())};
    const std::string text(source.ptx); // the driver needs a NUL at its end
    result = loaded.add(text.c_str(), options, values);
  }
  log.resize(std::min(log.find('\0'), log.size()));
  if (result == unsupportedPtxVersion) {
    const std::string version = directive(source.ptx, ".version");
    return deviceError("cuda: the NVIDIA driver is too old for module '" + source.name +
                       "': the driver supports CUDA " + versionText(api.driverVersion) + ", PTX " + version +
                       " needs " + cudaOfPtx(version));
  }
  if (result != success) {
    Error error = api.error(result, "compiling the PTX of module '" + source.name + "' in the driver");
    if (!log.empty())
      error.message += "\n" + log;
    return error;
  }
  return std::unique_ptr<Module>(std::make_unique<CudaModule>(api, context, std::move(loaded), source.name,
                                                              properties.sharedBytesPerBlock));
}

} // namespace attn::rt::cuda
