//===- CacheBatchTest.cpp - Which kernels batches of caches are for -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "FuzzWorld.h"

using namespace attn::rt::test;

namespace {

TEST(CapiCacheBatch, IsForKernelsOfPagesThatHeadsShare) {
  AttnDevice *device = nullptr;
  AttnStatus status = attnDeviceOpenCuda(0, ATTN_FAKE_CUDA, &device);
  ASSERT_EQ(status.kind, AttnStatusOk) << status.message;
  const World world;
  const AttnCacheOperand operand = {0, true, true};
  for (const bool packed : {false, true}) {
    const std::string &file = packed ? world.packedFile() : world.pagedFile();
    AttnKernel *kernel = nullptr;
    status = attnKernelLoad(device, file.data(), file.size(), "sample", nullptr, &kernel);
    ASSERT_EQ(status.kind, AttnStatusOk) << status.message;
    AttnBatchBuilder *builder = nullptr;
    status = attnBatchBuilderCreate(kernel, &operand, 1, 0, &builder);
    EXPECT_EQ(status.kind, packed ? AttnStatusInput : AttnStatusOk);
    EXPECT_EQ(builder == nullptr, packed);
    if (packed)
      EXPECT_NE(std::string(status.message).find("'kv': a cache has pages"), std::string::npos)
          << status.message;
    attnStatusFree(status);
    attnBatchBuilderDestroy(builder);
    attnKernelDestroy(kernel);
  }
  attnDeviceDestroy(device);
}

} // namespace
