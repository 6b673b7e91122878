"""Cells run in this process or shared out to several, each result as soon as it is there."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from monoc.build.package import EmittedPackage
from monoc.cache import writable_cache
from monoc.spec.load import load_program
from monoc.verify.cells import Cell
from monoc.verify.drive import Driver
from monoc.verify.verify import CellResult, Verifier

__all__ = ["run_cells"]


def run_cells(
    spec: str, folder: Path, cells: Sequence[Cell], orders: int, jobs: int, begun: Callable[[Cell], None]
) -> Iterator[CellResult]:
    """The results of ``cells`` of the package in ``folder``, in the order in which they end. ``begun`` is told of every
    cell that starts. A process that dies costs its cell (an error says so), not the others."""
    if min(jobs, len(cells)) <= 1:
        with _driver(spec, folder) as driver:
            verifier = Verifier(driver)
            for cell in cells:
                begun(cell)
                yield verifier.run(cell, orders)
        return
    left = deque(cells)
    workers = [_Worker.start(spec, folder, orders) for _ in range(min(jobs, len(cells)))]
    try:
        for worker in workers:
            worker.give(left.popleft(), begun)
        while busy := [w for w in workers if w.cell is not None]:
            ready = wait([w.pipe for w in busy])
            for worker in (w for w in busy if w.pipe in ready):
                result = worker.take()
                if result is None:
                    died = f"the process that ran it ended (exit code {worker.ended()}): out of memory?"
                    result = CellResult(worker.held, error=died)
                    workers[workers.index(worker)] = worker = _Worker.start(spec, folder, orders)
                if left:
                    worker.give(left.popleft(), begun)
                yield result
    finally:
        for worker in workers:
            worker.stop()


def _driver(spec: str, folder: Path) -> Driver:
    torch.set_num_threads(1)  # the reference's operations are small: threads would only meet each other
    return Driver(load_program(spec), EmittedPackage.load(folder), writable_cache("kernels"))


def _serve(pipe: Connection, spec: str, folder: Path, orders: int) -> None:
    """A worker: cells come in, results go out, until the other end closes."""
    with _driver(spec, folder) as driver:
        verifier = Verifier(driver)
        while True:
            try:
                cell: Cell = pipe.recv()
            except EOFError:
                return
            pipe.send(verifier.run(cell, orders))


@dataclass
class _Worker:
    """A process and the ``cell`` it runs."""

    process: SpawnProcess
    pipe: Connection
    cell: Cell | None = None

    @classmethod
    def start(cls, spec: str, folder: Path, orders: int) -> _Worker:
        # Not forked: FlyDSL and torch have threads by now.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, spec, folder, orders), daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours)

    @property
    def held(self) -> Cell:
        assert self.cell is not None
        return self.cell

    def give(self, cell: Cell, begun: Callable[[Cell], None]) -> None:
        self.cell = cell
        begun(cell)
        self.pipe.send(cell)

    def take(self) -> CellResult | None:
        """The cell's result; None if the process has ended without one."""
        try:
            result: CellResult = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.cell = None
        return result

    def ended(self) -> int | None:
        self.process.join()
        return self.process.exitcode

    def stop(self) -> None:
        self.pipe.close()
        if self.cell is not None:
            self.process.terminate()
        self.process.join()
