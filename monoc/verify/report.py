"""What verification found, as tables, JSON and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

from rich.table import Table

from monoc.verify.ranks import RankDifference
from monoc.verify.stages import Finding
from monoc.verify.verify import CellResult

__all__ = ["as_json", "explain", "summary_table", "traffic_table"]


def summary_table(cells: Iterable[Mapping[str, Any]], outputs: Iterable[str]) -> Table:
    """A row a cell of :func:`as_json`: its verdict; of every output the error on the kernel's own inputs against the
    exact mode; of the outputs end to end the largest error and how much of what is allowed that is."""
    table = Table(box=None)
    names = list(outputs)
    left = ("cell", "")
    for heading in (*left, *names, "end to end", "of limit", "million wave-instructions", "peak GB", "seconds"):
        table.add_column(heading, no_wrap=heading == "cell", justify="left" if heading in left else "right")
    for c in cells:
        steps = c["steps"]
        errors = [f"{_worst(steps, n):.1e}" if steps else "" for n in names]
        ends = [e for s in steps for e in s["end_to_end"].values()]
        errors.append(f"{max((e['error'] for e in ends), default=0.0):.1e}")
        errors.append(f"{max((e['error'] / e['limit'] for e in ends), default=0.0):.0%}")
        count, peak = f"{c['wave_instructions'] / 1e6:.1f}", f"{c['peak_bytes'] / 1e9:.1f}"
        seconds = f"{c['seconds']['all']:.1f}"
        table.add_row(c["cell"], "good" if c["good"] else "BAD", *errors, count, peak, seconds)
    return table


def traffic_table(cells: Iterable[Mapping[str, Any]]) -> Table:
    """How often each cell's launches asked for every byte of a weight, at most, over the steps; all ranks together."""
    table = Table(box=None)
    for heading in ("cell", "launch", "weight", "", "megabytes implied", "asked for, times"):
        table.add_column(heading, justify="right" if heading.startswith(("mega", "asked")) else "left")
    for c in cells:
        rows: dict[tuple[str, str], Mapping[str, Any]] = {}
        for t in (t for s in c["steps"] for t in s["traffic"]):
            known = rows.setdefault((t["launch"], t["weight"]), t)
            if t["times"] > known["times"]:
                rows[t["launch"], t["weight"]] = t
        for (launch, weight), t in rows.items():
            verdict = ("once" if t["good"] else "BAD") if t["streamed"] else "shared"
            table.add_row(c["cell"], launch, weight, verdict, f"{t['implied'] / 1e6:.3f}", f"{t['times']:.3f}")
    return table


def _worst(steps: Iterable[Mapping[str, Any]], value: str) -> float:
    """The largest relative error of ``value`` against the exact numbers, over steps and ranks."""
    return max((v["relative_error"] for s in steps for v in s["values"] if v["value"] == value), default=0.0)


def explain(result: CellResult) -> list[str]:
    """What is wrong with a cell, first things first; nothing for a good one."""
    name = result.cell.name
    if result.error:
        return [f"{name}: {line}" if k == 0 else f"  {line}" for k, line in enumerate(result.error.splitlines())]
    lines = [f"{name}: other bits under {unlike}" for unlike in result.unlike[:5]]
    for k, step in enumerate(result.steps):
        where = f"{name}: step {k} ({step.width} rows)"
        if step.first_bad is not None:
            lines += [f"{where}: first wrong value: {_finding(step.first_bad)}"]
            others = dict.fromkeys(f.value for f in step.stages if not f.difference.good)
            later = [v for v in others if v != step.first_bad.value]
            if later:
                lines.append(f"  wrong on their own inputs too: {', '.join(later)}")
        lines += [f"{where}: {_ranks(d)}" for d in step.ranks_differ]
        if step.unexplained:
            lines.append(f"{where}: other experts for no near tie: tokens {', '.join(map(str, step.unexplained))}")
        lines += [f"{where}: a hand-off that did not happen: {m}" for m in step.missing[:5]]
        lines += [
            f"{where}: end to end {n} of token {d.token} is {d.error:.2%} off (relative L2); other orders of adding "
            f"explain {d.limit:.2%}"
            for n, d in step.ends.items()
            if not d.good
        ]
        lines += [
            f"{where}: {t.launch} asks for {t.requested} bytes of {t.weight}, {t.times:.2f} times the {t.implied} "
            f"there are"
            for t in step.traffic
            if not t.good
        ]
    return lines


