"""The compiler on one screen: spec -> program -> schedule -> proofs -> package."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from monoc.diagnostics import Code, CompileErrors, Diagnostic, Diagnostics
from monoc.emit.package import emit_package
from monoc.expr.ir import Span
from monoc.passes.layer import PassError
from monoc.passes.pipeline import draft_schedule
from monoc.schedule.bound import NameTakenError
from monoc.schedule.formula import attributes, constants
from monoc.schedule.make import Draft, make_schedule
from monoc.schedule.model import Schedule
from monoc.schedule.printer import print_plan
from monoc.schedule.proofs.run import ProofResult, prove_cached
from monoc.schedule.regions import HandOffError
from monoc.spec.load import load_program
from monoc.spec.program import Program
from monoc.target import target

__all__ = ["Package", "compile_spec", "fit_program", "schedule_program"]

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Package:
    """What a spec compiles to. ``files``: name -> final text; ``proof``: the schedule's, not yet acted on."""

    program: Program
    schedule: Schedule
    proof: ProofResult
    files: Mapping[str, str]


def fit_program(program: Program) -> Draft:
    """The stages of ``program``, before they are scheduled: all that its sizes and target have to suit.

    Raises :class:`~monoc.diagnostics.CompileErrors`."""
    try:
        return draft_schedule(program)
    except (PassError, HandOffError, NameTakenError) as error:
        raise _refusal(program, error) from None


def schedule_program(program: Program) -> Schedule:
    """The schedule of ``program`` on its target, not proved yet. Raises :class:`~monoc.diagnostics.CompileErrors`."""
    draft = fit_program(program)
    try:
        return make_schedule(draft, target(program.target.arch))
    except (PassError, HandOffError, NameTakenError) as error:
        stage = error.stage if isinstance(error, HandOffError) else None
        raise _refusal(program, error, _largest_size(program, draft, stage) if stage else None) from None


def _largest_size(program: Program, draft: Draft, stage: tuple[str, str]) -> Span | None:
    """Where the largest of the sizes is declared that a stage's task table is made of."""
    launch, name = stage
    shape = next(s.shape for la in draft.launches if la.name == launch for s in la.stages if s.name == name)
    formulas = [shape.tasks, *(w.units for w in shape.writes)]
    named = {n.lower() for f in formulas for n in constants(f)} | {n for f in formulas for n in attributes(f)}
    environment = program.environment(next(iter(program.space.builds())))
    sizes = [d for d in program.dims if d.name in named]
    return max(sizes, key=lambda d: environment[d.name]).span if sizes else None


def _refusal(
    program: Program, error: PassError | HandOffError | NameTakenError, span: Span | None = None
) -> CompileErrors:
    """``error`` at ``span``, or at the place of the spec it comes from (its beginning where only the whole is to
    blame)."""
    span = error.span if isinstance(error, PassError) else span
    message, remedy = str(error.args[0]), error.remedy if isinstance(error, PassError) else None
    if isinstance(error, NameTakenError):
        declared = {p.name.upper(): (p.name, p.span) for p in program.space.params}
        declared |= {d.name.upper(): (d.name, d.span) for d in program.dims}
        declared |= {t.name.upper(): (t.name, t.span) for t in program.tensors}
        name, span = declared.get(error.name.upper(), (error.name, None))
        message, remedy = f"the name `{name}` is taken: {message}", "choose another name"
    sources = Diagnostics()
    if span is None:
        lines = (sources.read(program.path) or "").splitlines()
        at = -1, 0  # a class has no declaration: where its name stands first
        if isinstance(error, NameTakenError):
            word = re.compile(rf"\b{re.escape(error.name)}\b")
            at = next(((i, m.start()) for i, line in enumerate(lines) if (m := word.search(line))), at)
        span = Span(program.path, max(at[0], 0) + 1, at[1] + 1, 1)
    sources.read(span.file)
    return CompileErrors([Diagnostic(Code.UNFIT, message, span, remedy)], sources.sources)


def compile_spec(path: str, progress: Progress | None = None) -> Package:
    """Compile the spec at ``path``; nothing is written.

    ``progress(what, done, total)`` is called now and then. Raises :class:`~monoc.diagnostics.CompileErrors` for a bad
    spec and for one that cannot be scheduled.
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
    schedule = schedule_program(program)
    proof = prove_cached(print_plan(schedule), gpu, tell("proving the schedule"))
    tell("emitting")
    try:
        files = {} if proof.failures else emit_package(program, schedule)
    except NameTakenError as error:
        raise _refusal(program, error) from None
    return Package(program, schedule, proof, files)
