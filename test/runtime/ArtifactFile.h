//===- ArtifactFile.h - Files of artifacts, taken apart ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The format that Artifact.cpp describes, written a second time. It makes files that no
// writer makes but whose hashes are right, as an attacker could.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_TEST_RUNTIME_ARTIFACTFILE_H
#define ATTN_TEST_RUNTIME_ARTIFACTFILE_H

#include "attn_rt/artifact/Artifact.h"

#include "Samples.h"

#include <cstring>

namespace attn::rt::test {

struct FilePart {
  uint32_t artifact = 0, kind = 0;
  std::string content;
};
using FileParts = std::vector<FilePart>;
inline constexpr uint32_t manifestKind = 0, noteKind = 1, ptxKind = 2, cubinKind = 3, hostKind = 4;

/// The 16 bytes whose digits hashBytes returns.
inline std::string digest(std::string_view bytes) {
  const std::string digits = hashBytes(bytes);
  const auto value = [](char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; };
  std::string result;
  for (size_t i = 0; i < digits.size(); i += 2)
    result += static_cast<char>(value(digits[i]) << 4 | value(digits[i + 1]));
  return result;
}

template <typename T> std::string littleEndian(T value) {
  return {reinterpret_cast<const char *>(&value), sizeof(T)};
}

inline std::string pack(const FileParts &parts) {
  std::string table,
      bytes = "attnfile" + littleEndian(artifactVersion) + littleEndian(static_cast<uint32_t>(parts.size()));
  for (const auto &[artifact, kind, content] : parts)
    table += littleEndian(artifact) + littleEndian(kind) +
             littleEndian(static_cast<uint64_t>(content.size())) + digest(content);
  bytes += digest(table) + table;
  for (const FilePart &part : parts)
    bytes += part.content;
  return bytes;
}

/// Takes a valid file apart.
inline FileParts unpack(const std::string &bytes) {
  const auto at = [&]<typename T>(size_t offset, T value) {
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
  };
  FileParts parts;
  const auto count = at(12, uint32_t());
  size_t next = 32 + 32 * size_t{count};
  for (size_t i = 0; i < count; ++i) {
    const size_t row = 32 + 32 * i, size = at(row + 8, uint64_t());
    parts.push_back({at(row, uint32_t()), at(row + 4, uint32_t()), bytes.substr(next, size)});
    next += size;
  }
  return parts;
}

/// An artifact of this function and target, with code in every form but the host's.
inline Artifact sampleArtifact(const std::string &entry = "decode", const std::string &target = "sm_80") {
  Artifact artifact;
  artifact.manifest = sampleManifest();
  artifact.manifest.entry = entry;
  artifact.manifest.target = target;
  artifact.manifest.problem = "func.func @" + entry;
  artifact.manifest.contentHash = computeContentHash(artifact.manifest);
  for (const KernelInfo &info : artifact.manifest.kernels)
    artifact.ptx += ".entry " + info.name + "(\n";
  artifact.cubins.resize(artifact.manifest.kernels.size());
  for (size_t kernel = 0; kernel < artifact.cubins.size(); ++kernel)
    for (size_t i = 0; i < 257; ++i)
      artifact.cubins[kernel].push_back(static_cast<uint8_t>((i + kernel) * 7));
  return artifact;
}

} // namespace attn::rt::test

#endif
