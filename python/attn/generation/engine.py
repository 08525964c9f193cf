# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Continuous batching in recorded steps: requests come and go while others decode."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..adapters.planned_pages import PagePlans
from ..adapters.transformers_cache import PagedCache
from ..cache.integers import whole
from ..errors import PlanError, Uncopied, expected
from .answer_text import AnswerText, check_tokenizer, stop_strings
from .decoder_checks import (
    check_cache,
    check_implementation,
    check_model,
    compile_options,
    not_planned,
    refuse_others,
    token_ids,
)
from .metrics import EngineMetrics
from .prefixes import Prefixes
from .requests import (
    Request,
    RequestOutput,
    check_engine,
    check_fits,
    check_least,
    check_logprobs,
    prompt_ids,
)
from .row_steps import RowSteps, learn_layers
from .sampling import Sampling
from .scheduler import Scheduler, Share
from .step_table import StepTable
from .streams import Stream
from .token_choices import Chosen, TokenChoices


class Engine(Uncopied):
    """Serves requests by a model of Transformers over pages. The forward pass of a step is one CUDA graph, replayed for
    any requests: one graph for decoding, and one for steps that also read chunks of prompts. A small graph behind it
    chooses the tokens, with each request's own parameters. While the GPU runs a step, the host reads the tokens of the
    step before and prepares the next one. On the CPU the same steps run one by one.

    model      as of Decoder, with attn_implementation="attn", on one device
    cache      an attn.transformers.PagedCache, in any of its formats: all requests share its pool
    sequences  with rows in a step, at most; further requests wait
    tokens     of a sequence, at most: its prompt and its answer
    rows       of a step, at most: tokens of prompts and rows that decode
    compile    as of Decoder
    do_sample, temperature, top_k, top_p, min_p  as of `add_request`, for requests that do not give them
    prefix_cache  keep the pages of prompts and answers: a later request does not read the pages that it begins with
               again. Pages are kept while no request needs them. Call `reset_prefix_cache` after weights have changed
    tokenizer  of the model: outputs have the text, and requests may have stop strings
    max_logprobs  the most likeliest tokens whose log-probabilities a request may ask for

    A request's pages are freed when it ends, unless they are kept. If pages run out, the youngest request frees its own
    and is read again later (`sent_back` counts them). Without sampling tokens are those of `model.generate` but for
    rounding, which depends on the batch of a step. Weights may change in place; layers must stay the same. Raises
    PlanError for models that recorded steps cannot serve.
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
        min_p: float = 0.0,
        prefix_cache: bool = False,
        tokenizer: Any = None,
        max_logprobs: int = 20,
    ):
        check_model(model)
        check_cache(cache, model)
        check_implementation(model, cache)
        self.model, self.cache, self.device = model, cache, model.device
        self._sampling = self._checked(Sampling(do_sample, temperature, top_k, top_p, min_p))
        self.sequences, self.tokens = whole("sequences", sequences, 1), whole("tokens", tokens, 2)
        self.rows = whole("rows", rows, 1)
        check_engine(self.rows, self.sequences)
        check_tokenizer(tokenizer)
        self.tokenizer, self.max_logprobs = tokenizer, whole("max_logprobs", max_logprobs, 0)
        options = compile_options(compile, self.device, cache)
        with torch.no_grad(), self._on_device():
            asked, logits = learn_layers(model, cache)
            if not PagePlans.plannable(asked):
                raise not_planned(type(model).__name__)
            last = torch.zeros(self.sequences + 1, dtype=torch.int64, device=self.device)
            table = StepTable(self.sequences, self.rows, self.device)
            logits = logits.new_zeros(self.sequences, logits.shape[1])
            self._choices = TokenChoices(table, last, logits, self.max_logprobs)
            self._steps = [
                RowSteps(model, cache, asked, last, table, self._choices, self.tokens, rows, options)
                for rows in sorted({self.sequences, self.rows})
            ]
        self._prefixes = Prefixes(cache.pages) if prefix_cache else None
        self._scheduler = Scheduler(cache.pages, self.sequences, self.rows, self._prefixes)
        self._under_way: tuple[list[Request], Callable[[], Chosen]] | None = None
        self._unfinished: dict[str, Request] = {}
        self._news: dict[str, Request] = {}
        """Requests with tokens that no output has had yet."""
        self._streams: set[str] = set()
        """Requests whose outputs a Stream returns."""
        self._numbers = itertools.count()
        self._counts = dict.fromkeys(("finished", "aborted", "steps", "rows", "new_tokens"), 0)
        self._watch: Callable[[list[Share], int], None] | None = None
        """Called behind each step's launches with its shares and its number of rows (attn.check_bits)."""

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
        min_new_tokens: int = 0,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        eos_token_id: int | Iterable[int] | None = None,
        stop_token_ids: int | Iterable[int] | None = None,
        stop: str | Iterable[str] | None = None,
        include_stop_str_in_output: bool = False,
        logprobs: int | None = None,
        request_id: str | None = None,
        **others: object,
    ) -> str:
        """Add a prompt to answer, from the next step on: a list of tokens, or a tensor. Returns the request's name.

        max_new_tokens  at most; fewer if something ends the answer
        min_new_tokens  before which no token that ends the answer can be chosen, and no stop string ends it
        do_sample       whether tokens are drawn: from the logits over `temperature`, the `top_k` largest (0: all), the
                        likeliest that together have the probability `top_p`, those of at least `min_p` times the
                        largest probability. By default all are the engine's
        seed            of its draws, 0 to 2**64 - 1. Equal logits give equal tokens, whichever requests share the
                        steps. By default it comes from PyTorch's generator of the CPU
        eos_token_id    tokens that end an answer, () for none; by default the generation configuration's
        stop_token_ids  further such tokens
        stop            strings that end an answer, for an engine with a tokenizer
        include_stop_str_in_output  whether the text ends with what ended it
        logprobs        how many likeliest tokens get log-probabilities beside each generated token; None: none at all

        Raises PlanError for more tokens than a sequence may have, for illegal options and other options of Transformers'
        `generate`, and OutOfPages for more than the pool can hold, each with the most that fit; TensorError for invalid
        tokens."""
        refuse_others(others, None, False, served=_OPTIONS)
        config = self.model.config.get_text_config(decoder=True)
        tokens = prompt_ids(input_ids, config.vocab_size)
        pool = self.cache._sizes["pages"], self.cache._store.page_size
        check_fits(len(tokens), max_new_tokens, self.tokens, *pool)
        configured = self.model.generation_config.eos_token_id
        eos = configured if eos_token_id is None else eos_token_id
        ends = {*token_ids("eos_token_id", eos, config.vocab_size)}
        named = frozenset(token_ids("stop_token_ids", stop_token_ids, config.vocab_size)) - ends
        ends = frozenset(ends | named)
        check_least(min_new_tokens, max_new_tokens, ends)
        check_logprobs(logprobs, self.max_logprobs)
        stops, include = stop_strings(stop, self.tokenizer), bool(include_stop_str_in_output)
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
        given["sample"] = do_sample
        sampling = replace(self._sampling, **{name: each for name, each in given.items() if each is not None})
        self._checked(sampling)
        if sampling.sample and seed is None:
            sampling = replace(sampling, seed=int(torch.randint(2**63 - 1, ())))
        if request_id is None:
            request_id = next(name for n in self._numbers if (name := str(n)) not in self._names())
        if not isinstance(request_id, str) or request_id in self._names():
            legal = "a string that no unfinished request has for a name"
            raise expected(PlanError, "request_id", legal, request_id)
        text = None if self.tokenizer is None else AnswerText(self.tokenizer, tokens, stops, include)
        request = Request(
            request_id,
            tokens,
            len(tokens),
            max_new_tokens,
            ends,
            named,
            min_new_tokens,
            sampling,
            logprobs,
            text,
            include,
        )
        self._unfinished[request_id] = request
        self._scheduler.waiting.append(request)
        return request_id

    def _checked(self, sampling: Sampling) -> Sampling:
        """Raise a PlanError if the model's generation configuration has options that the engine does not."""
        served = ("min_p",) if sampling.min_p else ()
        refuse_others({}, self.model.generation_config, sampling.sample, served)
        return sampling

    def _names(self) -> set[str]:
        """Names of requests that are unfinished, or whose outputs nobody has got yet."""
        return {*self._unfinished, *self._news}

    def abort_request(self, request_id: str) -> None:
        """End a request at once, and free its pages; it has no further output."""
        if request_id not in self._unfinished:
            raise expected(PlanError, "request_id", "one of an unfinished request", request_id)
        self._drop(request_id)

    def _drop(self, request_id: str) -> None:
        self._news.pop(request_id, None)
        self._streams.discard(request_id)
        request = self._unfinished.pop(request_id, None)
        if request is not None:
            request.finish_reason = "abort"
            self._counts["aborted"] += 1
            self._scheduler.leave(request)

    def has_unfinished_requests(self) -> bool:
        """Whether a step has anything to do or to report."""
        return bool(self._unfinished) or not self._news.keys() <= self._streams

    @property
    def sent_back(self) -> int:
        """The number of times that a request has freed its pages before it ended."""
        return self._scheduler.sent_back

    def metrics(self) -> EngineMetrics:
        """Return the number of requests, tokens and pages, without waiting for the device."""
        scheduler, pages = self._scheduler, self.cache.pages
        return EngineMetrics(
            **self._counts,
            running=len(self._unfinished) - len(scheduler.waiting),
            waiting=len(scheduler.waiting),
            sent_back=scheduler.sent_back,
            prompt_tokens=scheduler.prompt_tokens,
            cached_tokens=scheduler.cached_tokens,
            pages=self.cache._sizes["pages"],
            free_pages=pages.free_pages(),
            kept_pages=0 if self._prefixes is None else self._prefixes.kept_pages,
        )

    def reset_prefix_cache(self) -> None:
        """Free the pages that are kept for later requests. Without this, requests after a change of weights would attend to
        keys and values of the old ones."""
        if self._prefixes is not None:
            self._prefixes.clear()

    # --- Steps -----------------------------------------------------------------------------------------------

    def step(self) -> list[RequestOutput]:
        """Launch a step, then wait for the one before it. Returns a RequestOutput for each request that has a new
        token. If a step fails, the next one reads its requests again."""
        self._advance()
        return [self._news.pop(name).output() for name in [*self._news] if name not in self._streams]

    def generate(self, prompts: Sequence, **options: Any) -> list[RequestOutput]:
        """Add all prompts, as `add_request` does, and step until they have ended. Returns their outputs, in order.
        Earlier requests continue meanwhile; the next `step` returns their outputs."""
        names: list[str] = []
        try:
            for prompt in prompts:
                names.append(self.add_request(prompt, **options))
            while any(name in self._unfinished for name in names):
                self._advance()
        except BaseException:
            for name in names:
                self._drop(name)
            raise
        return [self._news.pop(name).output() for name in names]

    def stream(self, input_ids: object, **options: Any) -> Stream:
        """Add a prompt, as `add_request` does. Returns an iterator over its outputs; `new_token_ids` and `new_text` of
        each have what came since the last one. Other requests continue in the same steps; the next `step` returns their
        outputs."""
        name = self.add_request(input_ids, **options)
        self._streams.add(name)
        return Stream(self, name)

    def _next_output(self, name: str) -> RequestOutput | None:
        """Step until a request has news. Returns its output; None if there is no such request."""
        while name in self._unfinished and name not in self._news:
            self._advance()
        return self._news.pop(name).output() if name in self._news else None

    @torch.no_grad()
    def _advance(self) -> None:
        with self._on_device(), self._all_or_nothing():
            before = self._under_way
            self._under_way = self._launch()
            self._read(before)

    def _launch(self) -> tuple[list[Request], Callable[[], Chosen]] | None:
        shares = self._scheduler.schedule()
        if not shares:
            return None
        rows = sum(share.rows for share in shares)
        steps = next(steps for steps in self._steps if rows <= steps.rows)
        kind = steps.run(shares)
        if self._watch is not None:
            self._watch(shares, steps.rows)
        self._counts["steps"] += 1
        self._counts["rows"] += rows
        return self._scheduler.launched(shares), self._choices.send(kind)

    def _read(self, under_way: tuple[list[Request], Callable[[], Chosen]] | None) -> None:
        """Read the tokens that a step chose. Tokens of requests that had ended before it are dropped."""
        if under_way is None:
            return
        requests, wait = under_way
        chosen = wait()
        for row, request in enumerate(requests):
            if request.finish_reason is not None:
                continue
            request.accept(chosen.tokens[row], chosen.logprobs_of(row, request.logprobs))
            self._counts["new_tokens"] += 1
            self._news[request.request_id] = request
            if request.finish_reason is not None:
                self._scheduler.end(request)
                del self._unfinished[request.request_id]
                self._counts["finished"] += 1

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


_OPTIONS = [
    name
    for name, given in inspect.signature(Engine.add_request).parameters.items()
    if given.kind is inspect.Parameter.KEYWORD_ONLY
]
"""The options of a request."""
