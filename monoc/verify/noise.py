"""What a layer makes of the last bits of its sums: the reference, run with them summed in other orders.

fp32 sums whose order is the kernel's choice differ in their last bits; attention adds keys in chunks and rounds each
to bf16. Behind such a sum a value on the edge of a rounding falls on the other side of it, and a rounding to e4m3
makes a step of 6 to 12 % of it. How far outputs move for that is a property of the layer and its inputs, and is
measured with them: the step's tokens are run again as more tokens of one larger step, whose sums come out otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from monoc.reference.arithmetic import Arithmetic
from monoc.reference.interpret import Both, Observer, Reference
from monoc.reference.noise import Reordered
from monoc.spec.buildexpr import BuildValue
from monoc.spec.program import Build, Entry, OpStatement, Program, Role, Statement
from monoc.verify.inputs.roles import Roles, op_statements
from monoc.verify.inputs.step import StepInputs
from monoc.verify.inputs.weights import Weights

__all__ = ["Ends", "Picks", "run_ends"]

Tensor = torch.Tensor
SAMPLES = 16  # tokens summed otherwise at least: the largest of so many is a bound to rely on


@dataclass(frozen=True)
class Picks:
    """Experts ``ids`` [runs, t, p] of a route and the keys [runs, t, experts] they were picked by; None where the host
    gives the experts."""

    ids: Tensor
    keys: Tensor | None


@dataclass(frozen=True)
class Ends:
    """Outputs [runs, t, ..] and picks by name; run 0 is the stated one, the others are summed in other orders."""

    outputs: dict[str, Tensor]
    picks: dict[str, Picks]


def run_ends(program: Program, entry: Entry, build: Build, inputs: StepInputs, weights: Weights, seed: int) -> Ends:
    """The reference's own way through a step, as stated and a few times summed in other orders. Experts get numbers as
    they are picked."""
    tokens = build["tokens"]
    runs = 1 + max(2, -(-SAMPLES // tokens))
    many = Build(build.variant, tuple((n, v * runs if n == "tokens" else v) for n, v in build.values))
    wider = _Wider(program, entry, program.environment(build), tokens, runs)
    given = [{**w, **wider.tensors(i)} for w, i in zip(weights.tensors, inputs.tensors, strict=True)]
    selected = wider.tensors(inputs.selected)
    generator = torch.Generator().manual_seed(seed)
    reference = Reference(program, many, Arithmetic(exact=False, reordered=Reordered(tokens, generator)), exact=False)
    routes = [s for s in op_statements(program, entry) if s.op == "route"]
    wanted = {*entry.outputs, *(v for s in routes for v in (s.results[0], s.operand("score") or ""))}
    trace = reference.run(entry, given, lambda _: selected, _materialising(weights), wanted)

    def apart(value: Tensor) -> Tensor:
        return value.reshape(runs, tokens, *value.shape[1:])

    picks = {}
    for s in routes:
        if s.guard.evaluate(program.environment(build)):
            ids = apart(trace.values[s.results[0]].stated[0])
            bias = s.operand("bias")
            key = trace.values[s.operand("score") or ""].stated[0]
            if bias is not None and s.operand("ids") not in given[0]:
                picks[s.results[0]] = Picks(ids, apart(key + given[0][bias].float()))
            else:
                picks[s.results[0]] = Picks(ids, None if s.operand("ids") in given[0] else apart(key))
    return Ends({n: apart(trace.values[n].stated[0]) for n in entry.outputs}, picks)


def _materialising(weights: Weights) -> Observer:
    def observe(name: str, statement: Statement, both: Both) -> None:
        if isinstance(statement, OpStatement) and statement.op == "route" and name == statement.results[0]:
            weights.materialise(both.stated[0].flatten().tolist())

    return observe


@dataclass(frozen=True)
class _Wider:
    """A step's inputs as those of a step of ``runs`` times its tokens. Runs share what they only read; the caches they
    write are theirs alone, one behind the other."""

    program: Program
    entry: Entry
    env: Mapping[str, BuildValue]
    tokens: int
    runs: int

    def tensors(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """``given`` by name: rows of tokens as often as there are runs."""
        roles = Roles.of(self.program)
        written = {s.operand("cache") for s in op_statements(self.program, self.entry) if s.op == "kv_insert"}
        slots = {n for op, p in _SLOTS for n in roles.tensors(op, p)}
        records = next((t.shape[0] * t.shape[1] for n, t in given.items() if n in written), 0)
        found = {}
        for name, tensor in given.items():
            decl = self.program.tensor[name]
            size = decl.shape[0].size
            if name in written:
                found[name] = torch.cat([tensor] * self.runs)
            elif decl.role is Role.INPUT and size is not None and size.names() == {"tokens"}:
                rows = tensor.narrow(0, 0, self.tokens)
                found[name] = torch.cat([self._moved(rows, k * records) if name in slots else rows for k in self._all])
            else:
                found[name] = tensor
        return found

    @property
    def _all(self) -> range:
        return range(self.runs)

    def _moved(self, slots: Tensor, by: int) -> Tensor:
        """Slots of a cache as those of the copy behind ``by`` records; what is no slot stays what it is."""
        return torch.where((slots >= 0) & (slots < 2**30), slots + by, slots)


_SLOTS = (("kv_insert", "slots"), ("key_table", "slots"), ("key_table", "window_slots"))
