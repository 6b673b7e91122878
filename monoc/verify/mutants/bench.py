"""Where mutants run: packages (as emitted, and with every hand-off that can be one behind flags) and cells of them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx

from monoc.build.isa import compile_isa
from monoc.build.package import EmittedPackage, forget_modules
from monoc.emit.files import write_package
from monoc.emit.package import emit_package
from monoc.passes.pipeline import draft_schedule
from monoc.schedule.make import make_schedule
from monoc.schedule.model import Form
from monoc.schedule.regions import writers
from monoc.spec.program import Entry, Program
from monoc.target import target
from monoc.verify.cells import Cell, Kind, kinds
from monoc.verify.handoffs import crossing_regions
from monoc.verify.mutants.source import Site, Source
from monoc.verify.watch import package_build

__all__ = ["Bench", "Bundle", "benches", "forget"]

CASES = ("zero-rows", "far-apart", "key-counts", "padded", "ties", "wrap")
_TILE = 16  # tokens of a matrix instruction


@dataclass(frozen=True)
class Bench:
    """A cell, of the package as emitted or (``flags``) of the one that hands over behind flags."""

    cell: Cell
    flags: bool

    @property
    def name(self) -> str:
        """Short, unique."""
        return f"{self.cell.name}{' flags' if self.flags else ''}"


class Bundle:
    """One spec's packages in ``folder``, their text and their assembly."""

    def __init__(self, program: Program, emitted: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.folders = {False: emitted, True: folder / f"{program.name}_flags"}
        write_package(self.folders[True], _behind_flags(program))
        self.package = EmittedPackage.load(emitted)
        self.runner = getattr(self.package.part("runner"), program.runner.class_name)
        self.plans = {flags: EmittedPackage.load(at).plan for flags, at in self.folders.items()}
        self.cache = folder / "kernels"
        self._known: dict[tuple[bool, str], str] = {}
        peers = frozenset(name.rpartition(".")[2] for slot in self.package.plan.PEER_SLOTS for name in slot)
        files = (*(f"{launch}.py" for launch in self.package.plan.LAUNCHES), "device.py", "plan.py")
        self.sources = {name: Source(name, (emitted / name).read_bytes(), peers) for name in files}

    def entries(self, file: str) -> frozenset[str]:
        """The entries that run code of ``file``."""
        launch = file.removesuffix(".py")
        every = frozenset(e.name for e in self.program.entries)
        chosen = frozenset(e.name for e in self.program.entries if launch in {la.name for la in e.launches})
        return chosen or every

    def matters(self, site: Site, bench: Bench) -> bool:
        """Whether some region of the site goes from CTA to CTA in some launch of the bench's steps."""
        if not site.regions:
            return True
        plan = self.plans[bench.flags]
        return any(site.regions & crossing_regions(plan, b, launch) for launch, b in self._launches(plan, bench))

    def mutate(self, site: Site, flags: bool, to: Path) -> EmittedPackage:
        """A copy of a package with the fault, loaded."""
        shutil.copytree(self.folders[flags], to, ignore=shutil.ignore_patterns("__pycache__"))
        data = (to / site.file).read_bytes()
        own = self.sources[site.file].data
        if own != data and site.file != "plan.py" and own.splitlines()[4:] != data.splitlines()[4:]:
            raise AssertionError(f"{to / site.file} is not the text the site was found in")
        (to / site.file).write_bytes(site.apply(data))
        return EmittedPackage.load(to)

    def differs(self, package: EmittedPackage, bench: Bench, asked: dict[tuple[bool, str], bool]) -> bool:
        """Whether some launch of the bench's steps has other assembly than the faultless package's. ``asked``: what is
        known of this mutant's kernels. Raises what compiling raises."""
        found = False
        for launch, b in self._launches(package.plan, bench):
            key = (bench.flags, package.plan.symbol(b, launch))
            if key not in self._known:
                self._known[key] = self._assembly(EmittedPackage.load(self.folders[bench.flags]), launch, b)
            if key not in asked:
                asked[key] = self._assembly(package, launch, b) != self._known[key]
            found = found or asked[key]
        return found

    def _launches(self, plan: Any, bench: Bench) -> Iterator[tuple[str, Any]]:
        entry = _entry(self.program, bench.cell.kind)
        for build in bench.cell.builds(self.program):
            b = package_build(self.program, plan, build, bench.cell.barriers)
            for launch in entry.launches:
                yield launch.name, plan.canonical(b, launch.name)

    def _assembly(self, package: EmittedPackage, launch: str, b: Any) -> str:
        module = package.part(launch)
        # a class of its own: packages of one text have equal builds, but not equal classes
        own = package.plan.Plan(**{f.name: getattr(b, f.name) for f in fields(b)})
        made = getattr(module, f"build_{launch}")(own)
        null = flyc.from_c_void_p(fx.Int32, None)
        values = [null if name == "epoch" else 0 for name in module.ARGUMENTS]
        result = compile_isa(made, [*values, fx.Stream(None)], package.plan.TARGET, cache_dir=self.cache)
        return hashlib.sha256(result.text.encode()).hexdigest()


def forget(package: EmittedPackage) -> None:
    """Drop the modules of a package that is not used again."""
    forget_modules(package.module.__name__)


def _behind_flags(program: Program) -> dict[str, str]:
    """The package with every hand-off behind flags whose stage serves that."""
    draft = draft_schedule(program)
    forms = {
        (launch.name, region): (Form.FLAG, "all behind flags")
        for launch in draft.launches
        for region, (_, write) in writers(launch).items()
        if Form.FLAG in write.forms
    }
    schedule = make_schedule(replace(draft, forms={**draft.forms, **forms}), target(program.target.arch))
    return emit_package(program, schedule)


def benches(bundle: Bundle, site: Site, seed: int) -> Iterator[Bench]:
    """The cells that may reach a site, the cheap and telling ones first; hard inputs last.

    Three steps of one width (so that scratch and both halves of the peer buffer hold an earlier step's words), in every
    form the site is in; steps past a token tile; the other kinds of layer; other numbers of ranks; hard inputs.
    """
    program, entries = bundle.program, bundle.entries(site.file)
    small, past = _widths(program)
    known = [k for k in kinds(program, bundle.runner) if k.entry in entries]
    # of as many launches, first those the host does something between: it is given what the first launch hands it
    known.sort(key=lambda k: (len(_entry(program, k).launches), -_calls(program, k)))
    first = [k for n, k in enumerate(known) if k.entry not in {j.entry for j in known[:n]}]
    ranks = next(p.values for p in program.space.params if p.name == "tp")
    tp = min((n for n in ranks if n > 1), default=ranks[0])
    found = [Bench(Cell(kind, small, tp, seed, *form[:1]), form[1]) for kind in first for form in _forms(site)]
    found += [Bench(Cell(kind, past, tp, seed, *form[:1]), form[1]) for kind in first for form in _forms(site)]
    found += [Bench(Cell(kind, small, tp, seed), False) for kind in known if kind not in first]
    found += [Bench(Cell(kind, past, n, seed), False) for kind in first for n in ranks if n != tp]
    found += [Bench(Cell(kind, small, tp, seed, case=case), False) for kind in first for case in CASES]
    for bench in found:
        if all(bench.cell.kind.build(program, width, bench.cell.tp) is not None for width in bench.cell.widths):
            yield bench


def _calls(program: Program, kind: Kind) -> int:
    """Host calls between the launches of a kind of layer."""
    ranks = next(p.values for p in program.space.params if p.name == "tp")
    builds = (kind.build(program, width, n) for width in _widths(program)[0] for n in ranks)
    build = next((b for b in builds if b is not None), None)
    if build is None:
        return 0
    environment = program.environment(build)
    return sum(bool(h.guard.evaluate(environment)) for h in _entry(program, kind).host_calls)


def _forms(site: Site) -> tuple[tuple[bool, bool], ...]:
    """(barriers, flags) of the packages a site may matter in."""
    if site.file == "plan.py":  # the two packages differ there
        return (False, False), (True, False)
    if site.form == "barrier":
        return ((True, False),)
    return ((False, True), (False, False)) if site.form == "flag" else ((False, False), (True, False), (False, True))


def _widths(program: Program) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Steps of a few rows, and steps past a token tile (if there are any)."""
    widths = next(p.values for p in program.space.params if p.name == "tokens")
    few = 3 if 3 in widths else min(widths)
    past = min((w for w in widths if w > _TILE), default=max(widths))
    return (few, few, few), (past, min(widths), past)


def _entry(program: Program, kind: Kind) -> Entry:
    return next(e for e in program.entries if e.name == kind.entry)
