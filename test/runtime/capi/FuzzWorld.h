//===- FuzzWorld.h - Objects that random calls share ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_RUNTIME_CAPI_FUZZWORLD_H
#define ATTN_TEST_RUNTIME_CAPI_FUZZWORLD_H

#include "ArtifactFile.h"
#include "Fuzz.h"
#include "attn-c/Cache.h"
#include "attn-c/Pages.h"

#include <array>
#include <memory>
#include <mutex>
#include <vector>

namespace attn::rt::test {

/// Some objects of a type. A thread that has picked an object keeps it alive: only unused objects are
/// destroyed.
template <typename T> class Pool {
public:
  explicit Pool(void (*destroy)(T *)) : destroy(destroy) {}

  /// Picks an object; null now and then, and if there is none.
  std::shared_ptr<T> pick(Rng &rng) {
    std::lock_guard lock(mutex);
    return objects.empty() || below(rng, 40) == 0 ? nullptr : objects[below(rng, objects.size())];
  }
  /// Adds an object; if there are many, it replaces another one.
  void add(T *object, Rng &rng) {
    if (!object)
      return;
    std::shared_ptr<T> added(object, destroy);
    std::lock_guard lock(mutex);
    if (objects.size() < 6)
      objects.push_back(added);
    else
      objects[below(rng, objects.size())].swap(added);
  }
  void drop(Rng &rng) {
    std::shared_ptr<T> dropped;
    std::lock_guard lock(mutex);
    if (objects.empty())
      return destroy(nullptr);
    objects[below(rng, objects.size())].swap(dropped);
    std::erase(objects, nullptr);
  }

private:
  void (*destroy)(T *);
  std::mutex mutex;
  std::vector<std::shared_ptr<T>> objects;
};

struct World {
  Pool<AttnDevice> devices{attnDeviceDestroy};
  Pool<AttnMemory> memories{attnMemoryDestroy};
  Pool<AttnArtifact> artifacts{attnArtifactDestroy};
  Pool<AttnKernel> kernels{attnKernelDestroy};
  Pool<AttnBatch> batches{attnBatchDestroy};
  Pool<AttnBatchBuilder> builders{attnBatchBuilderDestroy};
  Pool<AttnPlan> plans{attnPlanDestroy};
  Pool<AttnCache> caches{attnCacheDestroy};
  Pool<AttnMovement> movements{attnMovementDestroy};
  Pool<AttnCacheKernels> cacheKernels{attnCacheKernelsDestroy};
  Pool<AttnStepTables> stepTables{attnStepTablesDestroy};

  void destroyOne(Rng &rng) {
    switch (below(rng, 11)) {
    case 0:
      return devices.drop(rng);
    case 1:
      return memories.drop(rng);
    case 2:
      return artifacts.drop(rng);
    case 3:
      return kernels.drop(rng);
    case 4:
      return batches.drop(rng);
    case 5:
      return builders.drop(rng);
    case 6:
      return plans.drop(rng);
    case 7:
      return caches.drop(rng);
    case 8:
      return movements.drop(rng);
    case 9:
      return cacheKernels.drop(rng);
    default:
      return stepTables.drop(rng);
    }
  }

  /// A node of some cache, or of a destroyed one.
  AttnNode node(Rng &rng) {
    std::lock_guard lock(mutex);
    return nodes[below(rng, nodes.size())];
  }
  void keep(AttnNode node) {
    std::lock_guard lock(mutex);
    nodes[next++ % nodes.size()] = node;
  }

  /// Files of two kinds of attention, and of operations on caches.
  const std::string &file(Rng &rng) const { return files[below(rng, files.size())]; }
  const std::string &pagedFile() const { return files[0]; }
  const std::string &packedFile() const { return files[2]; }

private:
  static std::string fileOf(Manifest manifest) {
    Artifact artifact;
    artifact.manifest = std::move(manifest);
    artifact.manifest.contentHash = computeContentHash(artifact.manifest);
    for (const KernelInfo &info : artifact.manifest.kernels)
      artifact.ptx += ".entry " + info.name + "(\n";
    return writeArtifacts({&artifact, 1});
  }
  static Manifest packed() {
    SampleOptions options;
    options.store = Argument::Store::Packed;
    options.qHeads = 2;
    Manifest manifest = sampleManifest(options);
    manifest.problem += " packed"; // problems tell kernels apart
    return manifest;
  }

  std::vector<std::string> files = {fileOf(sampleManifest()), fileOf(sampleManifest()), fileOf(packed()),
                                    fileOf(cacheManifest(KernelInfo::Role::Append)),
                                    fileOf(cacheManifest(KernelInfo::Role::Move))};
  std::mutex mutex;
  std::array<AttnNode, 12> nodes = {};
  size_t next = 0;
};

} // namespace attn::rt::test

#endif
