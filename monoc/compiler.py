"""The compiler on one screen: spec -> program -> schedule -> proofs -> package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from monoc.emit.package import emit_package
from monoc.passes.pipeline import draft_schedule
from monoc.schedule.make import make_schedule
from monoc.schedule.model import Schedule
from monoc.schedule.printer import print_plan
from monoc.schedule.proofs.run import ProofResult, prove_cached
from monoc.spec.load import load_program
from monoc.spec.program import Program
from monoc.target import target

__all__ = ["Package", "compile_spec"]

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Package:
    """What a spec compiles to. ``files``: name -> final text; ``proof``: the schedule's, not yet acted on."""

    program: Program
    schedule: Schedule
    proof: ProofResult
    files: Mapping[str, str]


def compile_spec(path: str, progress: Progress | None = None) -> Package:
    """Compile the spec at ``path``; nothing is written.

    ``progress(what, done, total)`` is called now and then. Raises :class:`~monoc.diagnostics.CompileErrors` for a bad
    spec, :class:`~monoc.passes.layer.PassError` or :class:`~monoc.schedule.regions.HandOffError` for one that cannot be
    scheduled.
    """

    def tell(what: str) -> Callable[[int, int], None]:
        def step(done: int, total: int) -> None:
            if progress is not None:
                progress(what, done, total)

        step(0, 1)
        return step

    tell("reading the spec")
    program = load_program(path)
    tell("scheduling")
    gpu = target(program.target.arch)
    schedule = make_schedule(draft_schedule(program), gpu)
    proof = prove_cached(print_plan(schedule), gpu, tell("proving the schedule"))
    tell("emitting")
    files = {} if proof.failures else emit_package(program, schedule)
    return Package(program, schedule, proof, files)
