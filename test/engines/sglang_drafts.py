# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SGLang's bookkeeping of drafts on a CPU, in PyTorch, in place of functions of `sgl_kernel`: where drafts lie, how they
follow each other, which of them are accepted. Attention is not among them."""

import ctypes

import torch


def assign_extend_cache_locs_cpu(rows, table, start, end, slots, width):
    """Put the slots of the tokens from `start` to `end` of requests in front of `slots`, request behind request."""
    spans = zip(rows.tolist(), start.tolist(), end.tolist(), strict=True)
    found = torch.cat([table[row, begin:stop] for row, begin, stop in spans])
    slots[: len(found)] = found


def assign_req_to_token_pool_cpu(rows, table, start, end, slots, width):
    """Put `slots`, request behind request, into the table at the tokens from `start` to `end`."""
    at = 0
    for row, begin, stop in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        table[row, begin:stop] = slots[at : at + stop - begin].to(table.dtype)
        at += stop - begin


def reconstruct_indices_from_tree_mask(
    mask, lengths, positions, index, next_token, next_sibling, batch, drafts
):
    """Number the drafts, and find the first child and the next sibling of each, -1 for none, and its position."""
    mask = mask.view(batch, drafts, drafts).bool()
    index.view(-1).copy_(torch.arange(batch * drafts))
    next_token.fill_(-1), next_sibling.fill_(-1)
    children, siblings = next_token.view(batch, drafts), next_sibling.view(batch, drafts)
    for b in range(batch):
        latest = {}
        for i in range(drafts):
            ancestors = mask[b, i, :i].nonzero().ravel().tolist()
            positions.view(batch, drafts)[b, i] = lengths[b] + len(ancestors)
            if not ancestors:
                continue
            parent = ancestors[-1]
            if parent in latest:
                siblings[b, latest[parent]] = i
            else:
                children[b, parent] = i
            latest[parent] = i


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    """Accept the drafts that the model would have said, one below the other."""
    said = target_predict.view(-1)
    for b in range(len(candidates)):
        at, count, last = 0, 0, int(retrive_index[b, 0])
        accept_index[b, 0] = last
        while count + 1 < accept_index.shape[1]:
            at = int(retrive_next_token[b, at])
            while at >= 0 and candidates[b, at] != said[last]:
                at = int(retrive_next_sibling[b, at])
            if at < 0:
                break
            predicts[last] = said[last]
            count, last = count + 1, int(retrive_index[b, at])
            accept_index[b, count] = last
        accept_token_num[b] = count
        predicts[last] = said[last]


def fill_accept_out_cache_loc_cpu(accept_index, slots, accepted):
    """Put the slots of accepted drafts in front."""
    found = slots[accept_index[accept_index >= 0].long()]
    accepted[: len(found)] = found


def fill_bonus_tokens_cpu(tokens, lengths, bonus, stride):
    """Take the last accepted token of each request."""
    bonus.copy_(tokens.view(-1)[torch.arange(len(lengths)) * stride + lengths.long() - 1])


def copy_all_layer_kv_cache_cpu(pointers, strides, targets, sources):
    """Copy tokens of all pools to other slots."""
    for pointer, stride in zip(pointers.tolist(), strides.tolist(), strict=True):
        lines = [ctypes.string_at(pointer + slot * stride, stride) for slot in sources.tolist()]
        for slot, line in zip(targets.tolist(), lines, strict=True):
            ctypes.memmove(pointer + slot * stride, line, stride)


FUNCTIONS = {
    each.__name__: each
    for each in (
        assign_extend_cache_locs_cpu,
        assign_req_to_token_pool_cpu,
        reconstruct_indices_from_tree_mask,
        verify_tree_greedy_cpu,
        fill_accept_out_cache_loc_cpu,
        fill_bonus_tokens_cpu,
        copy_all_layer_kv_cache_cpu,
    )
}
