//===- Artifact.cpp - A compiled kernel and all there is to know ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "artifact/ManifestJson.h"
#include "attn_rt/support/File.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

namespace attn::rt {

namespace {

// The file is one JSON document whose first field is the hash of every byte after that field. Hashing bytes
// rather than values means that nothing has to be parsed before the hash is known to be right.
constexpr std::string_view opening = "{\"hash\":\"";
constexpr std::string_view closing = "\",";
constexpr size_t hashDigits = 32;
constexpr size_t prefixSize = opening.size() + hashDigits + closing.size();

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t noDigit = 64;
constexpr std::array<uint8_t, 256> digits = [] {
  std::array<uint8_t, 256> table;
  table.fill(noDigit);
  for (size_t i = 0; i < alphabet.size(); ++i)
    table[static_cast<uint8_t>(alphabet[i])] = static_cast<uint8_t>(i);
  return table;
}();

std::string encodeBase64(const std::vector<uint8_t> &bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t triple = 0;
    for (size_t k = 0; k < 3; ++k)
      triple = triple << 8 | (k < count ? bytes[i + k] : 0);
    for (size_t k = 0; k < 4; ++k)
      text += k <= count ? alphabet[triple >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::optional<std::vector<uint8_t>> decodeBase64(std::string_view text) {
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() / 4 * 3);
  if (text.size() % 4)
    return std::nullopt;
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t triple = 0;
    size_t padding = 0;
    for (size_t k = 0; k < 4; ++k) {
      const char c = text[i + k];
      const bool pad = c == '=' && i + 4 == text.size() && k >= 2;
      const uint8_t digit = pad ? 0 : digits[static_cast<uint8_t>(c)];
      if (digit == noDigit || (!pad && padding))
        return std::nullopt;
      padding += pad;
      triple = triple << 6 | digit;
    }
    for (size_t k = 0; k + padding < 3; ++k)
      bytes.push_back(static_cast<uint8_t>(triple >> (16 - 8 * k)));
  }
  return bytes;
}

std::vector<uint8_t> bytesAt(const Cursor &cursor) {
  const Json &value = cursor.value();
  auto decoded =
      decodeBase64(value.is_string() ? std::string_view(value.get_ref<const std::string &>()) : "?");
  if (!decoded)
    cursor.fail("not valid base64");
  return decoded ? std::move(*decoded) : std::vector<uint8_t>();
}

} // namespace

std::string hashBytes(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  std::string text;
  for (uint8_t byte : canonical.digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string computeContentHash(const Manifest &m) {
  std::string all;
  for (const std::string *part : {&m.problem, &m.target, &m.schedule, &m.producer})
    all.append(*part).push_back('\0');
  return hashBytes(all);
}

std::string writeArtifact(const Artifact &artifact) {
  Json json = manifestToJson(artifact.manifest);
  json["ptx"] = artifact.ptx;
  json["cubins"] = Json::array();
  for (const std::vector<uint8_t> &cubin : artifact.cubins)
    json["cubins"].push_back(encodeBase64(cubin));
  json["host"] = artifact.hostCode.empty() ? Json() : Json(encodeBase64(artifact.hostCode));
  const std::string rest = dumpJson(json).substr(1);
  return std::string(opening) + hashBytes(rest) + std::string(closing) + rest;
}

Status writeArtifactFile(const std::string &path, const Artifact &artifact) {
  return writeFile(path, writeArtifact(artifact));
}

Result<Artifact> readArtifact(std::string_view bytes, std::string_view name) {
  const std::string prefix = "artifact '" + std::string(name) + "': ";
  if (bytes.size() < prefixSize || !bytes.starts_with(opening) ||
      bytes.substr(prefixSize - closing.size(), closing.size()) != closing)
    return inputError(prefix + "not an artifact: expected a file that begins with " + std::string(opening) +
                      "<32 hexadecimal digits>" + std::string(closing));
  const std::string_view written = bytes.substr(opening.size(), hashDigits), rest = bytes.substr(prefixSize);
  if (const std::string actual = hashBytes(rest); actual != written)
    return inputError(prefix + "damaged or altered: its bytes hash to " + actual + ", but it says " +
                      std::string(written));
  const std::string document = "{" + std::string(rest);
  Result<Json> json = parseJson(document, "manifest");
  if (!json)
    return inputError(prefix + json.error().message);
  Result<Manifest> manifest = manifestFromJson(*json);
  if (!manifest)
    return inputError(prefix + manifest.error().message);
  if (const std::string key = computeContentHash(*manifest); key != manifest->contentHash)
    return inputError(prefix + "manifest.content_hash: expected \"" + key +
                      "\" for this problem, target, schedule and " + "producer, got \"" +
                      manifest->contentHash + "\"");
  std::optional<Error> error;
  const Cursor root(*json, "manifest", error);
  Artifact artifact{std::move(*manifest), root["ptx"].string(), {}, {}};
  for (const Cursor &cubin : root["cubins"].elements())
    artifact.cubins.push_back(bytesAt(cubin));
  if (const size_t kernels = artifact.manifest.kernels.size();
      !artifact.cubins.empty() && artifact.cubins.size() != kernels)
    root["cubins"].fail("expected none, or one for each of the " + std::to_string(kernels) +
                        " kernels, got " + std::to_string(artifact.cubins.size()));
  if (root.has("host") && !root["host"].isNull())
    artifact.hostCode = bytesAt(root["host"]);
  if (error)
    return inputError(prefix + error->message);
  return artifact;
}

Result<Artifact> readArtifactFile(const std::string &path) {
  Result<std::string> bytes = readFile(path);
  if (!bytes)
    return bytes.error();
  return readArtifact(*bytes, path);
}

} // namespace attn::rt
