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

/// A compiled function whose code is on a device, which must outlive it; so must it the sessions made of it.
struct LoadedArtifact {
  Manifest manifest;
  std::unique_ptr<host::LoadedCode> code; ///< native code, on the host device
  std::shared_ptr<Module> module;         ///< destroyed before its code
  bool checked = false;                   ///< the code is instrumented for the detectors
};

/// Of what a file holds the one that this device runs: of the function `entry` (the only one where it is
/// empty), for the GPU's own target before the newest other that it runs; on the host device the first with
/// native code. `target` (any where it is empty) takes no other. Refuses by name what is not there; `name`
/// is the file's, for messages.
Result<const Artifact *> chooseArtifact(const Device &device, std::span<const Artifact> artifacts,
                                        const std::string &name, const std::string &entry = {},
                                        const std::string &target = {});

/// Chooses, and loads: every kernel is there and fits the device.
Result<LoadedArtifact> loadArtifact(Device &device, std::span<const Artifact> artifacts,
                                    const std::string &name, const std::string &entry = {},
                                    const std::string &target = {});

} // namespace attn::rt

#endif
