"""The emitted DeepSeek-V4-Pro launches beside vLLM's hand-written ones: same inputs, same simulator, one run, TP 8.

    python benchmarks/compare_peer_pro.py --folder ~/.cache/monoc-peer                      # CSA, HCA at 1, 16, 64 rows
    python benchmarks/compare_peer_pro.py --folder ~/.cache/monoc-peer --tokens 1 --kind csa --kind csa-hash --seeds 4

As `compare_peer.py`, for the second model: K1 and K2 with the host's selection between them, every rank with weights of
its own. Counts are of one step, averaged over the ranks; the simulation runs on one host thread, so that *polls*
(wave-instructions of poll loops) say how the launches wait and not how busy the machine was. They still depend on the
order the simulator visits CTAs in. Errors are taken over all seeds. Most memory goes to the experts picked: 13 GB at
64 rows with `--experts 128`, some 4 GB more with all of them.

Exit code 1: an output is not finite, ranks disagree, a count is beyond 1.15 times theirs, or an error beyond 1.1 times
theirs and above the floor (one bf16 ulp, 2^-8; 1e-6 where a value is fp32).
"""

import json
import resource
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from peer.aiter_ops import add_modules
from peer.chain import pro_chain_length
from peer.errors import ErrorRow, pooled
from peer.pro import KINDS, Judged, Models, judge
from peer.tables import Row, count_rows, markdown_counts, markdown_errors, show_counts, show_errors
from peer.wheel import add_packages, fetch
from rich.console import Console

from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.schedule.chain import critical_chain
from monoc.schedule.loader import load_plan
from monoc.schedule.tables import tabulate

SPEC = Path(__file__).parent.parent / "layer_specs" / "dsv4_pro.yaml"


def main(
    folder: Annotated[Path, typer.Option(help="where the wheel's launches and compiled results are kept")],
    tokens: Annotated[list[int] | None, typer.Option(help="step widths; 1, 16, 64 when absent")] = None,
    kind: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(KINDS)}; csa, hca8192 when absent")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="draws of inputs the errors are taken over")] = 1,
    experts: Annotated[int | None, typer.Option(min=6, help="tokens pick among so many; all when absent")] = None,
    lines: Annotated[bool, typer.Option(help="the source lines that execute most, of both (compiles again)")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    markdown: Annotated[bool, typer.Option(help="the tables as docs/performance.md has them")] = False,
) -> None:
    """Compares the launches; prints the tables."""
    if unknown := [k for k in kind or () if k not in KINDS]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(KINDS)}")
    torch.set_num_threads(1)  # the reference's operations are small: threads would only meet each other
    add_modules()
    add_packages(fetch(folder))
    console = Console(width=130)
    counts: list[Row] = []
    errors: list[ErrorRow] = []
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as emitted:
        package = compile_spec(str(SPEC))
        for name, text in package.files.items():
            (Path(emitted) / name).write_text(text)
        models = Models(
            package.program,
            load_plan((Path(emitted) / "plan.py").read_text()),
            lambda: EmittedPackage.load(Path(emitted)).part("runner"),
            lambda: import_module("vllm.models.deepseek_v4.amd.mono.runner"),
            folder / "compiled",
        )
        for name in kind or ["csa", "hca8192"]:
            for width in tokens or [1, 16, 64]:
                draws = [judge(models, name, width, seed, experts=experts, debug=lines) for seed in range(seeds)]
                new = list(_counts(models.plan, name, width, draws[0]))
                found = pooled([d.rows for d in draws])
                wrong = [f"{name} at {width} rows, seed {s}: {p}" for s, d in enumerate(draws) for p in d.problems]
                if as_json:
                    print(json.dumps(_record(name, width, new, found, wrong)), flush=True)
                elif not markdown:
                    console.print(show_counts(new))
                    console.print(show_errors(found))
                    for parting in draws[0].partings:
                        console.print(str(parting))
                if lines:
                    _lines(console, draws[0])
                counts += new
                errors += found
                problems += wrong
    if markdown:
        print("\n".join(markdown_counts(counts)))
        for way in ("same", "own"):
            print()
            print("\n".join(markdown_errors([r for r in errors if r.way == way], tokens or [1, 16, 64])))
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    bad = len(problems) + sum(not r.within for r in counts) + sum(not r.good for r in errors)
    if not as_json:
        console.print(f"{len(counts)} counts and {len(errors)} errors: {bad or 'none'} bad; {_peak():.1f} GB at most")
    raise typer.Exit(1 if bad else 0)


def _peak() -> float:
    """Resident memory of this process at its most, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _counts(plan: Any, name: str, tokens: int, judged: Judged) -> Iterator[Row]:
    kind = KINDS[name]
    known = {"tokens": tokens, "tp": 8, "variant": kind.variant, **kind.fixed}
    b = next(b for b in plan.builds() if all(getattr(b, n) == v for n, v in known.items()))
    for launch, ours in judged.ours.items():
        table = tabulate(plan, b, launch)
        two_hop = any(r.form == "two_hop" for r in table.regions.values())
        chains = critical_chain(table).length, pro_chain_length(launch, two_hop)
        yield from count_rows(launch, tokens, name, ours, judged.theirs[launch], chains, polls=True)


def _record(name: str, tokens: int, counts: list[Row], errors: list[ErrorRow], problems: list[str]) -> dict[str, Any]:
    return {
        "kind": name,
        "tokens": tokens,
        "problems": problems,
        "rows": [vars(r) | {"ratio": r.ratio, "within": r.within} for r in counts],
        "errors": [vars(r) | {"ratio": r.ratio, "good": r.good} for r in errors],
        "peak_gb": round(_peak(), 2),
    }


def _lines(console: Console, judged: Judged) -> None:
    for who, launches in (("ours", judged.ours), ("theirs", judged.theirs)):
        for name, counts in launches.items():
            console.print(f"{who}, {name}: wave-instructions by source line")
            for line, number in Counter(counts.lines).most_common(20):
                console.print(f"    {number:9,}  {line}")


if __name__ == "__main__":
    typer.run(main)
