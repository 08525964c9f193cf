//===- OlderGlibc.c - Runs on glibc 2.34 what is built on a later one -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shared libraries and programs of this project run on glibc 2.34 and later, wherever they are built. Two
// functions of later glibc come in with static archives of the machine that builds:
//
//   _dl_find_object  glibc 2.35  libgcc's unwinder asks it which library holds an address
//   arc4random       glibc 2.36  std::random_device and llvm::sys::Process::GetRandomNumber
//
// This file defines both, hidden, by functions that glibc 2.34 has. It is linked as an object, so the linker
// resolves the archives' references here and never asks the C library. The unwinder then searches libraries
// as libgcc did before GCC 12: dl_iterate_phdr walks their list under the loader's lock. Only exceptions pay
// for that, and no path that launches or plans throws.
//
// The archive libattn_runtime.a is without this file: whoever links it brings an unwinder of their own.
//===----------------------------------------------------------------------===//
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define HIDDEN __attribute__((visibility("hidden")))

#if __GLIBC_PREREQ(2, 35)

struct Search {
  uintptr_t address;
  struct dl_find_object *found;
};

/// Fills `found` when the library of `info` holds the address; a result other than 0 ends the walk.
static int searchLibrary(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  const struct Search *search = data;
  uintptr_t begin = 0, end = 0, frames = 0;
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + segment->p_vaddr;
    if (segment->p_type == PT_GNU_EH_FRAME)
      frames = start;
    if (segment->p_type == PT_LOAD && search->address - start < segment->p_memsz) {
      begin = start;
      end = start + segment->p_memsz;
    }
  }
  if (!end)
    return 0;
  if (!frames)
    return -1;
  search->found->dlfo_map_start = (void *)begin;
  search->found->dlfo_map_end = (void *)end;
  search->found->dlfo_eh_frame = (void *)frames;
  return 1;
}

/// The unwinder reads the index of frames alone. The range is that of the segment, and there is no link map.
HIDDEN int _dl_find_object(void *address, struct dl_find_object *found) {
  memset(found, 0, sizeof(*found));
  struct Search search = {(uintptr_t)address, found};
  return dl_iterate_phdr(searchLibrary, &search) == 1 ? 0 : -1;
}

#endif

#if __GLIBC_PREREQ(2, 36)

/// Ends the process without randomness, as glibc's does.
HIDDEN uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof(value), 0) != sizeof(value))
    if (errno != EINTR)
      abort();
  return value;
}

#endif
