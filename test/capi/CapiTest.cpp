//===- CapiTest.cpp - The C tests, as GoogleTest runs them ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Capi.h"

#include <gtest/gtest.h>

namespace {

TEST(Capi, DecodesACache) { EXPECT_STREQ(decodeOfACache(), nullptr); }
TEST(Capi, TruncatesACache) { EXPECT_STREQ(truncatesACache(), nullptr); }
TEST(Capi, ManagesPages) { EXPECT_STREQ(managesPages(), nullptr); }
TEST(Capi, EveryErrorIsAStatus) { EXPECT_STREQ(everyErrorIsAStatus(), nullptr); }
TEST(Capi, NullIsRefused) { EXPECT_STREQ(nullIsRefused(), nullptr); }

} // namespace
