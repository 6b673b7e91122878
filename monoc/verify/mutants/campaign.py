"""Mutants drawn by a seed, each run until a check finds it."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from monoc.build.package import EmittedPackage
from monoc.verify.drive import Driver
from monoc.verify.mutants.bench import Bench, Bundle, benches, forget
from monoc.verify.mutants.operators import OPERATORS, sites
from monoc.verify.mutants.outcome import Outcome, Verdict, found_by, words
from monoc.verify.mutants.source import Site
from monoc.verify.verify import CellResult, StepFindings, Verifier

__all__ = ["Campaign", "FaultlessError"]


class FaultlessError(Exception):
    """A cell is bad without any fault: nothing can be said of mutants in it."""


class _FoundError(RuntimeError):
    """A step was bad: the rest of the cell says nothing new."""


class _Bench(Verifier):
    """A verifier that stops at the first bad step."""

    def _step(self, result: CellResult, *rest: Any) -> StepFindings:
        found = super()._step(result, *rest)
        if not found.good:
            result.steps.append(found)
            raise _FoundError
        return found


class Campaign:
    """Mutants of ``bundles``; ``orders`` schedules each."""

    def __init__(self, bundles: Iterable[Bundle], seed: int, orders: int) -> None:
        self.bundles, self.seed, self.orders = list(bundles), seed, orders
        self._verifiers: dict[str, _Bench] = {}
        self._faultless: set[tuple[str, Bench]] = set()  # that are known to be good without a fault
        self._count = 0
        self._sites = [(b, site) for b in self.bundles for source in b.sources.values() for site in sites(source)]

    def all_sites(self, operator: str) -> list[tuple[Bundle, Site]]:
        """Every place the operator can spoil."""
        return [(bundle, site) for bundle, site in self._sites if site.operator == operator]

    def run(self, each: int, report: Callable[[Outcome], None], operators: Sequence[str] = tuple(OPERATORS)) -> None:
        """``each`` mutants an operator that count, or all there are. Raises :class:`FaultlessError`."""
        for operator in operators:
            drawn = self.all_sites(operator)
            random.Random(f"{self.seed} {operator}").shuffle(drawn)
            counted = 0
            for bundle, site in drawn:
                outcome = self.judge(bundle, site)
                report(outcome)
                counted += outcome.counts
                if counted == each:
                    break

    def judge(self, bundle: Bundle, site: Site) -> Outcome:
        """One mutant through the benches that may reach it."""
        start = time.monotonic()
        outcome = Outcome(bundle.program.name, site)
        asked: dict[tuple[bool, str], bool] = {}
        for bench in benches(bundle, site, self.seed):
            if not bundle.matters(site, bench):
                continue
            self._run(bundle, site, bench, outcome, asked)
            if outcome.verdict in (Verdict.KILLED, Verdict.BROKEN):
                break
        outcome.seconds = time.monotonic() - start
        return outcome

    def _run(
        self, bundle: Bundle, site: Site, bench: Bench, outcome: Outcome, asked: dict[tuple[bool, str], bool]
    ) -> None:
        self._count += 1
        with tempfile.TemporaryDirectory(dir=bundle.folder) as folder:
            package = bundle.mutate(site, bench.flags, Path(folder) / f"m{self._count}")
            try:
                if not bundle.differs(package, bench, asked) and site.file != "plan.py":
                    return
            except Exception as error:  # CompileError, an assertion of the plan, an exception of traced Python
                outcome.verdict, outcome.detail = Verdict.BROKEN, f"{type(error).__name__}: {error}"
                return
            outcome.ran.append(bench.name)
            outcome.verdict = Verdict.SURVIVED
            result = self._verify(bundle, package, bench)
            forget(package)
        outcome.check = found_by(result)
        if outcome.check:
            self._hold(bundle, bench)
            outcome.verdict, outcome.bench, outcome.detail = Verdict.KILLED, bench.name, words(result)

    def _hold(self, bundle: Bundle, bench: Bench) -> None:
        """That the bench finds nothing in the faultless package."""
        key = (bundle.program.name, bench)
        if key not in self._faultless:
            result = self._verify(bundle, EmittedPackage.load(bundle.folders[bench.flags]), bench)
            if not result.good:
                raise FaultlessError(f"{bundle.program.name}, {bench.name}: bad without a fault: {words(result)}")
            self._faultless.add(key)

    def _verify(self, bundle: Bundle, package: EmittedPackage, bench: Bench) -> CellResult:
        with Driver(bundle.program, package, bundle.cache) as driver:
            verifier = self._verifiers.setdefault(bundle.program.name, _Bench(driver))
            verifier.driver = driver
            result = verifier.run(bench.cell, self.orders)
            if result.error.startswith("_FoundError"):
                result.error = ""
            return result
