#include "attn_rt/Batch.h"

namespace attn::rt {

std::vector<int32_t> classHeads(const Manifest &manifest, const Batch &batch) {
  if (manifest.headClasses.empty())
    return {manifest.kvHeads};
  std::vector<int32_t> heads(manifest.headClasses.size());
  for (int32_t headClass : batch.classes)
    ++heads[static_cast<size_t>(headClass)];
  return heads;
}

std::string classHeadsText(const Manifest &manifest, std::span<const int32_t> heads) {
  std::string text;
  for (size_t c = 0; c < manifest.headClasses.size(); ++c)
    text += (text.empty() ? "" : ", ") + std::to_string(heads[c]) + " " + manifest.headClasses[c].name;
  return text;
}

std::vector<int32_t> slotHeads(const Manifest &manifest, const Batch &batch) {
  std::vector<int32_t> heads;
  for (int32_t c = 0; c < static_cast<int32_t>(manifest.headClasses.size()); ++c)
    for (size_t head = 0; head < batch.classes.size(); ++head)
      if (batch.classes[head] == c)
        heads.push_back(static_cast<int32_t>(head));
  return heads;
}

} // namespace attn::rt
