//===- Build.cc - The identity of this build ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The linker hashes its output into a note that is loaded with the library: the only identity that changes
// exactly when the code does.
//
//===----------------------------------------------------------------------===//
#include "attn-c/Compiler.h"
#include "attn/Support/Chip.h"
#include "attn/Target/Ptxas.h"
#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/capi/Objects.h"
#include "attn_rt/host/CodeObject.h"

#include "llvm/Config/llvm-config.h"

#include <elf.h>
#include <link.h>

using namespace attn;

namespace {

/// Finds the build id in notes: a header, a name and a description, each a multiple of 4 bytes.
std::string findBuildId(const char *notes, size_t size) {
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
    const auto *note = reinterpret_cast<const ElfW(Nhdr) *>(notes + at);
    const size_t name = at + sizeof(*note), description = name + (note->n_namesz + 3) / 4 * 4;
    if (note->n_type == NT_GNU_BUILD_ID &&
        std::string_view(notes + name, note->n_namesz) == std::string_view("GNU\0", 4))
      return rt::hashBytes({notes + description, note->n_descsz}).substr(0, 16);
    at = description + (note->n_descsz + 3) / 4 * 4;
  }
  return {};
}

std::string buildId() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *found) {
        const auto here = reinterpret_cast<ElfW(Addr)>(&attnBuildInfo);
        bool holds = false;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          holds |= info->dlpi_phdr[i].p_type == PT_LOAD &&
                   here - info->dlpi_addr - info->dlpi_phdr[i].p_vaddr < info->dlpi_phdr[i].p_memsz;
        for (int i = 0; holds && i < info->dlpi_phnum; ++i)
          if (const ElfW(Phdr) &header = info->dlpi_phdr[i]; header.p_type == PT_NOTE)
            if (std::string id = findBuildId(reinterpret_cast<const char *>(info->dlpi_addr + header.p_vaddr),
                                             header.p_memsz);
                !id.empty())
              *static_cast<std::string *>(found) = id;
        return static_cast<int>(holds);
      },
      &id);
  return id;
}

} // namespace

AttnBuildInfo attnBuildInfo(void) {
  static const std::string producer = "attn " ATTN_VERSION " (LLVM " LLVM_VERSION_STRING ") " + buildId();
  static const std::string target(rt::host::thisCpu());
  return {ATTN_VERSION, producer.c_str(), LLVM_VERSION_STRING, target.c_str(), rt::host::codeVersion};
}

const char *attnTargetName(size_t index) {
  const auto chips = mlir::attn::allChips();
  return index < chips.size() ? chips[index].name.data() : nullptr;
}

AttnStatus attnFindPtxas(AttnBytes **path) {
  return rt::capi::guarded([&]() -> rt::Status {
    if (rt::Status status = rt::capi::required("path", path); !status)
      return status;
    *path = new AttnBytes{mlir::attn::findPtxas()};
    return {};
  });
}

AttnStatus attnIdentifyPtxas(AttnBytes **identity) {
  return rt::capi::guarded([&]() -> rt::Status {
    if (rt::Status status = rt::capi::required("identity", identity); !status)
      return status;
    *identity = new AttnBytes{mlir::attn::identifyPtxas()};
    return {};
  });
}
