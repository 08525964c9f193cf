# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generation by models of Transformers whose steps are recorded once."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import StaticCache
from transformers.cache_utils import StaticLayer
from transformers.masking_utils import create_masks_for_generate

from ..cache.integers import whole
from ..errors import PlanError, TensorError, expected
from .decoder_checks import (
    check_implementation,
    check_model,
    check_prompt,
    check_room,
    compile_options,
    find_padding,
    refuse_others,
    token_ids,
)
from .planned_steps import fix_mask, model_of
from .recorded_steps import Choice, Lookout, RecordedStep, StepState
from .span_mask import SpanMask
from .transformers_fallback import NAME

_numbers = itertools.count(1)


def _own_function(model: nn.Module) -> Callable:
    """Calls a model, in code of its own: torch.compile counts what it compiled by the code that was compiled, and from the
    eighth time on runs it as it is without an error. All decoders of a process would share that number."""

    def call(**inputs):
        return model(**inputs)

    name = f"decoding_step_{next(_numbers)}"
    return FunctionType(call.__code__.replace(co_name=name), call.__globals__, name, None, call.__closure__)


class Decoder:
    """Generates as `model.generate` does with a static cache, in steps that are recorded once: mask, forward pass, choice of
    the next token and all counting are one CUDA graph, replayed back to back, and the GPU waits for the host between none of
    them. On the CPU the same steps run one by one.

    model      of Transformers, a decoder with full attention or sliding windows in each layer, with attn_implementation
               "attn", "sdpa" or "eager", on one device
    sequences  of each batch
    tokens     of a sequence, at most: columns of the prompt, padding counted, and what is generated. The cache has room for
               as many in every layer, behind sliding windows too
    compile    what torch.compile makes of the forward pass of a step: True, or its options in a dict, such as
               {"mode": "max-autotune-no-cudagraphs"}, or False. By default it compiles on a GPU

    `cache` is the StaticCache; `length` how many tokens of each sequence it holds, padding counted. The first call of
    `generate` compiles and records, a later one does so again where tokens are chosen in another way. Weights may change
    where they lie, and must not move. Errors: PlanError for models and options that a recorded step could not serve.
    """

    def __init__(
        self, model: nn.Module, *, sequences: int, tokens: int, compile: bool | dict[str, Any] | None = None
    ):
        check_model(model)
        check_implementation(model)
        self.model = model
        self.sequences, self.tokens = whole("sequences", sequences, 1), whole("tokens", tokens, 1)
        self.device = model.device
        options = compile_options(compile, self.device)
        self._forward = (
            model if options is None else torch.compile(_own_function(model), **{"dynamic": False} | options)
        )
        self._config = model.config.get_text_config(decoder=True)
        self.cache = StaticCache(config=model.config, max_cache_len=self.tokens)
        # Layers with windows would be rings, whose place in the window the host counts.
        self.cache.layers = [StaticLayer(max_cache_len=self.tokens) for _ in self.cache.layers]
        self.length = 0
        self._front: list[int] = []
        self._state = StepState(self.sequences, self.tokens, self.device)
        self._lookout = Lookout(self._state.all_ended)
        # Of the embeddings masks look at no more than this.
        self._like = torch.empty(self.sequences, 1, 0, dtype=model.dtype, device=self.device)
        self._step: RecordedStep | None = None
        self._recorded_for: tuple | None = None
        fix_mask(self._state.mask, self._state.first)

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        max_new_tokens: int,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        eos_token_id: int | Iterable[int] | None = None,
        pad_token_id: int | None = None,
        held: int = 0,
        **others: object,
    ) -> Tensor:
        """The prompts and what follows them, `i64[sequences, columns + new]`: at most `max_new_tokens`, fewer where all
        sequences have ended. Without sampling these are the tokens of `model.generate(do_sample=False)`.

        input_ids       int[sequences, columns]
        attention_mask  [sequences, columns], 0 for padding, on the left alone; by default what is not `pad_token_id` is shown
        do_sample       draws from PyTorch's generator of the device: of the logits over `temperature`, the `top_k` largest (0:
                        all), the likeliest that together have the probability `top_p`
        eos_token_id    tokens that end a sequence, () for none; by default the generation configuration's
        pad_token_id    what follows them; by default the configuration's, or else the first of those tokens
        held            columns that `cache` holds from the last call, and that are not read again

        Errors: TensorError for tensors of another shape, PlanError for more tokens than there is room for and for whatever else
        `generate` of Transformers knows.
        """
        model, configured = self.model, self.model.generation_config
        refuse_others(others, configured, bool(do_sample))
        vocabulary = self._config.vocab_size
        ends = token_ids(
            "eos_token_id", configured.eos_token_id if eos_token_id is None else eos_token_id, vocabulary
        )
        pads = token_ids(
            "pad_token_id", configured.pad_token_id if pad_token_id is None else pad_token_id, vocabulary
        )
        choice = Choice(bool(do_sample), temperature, top_k, top_p, ends, (*pads, *ends, 0)[0])
        implementation = check_implementation(model)
        check_prompt(input_ids, self.sequences, self.device)
        columns = input_ids.shape[1]
        check_room(columns, max_new_tokens, self.tokens)
        mask, front = find_padding(
            attention_mask, input_ids, pads[0] if pads and pads[0] not in ends else None
        )
        self._check_held(held, columns, front)
        input_ids = input_ids.long()
        with self._on_device():
            self.length = 0  # until all went well
            for layer in self.cache.layers:
                layer.cumulative_length.fill_(held)
            self._state.begin(mask)
            self._state.accept(choice, self._read(input_ids[:, held:], mask))
            self._run(max_new_tokens - 1, choice, implementation)
            new = int(self._state.counts.max()) if ends else max_new_tokens
            # As behind generate: the last token was chosen, and not read.
            self.length, self._front = columns + new - 1, front
            for layer in self.cache.layers:
                layer.cumulative_length.fill_(self.length)
        return torch.cat([input_ids, self._state.out[:, :new]], 1)

    @torch.no_grad()
    def fill(self, layers: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Puts keys and values that were computed elsewhere in front, for `generate(..., held=)`: of each layer `[sequences,
        kv_heads, columns, head_dim]` and `[sequences, kv_heads, columns, value_dim]`, as the model rotates them, without
        padding. TensorError where layers or shapes are others; the cache is empty then."""
        self.length, columns = 0, None
        count = 0
        for keys, values in layers:
            if columns is None:
                columns = keys.shape[2]
                check_room(columns, 1, self.tokens)
            for name, tensor in (("keys", keys), ("values", values)):
                found = (tensor.shape[0], tensor.shape[2]) if tensor.dim() == 4 else tuple(tensor.shape)
                if found != (self.sequences, columns) or count == len(self.cache.layers):
                    legal = f"[{self.sequences}, kv_heads, {columns}, dim] of {len(self.cache.layers)} layers"
                    raise expected(TensorError, f"{name} of layer {count}", legal, list(tensor.shape))
            self.cache.layers[count].reset()
            self.cache.update(keys, values, count)
            count += 1
        if count != len(self.cache.layers):
            raise expected(TensorError, "layers", f"those of all {len(self.cache.layers)} layers", count)
        self.length, self._front = columns or 0, [0] * self.sequences

    def _check_held(self, held: int, columns: int, front: list[int]) -> None:
        most = min(self.length, columns - 1)
        if isinstance(held, bool) or not isinstance(held, int) or not 0 <= held <= most:
            legal = f"0 to {most}: the cache holds {self.length} columns, and one of {columns} has to be read"
            nearest = min(max(held, 0), most) if isinstance(held, int) else 0
            raise expected(PlanError, "held", legal, held, nearest=nearest)
        if held and front != self._front:
            legal = f"padding in front as in the call before, {self._front}"
            raise expected(PlanError, "attention_mask", legal, front)

    def _on_device(self) -> contextlib.AbstractContextManager:
        return torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()

    def _read(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits behind a prompt, which goes through the model as it is."""
        places = (mask.long().cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=places,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return out.logits[:, -1]

    def _run(self, steps: int, choice: Choice, implementation: str) -> None:
        # The prompt has gone through the layers as they are now: gates or sinks that came since are refused, not replayed over.
        kinds = tuple(model_of(self._config).kinds.items()) if implementation == NAME else ()
        asked = choice, implementation, kinds
        if self._step is None or self._recorded_for != asked:
            self._step, self._recorded_for = RecordedStep(self.device), asked
        self._lookout.begin()
        for _ in range(steps):
            if choice.ends and self._lookout.seen():
                break
            self._step.run(lambda: self._next(choice))

    def _next(self, choice: Choice) -> None:
        """A step: the same launches whatever the tensors hold."""
        state, model = self._state, self.model
        make_masks = getattr(model, "create_masks_for_generate", create_masks_for_generate)
        masks = make_masks(
            config=model.config,
            inputs_embeds=self._like,
            attention_mask=state.mask,
            past_key_values=self.cache,
            position_ids=state.position,
        )
        self._check_planned(masks)
        out = self._forward(
            input_ids=state.token,
            attention_mask=masks,
            position_ids=state.position,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        state.accept(choice, out.logits[:, -1])

    def _check_planned(self, masks: Tensor | dict[str, Tensor]) -> None:
        if self._config._attn_implementation != NAME:
            return
        for mask in masks.values() if isinstance(masks, dict) else (masks,):
            if not isinstance(mask, SpanMask) or not mask.handle:
                raise PlanError(
                    f"model: layers of {type(self.model).__name__} are not planned on the device (learned sinks, head gates, layers "
                    'that differ, or tensors that PyTorch attends to), which a recorded step could not repeat; take "sdpa", or '
                    "model.generate"
                )
