//===- Artifact.cpp - Compiled kernels in one file ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The file, little endian, without gaps:
//
//     offset  bytes
//          0      8  "attnfile"
//          8      4  version of the format
//         12      4  number of sections, n
//         16     16  XXH3-128 of the table, big endian
//         32   32 n  the table: each section's artifact (4, from 0 on), its kind (4), its bytes (8) and
//                    their XXH3-128 (16)
//     32+32n         the sections, in the table's order
//
// Sections of an artifact are adjacent, in the order of their kinds; each artifact has a manifest. Nothing is
// parsed before its hash was verified.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/support/File.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace attn::rt {

namespace {

constexpr size_t headBytes = 32, rowBytes = 32, hashSize = 16;

enum class SectionKind : uint32_t { Manifest, Note, Ptx, Cubin, HostCode };
constexpr std::string_view kindNames[] = {"manifest", "note", "PTX", "cubin", "host code"};

using Digest = std::array<uint8_t, hashSize>;

Digest digestOf(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Digest digest;
  std::memcpy(digest.data(), canonical.digest, hashSize);
  return digest;
}

std::string hexadecimal(const Digest &digest) {
  std::string text;
  for (uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string_view textOf(const std::vector<uint8_t> &bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

struct Section {
  uint32_t artifact = 0;
  SectionKind kind = SectionKind::Manifest;
  std::string_view content;
};

/// Reads an unaligned value.
template <typename T> T valueAt(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T> void append(std::string &bytes, const T &value) {
  bytes.append(reinterpret_cast<const char *>(&value), sizeof(T));
}

std::string damaged(std::string_view what, const Digest &actual, const Digest &written) {
  return std::string(what) + ": damaged or altered: its bytes hash to " + hexadecimal(actual) +
         ", but the file says " + hexadecimal(written);
}

/// Finds the sections, and verifies the hash of each.
Result<std::vector<Section>> readSections(std::string_view bytes) {
  if (!isArtifactFile(bytes) || bytes.size() < headBytes)
    return inputError("not an artifact: expected a file that begins with \"" + std::string(artifactMagic) +
                      "\", made by attn-opt --emit=artifact");
  if (const auto version = valueAt<uint32_t>(bytes, 8); version != artifactVersion)
    return inputError("format: expected version " + std::to_string(artifactVersion) + ", got " +
                      std::to_string(version) + ": make it again with this version of attn");
  const auto count = valueAt<uint32_t>(bytes, 12);
  if (count > (bytes.size() - headBytes) / rowBytes)
    return inputError("damaged or cut off: a table of " + std::to_string(count) +
                      " sections does not fit its " + std::to_string(bytes.size()) + " bytes");
  const std::string_view table = bytes.substr(headBytes, count * rowBytes);
  if (const Digest actual = digestOf(table), written = valueAt<Digest>(bytes, 16); actual != written)
    return inputError(damaged("table of sections", actual, written));
  std::string_view rest = bytes.substr(headBytes + table.size());
  std::vector<Section> sections;
  for (size_t i = 0; i < count; ++i) {
    const size_t row = i * rowBytes;
    const auto kind = valueAt<uint32_t>(table, row + 4);
    const auto size = valueAt<uint64_t>(table, row + 8);
    std::string name = "section " + std::to_string(i);
    if (kind >= std::size(kindNames))
      return inputError(name + ": expected a kind from 0 to " + std::to_string(std::size(kindNames) - 1) +
                        ", got " + std::to_string(kind));
    name += " (" + std::string(kindNames[kind]) + ")";
    if (size > rest.size())
      return inputError(name + ": damaged or cut off: expected " + std::to_string(size) + " bytes, got " +
                        std::to_string(rest.size()));
    sections.push_back({valueAt<uint32_t>(table, row), static_cast<SectionKind>(kind), rest.substr(0, size)});
    rest.remove_prefix(size);
    const Digest actual = digestOf(sections.back().content), written = valueAt<Digest>(table, row + 16);
    if (actual != written)
      return inputError(damaged(name, actual, written));
  }
  if (!rest.empty())
    return inputError("damaged: expected no bytes after its sections, got " + std::to_string(rest.size()) +
                      " bytes");
  return sections;
}

/// Reads the next artifact; errors say what is wrong with it.
Result<Artifact> takeArtifact(std::span<const Section> &sections) {
  const uint32_t number = sections.front().artifact;
  if (sections.front().kind != SectionKind::Manifest)
    return inputError("expected its manifest first, got its " +
                      std::string(kindNames[static_cast<size_t>(sections.front().kind)]));
  Result<Manifest> manifest = parseManifest(sections.front().content);
  if (!manifest)
    return manifest.error();
  if (const std::string key = computeContentHash(*manifest); key != manifest->contentHash)
    return inputError("manifest.content_hash: expected \"" + key +
                      "\" for this problem, target, schedule and producer, got \"" + manifest->contentHash +
                      "\"");
  Artifact artifact;
  artifact.manifest = std::move(*manifest);
  SectionKind last = SectionKind::Manifest;
  for (sections = sections.subspan(1); !sections.empty() && sections.front().artifact == number;
       sections = sections.subspan(1)) {
    const auto &[_, kind, content] = sections.front();
    if (kind < last || (kind == last && kind != SectionKind::Cubin))
      return inputError("expected its sections in the order of their kinds, each but cubins once, got its " +
                        std::string(kindNames[static_cast<size_t>(kind)]) + " after its " +
                        std::string(kindNames[static_cast<size_t>(last)]));
    last = kind;
    if (kind == SectionKind::Note)
      artifact.note = content;
    else if (kind == SectionKind::Ptx)
      artifact.ptx = content;
    else if (kind == SectionKind::Cubin)
      artifact.cubins.emplace_back(content.begin(), content.end());
    else
      artifact.hostCode.assign(content.begin(), content.end());
  }
  if (const size_t kernels = artifact.manifest.kernels.size();
      !artifact.cubins.empty() && artifact.cubins.size() != kernels)
    return inputError("cubins: expected none, or one for each of the " + std::to_string(kernels) +
                      " kernels, got " + std::to_string(artifact.cubins.size()));
  return artifact;
}

} // namespace

std::string hashBytes(std::string_view bytes) { return hexadecimal(digestOf(bytes)); }

std::string computeContentHash(const Manifest &m) {
  std::string all;
  for (const std::string *part : {&m.problem, &m.target, &m.schedule, &m.producer})
    all.append(*part).push_back('\0');
  return hashBytes(all);
}

bool isArtifactFile(std::string_view bytes) { return bytes.starts_with(artifactMagic); }

std::string writeArtifacts(std::span<const Artifact> artifacts) {
  std::vector<std::string> manifests;
  for (const Artifact &artifact : artifacts)
    manifests.push_back(writeManifest(artifact.manifest));
  std::vector<Section> sections;
  for (uint32_t i = 0; i < artifacts.size(); ++i) {
    const Artifact &artifact = artifacts[i];
    sections.push_back({i, SectionKind::Manifest, manifests[i]});
    if (!artifact.note.empty())
      sections.push_back({i, SectionKind::Note, artifact.note});
    if (!artifact.ptx.empty())
      sections.push_back({i, SectionKind::Ptx, artifact.ptx});
    for (const std::vector<uint8_t> &cubin : artifact.cubins)
      sections.push_back({i, SectionKind::Cubin, textOf(cubin)});
    if (!artifact.hostCode.empty())
      sections.push_back({i, SectionKind::HostCode, textOf(artifact.hostCode)});
  }
  std::string table, bytes(artifactMagic);
  for (const Section &section : sections) {
    append(table, section.artifact);
    append(table, section.kind);
    append(table, static_cast<uint64_t>(section.content.size()));
    append(table, digestOf(section.content));
  }
  append(bytes, artifactVersion);
  append(bytes, static_cast<uint32_t>(sections.size()));
  append(bytes, digestOf(table));
  bytes += table;
  for (const Section &section : sections)
    bytes += section.content;
  return bytes;
}

Status writeArtifactsFile(const std::string &path, std::span<const Artifact> artifacts) {
  return writeFile(path, writeArtifacts(artifacts));
}

Result<std::vector<Artifact>> readArtifacts(std::string_view bytes, std::string_view name) {
  const std::string prefix = "artifact '" + std::string(name) + "': ";
  Result<std::vector<Section>> sections = readSections(bytes);
  if (!sections)
    return inputError(prefix + sections.error().message);
  std::vector<Artifact> artifacts;
  for (std::span<const Section> rest = *sections; !rest.empty();) {
    const size_t number = artifacts.size();
    if (rest.front().artifact != number)
      return inputError(prefix + "expected sections of artifact " + std::to_string(number) + ", got one of " +
                        std::to_string(rest.front().artifact));
    Result<Artifact> artifact = takeArtifact(rest);
    if (!artifact)
      return inputError(prefix + (number ? "kernel " + std::to_string(number) + ": " : "") +
                        artifact.error().message);
    artifacts.push_back(std::move(*artifact));
  }
  if (artifacts.empty())
    return inputError(prefix + "expected at least one kernel, got none");
  return artifacts;
}

Result<std::vector<Artifact>> readArtifactsFile(const std::string &path) {
  Result<std::string> bytes = readFile(path);
  if (!bytes)
    return bytes.error();
  return readArtifacts(*bytes, path);
}

} // namespace attn::rt
