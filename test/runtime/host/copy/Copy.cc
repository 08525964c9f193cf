//===- Copy.cc - A library that has the host device in it -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/NativeKernel.h"

static void (*inKernel)();

/// Launches a kernel of one thread that calls `function`.
extern "C" __attribute__((visibility("default"))) void launchInCopy(void (*function)()) {
  using namespace attn;
  inKernel = function;
  rt::host::MemoryMap memory;
  void *args[] = {nullptr};
  (void)rt::host::launch(test::nativeKernel("call", [](rt::host::LaneAbi *, void **) { inKernel(); }), {1},
                         {1}, 0, args, memory, rt::host::LaunchOptions());
}
