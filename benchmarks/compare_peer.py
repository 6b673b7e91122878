"""The emitted DeepSeek-V4.1 launches beside vLLM's hand-written ones: same inputs, same simulator, one run.

    python benchmarks/compare_peer.py --folder ~/.cache/monoc-peer                 # K1, K2, FFN at 1, 8, 16, 48 rows
    python benchmarks/compare_peer.py --folder ~/.cache/monoc-peer --tokens 8 --launch ffn --lines

Ours are compiled afresh from `layer_specs/dsv41.yaml` into a temporary folder. The wheel with the hand-written launches
is downloaded once (see `peer/wheel.py`); nothing of it is part of monoc. Of one step, averaged over the ranks:

- instructions: wave-instructions executed outside poll loops; busiest wave: the busiest one's.
- weight and KV MB: bytes the lanes requested from weight and KV buffers, whatever caches answered.
- in flight MB: weight bytes requested and not yet waited for when a wave first waits for another CTA
  (`docs/simulator.md`, *What is counted*).
- hand-off chain: round trips, see `monoc plan` and `peer/chain.py`.

The two runners' outputs are compared too: experts whose scores tie aside, they compute the same layer.

Exit code 1: an output is not finite, ranks disagree, or outputs of the two differ by more than 1e-2 (relative L2).
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from peer.aiter_ops import add_modules
from peer.chain import chain_length
from peer.inputs import Shapes, make_inputs
from peer.sides import Counts, Side, run_side
from peer.wheel import add_packages, fetch
from rich.console import Console
from rich.table import Table

from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.schedule.chain import critical_chain
from monoc.schedule.loader import load_plan
from monoc.schedule.tables import tabulate

SPEC = Path(__file__).parent.parent / "layer_specs" / "dsv41.yaml"
SAME = 1e-2


@dataclass(frozen=True)
class Row:
    """One number of both launches; `ratio` ours / theirs; `more_is_better` of this one."""

    launch: str
    tokens: int
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


def _rows(launch: str, tokens: int, ours: Counts, theirs: Counts, chain: int) -> Iterator[Row]:
    row = partial(Row, launch, tokens)
    yield row("instructions, thousand", ours.instructions / 1e3, theirs.instructions / 1e3)
    yield row("busiest wave", ours.busiest, theirs.busiest)
    yield row("weight and KV MB", ours.weight_bytes / 1e6, theirs.weight_bytes / 1e6)
    yield row("in flight MB", ours.in_flight / 1e6, theirs.in_flight / 1e6, more_is_better=True)
    yield row("hand-off chain", chain, chain_length(launch))
    a, b = ours.resources, theirs.resources
    yield row("VGPRs", a.vgprs, b.vgprs, judged=False)
    yield row("VGPR spills", a.vgpr_spills, b.vgpr_spills, judged=False)
    yield row("code KB", a.code_bytes / 1024, b.code_bytes / 1024, judged=False)
    yield row("LDS KB", a.lds_bytes / 1024, b.lds_bytes / 1024, judged=False)


def _chain(plan: Any, launch: str, shapes: Shapes) -> int:
    known = {"tokens": shapes.tokens, "tp": shapes.tp, "variant": "target"}
    known |= {} if launch == "ffn" else {"ratio": shapes.ratio, "fold": True, "index": False}
    for b in plan.builds():
        if all(getattr(b, name) == value for name, value in known.items()) and plan.LAUNCHES[launch].runs(b):
            return critical_chain(tabulate(plan, b, launch)).length
    raise LookupError(f"the package has no build of {launch} with {known}")


def _differences(ours: Side, theirs: Side) -> dict[str, tuple[float, float]]:
    """Output -> (largest absolute difference, relative L2 difference)."""
    found = {}
    for name, value in ours.outputs.items():
        a, b = value.double().flatten(), theirs.outputs[name].double().flatten()
        found[name] = (float((a - b).abs().max()), float(torch.linalg.norm(a - b) / torch.linalg.norm(b)))
    return found


def _show(console: Console, rows: list[Row]) -> None:
    table = Table(box=None)
    for name in ("launch", "rows", "", "ours", "theirs", "ratio"):
        table.add_column(name, justify="left" if name in ("launch", "") else "right")
    for row in rows:
        ratio = f"{row.ratio:.2f}" if row.judged else ""
        style = "" if row.within else "[red]"
        table.add_row(
            row.launch, str(row.tokens), row.what, f"{row.ours:,.4g}", f"{row.theirs:,.4g}", f"{style}{ratio}"
        )
    console.print(table)


def _markdown(rows: list[Row]) -> Iterator[str]:
    """A line a launch and width, `ours / theirs (ratio)` in each column."""
    names = list(dict.fromkeys(row.what for row in rows))
    yield f"| launch, rows | {' | '.join(names)} |"
    yield f"|{' --- |' * (len(names) + 1)}"
    for launch, tokens in sorted({(row.launch, row.tokens) for row in rows}, key=_order):
        cells = []
        for name in names:
            (row,) = (r for r in rows if (r.launch, r.tokens, r.what) == (launch, tokens, name))
            ratio = f" ({row.ratio:.2f})" if row.judged and row.theirs else ""
            cells.append(f"{_number(row.ours)} / {_number(row.theirs)}{ratio}")
        yield f"| {launch.upper()}, {tokens} | {' | '.join(cells)} |"


def _order(key: tuple[str, int]) -> tuple[int, int]:
    return (("k1", "k2", "ffn").index(key[0]), key[1])


def _number(value: float) -> str:
    return f"{value:.1f}" if value % 1 and value < 100 else f"{value:.0f}"


def main(
    folder: Annotated[Path, typer.Option(help="where the wheel's launches and compiled results are kept")],
    tokens: Annotated[list[int] | None, typer.Option(help="step widths; 1, 8, 16, 48 when absent")] = None,
    launch: Annotated[str, typer.Option(help="layer (K1 and K2) or ffn; both when absent")] = "",
    tp: Annotated[int, typer.Option(help="2 or 4")] = 4,
    ratio: Annotated[int, typer.Option(help="compress ratio of the layer: 0, 1 or 2")] = 2,
    lines: Annotated[bool, typer.Option(help="the source lines that execute most, of both (compiles again)")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    markdown: Annotated[bool, typer.Option(help="the table as docs/performance.md has it")] = False,
) -> None:
    """Compares the launches; prints a table."""
    console = Console(width=110)
    if launch not in ("", "layer", "ffn"):
        raise typer.BadParameter(f"{launch!r} is neither layer nor ffn")
    add_modules()
    add_packages(fetch(folder))
    rows: list[Row] = []
    failed = False
    with tempfile.TemporaryDirectory() as emitted:
        for name, text in compile_spec(str(SPEC)).files.items():
            (Path(emitted) / name).write_text(text)
        plan = load_plan((Path(emitted) / "plan.py").read_text())
        sides = {
            "ours": lambda: EmittedPackage.load(Path(emitted)).part("runner"),
            "theirs": lambda: import_module("vllm.models.deepseek_v41.amd.mono.runner"),
        }
        for width in tokens or (1, 8, 16, 48):
            shapes = Shapes(width, tp, ratio)
            inputs = make_inputs(shapes)
            for entry in [launch] if launch else ["layer", "ffn"]:
                done = {
                    who: run_side(load, shapes, inputs, entry, folder / "compiled", debug=lines)
                    for who, load in sides.items()
                }
                new: list[Row] = []
                for name, ours in done["ours"].counts.items():
                    theirs = done["theirs"].counts[name]
                    new += _rows(name, width, ours, theirs, _chain(plan, name, shapes))
                rows += new
                failed |= _tell(console, entry, width, done, new, lines, as_json)
    if markdown:
        print("\n".join(_markdown(rows)))
    elif not as_json:
        _show(console, rows)
    raise typer.Exit(1 if failed else 0)


def _tell(
    console: Console, entry: str, width: int, done: dict[str, Side], rows: list[Row], lines: bool, as_json: bool
) -> bool:
    """Prints one comparison's outputs (and rows as JSON); whether something is wrong with it."""
    differ = _differences(done["ours"], done["theirs"])
    problems = [f"{who}: {problem}" for who, side in done.items() for problem in side.problems]
    problems += [f"{n} differs by {d:.3g}" for n, (_, d) in differ.items() if not d <= SAME]
    if as_json:
        record = {"entry": entry, "tokens": width, "problems": problems, "differences": differ}
        print(json.dumps(record | {"rows": [vars(r) | {"ratio": r.ratio} for r in rows]}), flush=True)
        return bool(problems)
    text = ", ".join(f"{n} {a:.2g} / {r:.2g}" for n, (a, r) in differ.items())
    console.print(f"{entry} at {width} rows, ours against theirs, largest / relative difference: {text}")
    for problem in problems:
        console.print(f"    [red]{problem}[/red]")
    if lines:
        for who, side in done.items():
            for name, counts in side.counts.items():
                console.print(f"{who}, {name}: wave-instructions by source line")
                for line, count in Counter(counts.lines).most_common(20):
                    console.print(f"    {count:9,}  {line}")
    return bool(problems)


if __name__ == "__main__":
    typer.run(main)
