# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Heads that differ: classes of them in a description, and which heads of a model retrieve.

    attn.heads(retrieval=attn.all_tokens(), streaming=attn.sink(64) | attn.recent(256))    # classes, of a Spec

    data = attn.heads.Passkeys(alphabet=range(100, 400), haystack=book, questions=[[7, 1], [7, 2]], ...)
    gates = attn.heads.identify(model, data, sink=64, recent=256)
    gates.save("my-model")                                    # as DuoAttention's are published
    choice = gates.select(sparsity=0.5)
    print(choice.report(q_heads=32, head_dim=128, tokens=100_000))
    attn.transformers.apply_head_gates(model, choice)

A head that retrieves needs the whole context; a streaming one gives the same results, nearly, when it sees the first and
the last tokens only. (Source: arXiv 2410.10819.)
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING

from ..describe.classes import HeadClasses
from ..describe.classes import heads as _classes
from ..describe.visibility import Visibility

if TYPE_CHECKING:
    from .answers import recall as recall
    from .choice import ChoiceReport as ChoiceReport
    from .choice import HeadChoice as HeadChoice
    from .distill import Progress as Progress
    from .gates import Gates as Gates
    from .identification import identify as identify
    from .passkeys import Passkeys as Passkeys
    from .passkeys import Texts as Texts
    from .two_outputs import attend_both as attend_both

_LAZY = {
    "ChoiceReport": "choice",
    "Gates": "gates",
    "HeadChoice": "choice",
    "Passkeys": "passkeys",
    "Progress": "distill",
    "Texts": "passkeys",
    "attend_both": "two_outputs",
    "identify": "identification",
    "recall": "answers",
}

__all__ = list(_LAZY)


class _Heads(types.ModuleType):
    """The module, which is also the function that makes head classes: `attn.heads(name=visibility, ...)`."""

    def __call__(self, **classes: Visibility) -> HeadClasses:
        return _classes(**classes)

    def __getattr__(self, name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module 'attn.heads' has no attribute {name!r}", name=name, obj=self)
        value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted(__all__)


sys.modules[__name__].__class__ = _Heads
