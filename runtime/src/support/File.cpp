//===- File.cpp - Whole files in, whole files out -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/support/File.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace attn::rt {

namespace {

struct Close {
  void operator()(FILE *file) const { fclose(file); }
};

Error fileError(std::string_view action, const std::string &path) {
  return inputError("cannot " + std::string(action) + " '" + path + "': " + strerror(errno));
}

} // namespace

Result<std::string> readFile(const std::string &path) {
  std::unique_ptr<FILE, Close> file(fopen(path.c_str(), "rb"));
  if (!file)
    return fileError("open", path);
  struct stat info{};
  if (fstat(fileno(file.get()), &info) == 0 && S_ISDIR(info.st_mode))
    return inputError("cannot read '" + path + "': it is a directory, expected a file");
  std::string bytes;
  // Read in growing steps rather than trust a size that pipes do not have.
  if (info.st_size > 0)
    bytes.reserve(static_cast<size_t>(info.st_size));
  char chunk[1 << 16];
  while (size_t count = fread(chunk, 1, sizeof(chunk), file.get()))
    bytes.append(chunk, count);
  if (ferror(file.get()))
    return fileError("read", path);
  return bytes;
}

Status writeFile(const std::string &path, std::string_view bytes) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  std::unique_ptr<FILE, Close> file(fopen(temporary.c_str(), "wb"));
  if (!file)
    return fileError("write", path);
  bool written = fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  written = fflush(file.get()) == 0 && written;
  file.reset();
  if (written && rename(temporary.c_str(), path.c_str()) == 0)
    return {};
  Error error = fileError("write", path);
  unlink(temporary.c_str());
  return error;
}

} // namespace attn::rt
