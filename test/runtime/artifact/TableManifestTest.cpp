//===- TableManifestTest.cpp - Manifests of operations on page tables -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Samples.h"
#include "attn_rt/artifact/Artifact.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

using Role = KernelInfo::Role;

Manifest tableManifest(std::initializer_list<Role> roles) {
  Manifest m = cacheManifest(Role::Move);
  m.arguments.clear();
  m.kernels.clear();
  m.launches.clear();
  for (const auto &[name, dtype] : {std::pair("table", DType::I32), std::pair("keep", DType::I8)}) {
    Argument argument;
    argument.name = name;
    argument.role = Argument::Role::Pages;
    argument.dtype = dtype;
    argument.dims = {{"lists", 0}, {"columns", 0}};
    m.arguments.push_back(argument);
  }
  for (Role role : roles) {
    KernelInfo kernel;
    kernel.name = kernelRoleName(role);
    kernel.role = role;
    kernel.warps = 8;
    kernel.threads = 256;
    kernel.rowsPerWarp = 32;
    kernel.params = {{Parameter::Kind::Buffer, "table", 0},
                     {Parameter::Kind::Buffer, "sums", 0},
                     {Parameter::Kind::Dim, "keep.dim1", 0}};
    m.addKernel(kernel, {});
  }
  m.contentHash = computeContentHash(m);
  return m;
}

std::string faultOf(const Manifest &m) {
  Result<Manifest> result = parseManifest(writeManifest(m));
  return result ? "none" : result.error().message;
}

TEST(TableManifest, IsReadBack) {
  for (const Manifest &m : {tableManifest({Role::CountPages, Role::ReleasePages, Role::TakePages}),
                            tableManifest({Role::CompactTokens})}) {
    const std::string text = writeManifest(m);
    Result<Manifest> back = parseManifest(text);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(writeManifest(*back), text);
    EXPECT_TRUE(back->managesPages());
    EXPECT_FALSE(back->hasPlan() || back->rowCopy());
    EXPECT_EQ(back->launches.size(), m.kernels.size());
    EXPECT_EQ(back->launches[0].gridName(), "rows");
  }
  EXPECT_TRUE(sampleManifest().hasPlan());
  EXPECT_FALSE(cacheManifest(Role::Move).hasPlan());
}

TEST(TableManifest, WhatItMustNotSay) {
  const std::string roles =
      "manifest.kernels: expected a kernel, and a launch, of each of the roles \"count_pages\", "
      "\"release_pages\" and \"take_pages\" in that order, or of \"compact_tokens\", \"revise_tokens\", "
      "\"merge_states\" or \"exchange_states\" alone";
  EXPECT_EQ(faultOf(tableManifest({Role::CountPages, Role::TakePages, Role::ReleasePages})), roles);
  EXPECT_EQ(faultOf(tableManifest({Role::CountPages, Role::ReleasePages})), roles);
  EXPECT_EQ(faultOf(tableManifest({Role::TakePages})), roles);
  EXPECT_EQ(faultOf(tableManifest({Role::CompactTokens, Role::CountPages})), roles);
  Manifest m = tableManifest({Role::CompactTokens});
  m.arguments[1].dtype = DType::I32;
  EXPECT_EQ(faultOf(m),
            "manifest.arguments[1]: expected a tensor of role \"pages\", of i32 or, of flags that "
            "are named \"keep\", of i8, or, where tokens are revised or states are merged, of f32");
  for (const Role role : {Role::ReviseTokens, Role::MergeStates, Role::ExchangeStates}) {
    m = tableManifest({role});
    m.arguments[0].dtype = DType::F32;
    m.contentHash = computeContentHash(m);
    EXPECT_EQ(faultOf(m), "none");
  }
  m = tableManifest({Role::CompactTokens});
  m.arguments[0].dtype = DType::F32;
  EXPECT_NE(faultOf(m).find("manifest.arguments[0]: expected a tensor of role \"pages\""), std::string::npos);
  m = tableManifest({Role::CompactTokens});
  m.arguments[0].role = Argument::Role::Slots;
  EXPECT_NE(faultOf(m).find("manifest.arguments[0]: expected a tensor of role \"pages\""), std::string::npos);
  m = tableManifest({Role::CompactTokens});
  m.kernels[0].params[0].name = "row_count";
  EXPECT_EQ(faultOf(m), "manifest.kernels[0].params[0].name: unknown buffer 'row_count'");
  m = tableManifest({Role::CompactTokens});
  m.results.push_back({"o", DType::F32, {}});
  EXPECT_EQ(faultOf(m),
            "manifest.operands: expected neither operands nor results of an operation on a table of "
            "pages");
  m = sampleManifest();
  m.kernels.push_back(tableManifest({Role::CompactTokens}).kernels[0]);
  EXPECT_EQ(faultOf(m),
            "manifest.kernels[3].role: expected no operation on a cache beside the kernels of an attention");
}

} // namespace
