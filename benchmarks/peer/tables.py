"""The numbers of both launches side by side, and their tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.table import Table

from monoc.schedule.chain import critical_chain
from monoc.schedule.tables import tabulate
from peer.errors import ErrorRow
from peer.inputs import Shapes
from peer.sides import Counts

__all__ = [
    "Row",
    "chain_of",
    "count_rows",
    "markdown_counts",
    "markdown_errors",
    "show_counts",
    "show_errors",
]


@dataclass(frozen=True)
class Row:
    """One number of both launches; `ratio` ours / theirs; `more_is_better` of this one."""

    launch: str
    tokens: int
    kind: str
    what: str
    ours: float
    theirs: float
    more_is_better: bool = False
    judged: bool = True

    @property
    def ratio(self) -> float:
        """Ours / theirs; 1 where both are nothing."""
        return self.ours / self.theirs if self.theirs else (float("inf") if self.ours else 1.0)

    @property
    def within(self) -> bool:
        """At most 1.15 times as much (or at least as much / 1.15)."""
        return not self.judged or (self.ratio >= 1 / 1.15 if self.more_is_better else self.ratio <= 1.15)


def count_rows(
    launch: str, tokens: int, kind: str, ours: Counts, theirs: Counts, chains: tuple[int, int], *, polls: bool = False
) -> Iterator[Row]:
    """The rows of one launch; ``chains``: lengths of ours and theirs; ``polls``: those of poll loops too."""
    row = partial(Row, launch, tokens, kind)
    yield row("instructions, thousand", ours.instructions / 1e3, theirs.instructions / 1e3)
    yield row("busiest wave", ours.busiest, theirs.busiest)
    yield row("weight and KV MB", ours.weight_bytes / 1e6, theirs.weight_bytes / 1e6)
    yield row("in flight MB", ours.in_flight / 1e6, theirs.in_flight / 1e6, more_is_better=True)
    if polls:
        yield row("failed polls", ours.retries, theirs.retries)
        yield row("poll instructions, thousand", ours.polls / 1e3, theirs.polls / 1e3, judged=False)
    yield row("hand-off chain", *chains)
    a, b = ours.resources, theirs.resources
    yield row("VGPRs", a.vgprs, b.vgprs, judged=False)
    yield row("VGPR spills", a.vgpr_spills, b.vgpr_spills, judged=False)
    yield row("code KB", a.code_bytes / 1024, b.code_bytes / 1024, judged=False)
    yield row("LDS KB", a.lds_bytes / 1024, b.lds_bytes / 1024, judged=False)


def chain_of(plan: Any, launch: str, shapes: Shapes) -> int:
    known: dict[str, object] = {"tokens": shapes.tokens, "tp": shapes.tp, "variant": "target"}
    if launch != "ffn":
        known |= {"ratio": shapes.ratio, "fold": shapes.fold, "index": shapes.index}
    for b in plan.builds():
        if all(getattr(b, name) == value for name, value in known.items()) and plan.LAUNCHES[launch].runs(b):
            return critical_chain(tabulate(plan, b, launch)).length
    raise LookupError(f"the package has no build of {launch} with {known}")


def show_counts(rows: Sequence[Row]) -> Table:
    """A line a number; those beyond the bound in red."""
    table = Table(box=None)
    for name in ("launch", "rows", "kind", "", "ours", "theirs", "ratio"):
        table.add_column(name, justify="left" if name in ("launch", "kind", "") else "right")
    for row in rows:
        ratio = f"{row.ratio:.2f}" if row.judged else ""
        style = "" if row.within else "[red]"
        numbers = f"{row.ours:,.4g}", f"{row.theirs:,.4g}", f"{style}{ratio}"
        table.add_row(row.launch, str(row.tokens), row.kind, row.what, *numbers)
    return table


def show_errors(rows: Sequence[ErrorRow]) -> Table:
    """A line a value; each draw's errors behind the means where there are several."""
    table = Table(box=None)
    for name in ("launch", "rows", "kind", "way", "value", "ours", "theirs", "ratio", "floor", "apart", "", "draws"):
        table.add_column(name, justify="right" if name in ("rows", "ours", "theirs", "ratio") else "left")
    for row in rows:
        ours, theirs = row.mean
        verdict = "" if row.good else "[red]worse"
        pairs = zip(row.ours, row.theirs, strict=True)
        draws = " ".join(f"{a:.2g}/{b:.2g}" for a, b in pairs) if len(row.ours) > 1 else ""
        numbers = f"{ours:.3g}", f"{theirs:.3g}", f"{row.ratio:.3f}", f"{row.floor:.2g}", f"{max(row.apart):.2g}"
        value = row.value.removeprefix("ffn_half.")
        table.add_row(row.launch, str(row.tokens), row.kind, row.way, value, *numbers, verdict, draws)
    return table


def markdown_counts(rows: Sequence[Row]) -> Iterator[str]:
    """A line a launch, width and kind, `ours / theirs (ratio)` in each column."""
    names = list(dict.fromkeys(row.what for row in rows))
    yield f"| launch, rows | {' | '.join(names)} |"
    yield f"|{' --- |' * (len(names) + 1)}"
    for launch, tokens, kind in sorted({(row.launch, row.tokens, row.kind) for row in rows}, key=_order):
        cells = []
        for name in names:
            (row,) = (r for r in rows if (r.launch, r.tokens, r.kind, r.what) == (launch, tokens, kind, name))
            ratio = f" ({row.ratio:.2f})" if row.judged and row.theirs else ""
            cells.append(f"{_number(row.ours)} / {_number(row.theirs)}{ratio}")
        yield f"| {launch.upper()}, {tokens} | {' | '.join(cells)} |"


def markdown_errors(rows: Sequence[ErrorRow], widths: Sequence[int]) -> Iterator[str]:
    """A line a value, `ours / theirs (ratio)` for each width."""
    yield f"| launch, value | {' | '.join(f'{w} rows' for w in widths)} |"
    yield f"|{' --- |' * (len(widths) + 1)}"
    for launch, value in dict.fromkeys((r.launch, r.value) for r in rows):
        cells = []
        for width in widths:
            found = [r for r in rows if (r.launch, r.value, r.tokens) == (launch, value, width)]
            cells.append(" ".join(f"{r.mean[0]:.2g} / {r.mean[1]:.2g} ({r.ratio:.2f})" for r in found))
        yield f"| {launch.upper()}, `{value.removeprefix('ffn_half.')}` | {' | '.join(cells)} |"


def _order(key: tuple[str, int, str]) -> tuple[int, int, str]:
    return (("k1", "k2", "ffn").index(key[0]), key[1], key[2])


def _number(value: float) -> str:
    return f"{value:.1f}" if value % 1 and value < 100 else f"{value:.0f}"
