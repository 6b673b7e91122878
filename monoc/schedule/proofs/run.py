"""All proofs over every build of a plan, with and without the all-barrier form; results cached by the plan's
hash."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from monoc.cache import cache_directory
from monoc.schedule.loader import PlanModule, load_plan
from monoc.schedule.memo import ByFields
from monoc.schedule.proofs.acyclic import prove_acyclic
from monoc.schedule.proofs.failure import Failure
from monoc.schedule.proofs.handoffs import prove_handoffs
from monoc.schedule.proofs.overtake import prove_epochs, prove_halves, prove_launch
from monoc.schedule.proofs.resources import prove_grid, prove_lds
from monoc.schedule.proofs.tags import prove_scratch_kinds, prove_tags_live
from monoc.schedule.tables import LaunchTable, tabulate
from monoc.target import Target

__all__ = ["ProofResult", "prove", "prove_cached"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ProofResult:
    """``failures`` of ``builds`` builds; ``distinct`` launches differed in their tables; ``cached``: read,
    not run."""

    builds: int
    distinct: int
    failures: tuple[Failure, ...]
    cached: bool = False


def prove(text: str, target: Target, progress: Progress | None = None) -> ProofResult:
    """Run every proof on plan text ``text``. One failure a (proof, launch, culprits), the first build it
    shows in."""
    plan = load_plan(text)
    found = [*prove_grid(plan, target), *prove_epochs(plan), *prove_tags_live(plan)]
    builds = [replace(b, barriers=barriers) for b in plan.builds() for barriers in (False, True)]
    seen: set[str] = set()
    deadlocked: set[str] = set()  # launches with a cycle: one is enough, and finding it is slow
    runs = {name: ByFields(_launch_facts(plan, name)) for name in plan.LAUNCHES}
    for k, b in enumerate(builds):
        if progress is not None:
            progress(k, len(builds))
        for name in plan.LAUNCHES:
            facts, new = runs[name](b)
            if facts is None or not new or facts.key in seen:
                continue
            seen.add(facts.key)
            build = _describe(b)
            if name not in deadlocked:
                cycles = prove_acyclic(facts.table, build)
                deadlocked |= {f.launch for f in cycles}
                found += cycles
            found += prove_handoffs(facts.table, build)
            found += prove_launch(plan, facts.table, facts.offsets, build)
            found += prove_lds(plan, b, name, target, build)
    for group in _groups(builds, plan.SCRATCH_KEY).values():
        found += prove_scratch_kinds(plan, group, _describe)
    for (tp,), group in _groups(builds, ("tp",)).items():
        found += prove_halves(plan, tp, group)
    return ProofResult(len(builds), len(seen), _first_of_each(found))


@dataclass(frozen=True)
class _Facts:
    """A launch of a build in numbers; equal ``key``: equal facts."""

    table: LaunchTable
    offsets: dict[str, int]
    key: str


def _launch_facts(plan: PlanModule, name: str) -> Callable[[Any], _Facts | None]:
    def facts(b: Any) -> _Facts | None:
        if not plan.LAUNCHES[name].runs(b):
            return None
        table = tabulate(plan, b, name)
        offsets = {k: v for k, v in {**plan.scratch(b), **plan.peer(b)}.items() if k.startswith(f"{name}.")}
        lds = [stage.lds for stage in plan.LAUNCHES[name].stages(b).values()]
        return _Facts(table, offsets, table.key + repr((offsets, lds)))

    return facts


def prove_cached(text: str, target: Target, progress: Progress | None = None) -> ProofResult:
    """:func:`prove`, its result kept under the user's cache directory by a hash of the plan and of the
    proofs."""
    path = cache_directory("proofs") / f"{_digest(text, target)}.json"
    try:
        kept = json.loads(path.read_text())
        failures = tuple(Failure(**{**f, "culprits": tuple(f["culprits"])}) for f in kept["failures"])
        return ProofResult(kept["builds"], kept["distinct"], failures, cached=True)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # absent or unreadable: run the proofs and write it
    result = prove(text, target, progress)
    content = json.dumps(asdict(result))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(content)
        scratch.replace(path)
    except OSError:
        pass  # a read-only home: the proofs run again next time
    return result


def _describe(b: Any) -> str:
    """A build in words: ``target, tokens 8, tp 4, ratio 0, fold, barriers``."""
    parts = [b.variant]
    for name in b.__dataclass_fields__:
        value = getattr(b, name)
        if name == "variant" or value is False:
            continue
        parts.append(name if value is True else f"{name} {value}")
    return ", ".join(parts)


def _groups(builds: list[Any], fields: tuple[str, ...]) -> dict[tuple[Any, ...], list[Any]]:
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for b in builds:
        groups.setdefault(tuple(getattr(b, f) for f in fields), []).append(b)
    return groups


def _first_of_each(found: list[Failure]) -> tuple[Failure, ...]:
    first: dict[tuple[str, str, tuple[str, str]], Failure] = {}
    for failure in found:
        first.setdefault((failure.proof, failure.launch, failure.culprits), failure)
    return tuple(first.values())


def _digest(text: str, target: Target) -> str:
    """Of the plan, the target and the sources of everything that evaluates them."""
    h = hashlib.sha256(text.encode())
    h.update(repr(target).encode())
    for source in _sources():
        h.update(source.read_bytes())
    return h.hexdigest()


def _sources() -> Iterator[Path]:
    here = Path(__file__).parent
    yield from sorted(here.glob("*.py"))
    yield from (here.parent / name for name in ("loader.py", "memo.py", "tables.py"))
