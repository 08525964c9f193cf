# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A second implementation of DiffKV's policy, for one list, in plain numbers of 64 bits, written from its description
alone."""

HIGH, LOW = "high", "low"


class Simulator:
    """The tokens of one KV head of one sequence."""

    def __init__(self, high, low, window, norm, like, significance):
        self.high, self.low, self.window, self.norm, self.like = high, low, window, norm, like
        self.length, rows = len(significance), 64 if like == "release" else None
        self.tokens = {}  # position -> [sum, rows counted, level]
        for i, s in enumerate(significance):
            later = self.length - i
            self.tokens[i] = [s, later if rows is None else min(later, rows), HIGH]
        for i in range(max(self.length - window, 0)):
            base = 1 / (i + 1) if norm == "inverse_position" else self.base(i)
            if self.mean(i) >= high * base:
                continue
            if self.mean(i) >= low * base:
                self.tokens[i][2] = LOW
            else:
                del self.tokens[i]

    def mean(self, i):
        return self.tokens[i][0] / self.tokens[i][1]

    def base(self, i):
        if self.norm != "uniform":
            return 1 / self.length
        count = self.tokens[i][1]
        all_of, before = 0.0, 0.0
        for n in range(1, self.length + 1):
            all_of += 1 / n
            if n == self.length - count:
                before = all_of
        return (all_of - before) / count

    def is_high(self, i):
        return self.mean(i) >= self.high * self.base(i)

    def is_kept(self, i):
        return self.mean(i) >= self.low * self.base(i)

    def least(self, level):
        """Return the token of a level with the least mean, except the last `window` tokens."""
        of = [i for i in sorted(self.tokens) if self.tokens[i][2] == level and i < self.length - self.window]
        return min(of, key=self.mean) if of else None

    def step(self, significance):
        """Add a token. Return the downgraded token and the pruned one."""
        self.tokens[self.length] = [0.0, 0, HIGH]
        self.length += 1
        for i, token in self.tokens.items():
            token[0] += significance[i]
            token[1] += 1
        down, gone = self.release() if self.like == "release" else self.paper()
        if down is not None:
            self.tokens[down][2] = LOW
        if gone is not None:
            del self.tokens[gone]
        return -1 if down is None else down, -1 if gone is None else gone

    def paper(self):
        leaves = self.length - 1 - self.window
        if leaves < 0:
            return None, None
        if self.is_high(leaves):
            victim = self.least(HIGH)
            return (None if self.is_high(victim) else victim), None
        if not self.is_kept(leaves):
            return None, leaves
        victim = self.least(LOW)
        return leaves, (victim if victim is not None and not self.is_kept(victim) else None)

    def release(self):
        victim = self.least(HIGH)
        if victim is None or self.is_high(victim):
            return None, None
        other = self.least(LOW)
        return victim, (other if other is not None and not self.is_kept(other) else None)

    def margin(self):
        """Return the distance of the nearest decision: of means to thresholds, and of the two least means to each
        other."""
        found = [1.0]
        for level in (HIGH, LOW):
            means = sorted(
                self.mean(i)
                for i, t in self.tokens.items()
                if t[2] == level and i < self.length - self.window
            )
            found += [b - a for a, b in zip(means[:1], means[1:2], strict=False)]
        for i in self.tokens:
            found += [abs(self.mean(i) - alpha * self.base(i)) for alpha in (self.high, self.low)]
        return min(found)
