"""Run vLLM's hand-written DeepSeek-V4.1 decode launches on the simulator and time it.

    python benchmarks/peer_sim.py --folder ~/.cache/monoc-peer            # the whole list
    python benchmarks/peer_sim.py --launch layer --tokens 8 --tp 4

The wheel is downloaded once into the folder (some hundred megabytes; only the launches are kept). Nothing of it is
part of monoc. Each line: five steps in a row with the epoch advanced, outputs finite and equal across ranks; seconds
are of the second step's launch, when the program is decoded and the caches are warm; `best` of any but the first.
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from peer.aiter_ops import add_modules
from peer.inputs import Shapes, make_inputs
from peer.runs import run_ffn, run_k1, run_layer
from peer.wheel import add_packages, fetch
from rich.console import Console

from monoc.sim import Simulator
from monoc.sim.host import SimulatedHost, simulate

RUNS = {"k1": run_k1, "layer": run_layer, "ffn": run_ffn}
ALL = [("k1", tokens, 4) for tokens in (1, 8, 48)] + [
    (launch, tokens, tp) for launch in ("layer", "ffn") for tp in (2, 4) for tokens in (1, 8, 48)
]


def _line(launch: str, tokens: int, tp: int, host: SimulatedHost, problems: tuple[str, ...]) -> list[dict[str, object]]:
    """One row a kernel: its second execution."""
    rows = []
    by_symbol: dict[str, list[object]] = {}
    for report in host.reports:
        by_symbol.setdefault(report.symbols[0], []).append(report)
    for symbol, reports in by_symbol.items():
        second = reports[min(1, len(reports) - 1)]
        best = min(report.seconds for report in reports[1:] or reports)
        rows.append(
            {
                "launch": launch,
                "kernel": symbol,
                "tokens": tokens,
                "tp": tp,
                "steps": len(reports),
                "seconds": round(second.seconds, 3),
                "best": round(best, 3),
                "instructions": second.instructions,
                "rate": round(second.instructions / second.seconds / 1e6, 2),
                "problems": list(problems),
            }
        )
    return rows


def main(
    folder: Annotated[Path, typer.Option(help="where the wheel's launches and compiled results are kept")],
    launch: Annotated[str, typer.Option(help="k1, layer (K1 and K2) or ffn; all of them when absent")] = "",
    tokens: Annotated[int, typer.Option(min=1, max=48)] = 8,
    tp: Annotated[int, typer.Option(help="2 or 4")] = 4,
    steps: Annotated[int, typer.Option(min=1)] = 5,
    threads: Annotated[int, typer.Option(help="host threads; 0: one a core")] = 0,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Runs the hand-written launches; exit code 1 when an output is not finite or ranks disagree."""
    console = Console()
    if launch and launch not in RUNS:
        raise typer.BadParameter(f"{launch!r} is none of {', '.join(RUNS)}")
    add_modules()
    add_packages(fetch(folder))
    failed = False
    for name, rows, ranks in [(launch, tokens, tp)] if launch else ALL:
        shapes = Shapes(rows, ranks)
        simulator = Simulator("gfx950", ranks=ranks, threads=threads or None)
        with simulate(simulator, cache_dir=folder / "compiled") as host:
            outcome = RUNS[name](host, shapes, make_inputs(shapes), steps)
        failed |= bool(outcome.problems)
        for row in _line(name, rows, ranks, host, outcome.problems):
            if as_json:
                print(json.dumps(row), flush=True)
            else:
                console.print(
                    f"{row['launch']:6} {row['tokens']:2} rows tp{row['tp']}: "
                    f"{row['seconds']:8.3f} s (best {row['best']:.3f}), "
                    f"{row['instructions'] / 1e6:7.1f} M wave-instructions, {row['rate']:6.2f} M/s  {row['kernel']}",
                    soft_wrap=True,
                )
                for problem in row["problems"]:
                    console.print(f"    [red]{problem}[/red]")
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(main)
