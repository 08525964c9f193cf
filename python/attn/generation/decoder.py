# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generation by models of Transformers, with steps that are recorded once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters.transformers_cache import PagedCache
from ..adapters.transformers_config import cache_argument
from ..cache.integers import whole
from ..errors import PlanError, TensorError, Uncopied, expected
from .decoder_checks import (
    check_cache,
    check_held,
    check_implementation,
    check_model,
    check_prompt,
    check_room,
    compile_options,
    count_copies,
    find_padding,
    refuse_others,
    token_ids,
)
from .decoder_rooms import PagedRoom, StaticRoom
from .forward_pass import compiled_forward, step_masks
from .prompt_chunks import read_behind
from .recorded_steps import Choice, Lookout, RecordedStep, StepState


class Decoder(Uncopied):
    """Generates as `model.generate` does with a static or a paged cache, in steps that are recorded once. Mask, forward
    pass, choice of the next token and all counting are one CUDA graph, replayed back to back; between replays the GPU
    does not wait for the host. On the CPU the same steps run one by one.

    model      of Transformers, a decoder with full attention or sliding windows in each layer, with attn_implementation
               "attn", "sdpa" or "eager", on one device
    sequences  of each batch
    tokens     of a sequence, at most: columns of the prompt, including padding, and generated tokens. A static cache has
               capacity for as many in every layer, also in layers with sliding windows
    cache      an attn.transformers.PagedCache, for a model with attn_implementation="attn", for tokens in pages: padding
               takes none, sequences of one prompt share its pages, and pools may be smaller than sequences times tokens. By
               default a static cache of the decoder's own
    compile    how torch.compile compiles the forward pass of a step: True, or its options in a dict, such as
               {"mode": "max-autotune-no-cudagraphs"}, or False. By default it compiles on a GPU, but not over latents

    `length` is the number of tokens of each sequence in `cache`, including padding. The first call of `generate`
    compiles and records; a later one does so again if tokens are chosen in another way. Weights may change in place,
    but must not move. Raises PlanError for models and options that a recorded step cannot serve.
    """

    _instead = "it holds recorded steps; make another from a copy of the model"

    def __init__(
        self,
        model: nn.Module,
        *,
        sequences: int,
        tokens: int,
        cache: PagedCache | None = None,
        compile: bool | dict[str, Any] | None = None,
    ):
        check_model(model)
        if cache is not None:
            check_cache(cache, model)
        check_implementation(model, cache)
        self.model = model
        self.sequences, self.tokens = whole("sequences", sequences, 1), whole("tokens", tokens, 1)
        self.device = model.device
        self._forward = compiled_forward(model, compile_options(compile, self.device, cache))
        self._config = model.config.get_text_config(decoder=True)
        self._state = StepState(self.sequences, self.tokens, self.device)
        self._room: StaticRoom | PagedRoom
        if cache is None:
            self._room = StaticRoom(model, self._state, self.tokens)
        else:
            self._room = PagedRoom(cache, self._state, self.tokens, type(model).__name__)
        self.cache = self._room.cache
        self._cache_of_steps = cache_argument(model, self._room.of_steps)
        self._lookout = Lookout(self._state.all_ended)
        # Masks read no more of the embeddings than this.
        self._like = torch.empty(self.sequences, 1, 0, dtype=model.dtype, device=self.device)
        self._step: RecordedStep | None = None
        self._recorded_for: tuple | None = None

    @property
    def length(self) -> int:
        """Columns that the cache holds; 0 after a call that failed."""
        return self._room.length

    @property
    def held(self) -> list[int]:
        """Tokens of each sequence in a paged cache, up to the sequence's end. The last chosen token was not read, and
        does not count. Empty for a static cache."""
        return self._room.held

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
        num_return_sequences: int | None = None,
        held: int | Sequence[int] = 0,
        **others: object,
    ) -> Tensor:
        """Generate. Returns the prompts and the tokens that follow, `i64[sequences, columns + new]`: at most
        `max_new_tokens`, fewer if all sequences have ended. Without sampling these are the tokens of
        `model.generate(do_sample=False)`.

        input_ids       int[sequences, columns]; with `num_return_sequences` as many fewer prompts
        attention_mask  of their shape, 0 for padding, on the left only; by default tokens other than `pad_token_id` are shown
        do_sample       draws from PyTorch's generator of the device: from the logits over `temperature`, the `top_k` largest
                        (0: all), the likeliest that together have the probability `top_p`
        eos_token_id    tokens that end a sequence, () for none; by default the generation configuration's
        pad_token_id    the token after the end; by default the configuration's, or else the first of the end tokens
        num_return_sequences  of each prompt, next to each other, with a paged cache: the prompt is read once
        held            columns that `cache` holds from the last call, and that are not read again; with pages also the number
                        of tokens of each sequence (`Decoder.held`), for prompts that are padded anew

        Raises TensorError for tensors of another shape; PlanError for more tokens than the decoder's and for other
        options of Transformers' `generate`; OutOfPages if `max_new_tokens` of all sequences do not fit into the pool.
        Sequences may end before, but a generation that has begun does not fail.
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
        implementation = check_implementation(model, self.cache)
        copies = count_copies(num_return_sequences, configured, self.sequences)
        check_prompt(input_ids, self.sequences // copies, self.device)
        columns = input_ids.shape[1]
        check_room(columns, max_new_tokens, self.tokens)
        mask, front = find_padding(
            attention_mask, input_ids, pads[0] if pads and pads[0] not in ends else None
        )
        self._check_held(held, columns, front, copies)
        self._room.begin(held, columns, front, max_new_tokens, copies)
        input_ids = input_ids.long()
        with self._on_device(), self._all_or_nothing():
            if isinstance(held, int):
                logits = self._read(input_ids[:, held:], mask)
            else:
                logits = read_behind(model, self.cache, input_ids, mask, held)
            self._room.read(columns, front, copies)
            if copies > 1:
                logits, mask, input_ids = (
                    tensor.repeat_interleave(copies, 0) for tensor in (logits, mask, input_ids)
                )
                front = [hidden for hidden in front for _ in range(copies)]
            self._state.begin(mask)
            self._state.accept(choice, logits)
            self._run(max_new_tokens - 1, choice, implementation)
            counts = self._state.counts.tolist() if ends else [max_new_tokens] * self.sequences
            new = max(counts)
            # It is as after model.generate: the last token was chosen, and not read.
            self._room.end(columns + new - 1, front, [new - count for count in counts])
        return torch.cat([input_ids, self._state.out[:, :new]], 1)

    @torch.no_grad()
    def fill(self, layers: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fill the cache with keys and values that were computed elsewhere, for `generate(..., held=)`: of each layer
        `[sequences, kv_heads, columns, head_dim]` and `[sequences, kv_heads, columns, value_dim]`, as the model rotates
        them, without padding. TensorError for other layers or shapes; the cache is then empty."""
        columns, count, wanted = 0, 0, len(self.cache.layers)
        with self._on_device(), self._all_or_nothing():
            for keys, values in layers:
                if not count:
                    columns = keys.shape[2]
                    check_room(columns, 1, self.tokens)
                for name, tensor in (("keys", keys), ("values", values)):
                    found = (tensor.shape[0], tensor.shape[2]) if tensor.dim() == 4 else tuple(tensor.shape)
                    if found != (self.sequences, columns) or count == wanted:
                        legal = f"[{self.sequences}, kv_heads, {columns}, dim] of {wanted} layers"
                        raise expected(TensorError, f"{name} of layer {count}", legal, list(tensor.shape))
                self._room.put(count, keys, values)
                count += 1
            if count != wanted:
                raise expected(TensorError, "layers", f"those of all {wanted} layers", count)
            self._room.end(columns, [0] * self.sequences, [0] * self.sequences)

    def _check_held(self, held: int | Sequence[int], columns: int, front: list[int], copies: int) -> None:
        if isinstance(held, Sequence):
            check_held(held, self._room.held, [columns - hidden for hidden in front])
            return
        most = min(self.length, columns - 1)
        if isinstance(held, bool) or not isinstance(held, int) or not 0 <= held <= most:
            legal = f"0 to {most}: the cache holds {self.length} columns, and one of {columns} has to be read"
            nearest = min(max(held, 0), most) if isinstance(held, int) else 0
            raise expected(PlanError, "held", legal, held, nearest=nearest)
        if held and copies != 1:
            raise expected(
                PlanError, "num_return_sequences", "1 after columns that are held", copies, nearest=1
            )
        if held and front != self._room.front:
            legal = f"padding in front as in the call before, {self._room.front}"
            raise expected(PlanError, "attention_mask", legal, front)

    @contextlib.contextmanager
    def _all_or_nothing(self):
        """Empty the cache if an operation fails half way."""
        try:
            yield
        except BaseException:
            self._room.abandon()
            raise

    def _on_device(self) -> contextlib.AbstractContextManager:
        return torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()

    def _read(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the logits after a prompt, which goes through the model as it is."""
        places = (mask.long().cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=places,
            use_cache=True,
            logits_to_keep=1,
            **cache_argument(self.model, self.cache),
        )
        return out.logits[:, -1]

    def _run(self, steps: int, choice: Choice, implementation: str) -> None:
        if not steps:
            return
        # The prompt has gone through the layers as they are now: gates or sinks that came since are refused,
        # not ignored by a replay.
        asked = choice, implementation, self._room.prepare()
        if self._step is None or self._recorded_for != asked:
            self._step, self._recorded_for = RecordedStep(self.device), asked
        self._lookout.begin()
        for _ in range(steps):
            if choice.ends and self._lookout.seen():
                break
            with self._room.step():
                self._step.run(lambda: self._next(choice))

    def _next(self, choice: Choice) -> None:
        """Run a step: the same launches whatever the tensors hold."""
        state, model, room = self._state, self.model, self._room
        room.launch()
        out = self._forward(
            input_ids=state.token,
            attention_mask=step_masks(model, self._like, room.mask, room.of_steps, state.position),
            position_ids=state.position,
            use_cache=True,
            logits_to_keep=1,
            **self._cache_of_steps,
        )
        state.accept(choice, out.logits[:, -1])
