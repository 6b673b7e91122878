"""Proof 1: program order plus waits is acyclic over (rank, CTA, task), so a resident grid cannot deadlock.

Every CTA runs stages in program order and, inside a stage, tasks in increasing order, whoever hands them out:
placed tasks are a grid apart, a queue counts up, an arrival rank comes after the placed round. So it suffices
that every wait goes to something smaller in one order of (stage, task, step), the same for all CTAs and
ranks. Inside a stage two orders serve: task first (any assignment), or round first, then step, then task
(where a CTA has one task a round: a two-hop gather may then wait for any peer's first hop of its round).
Where neither serves, the graph itself is searched.

All ranks run one program, so ranks are folded: a wait on every rank's task is a wait on that task, and a
cycle of the folded graph is a cycle of the real one (each rank waits on all ranks, its own included).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np

from monoc.schedule.proofs.failure import Failure
from monoc.schedule.tables import AccessTable, LaunchTable, StageTable

__all__ = ["prove_acyclic"]

NAME = "acyclic"


def prove_acyclic(table: LaunchTable, build: str) -> list[Failure]:
    """A failure for the first wait that closes a cycle, naming the waiting and the awaited stage."""
    suspects = [wait for stage in table.stages.values() for wait in _unordered(table, stage)]
    if not suspects:
        return []
    dynamic = [s for pair in suspects for s in pair[:2] if s.take != "placed"]
    if not dynamic:
        cycle = _cycle(table)
        return [] if cycle is None else [_failure(table, build, *_named(table, cycle))]
    reader, writer, region = suspects[0]
    return [_failure(table, build, (reader.name, writer.name), region, f"{reader.name} takes tasks dynamically")]


def _failure(table: LaunchTable, build: str, who: tuple[str, str], region: str, how: str) -> Failure:
    reader, writer = who
    message = (
        f"stage {reader!r} waits for region {region!r} of stage {writer!r}, which can only come after it ({how}): "
        "move the writer before the reader in program order"
    )
    return Failure(NAME, table.name, build, who, message)


def _unordered(table: LaunchTable, stage: StageTable) -> Iterator[tuple[StageTable, StageTable, str]]:
    """The waits of ``stage`` that no order above covers: (reader, writer, region)."""
    same: list[tuple[AccessTable, AccessTable]] = []
    for read in stage.reads:
        if not read.count.any():
            continue
        for writer, write in table.writers(read.region):
            if writer.position > stage.position:
                yield stage, writer, read.region
            elif writer is stage:
                same.append((read, write))
    waits = [(*_waits(read, write), 2 * read.step, 2 * write.step + 1) for read, write in same]
    by_task = all(np.all((j < i) | ((j == i) & (ws < rs))) for i, j, rs, ws in waits)
    if by_task or (_one_a_round(table, stage) and all(_by_round(table.grid, *wait) for wait in waits)):
        return
    yield from ((stage, stage, read.region) for read, _ in same)


def _one_a_round(table: LaunchTable, stage: StageTable) -> bool:
    return stage.take == "placed" or stage.tasks <= table.grid


def _by_round(grid: int, i: Any, j: Any, rs: int, ws: int) -> bool:
    earlier, same = j // grid < i // grid, j // grid == i // grid
    return bool(np.all(earlier | (same & ((ws < rs) | ((ws == rs) & (j < i))))))


def _waits(read: AccessTable, write: AccessTable) -> tuple[Any, Any]:
    """(reader task, writer task) of every unit that is read and written."""
    by = np.full(max(write.total, 1), -1, dtype=np.int64)
    task, unit = write.pairs
    inside = (unit >= 0) & (unit < write.total)
    by[unit[inside]] = task[inside]
    task, unit = read.pairs
    inside = (unit >= 0) & (unit < write.total)
    task, awaited = task[inside], by[unit[inside]]
    return task[awaited >= 0], awaited[awaited >= 0]


def _cycle(table: LaunchTable) -> list[Any] | None:
    """A cycle of the folded graph; nodes ("task", stage, task, phase), ("unit", region, unit), ("grid",
    k)."""
    graph: Any = nx.DiGraph()
    ordered = sorted(table.stages.values(), key=lambda s: s.position)
    last: dict[int, Any] = {}
    for stage in ordered:
        if stage.name in table.barriers:
            fence = ("grid", stage.name)
            graph.add_edges_from((node, fence) for node in last.values())
            last = dict.fromkeys(range(table.grid), fence)
        phases = sorted({2 * r.step for r in stage.reads} | {2 * w.step + 1 for w in stage.writes} | {0})
        for i in range(stage.tasks):
            cta = (i + stage.first_cta) % table.grid
            for phase in phases:
                node = ("task", stage.name, i, phase)
                graph.add_node(node)
                if cta in last:
                    graph.add_edge(last[cta], node)
                last[cta] = node
        for w in stage.writes:
            graph.add_edges_from(
                (("task", stage.name, int(i), 2 * w.step + 1), ("unit", w.region, int(u)))
                for i, u in zip(*w.pairs, strict=True)
            )
        for r in stage.reads:
            if table.regions[r.region].form != "barrier":
                graph.add_edges_from(
                    (("unit", r.region, int(u)), ("task", stage.name, int(i), 2 * r.step))
                    for i, u in zip(*r.pairs, strict=True)
                )
    knot = next((c for c in nx.strongly_connected_components(graph) if len(c) > 1), None)
    if knot is None:
        return None
    # Inside a strongly connected component a walk is a cycle soon; over the whole graph find_cycle is quadratic.
    return [edge[0] for edge in nx.find_cycle(graph.subgraph(knot))]


def _named(table: LaunchTable, cycle: list[Any]) -> tuple[tuple[str, str], str, str]:
    """The wait of ``cycle`` that goes against program order."""
    ring = [*cycle, *cycle]
    found = [
        (ring[k + 1], ring[k], ring[k - 1])
        for k in range(1, len(cycle) + 1)
        if ring[k][0] == "unit" and ring[k + 1][0] == "task" and ring[k - 1][0] == "task"
    ]
    reader, unit, writer = max(found, key=lambda f: table.stages[f[2][1]].position - table.stages[f[0][1]].position)
    return (reader[1], writer[1]), unit[1], f"task {reader[2]} waits for task {writer[2]}"
