//===- Data.h - Published data, where there is some -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_RUNTIME_DATA_H
#define ATTN_TEST_RUNTIME_DATA_H

#include "attn_rt/support/File.h"

#include <cstdlib>
#include <gtest/gtest.h>

/// The text of a file below ATTN_DATA_DIR; without the file the test is skipped and says why.
#define ATTN_DATA(text, file)                                                                                \
  const char *const folder_##text = getenv("ATTN_DATA_DIR");                                                 \
  if (!folder_##text || !*folder_##text)                                                                     \
    GTEST_SKIP() << "ATTN_DATA_DIR is not set: " << (file) << " is not read";                                \
  const auto read_##text = attn::rt::readFile(std::string(folder_##text) + "/" + (file));                    \
  if (!read_##text)                                                                                          \
    GTEST_SKIP() << read_##text.error().message;                                                             \
  const std::string &text = *read_##text

#endif
