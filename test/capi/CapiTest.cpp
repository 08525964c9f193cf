#include "Capi.h"

#include <gtest/gtest.h>

namespace {

TEST(Capi, DecodesACache) { EXPECT_STREQ(decodeOfACache(), nullptr); }
TEST(Capi, EveryErrorIsAStatus) { EXPECT_STREQ(everyErrorIsAStatus(), nullptr); }
TEST(Capi, NullIsRefused) { EXPECT_STREQ(nullIsRefused(), nullptr); }

} // namespace
