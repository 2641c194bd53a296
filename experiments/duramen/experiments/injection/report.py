"""The bench's result as a table and as JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from duramen.experiments.injection.score import FalseBreak, Unfit, Verdict

ALWAYS = (
    *("clock", "uuid-or-hash", "counter", "json-key-order", "tool-order"),
    *("thinking-stripped", "retokenisation", "history-edited", "eviction"),
)  # causes that must be right every time
MIN_RIGHT, MAX_WRONG = 0.98, 0.005


@dataclass(frozen=True)
class Report:
    """`seconds`: of the whole run."""

    half: str
    verdicts: Sequence[Verdict]
    unfit: Sequence[Unfit]
    num_untouched: int
    false_breaks: Sequence[FalseBreak]
    seconds: float

    def rate(self, which: str) -> float:
        return float(sum(getattr(v, which) for v in self.verdicts) / max(len(self.verdicts), 1))

    @property
    def wrong_rate(self) -> float:
        """A break that was not seen counts as wrong."""
        return self.rate("wrong") + self.rate("silent")

    @property
    def num_inexact(self) -> int:
        return sum(v.exact is False for v in self.verdicts)

    @property
    def num_with_token(self) -> int:
        return sum(v.exact is not None for v in self.verdicts)

    def misses(self) -> list[str]:
        """What keeps the half from its targets, one line each; empty where they are held."""
        lines = []
        if (right := self.rate("right")) < MIN_RIGHT:
            lines.append(f"right in {right:.1%} of cases, {MIN_RIGHT:.0%} are wanted")
        if self.wrong_rate > MAX_WRONG:
            lines.append(f"wrong in {self.wrong_rate:.2%} of cases, at most {MAX_WRONG:.1%}")
        if self.num_inexact:
            lines.append(f"first token not exact in {self.num_inexact} of {self.num_with_token}")
        if self.false_breaks:
            lines.append(f"{len(self.false_breaks)} false breaks in {self.num_untouched}")
        for cause in ALWAYS:
            num = sum(v.cause == cause and not v.right for v in self.verdicts)
            if num:
                lines.append(f"{cause} not right {num} times")
        return lines

    def table(self) -> str:
        rows = [f"{'cause':24} cases right unknown silent wrong  token  said instead"]
        rows += [
            _row(cause or "(no break)", [v for v in self.verdicts if v.cause == cause])
            for cause in dict.fromkeys(v.cause for v in self.verdicts)
        ]
        rows.append(_row("all", self.verdicts, said=False))
        rows.append(
            f"right {self.rate('right'):.2%}, wrong {self.wrong_rate:.2%}, first token exact "
            f"{self.num_with_token - self.num_inexact}/{self.num_with_token}, false breaks "
            f"{len(self.false_breaks)}/{self.num_untouched}, unfit {len(self.unfit)}, "
            f"{self.seconds:.0f} s"
        )
        return "\n".join(rows)

    def confusions(self) -> str:
        """Every case that was not wholly right, with what was said and why."""
        lines = [_confusion(v) for v in self.verdicts if not v.right or v.exact is False]
        lines += [
            f"{v.cause} / {v.name}: a break in an earlier call: {', '.join(v.elsewhere)}"
            for v in self.verdicts
            if v.elsewhere
        ]
        lines += [
            f"untouched {f.session}[{f.call}]: {f.cause}: {f.evidence}" for f in self.false_breaks
        ]
        lines += [f"no scene fits {u.cause} / {u.name}" for u in self.unfit]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        causes: dict[str, Any] = {}
        for cause in dict.fromkeys(v.cause for v in self.verdicts):
            these = [v for v in self.verdicts if v.cause == cause]
            causes[cause or "no break"] = {
                "cases": len(these),
                **{w: sum(getattr(v, w) for v in these) for w in KINDS},
                "said_instead": dict(Counter(str(v.said) for v in these if not v.right)),
            }
        return {
            "half": self.half,
            "cases": len(self.verdicts),
            **{f"{which}_rate": self.rate(which) for which in KINDS},
            "first_token_exact": self.num_with_token - self.num_inexact,
            "with_first_token": self.num_with_token,
            "untouched": self.num_untouched,
            "false_breaks": len(self.false_breaks),
            "unfit": len(self.unfit),
            "causes": causes,
            "misses": self.misses(),
        }


KINDS = ("right", "unknown", "silent", "wrong")


def _row(name: str, verdicts: Sequence[Verdict], *, said: bool = True) -> str:
    counts = [sum(getattr(v, which) for v in verdicts) for which in KINDS]
    tokens = [v.exact for v in verdicts if v.exact is not None]
    exact = f"{sum(tokens)}/{len(tokens)}" if tokens else "-"
    instead = Counter(str(v.said)[:60] for v in verdicts if not v.right) if said else Counter()
    told = ", ".join(f"{cause} {num}" for cause, num in instead.most_common())
    right, unknown, silent, wrong = counts
    return (
        f"{name:24} {len(verdicts):5} {right:5} {unknown:7} {silent:6} {wrong:5} {exact:>7}  {told}"
    ).rstrip()


def _confusion(verdict: Verdict) -> str:
    token = "" if verdict.exact is not False else " [first token or measured call not exact]"
    return (
        f"{verdict.cause} / {verdict.name} ({verdict.scene}): said {verdict.said}{token}: "
        f"{verdict.evidence[:300]}"
    )
