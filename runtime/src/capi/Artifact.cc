//===- Artifact.cc - The C API's artifact files ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/capi/Objects.h"

using namespace attn::rt;
using namespace attn::rt::capi;

struct AttnArtifact {
  std::vector<Artifact> artifacts;
};

AttnStatus attnArtifactRead(const void *bytes, size_t size, const char *name, AttnArtifact **artifact) {
  return guarded([&]() -> Status {
    if (Status status = required("bytes, artifact", static_cast<const char *>(bytes), artifact); !status)
      return status;
    auto read = readArtifacts({static_cast<const char *>(bytes), size}, name ? name : "kernel");
    if (!read)
      return read.error();
    *artifact = new AttnArtifact{std::move(*read)};
    return {};
  });
}

void attnArtifactDestroy(AttnArtifact *artifact) { delete artifact; }

size_t attnArtifactCount(const AttnArtifact *artifact) { return artifact ? artifact->artifacts.size() : 0; }

AttnArtifactInfo attnArtifactInfo(const AttnArtifact *artifact, size_t index) {
  if (index >= attnArtifactCount(artifact))
    return {};
  const Artifact &found = artifact->artifacts[index];
  return {found.manifest.entry.c_str(), found.manifest.target.c_str(), found.manifest.producer.c_str(),
          found.note.c_str(),           !found.hostCode.empty(),       !found.ptx.empty(),
          !found.cubins.empty()};
}

AttnStatus attnArtifactTake(const AttnArtifact *artifact, size_t index, AttnBytes **bytes) {
  return guarded([&]() -> Status {
    if (Status status = required("artifact, bytes", artifact, bytes); !status)
      return status;
    if (index >= artifact->artifacts.size())
      return inputError("index: expected at most " + std::to_string(artifact->artifacts.size() - 1) +
                        ", got " + std::to_string(index));
    *bytes = new AttnBytes{writeArtifacts(std::span(artifact->artifacts).subspan(index, 1))};
    return {};
  });
}

AttnStatus attnArtifactJoin(const AttnArtifactPart *parts, size_t count, AttnBytes **bytes) {
  return guarded([&]() -> Status {
    if (Status status = required("parts, bytes", parts, bytes); !status)
      return status;
    if (count == 0)
      return inputError("parts: expected at least one, got none");
    std::vector<Artifact> all;
    for (size_t i = 0; i < count; ++i) {
      if (Status status = required("parts' bytes", static_cast<const char *>(parts[i].bytes)); !status)
        return status;
      auto read = readArtifacts({static_cast<const char *>(parts[i].bytes), parts[i].size},
                                "part " + std::to_string(i));
      if (!read)
        return read.error();
      for (Artifact &artifact : *read) {
        if (parts[i].note)
          artifact.note = parts[i].note;
        all.push_back(std::move(artifact));
      }
    }
    *bytes = new AttnBytes{writeArtifacts(all)};
    return {};
  });
}
