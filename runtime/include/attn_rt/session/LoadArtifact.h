//===- LoadArtifact.h - A kernel out of a file, on a device -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   auto artifacts = *readArtifactsFile("decode.attn");        // attn-opt --emit=artifact
//   auto decode = *loadArtifact(*device, artifacts, "decode.attn");
//   auto session = *Session::create(*device, decode.manifest, decode.module);
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SESSION_LOADARTIFACT_H
#define ATTN_RT_SESSION_LOADARTIFACT_H

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/device/Device.h"
#include "attn_rt/host/CodeObject.h"

namespace attn::rt {

/// A compiled function whose code is on a device. The device must outlive it, and it must outlive the
/// sessions made of it.
struct LoadedArtifact {
  Manifest manifest;
  std::unique_ptr<host::LoadedCode> code; ///< native code, on the host device
  std::shared_ptr<Module> module;         ///< destroyed before its code
  bool checked = false;                   ///< the code is instrumented for the detectors
};

/// Chooses the artifact of a file that this device runs: of the function `entry` (empty: the only one). On a
/// GPU it is the GPU's own target, else the newest other target that the GPU runs; on the host device the
/// first with native code. If `target` is not empty, only that target is taken. Errors name what is missing;
/// `name` is the file's name in messages.
Result<const Artifact *> chooseArtifact(const Device &device, std::span<const Artifact> artifacts,
                                        const std::string &name, const std::string &entry = {},
                                        const std::string &target = {});

/// Chooses an artifact and loads it: checks that every kernel is present and fits the device.
Result<LoadedArtifact> loadArtifact(Device &device, std::span<const Artifact> artifacts,
                                    const std::string &name, const std::string &entry = {},
                                    const std::string &target = {});

} // namespace attn::rt

#endif
