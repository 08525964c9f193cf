# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""veRL's FSDP engine over packed groups: log-probabilities of the policy, the one before and the reference, and the update.

    from attn.training.verl import packed_engine
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    engine = packed_engine(FSDPEngineWithLMHead, group_size=16)  # rollout.n
    register = EngineRegistry.register("language_model", ["fsdp", "fsdp2"], "cuda", vendor="attn")
    register(engine)  # and VERL_ENGINE_VENDOR=attn in the environment of the workers

Not run on a cluster: signatures are checked against verl 0.9.1, behaviour against a stand-in of the engine on the CPU.
(Source: verl 0.9.1, workers/engine/fsdp/transformer_impl.py.)
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch
from torch import Tensor

from ..errors import SpecError, TensorError, expected
from .decoders import packed_model
from .heads import edge_head
from .packing import Packed, pack
from .tries import groups

__all__ = ["packed_engine"]

# The overridden methods, with the engine's arguments.
SIGNATURES = {
    "forward_backward_batch": ["self", "data", "loss_function", "forward_only"],
    "forward_step": ["self", "micro_batch", "loss_function", "forward_only"],
    "prepare_model_inputs": ["self", "micro_batch"],
    "prepare_model_outputs": ["self", "output", "output_args", "micro_batch", "logits_processor_func"],
}
_REFUSED = {
    "use_fused_kernels": "logits of packed rows have several targets",
    "distillation_use_topk": "a teacher's tensors have the layout of copies",
    "distillation_only": "a teacher's tensors have the layout of copies",
    "calculate_sum_pi_squared": "only log-probabilities and entropies go along edges",
}


def packed_engine(base: type, group_size: int, *, reference: bool = False) -> type:
    """Return a subclass of `base`, veRL's FSDPEngineWithLMHead, that holds each prompt of a micro-batch once.

    group_size  responses to a prompt, rollout.n: rows of a group follow each other and stay in one micro-batch, so that
                max_token_len_per_gpu, which counts copies, must be large enough for a whole group
    reference   True: attention by the float64 reference on the CPU, as in `packed_model`

    SpecError for a base whose methods have other arguments. The engine raises at the first micro-batch: PlanError for
    groups that a shuffle has cut; TensorError, by name, for sequence parallelism, fused kernels, distillation, images
    and temperatures that differ.
    """
    for name, wanted in SIGNATURES.items():
        method = getattr(base, name, None)
        found = list(inspect.signature(method).parameters) if method else None
        if found != wanted:
            raise expected(SpecError, f"{base.__name__}.{name}", f"arguments {', '.join(wanted)}", found)
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 1:
        raise expected(SpecError, "group_size", "a number of responses from 1 on", group_size)

    class PackedEngine(base):
        """An engine over packed groups. A forward step calls the module between preparing inputs and outputs;
        `packed_model` is entered for that long."""

        def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
            data.set_non_tensor("force_group_size", group_size)
            return super().forward_backward_batch(data, loss_function, forward_only)

        def forward_step(self, micro_batch: Any, loss_function: Any, forward_only: bool) -> Any:
            with contextlib.ExitStack() as self._attn_context:
                return super().forward_step(micro_batch, loss_function, forward_only)

        def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            _refuse(self, micro_batch)
            packed = packed_micro_batch(micro_batch, group_size)
            device = micro_batch["input_ids"].device
            asked = {
                "temperature": _temperature(micro_batch),
                "entropy": _value(micro_batch, "calculate_entropy", False),
            }
            self._attn_context.enter_context(packed_model(self.module, packed, reference=reference))
            self._attn_context.enter_context(edge_head(self.module, packed, **asked))
            sources = torch.from_numpy(packed.sources).to(device)
            return {"input_ids": packed.input_ids(device), "logits_to_keep": sources}, {"packed": packed}

        def prepare_model_outputs(
            self, output: Any, output_args: Any, micro_batch: Any, logits_processor_func: Any
        ) -> dict[str, Tensor]:
            names = ("log_probs", "entropy")[: output.logits.shape[2]]
            return {
                name: as_rows(values, output_args["packed"], micro_batch["input_ids"])
                for name, values in zip(names, output.logits[0].unbind(1), strict=True)
            }

    PackedEngine.__name__ = PackedEngine.__qualname__ = f"Packed{base.__name__}"
    return PackedEngine


def packed_micro_batch(micro_batch: Any, group_size: int) -> Packed:
    """Pack a micro-batch without padding: input_ids, a jagged tensor of prompts with their responses, and prompts, also
    jagged, or padded with an attention_mask. Row i is trajectory i. TensorError."""
    sequences = [row.cpu() for row in micro_batch["input_ids"].unbind()]
    prompts = micro_batch["prompts"]
    if prompts.is_nested:
        lengths = prompts.offsets().diff().tolist()
    else:
        lengths = micro_batch["attention_mask"][:, : prompts.shape[1]].sum(1).tolist()
    heads = [row[:length] for row, length in zip(sequences, lengths, strict=True)]
    tails = [row[length:] for row, length in zip(sequences, lengths, strict=True)]
    if len(heads) % group_size:
        raise expected(TensorError, "micro_batch", f"rows of whole groups of {group_size}", len(heads))
    numbers = [row // group_size for row in range(len(heads))]
    (packed,) = pack(groups(heads, tails, numbers, group_size))
    return packed


def as_rows(values: Tensor, packed: Packed, input_ids: Tensor) -> Tensor:
    """Return values of edges in veRL's layout, the values of a row's next token: jagged, as input_ids. Those of prompts
    are 0."""
    offsets = input_ids.offsets()
    starts = offsets[torch.from_numpy(packed.edge_trajectory).to(offsets.device)]
    at = starts + torch.from_numpy(packed.edge_position).to(offsets.device) - 1
    flat = values.new_zeros(int(offsets[-1])).index_put((at.to(values.device),), values)
    return torch.nested.nested_tensor_from_jagged(flat, offsets)


def _value(batch: Any, name: str, default: Any) -> Any:
    """Return a value of a TensorDict that is not a tensor, unwrapped."""
    found = batch.get(name, default)
    return found if isinstance(found, Tensor) else getattr(found, "data", found)


def _refuse(engine: Any, batch: Any) -> None:
    for name, why in _REFUSED.items():
        if _value(batch, name, False):
            raise TensorError(f"{name}: expected False over packed groups, as {why}")
    if getattr(engine, "use_ulysses_sp", False):
        raise TensorError("ulysses_sequence_parallel_size: expected 1 over packed groups")
    if getattr(engine, "pad_to_length", False):
        raise TensorError("pad_to_length: expected False over packed groups, whose rows are not padded")
    images = _value(batch, "multi_modal_inputs", None)
    if images is not None and any(dict(of_row) for of_row in images):
        raise TensorError("multi_modal_inputs: expected none, as packed groups hold text alone")


def _temperature(batch: Any) -> float:
    given = _value(batch, "temperature", 1.0)
    if not isinstance(given, Tensor):
        return float(given)
    if given.numel() > 1 and not bool((given == given.flatten()[0]).all()):
        raise expected(TensorError, "temperature", "one for a micro-batch", given.tolist())
    return float(given.flatten()[0])