def _finding(f: Finding) -> str:
    d = f.difference
    token = f"token {d.index[0]}, element {list(d.index[1:])}" if d.index else "the whole value"
    return (
        f"{f.value} (in {f.where}, rank {f.rank}): {d.why}; {token}: kernel {d.kernel:.9g}, "
        f"reference {d.reference:.9g}; {d.share:.2%} of the elements differ, relative L2 {d.relative:.1e}; "
        f"`{f.origin}` {f.line}"
    )


def _ranks(d: RankDifference) -> str:
    held = ", ".join(f"rank {rank} {value:.9g}" for rank, value in enumerate(d.values))
    return (
        f"the ranks disagree about {d.value}: {d.elements} of {d.total} elements; token {d.index[0]}, element "
        f"{list(d.index[1:])}: {held}"
    )


def as_json(results: Iterable[CellResult]) -> list[dict[str, Any]]:
    """Everything, for scripts and the saved report."""
    return [_cell(r) for r in results]


def _cell(r: CellResult) -> dict[str, Any]:
    return {
        "cell": r.cell.name,
        "kind": r.cell.kind.name,
        "turns": [k.name for k in r.cell.turns],
        "widths": list(r.cell.widths),
        "tp": r.cell.tp,
        "seed": r.cell.seed,
        "case": r.cell.case,
        "barriers": r.cell.barriers,
        "orders": r.orders,
        "traffic": r.cell.traffic,
        "good": r.good,
        "error": r.error,
        "unlike": r.unlike,
        "wave_instructions": r.instructions,
        "peak_bytes": r.peak_bytes,
        "seconds": {"simulated": round(r.simulated, 2), "all": round(r.seconds, 2)},
        "steps": [
            {
                "rows": s.width,
                "ranks_differ": [asdict(d) for d in s.ranks_differ],
                "missing_handoffs": s.missing,
                "rerouted_tokens": s.rerouted,
                "unexplained_tokens": list(s.unexplained),
                "end_to_end": {n: {"good": d.good, **asdict(d)} for n, d in s.ends.items()},
                "bits": _digests(bits),
                "traffic": [{**asdict(t), "times": t.times, "good": t.good} for t in s.traffic],
                "values": [_value(f) for f in s.stages],
            }
            for s, bits in zip(r.steps, r.bits, strict=False)  # a step that failed has bits, but no findings
        ],
    }


def _digests(bits: Mapping[str, str]) -> dict[str, str]:
    """A digest of each output and cache, of all ranks together: reports of two packages can be compared by them."""
    ranks: dict[str, list[str]] = {}
    for name, digest in bits.items():
        ranks.setdefault(name.split()[-1], []).append(digest)
    return {n: blake2b(" ".join(d).encode(), digest_size=8).hexdigest() for n, d in ranks.items()}


def _value(f: Finding) -> dict[str, Any]:
    d = f.difference
    found: dict[str, Any] = {
        "value": f.value,
        "rank": f.rank,
        "read_from": f.where,
        "statement": f.origin,
        "asked": "bits" if f.asked.bits else "near",
        "good": d.good,
        "other_bits": d.share,
        "relative_error": d.relative,
        "of_limit": d.used,
    }
    if not d.good:
        found |= {"why": d.why, "index": list(d.index), "kernel": d.kernel, "reference": d.reference}
        found["line"] = f.line
    return found
