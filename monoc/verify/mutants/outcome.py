"""What became of the mutants: verdicts, the checks that found them, tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rich.table import Table

from monoc.verify.mutants.source import Site
from monoc.verify.report import explain
from monoc.verify.verify import CellResult

__all__ = ["Outcome", "Verdict", "as_json", "found_by", "kill_rate", "table", "words"]


class Verdict(StrEnum):
    """``SAME``: no build that is run has other assembly; ``BROKEN``: it does not compile. Neither counts."""

    KILLED = "killed"
    SURVIVED = "survived"
    SAME = "same assembly"
    BROKEN = "does not compile"


@dataclass
class Outcome:
    """A mutant's fate. ``check``: what found it, in ``bench``; ``detail``: its words; ``ran``: benches it ran in."""

    spec: str
    site: Site
    verdict: Verdict = Verdict.SAME
    check: str = ""
    bench: str = ""
    detail: str = ""
    ran: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether the mutant is another program that compiles."""
        return self.verdict in (Verdict.KILLED, Verdict.SURVIVED)


def found_by(result: CellResult) -> str:
    """The check that found a bad cell, "" for a good one."""
    if result.error:
        kind = re.search(r"handoff: .*", result.error)
        if kind is not None:
            return f"hand-off: {_violation(kind.group(0))}"
        error, _, message = result.error.partition(": ")
        what = re.match(r"(bounds|alignment|poison|written|unsupported|trap|lds|scratch)", message)
        return {"HangError": "hang"}.get(error, f"simulator: {what.group(1)}" if what else error)
    for step in result.steps:
        if step.missing:
            return "hand-off: missing"
        if step.first_bad is not None:
            return "values"
        if step.ranks_differ:
            return "ranks differ"
        if not step.good:
            return "end to end"
    return "other bits under another schedule" if result.unlike else ""


def _violation(message: str) -> str:
    for part, name in (
        ("without the scope bits", "scope"),
        ("undrained stores", "undrained"),
        ("may not", "role"),
        ("overwritten after", "unread"),
        ("aligned 8-byte", "role"),
    ):
        if part in message:
            return name
    return "unseen"


def words(result: CellResult) -> str:
    """The first of what a cell's report says."""
    return " | ".join(explain(result)[:2])[:600]


def kill_rate(outcomes: Iterable[Outcome]) -> float:
    """Of those that count; 0 if none does: nothing was shown."""
    counted = [o for o in outcomes if o.counts]
    return sum(o.verdict is Verdict.KILLED for o in counted) / len(counted) if counted else 0.0


def table(outcomes: Iterable[Outcome], sites: Mapping[str, int]) -> Table:
    """A row an operator. ``sites``: how many each has."""
    everything = list(outcomes)
    made = Table(box=None)
    for heading in ("operator", "sites", "drawn", "same", "broken", "counted", "killed", "by"):
        made.add_column(heading, justify="left" if heading in ("operator", "by") else "right")
    for operator, total in sites.items():
        own = [o for o in everything if o.site.operator == operator]
        of = Counter(o.verdict for o in own)
        by = ", ".join(f"{n} {check}" for check, n in Counter(o.check for o in own if o.check).most_common())
        counted = of[Verdict.KILLED] + of[Verdict.SURVIVED]
        numbers = (total, len(own), of[Verdict.SAME], of[Verdict.BROKEN], counted, of[Verdict.KILLED])
        made.add_row(operator, *(str(n) for n in numbers), by)
    return made


def as_json(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """For scripts and the saved report."""
    return [
        {
            "spec": o.spec,
            "operator": o.site.operator,
            "file": o.site.file,
            "line": o.site.line,
            "function": o.site.function,
            "fault": o.site.what,
            "verdict": o.verdict.value,
            "check": o.check,
            "cell": o.bench,
            "detail": o.detail,
            "ran": o.ran,
            "seconds": round(o.seconds, 1),
        }
        for o in outcomes
    ]
