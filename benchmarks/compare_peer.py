"""The emitted DeepSeek-V4.1 launches beside vLLM's hand-written ones: same inputs, same simulator, one run.

    python benchmarks/compare_peer.py --folder ~/.cache/monoc-peer                 # K1, K2, FFN at 1, 8, 16, 48 rows
    python benchmarks/compare_peer.py --folder ~/.cache/monoc-peer --tokens 8 --launch ffn --lines
    python benchmarks/compare_peer.py --folder ~/.cache/monoc-peer --tokens 1 --kind ratio0 --kind ratio1 --seeds 3

Ours are compiled afresh from `layer_specs/dsv41.yaml` into a temporary folder. The wheel with the hand-written launches
is downloaded once (see `peer/wheel.py`); nothing of it is part of monoc. Of one step, averaged over the ranks:

- instructions: wave-instructions executed outside poll loops; busiest wave: the busiest one's.
- weight and KV MB: bytes the lanes requested from weight and KV buffers, whatever caches answered.
- in flight MB: weight bytes requested and not yet waited for when a wave first waits for another CTA
  (`docs/simulator.md`, *What is counted*).
- hand-off chain: round trips, see `monoc plan` and `peer/chain.py`.
- errors: of every value both sides leave in memory or return, against the exact mode of the reference, both K2 from the
  same K1 (`peer/errors.py`). Tokens whose experts differ (scores that tie) are left out of what lies behind them.

Exit code 1: an output is not finite, ranks disagree, a count is beyond 1.15 times theirs, or an
error beyond 1.1 times theirs and above the floor (one bf16 ulp, 2^-8; 1e-6 where a value is fp32).
"""

import json
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated

import torch
import typer
from peer.aiter_ops import add_modules
from peer.chain import chain_length
from peer.errors import ErrorRow, Parting, pooled
from peer.inputs import Shapes, make_inputs
from peer.judge import Judged, Sides, judge
from peer.tables import Row, chain_of, count_rows, markdown_counts, markdown_errors, show_counts, show_errors
from peer.wheel import add_packages, fetch
from rich.console import Console

from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.schedule.loader import load_plan

SPEC = Path(__file__).parent.parent / "layer_specs" / "dsv41.yaml"
KINDS = {
    "ratio0": Shapes(1, 4, 0),
    "ratio1": Shapes(1, 4, 1),
    "ratio2": Shapes(1, 4, 2),
    "ratio2-no-fold": Shapes(1, 4, 2, fold=False),
    "ratio2-index": Shapes(1, 4, 2, index=True),
}


@dataclass
class _Found:
    """What all comparisons found."""

    counts: list[Row] = field(default_factory=list)
    errors: list[ErrorRow] = field(default_factory=list)
    partings: list[Parting] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def bad(self) -> int:
        return len(self.problems) + sum(not r.within for r in self.counts) + sum(not r.good for r in self.errors)


def main(
    folder: Annotated[Path, typer.Option(help="where the wheel's launches and compiled results are kept")],
    tokens: Annotated[list[int] | None, typer.Option(help="step widths; 1, 8, 16, 48 when absent")] = None,
    launch: Annotated[str, typer.Option(help="layer (K1 and K2) or ffn; both when absent")] = "",
    tp: Annotated[int, typer.Option(help="2 or 4")] = 4,
    kind: Annotated[list[str] | None, typer.Option(help=f"layer kinds: {', '.join(KINDS)}; ratio2 when absent")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="draws of inputs the errors are taken over")] = 1,
    lines: Annotated[bool, typer.Option(help="the source lines that execute most, of both (compiles again)")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    markdown: Annotated[bool, typer.Option(help="the tables as docs/performance.md has them")] = False,
) -> None:
    """Compares the launches; prints the tables."""
    console = Console(width=130)
    kinds, widths = kind or ["ratio2"], tokens or [1, 8, 16, 48]
    first = kinds[0]
    if launch not in ("", "layer", "ffn"):
        raise typer.BadParameter(f"{launch!r} is neither layer nor ffn")
    if unknown := [k for k in kind or () if k not in KINDS]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(KINDS)}")
    torch.set_num_threads(1)  # the reference's operations are small: threads would only meet each other
    add_modules()
    add_packages(fetch(folder))
    found = _Found()
    with tempfile.TemporaryDirectory() as emitted:
        package = compile_spec(str(SPEC))
        for name, text in package.files.items():
            (Path(emitted) / name).write_text(text)
        plan = load_plan((Path(emitted) / "plan.py").read_text())
        sides = Sides(
            package.program,
            plan,
            lambda: EmittedPackage.load(Path(emitted)).part("runner"),
            lambda: import_module("vllm.models.deepseek_v41.amd.mono.runner"),
            folder / "compiled",
        )
        for name in kinds:
            for width in widths:
                shapes = replace(KINDS[name], tokens=width, tp=tp)
                for entry in [launch] if launch else ["layer", "ffn"]:
                    if entry == "layer" or launch or name == first:
                        new = _compare(sides, shapes, entry, name, seeds, console if lines else None)
                        found.counts += new.counts
                        found.errors += new.errors
                        found.partings += new.partings
                        found.problems += new.problems
                        if as_json:
                            record = {"entry": entry, "kind": name, "tokens": width, "problems": new.problems}
                            record["rows"] = [vars(r) | {"ratio": r.ratio} for r in new.counts]
                            record["errors"] = [vars(r) | {"ratio": r.ratio, "good": r.good} for r in new.errors]
                            record["partings"] = [vars(p) for p in new.partings]
                            print(json.dumps(record), flush=True)
    for problem in found.problems:
        console.print(f"[red]{problem}[/red]")
    if not as_json:
        for parting in found.partings:
            console.print(str(parting))
    if markdown:
        print("\n".join(markdown_counts(found.counts)))
        for way in ("same", "own"):
            print()
            print("\n".join(markdown_errors([r for r in found.errors if r.way == way], widths)))
    elif not as_json:
        console.print(show_counts(found.counts))
        console.print(show_errors(found.errors))
        console.print(f"{len(found.counts)} counts and {len(found.errors)} errors: {found.bad or 'none'} bad")
    raise typer.Exit(1 if found.bad else 0)


def _compare(sides: Sides, shapes: Shapes, entry: str, kind: str, seeds: int, console: Console | None) -> _Found:
    """``seeds`` draws of one launch: counts of the first, errors of all; ``console``: for the busiest source lines."""
    found, draws = _Found(), []
    for seed in range(seeds):
        judged = judge(sides, shapes, make_inputs(shapes, seed), entry, kind, debug=console is not None)
        draws.append(judged.rows)
        both = {"ours": judged.ours, "theirs": judged.theirs}
        at = f"{entry} {kind} at {shapes.tokens} rows, seed {seed}"
        found.problems += [f"{at}: {who}: {p}" for who, side in both.items() for p in side.problems]
        found.partings += judged.partings
        if seed == 0:
            for name, ours in judged.ours.counts.items():
                theirs = judged.theirs.counts[name]
                chains = chain_of(sides.plan, name, shapes), chain_length(name)
                found.counts += count_rows(name, shapes.tokens, kind, ours, theirs, chains)
            if console is not None:
                _lines(console, judged)
    found.errors = pooled(draws)
    return found


def _lines(console: Console, judged: Judged) -> None:
    for who, side in (("ours", judged.ours), ("theirs", judged.theirs)):
        for name, counts in side.counts.items():
            console.print(f"{who}, {name}: wave-instructions by source line")
            for line, count in Counter(counts.lines).most_common(20):
                console.print(f"    {count:9,}  {line}")


if __name__ == "__main__":
    typer.run(main)
