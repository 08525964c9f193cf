# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Head classes: KV heads that see less than others."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import SpecError, expected
from .visibility import Visibility, check_visibility

MAX_CLASSES = 16


@dataclass(frozen=True)
class HeadClasses:
    """The visibility of each class's heads, on every operand: they see the tokens that both this and the operand show.
    `heads` makes it."""

    classes: tuple[tuple[str, Visibility], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names in order: the tensor `classes`, int32 [kv_heads], holds an index into it for each KV head."""
        return tuple(name for name, _ in self.classes)

    def __repr__(self) -> str:
        return "heads(" + ", ".join(f"{name}={see!r}" for name, see in self.classes) + ")"


def heads(**classes: Visibility) -> HeadClasses:
    """Make head classes by name, such as DuoAttention's:

        heads(retrieval=all_tokens(), streaming=sink(64) | recent(256))

    The class of each head is data of a run. From 1 to 16 classes. Raises SpecError.
    """
    if not 1 <= len(classes) <= MAX_CLASSES:
        nearest = 1 if not classes else MAX_CLASSES
        raise expected(
            SpecError, "heads(...)", f"from 1 to {MAX_CLASSES} classes", len(classes), nearest=nearest
        )
    return HeadClasses(
        tuple((name, check_visibility(f"heads({name})", see)) for name, see in classes.items())
    )
