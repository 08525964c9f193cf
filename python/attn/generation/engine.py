# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Continuous batching in recorded steps: requests come and go while others decode."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from ..adapters.planned_pages import PagePlans
from ..adapters.transformers_cache import PagedCache
from ..cache.integers import whole
from ..errors import PlanError, Uncopied, expected
from .decoder_checks import (
    check_cache,
    check_implementation,
    check_model,
    compile_options,
    not_planned,
    refuse_others,
    token_ids,
)
from .prefixes import Prefixes
from .recorded_steps import Choice
from .requests import Request, RequestOutput, check_engine, check_fits, prompt_ids
from .row_steps import Answers, RowSteps, learn_layers
from .scheduler import Scheduler


class Engine(Uncopied):
    """Serves requests by a model of Transformers over pages. A step is one CUDA graph, replayed for any requests: one
    graph for decoding, and one for steps that also read chunks of prompts. While the GPU runs a step, the host reads
    the tokens of the step before and prepares the next one. On the CPU the same steps run one by one.

    model      as of Decoder, with attn_implementation="attn", on one device
    cache      an attn.transformers.PagedCache: all requests share its pool
    sequences  with rows in a step, at most; further requests wait
    tokens     of a sequence, at most: its prompt and its answer
    rows       of a step, at most: tokens of prompts and rows that decode
    compile    as of Decoder
    do_sample, temperature, top_k, top_p  how tokens are chosen, as of Decoder.generate
    prefix_cache  keep the pages of prompts and answers: a later request does not read the pages that it begins with again.
               Pages are kept while no request needs them. Call `reset_prefix_cache` after weights have changed

    A request's pages are freed when it ends, unless they are kept. If pages run out, the youngest request frees its own and is read again
    later (`sent_back` counts them). Without sampling tokens are those of `model.generate` but for rounding, which
    depends on the batch of a step. Weights may change in place; layers must stay the same. Raises PlanError for models
    that recorded steps cannot serve.
    """

    _instead = "it holds recorded steps and a pool of pages; make another with a cache of its own"

    def __init__(
        self,
        model: nn.Module,
        *,
        cache: PagedCache,
        sequences: int,
        tokens: int,
        rows: int = 512,
        compile: bool | dict[str, Any] | None = None,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        prefix_cache: bool = False,
    ):
        check_model(model)
        check_cache(cache, model)
        check_implementation(model, True)
        refuse_others({}, model.generation_config, bool(do_sample))
        self.model, self.cache, self.device = model, cache, model.device
        self.sequences, self.tokens = whole("sequences", sequences, 1), whole("tokens", tokens, 2)
        self.rows = whole("rows", rows, 1)
        check_engine(self.rows, self.sequences)
        self._choice = Choice(bool(do_sample), temperature, top_k, top_p)
        options = compile_options(compile, self.device)
        with torch.no_grad(), self._on_device():
            asked = learn_layers(model, cache)
            if not PagePlans.plannable(asked):
                raise not_planned(type(model).__name__)
            last = torch.zeros(self.sequences + 1, dtype=torch.int64, device=self.device)
            sizes = sorted({self.sequences, self.rows})
            self._steps = [
                RowSteps(model, cache, asked, last, self.sequences, self.tokens, rows, options)
                for rows in sizes
            ]
            self._answers = Answers(self.sequences, self.device)
        self._prefixes = Prefixes(cache.pages) if prefix_cache else None
        self._scheduler = Scheduler(cache.pages, self.sequences, self.rows, self._prefixes)
        self._under_way: tuple[list[Request], Callable[[], list[int]]] | None = None
        self._unfinished: dict[str, Request] = {}
        self._numbers = itertools.count()

    def __del__(self):
        for request in getattr(self, "_unfinished", {}).values():
            self._scheduler.leave(request)
        if getattr(self, "_prefixes", None) is not None:
            self._prefixes.clear()

    # --- Requests --------------------------------------------------------------------------------------------

    def add_request(
        self,
        input_ids: object,
        *,
        max_new_tokens: int,
        eos_token_id: int | Iterable[int] | None = None,
        request_id: str | None = None,
    ) -> str:
        """Add a prompt to answer, from the next step on: a list of tokens, or a tensor. Returns the request's name.

        max_new_tokens  at most; fewer if a token ends the answer
        eos_token_id    tokens that end an answer, () for none; by default the generation configuration's

        Raises PlanError for more tokens than a sequence may have, and OutOfPages for more than the pool can hold, each
        with the most that fit; TensorError for invalid tokens."""
        config = self.model.config.get_text_config(decoder=True)
        tokens = prompt_ids(input_ids, config.vocab_size)
        pool = self.cache._sizes["pages"], self.cache._store.page_size
        check_fits(len(tokens), max_new_tokens, self.tokens, *pool)
        configured = self.model.generation_config.eos_token_id
        ends = token_ids(
            "eos_token_id", configured if eos_token_id is None else eos_token_id, config.vocab_size
        )
        if request_id is None:
            request_id = next(name for n in self._numbers if (name := str(n)) not in self._unfinished)
        if not isinstance(request_id, str) or request_id in self._unfinished:
            legal = "a string that no unfinished request has for a name"
            raise expected(PlanError, "request_id", legal, request_id)
        request = Request(request_id, tokens, len(tokens), max_new_tokens, frozenset(ends))
        self._unfinished[request_id] = request
        self._scheduler.waiting.append(request)
        return request_id

    def abort_request(self, request_id: str) -> None:
        """End a request at once, and free its pages; it has no further output."""
        request = self._unfinished.pop(request_id, None)
        if request is None:
            raise expected(PlanError, "request_id", "one of an unfinished request", request_id)
        request.finish_reason = "abort"
        self._scheduler.leave(request)

    def has_unfinished_requests(self) -> bool:
        """Whether a step has anything to do or to report."""
        return bool(self._unfinished)

    @property
    def sent_back(self) -> int:
        """The number of times that a request has freed its pages before it ended."""
        return self._scheduler.sent_back

    def reset_prefix_cache(self) -> None:
        """Free the pages that are kept for later requests. Without this, requests after a change of weights would attend to
        keys and values of the old ones."""
        if self._prefixes is not None:
            self._prefixes.clear()

    # --- Steps -----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self) -> list[RequestOutput]:
        """Launch a step, then wait for the one before it. Returns a RequestOutput for each request that has a new
        token. If a step fails, the next one reads its requests again."""
        with self._on_device(), self._all_or_nothing():
            before = self._under_way
            self._under_way = self._launch()
            return self._read(before)

    def generate(self, prompts: Sequence, **options: Any) -> list[RequestOutput]:
        """Add all prompts, as `add_request` does, and step until they have ended. Returns their outputs, in order.
        Earlier requests continue meanwhile, but their outputs are dropped."""
        found: dict[str, RequestOutput] = {}
        names: list[str] = []
        try:
            for prompt in prompts:
                names.append(self.add_request(prompt, **options))
            while any(name in self._unfinished for name in names):
                found |= {output.request_id: output for output in self.step()}
        except BaseException:
            for name in names:
                if name in self._unfinished:
                    self.abort_request(name)
            raise
        return [found[name] for name in names]

    def _launch(self) -> tuple[list[Request], Callable[[], list[int]]] | None:
        shares = self._scheduler.schedule()
        if not shares:
            return None
        rows = sum(share.rows for share in shares)
        steps = next(steps for steps in self._steps if rows <= steps.rows)
        chosen = steps.run(shares, self._choice)
        return self._scheduler.launched(shares), self._answers.send(chosen)

    def _read(self, under_way: tuple[list[Request], Callable[[], list[int]]] | None) -> list[RequestOutput]:
        """Read the tokens that a step chose. Tokens of requests that had ended before it are dropped."""
        if under_way is None:
            return []
        requests, wait = under_way
        found = []
        for request, token in zip(requests, wait(), strict=False):
            if request.finish_reason is not None:
                continue
            request.pending -= 1
            request.tokens.append(token)
            if token in request.ends:
                request.finish_reason = "stop"
            elif len(request.tokens) - request.prompt >= request.most:
                request.finish_reason = "length"
            if request.finish_reason is not None:
                self._scheduler.end(request)
                del self._unfinished[request.request_id]
            found.append(request.output())
        return found

    @contextlib.contextmanager
    def _all_or_nothing(self):
        """Empty the cache if a step fails half way. Tokens that were not read are chosen again."""
        try:
            yield
        except BaseException:
            self._under_way = None
            self.reset_prefix_cache()
            if self.device.type == "cuda":
                with contextlib.suppress(RuntimeError):
                    torch.cuda.synchronize()  # Tables and answers may still be copied.
            for request in reversed(self._scheduler.running.copy()):
                self._scheduler.send_back(request)
            for request in self._unfinished.values():
                request.pending = 0
                if request not in self._scheduler.waiting:  # Its last token was not read yet.
                    request.read = 0
                    self._scheduler.waiting.appendleft(request)
            raise

    def _on_device(self) -> contextlib.AbstractContextManager:
        return torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()
