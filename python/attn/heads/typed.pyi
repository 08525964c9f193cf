# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attn.heads, which is a module and a function, as type checkers see it."""

from ..describe.classes import HeadClasses
from ..describe.visibility import Visibility
from .answers import recall as _recall
from .choice import ChoiceReport as _ChoiceReport
from .choice import HeadChoice as _HeadChoice
from .distill import Progress as _Progress
from .gates import Gates as _Gates
from .identification import identify as _identify
from .passkeys import Passkeys as _Passkeys
from .passkeys import Texts as _Texts
from .two_outputs import attend_both as _attend_both

class _Heads:
    ChoiceReport = _ChoiceReport
    Gates = _Gates
    HeadChoice = _HeadChoice
    Passkeys = _Passkeys
    Progress = _Progress
    Texts = _Texts
    attend_both = staticmethod(_attend_both)
    identify = staticmethod(_identify)
    recall = staticmethod(_recall)

    def __call__(self, **classes: Visibility) -> HeadClasses: ...

heads: _Heads
