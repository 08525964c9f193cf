# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A cache in two precisions on a device, whose decoding steps wait for nothing: policy, pages and attention run there.

The tokens that each KV head of a request keeps in a layer are a list. HIGH tokens, of many bits, fill pages from the
left end of its row of a page table; LOW tokens, of few bits, from the right end. All pages are of one pool. A decoding
step

    begin()                     gives each list a page for one more token at either end, and its slot; plans
    attend(layer, q, k, v)      in each layer: append, attention over both ends with significance, the policy's decision
    end()                       requantizes tokens that became LOW, and moves the last tokens into their slots

consists of launches over tensors at fixed addresses: it may be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..describe.functions import softcap as capped
from ..describe.spec import Spec
from ..describe.stores import Unified
from ..describe.visibility import all_tokens
from ..errors import PlanError, TensorError, expected
from ..memory.dtypes import DTypeLike
from ..run.device_plan import DevicePlan
from ..run.kernels import compile
from .integers import whole
from .mixed_lists import MixedLists
from .policy import Policy
from .precision import Copies, Precision, SlotList
from .state import dtype_of_cache
from .unified_pages import UnifiedPages

HIGH_FORMATS = {"key": "int8", "value": "int4"}
LOW_FORMATS = {"key": "int4", "value": "int2"}
_NAMES = {"bf16": "bfloat16", "f16": "float16"}


