//===- Common.cc - The C API's tensors and bytes --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/capi/Objects.h"
#include "attn_rt/support/Version.h"

#include <atomic>
#include <cstdlib>
#include <iterator>

using namespace attn::rt;

uint64_t attn::rt::capi::newVersion() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

const char *attnVersion(void) { return version(); }

static const ElementType *typeOf(AttnDType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < elementTypes().size() ? &elementTypes()[index] : nullptr;
}
const char *attnDTypeName(AttnDType dtype) {
  const ElementType *type = typeOf(dtype);
  return type ? type->name.data() : nullptr; // literals
}
size_t attnDTypeSize(AttnDType dtype) {
  const ElementType *type = typeOf(dtype);
  return type ? type->bytes() : 0;
}

void attnStatusFree(AttnStatus status) { std::free(status.message); }

size_t attnTensorsCount(const AttnTensors *tensors) { return tensors ? tensors->map.size() : 0; }

AttnTensor attnTensorsGet(const AttnTensors *tensors, size_t index) {
  if (index >= attnTensorsCount(tensors))
    return {nullptr, AttnF32, 0, nullptr, nullptr};
  const auto &[name, tensor] = *std::next(tensors->map.begin(), static_cast<std::ptrdiff_t>(index));
  return {name.c_str(), static_cast<AttnDType>(tensor.dtype), static_cast<int32_t>(tensor.shape.size()),
          tensor.shape.data(), tensor.bytes.data()};
}

void attnTensorsDestroy(AttnTensors *tensors) { delete tensors; }

const char *attnBytesData(const AttnBytes *bytes) { return bytes ? bytes->text.c_str() : nullptr; }
size_t attnBytesSize(const AttnBytes *bytes) { return bytes ? bytes->text.size() : 0; }
void attnBytesDestroy(AttnBytes *bytes) { delete bytes; }
