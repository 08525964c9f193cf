# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""TRL's GRPO over packed groups: TRL generates and rewards; log-probabilities and the update hold each prompt once.

    from attn.training.trl import PackedGRPOTrainer

    trainer = PackedGRPOTrainer(model, reward_funcs, args=GRPOConfig(per_device_train_batch_size=8, num_generations=8), ...)
    trainer.train()

(Source: trl's GRPOTrainer, of 1.16.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from ..errors import SpecError, TensorError
from .decoders import logprobs
from .packing import Packed, pack
from .tries import groups

__all__ = ["PackedGRPOTrainer"]


class PackedGRPOTrainer(GRPOTrainer):
    """trl.GRPOTrainer that computes log-probabilities, of the policy, of the old policy and of the reference model,
    over packed groups. Groups are shuffled, not rows, so that a step's batch has whole groups.

    attn_budget     the most rows of one call of the model, each shared token counted once; None: a step's batch is one call.
                    Activations of an update's calls are kept until the step's loss is known
    attn_reference  True: attention by the float64 reference on the CPU, as in `packed_model`

    Each entry of the log has `packing/rows`, the rows that models ran since the one before, and `packing/rows_saved`, how many
    more copies of the prompts would have taken, padding not counted: sums over all processes, `eval_` first in evaluation.

    All other arguments are GRPOTrainer's. Errors: SpecError, for a batch that would cut groups, for balance losses of experts
    and what `packed_model` refuses; PlanError, for a group larger than the budget; TensorError, for images.
    """

    def __init__(
        self, *args: Any, attn_budget: int | None = None, attn_reference: bool = False, **kwargs: Any
    ):
        super().__init__(*args, **kwargs)
        self.attn_budget, self.attn_reference = attn_budget, attn_reference
        self._attn_rows = {"train": [0, 0], "eval": [0, 0]}  # that ran, and that copies would have had
        batch, group = self.args.per_device_train_batch_size, self.num_generations
        if batch % group:
            raise SpecError(
                f"per_device_train_batch_size: expected a multiple of num_generations={group}, as no group is cut, got "
                f"{batch}; nearest legal: {max(batch // group, 1) * group}"
            )
        if self.aux_loss_enabled:
            raise SpecError(
                "router_aux_loss_coef: expected 0.0, as the balance loss of experts would count each shared token once; load "
                "the model with router_aux_loss_coef=0.0"
            )

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """Return a step's batch, as GRPOTrainer does, but shuffled by groups."""
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        steps = self.args.steps_per_generation
        if self._step % (steps * self.num_iterations) == 0 or self._buffered_inputs is None:
            made = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = batches_of_groups(made, steps, self.num_generations)
        return self._buffered_inputs[self._step % steps]

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **others: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        """Compute log-probabilities of completions [rows, logits_to_keep]; 0 for tokens that the mask hides."""
        for name, value in others.items():
            if value is not None:
                raise TensorError(f"{name}: expected None, as packed groups hold text alone")
        found = input_ids.new_zeros(len(input_ids), logits_to_keep, dtype=torch.float32)
        entropies = torch.zeros_like(found) if compute_entropy else None
        for packed in packed_rows(input_ids, attention_mask, logits_to_keep, self.attn_budget):
            rows_of_mode = self._attn_rows[self._attn_mode()]
            rows_of_mode[0] += len(packed.tokens)
            rows_of_mode[1] += int(packed.lengths.sum())
            with self.accelerator.autocast():
                made = logprobs(
                    model,
                    packed,
                    temperature=self.temperature,
                    entropy=compute_entropy,
                    reference=self.attn_reference,
                )
            prompts = attention_mask[:, :-logits_to_keep].sum(1).cpu()
            rows = torch.from_numpy(packed.trajectories[packed.edge_trajectory])
            at = (
                rows.to(found.device),
                (torch.from_numpy(packed.edge_position) - prompts[rows]).to(found.device),
            )
            found = found.index_put(at, made[0] if compute_entropy else made)
            if compute_entropy:
                entropies = entropies.index_put(at, made[1].detach())
        return found, entropies, None

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as GRPOTrainer does, with the rows that packing has saved since the last entry."""
        mode = self._attn_mode()
        counts = torch.tensor([self._attn_rows[mode]], device=self.accelerator.device)
        self._attn_rows[mode] = [0, 0]
        rows, copies = self.accelerator.gather(counts).sum(0).tolist()
        if rows:
            prefix = "eval_" if mode == "eval" else ""
            logs |= {f"{prefix}packing/rows": rows, f"{prefix}packing/rows_saved": copies - rows}
        super().log(logs, start_time)

    def _attn_mode(self) -> str:
        """The mode, in words of GRPOTrainer."""
        return "train" if self.model.training else "eval"


def packed_rows(
    input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, budget: int | None
) -> list[Packed]:
    """Return micro-batches of TRL's rows, prompts padded on the left and completions on the right: [rows, tokens]. A
    row is a trajectory; neighbours with one prompt are a group."""
    ids, mask = input_ids.cpu(), attention_mask.cpu().bool()
    split = ids.shape[1] - logits_to_keep
    prompts = [row[kept] for row, kept in zip(ids[:, :split], mask[:, :split], strict=True)]
    responses = [row[kept] for row, kept in zip(ids[:, split:], mask[:, split:], strict=True)]
    numbers = [0]
    for one, other in zip(prompts, prompts[1:], strict=False):
        numbers.append(numbers[-1] + (not torch.equal(one, other)))
    return pack(groups(prompts, responses, numbers), budget=budget)


def batches_of_groups(made: Mapping[str, Any], steps: int, size: int) -> list[dict[str, Any]]:
    """Shuffle a generation's rows by groups, and cut them into the batches of steps. Each batch gets values without
    rows."""
    rows = len(made["prompt_ids"])
    order = torch.randperm(rows // size)[:, None] * size + torch.arange(size)
    parts = order.flatten().chunk(steps)

    def part(value: Any, taken: Tensor) -> Any:
        if value is None or (isinstance(value, Tensor) and value.ndim == 0):
            return value
        if isinstance(value, Tensor):
            return value[taken.to(value.device)]
        return [value[row] for row in taken.tolist()]

    return [{name: part(value, taken) for name, value in made.items()} for taken in parts]