class MixedCache(MixedLists):
    """A cache for `requests` requests at once in `layers` layers, with `pages` pages that all lists share.

    policy       decides which tokens become LOW and which go, by a rule that has a kernel, as attn.kv_policy.DiffKV does, also
                 beside streaming heads (attn.kv_policy.Streaming); None: all tokens stay HIGH, and there is no LOW end
    tokens       that a request may see, including its prompt; a request that has seen so many gets no more
    page_tokens  tokens of a HIGH page, and of a LOW page, each 1 to 8 or a multiple of 16 up to 2048
    high, low    storage formats: key="int8", value="int4", key_group, ... as of attn.Paged; {}: of `dtype`
    scale        of scores, by default head_dim^-0.5; softcap: their cap, by default none
    device       as of attn.compile, a device on which PyTorch has memory
    checked      the policy's kernel, and those of pages, have the detectors of a host device (attn.check's)

    Pages of both precisions are of one memory (attn.UnifiedPages). Tensors of a step are contiguous and of `dtype`: `q`
    [requests, q_heads, head_dim], `k` [requests, kv_heads, head_dim], `v` [requests, kv_heads, value_dim]. Raises
    PlanError, TensorError, DeviceError, CompileError; OutOfPages where a method says so.
    """

    def __init__(
        self,
        *,
        layers: int,
        requests: int,
        q_heads: int,
        kv_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        pages: int,
        tokens: int,
        policy: Policy | None,
        page_tokens: Sequence[int] = (32, 64),
        high: dict | None = None,
        low: dict | None = None,
        dtype: DTypeLike = "bfloat16",
        scale: float | None = None,
        softcap: float | None = None,
        device: object = None,
        checked: bool = False,
    ):
        super().__init__(layers, requests, kv_heads, pages, tokens, page_tokens, policy, device, checked)
        whole("q_heads", q_heads, 1)
        self._of_layer = (requests, q_heads, kv_heads, head_dim, value_dim or head_dim)
        short = dtype_of_cache(dtype)
        formats = [HIGH_FORMATS if high is None else high, LOW_FORMATS if low is None else low]
        self.precisions = self._make_precisions(formats, short)
        """The memory of HIGH tokens, and of LOW tokens."""
        self._make_kernel(short, scale, softcap)
        if policy is not None:
            self._demote = Copies(self.memory, "high", "low", layers * self.lists)

    def _make_precisions(self, formats: Sequence[dict], dtype: str) -> list[Precision]:
        names, (head_dim, value_dim) = ("high", "low")[: len(self.counts)], self._of_layer[3:]
        stores = [
            Unified(name=name, page_size=page, **given)
            for name, page, given in zip(names, self.pool.page_tokens, formats, strict=False)
        ]
        self.memory = UnifiedPages(
            *stores,
            pages=self.pool.pages,
            head_dim=head_dim,
            value_dim=value_dim,
            dtype=_NAMES[dtype],
            device=self.device,
        )
        """The memory of all pages, in either precision."""
        self.memory.memory[:] = 0
        room = dict(appended=self.lists, moved=self.layers * self.lists)
        return [Precision(self.memory, name, **room) for name in names]

    @property
    def page_bytes(self) -> int:
        """Bytes of a page: keys, values and metadata, and with a policy a score and a position for each token."""
        return self.memory.page_bytes + (8 * self._places if self.policy is not None else 0)

    def _make_kernel(self, dtype: str, scale: float | None, softcap: float | None) -> None:
        """Make one kernel and one planner for all layers; to both, every used list is a sequence of one row."""
        requests, q_heads, kv_heads, head_dim, value_dim = self._of_layer
        spec = Spec(
            q_heads=q_heads // kv_heads,
            kv_heads=1,
            head_dim=head_dim,
            value_dim=value_dim,
            dtype=_NAMES[dtype],
            kv=[each.store for each in self.precisions],
            see=all_tokens(),
            score=(lambda s, h, qi, ki: capped(s, softcap)) if softcap else None,
            scale=scale,
            significance=None if self.policy is None else self.policy.group,
            device_plan=True,
        )
        self.kernel = compile(spec, device=self.device)
        self._q = (self.used, q_heads // kv_heads, head_dim)
        torch_dtype = torch.bfloat16 if dtype == "bf16" else torch.float16
        largest: dict[str, object] = {
            "q": self._zeros(*self._q, dtype=torch_dtype),
            "q_start": torch.arange(self.lists + 1, dtype=torch.int32).clamp(max=self.used),
        }
        for precision, width in zip(self.precisions, self.widths, strict=False):
            name, most = precision.store.name, width * precision.store.page_size
            largest |= precision.tensors
            largest[f"{name}.block_table"] = torch.zeros(self.lists, 1, width, dtype=torch.int32)
            largest[f"{name}.lengths"] = torch.full((self.lists, 1), most, dtype=torch.int32)
            largest[f"{name}.pos0"] = torch.zeros(self.lists, dtype=torch.int32)
        self._planner = self.kernel.device_planner(largest)
        self._plan_memory = self._zeros(self.layers, -(-self._planner.nbytes // 256) * 64)
        self._plans: list[DevicePlan | None] = [None] * self.layers
        self._side = None if self.device == "host" else torch.cuda.Stream(self.active.device)
        self._made: list[torch.cuda.Event | None] = [None] * self.layers
        self._unattended: set[int] = set()
        """Layers of the step in progress that were not attended yet."""
        self.worth: list[Tensor] = []
        """The significance of the last layer's tokens to their rows: float32 [lists, 1, pages, page tokens]."""
        if self.policy is not None:
            shapes = zip(self.widths, self.pool.page_tokens, strict=True)
            self.worth = [self._zeros(self.lists, 1, *shape, dtype=torch.float32) for shape in shapes]

    # --- A step ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Give every active request pages for a new token in each of its lists, at either end. If pages run out, no
        list gets one: the step changes nothing, and `missed` counts it. Make a plan for each layer, in memory of its
        own. Plans do not depend on the layers' work, so on a GPU a stream of their own makes them beside the first
        layers. PlanError if the last step was not attended in all layers."""
        if self._unattended:
            raise PlanError(
                f"begin: the last step was not attended in layers {sorted(self._unattended)}, whose lists have pages for a "
                "token without keys and values; attend there and end() the step, or drop all requests with release_all()"
            )
        self.begin_lists()
        self._unattended.update(range(self.layers))
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream(self._side.device))
        with torch.cuda.stream(self._side):
            for layer in range(self.layers):
                self._plans[layer] = self._plan(layer)
                if self._side is not None:
                    self._made[layer] = self._side.record_event()

    def _plan(self, layer: int) -> DevicePlan:
        tables = {}
        for precision, table, count in zip(self.precisions, self.tables, self.counts, strict=True):
            name = precision.store.name
            tables |= {
                f"{name}.block_table": table[layer][:, None],
                f"{name}.lengths": count[layer][:, None],
            }
        memory = self._plan_memory[layer][: -(-self._planner.nbytes // 4)]
        return self._planner.plan(tables, out=memory)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
        """Compute attention of a layer's new rows over the tokens of their lists, including the new ones: [requests,
        q_heads, value_dim]. Rows of inactive requests are 0. The policy then decides for each list."""
        requests, q_heads, _, _, value_dim = self._of_layer
        self.precisions[0].append(self._new[layer], k.view(self.used, -1), v.view(self.used, -1))
        if (made := self._made[layer]) is not None:
            torch.cuda.current_stream(q.device).wait_event(made)
        if out is None:
            out = q.new_empty(requests, q_heads, value_dim)
        named: dict[str, object] = {"out": out.view(self.used, -1, value_dim)}
        if self.policy is not None:
            named["significance"] = tuple(self.worth)
        operands = [each.operand for each in self.precisions]
        self.kernel.run(q.view(self._q), *operands, self._plans[layer], **named)
        if self.policy is not None:
            self.revise(layer, [each.view(self.lists, -1) for each in self.worth])
        self._unattended.discard(layer)
        return out

    def release_all(self) -> None:
        """Release every request, after a step that failed half way."""
        for request in range(self.requests):
            self.release(request)
        self._unattended.clear()

    def end(self) -> None:
        """Requantize and move tokens as the policy decided in all layers."""
        if self.policy is not None:
            self._demote.launch(self._demoted)
            self.precisions[0].move(self._moved)

    def write(self, slots: Sequence[Tensor], k: Tensor, v: Tensor) -> None:
        """Write a layer's tokens of a prompt, [tokens, kv_heads, features], to the slots that `admit` returned for it."""
        rows = k.shape[0] * self.kv_heads
        if k.shape[1] != self.kv_heads:
            raise expected(TensorError, "k", f"[tokens, {self.kv_heads}, features]", list(k.shape))
        for precision, of_heads in zip(self.precisions, slots, strict=True):
            listed, found = SlotList(rows, self.device), of_heads.T.reshape(-1)
            listed.target.copy_(found)
            listed.source.copy_(torch.where(found >= 0, torch.arange(rows, device=found.device), -1))
            precision.write(listed, k.reshape(rows, -1), v.reshape(rows, -1))
