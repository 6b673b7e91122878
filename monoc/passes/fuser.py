"""What the fuse rules share: one launch's graph, what is taken already, names of regions, slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from monoc.expr.ir import Expr
from monoc.expr.slot import Slot, SlotInput
from monoc.graph.model import LayerGraph, Operation
from monoc.passes.layer import FusedStage, PassError
from monoc.passes.names import PlanNames
from monoc.passes.slots import SlotError, SlotMaker, identifier
from monoc.schedule.formula import Formula, formula
from monoc.schedule.model import TRUE, ZERO, RegionRead, StageShape, Units
from monoc.skeletons.base import SkeletonParams
from monoc.skeletons.rank_reduce import TwoHop
from monoc.spec.buildexpr import BuildExpr
from monoc.spec.program import AttributeValue, MapStatement, OpStatement, ScalarFunction

__all__ = ["REGION_SUFFIXES", "Fuser", "Made", "NotReadyError", "slice_units"]


# What a region's name says of the value it holds: MXFP8 rows by rule, one bf16 row, bf16 rows, partial sums, a key
# table, chunks of attention, routes, rows a pick, every rank's part, residual streams, a token's gates,
# sums over the ranks.
REGION_SUFFIXES = (
    "mx_v", "mx_m", "row", "rows", "parts", "table", "chunks", "picks", "picked", "ranks", "streams", "gates",
    "sums",
)  # fmt: skip


class NotReadyError(PassError):
    """A rule needs a region whose stage is not fused yet: it is tried again after the others."""


@dataclass(frozen=True)
class Made:
    """A region as its writer makes it: ``units`` of it (a formula) and, where a unit is a column slice of every token,
    the ``columns`` of a unit (a formula)."""

    region: str
    units: str
    columns: str = ""


@dataclass
class Fuser:
    """One launch being fused. ``made``: regions by the value they hold; ``stages``: the stages so far;
    ``before``: what earlier launches made."""

    graph: LayerGraph
    names: PlanNames
    before: Mapping[str, Made]
    made: dict[str, Made] = field(default_factory=dict)
    stages: list[FusedStage] = field(default_factory=list)
    taken: dict[str, str] = field(default_factory=dict)
    properties: dict[str, Formula] = field(default_factory=dict)

    # ------------------------------------------------------------------ operations

    def free(self, kind: str) -> Iterable[Operation]:
        """Operations of ``kind`` no stage has taken, producers first."""
        return [op for op in self.graph.topological() if op.kind == kind and op.name not in self.taken]

    def consumer(self, value: str, kinds: tuple[str, ...]) -> Operation | None:
        """The one operation that reads ``value``, if it is of one of ``kinds`` and not taken."""
        found = self.graph.consumers(value)
        if len(found) == 1 and found[0].kind in kinds and found[0].name not in self.taken:
            return found[0]
        return None

    def producer(self, value: str) -> Operation:
        """The operation that writes ``value``. Raises :class:`PassError` if it is an input or has several."""
        found = self.graph.producers(value)
        if len(found) != 1:
            raise PassError(
                f"fuse: {value} is made by {len(found)} operations of launch {self.graph.launch}, not by one"
            )
        return found[0]

    def op(self, operation: Operation) -> OpStatement:
        """The statement of a structured operation."""
        if not isinstance(operation.statement, OpStatement):
            raise self.error(operation, "is not a structured operation")
        return operation.statement

    def operand(self, operation: Operation, name: str) -> str:
        """The value given for operand ``name``. Raises :class:`PassError` if it was left out."""
        value = self.op(operation).operand(name)
        if value is None:
            raise self.error(operation, f"needs {name}")
        return value

    def attribute(self, operation: Operation, name: str) -> AttributeValue:
        return self.op(operation).attribute(name)

    def error(self, operation: Operation, why: str) -> PassError:
        """An error about ``operation``, with where it was written."""
        return PassError(f"{operation.name} ({operation.kind}) {why}", operation.span)

    # ------------------------------------------------------------------ stages

    def add(
        self,
        name: str,
        params: SkeletonParams,
        operations: Iterable[Operation],
        *,
        guard: BuildExpr | None = None,
        reads: Mapping[str, Units] | None = None,
        parts: Mapping[str, str] | None = None,
    ) -> None:
        """A stage; ``reads``: units to wait for where the region's writer slices it otherwise than the skeleton
        assumes; ``parts``: what part of its units' words a task reads (1 / a formula), where the skeleton does not
        say."""
        taken = list(operations)
        self.taken |= {op.name: name for op in taken}
        try:
            shape = params.describe()
        except ValueError as error:
            raise self.error(taken[0], f"does not fit its skeleton: {error}") from None
        self.stages.append(
            FusedStage(
                name=name,
                skeleton=params.template,
                params=params,
                shape=_reading(shape, reads or {}, parts or {}),
                operations=tuple(op.name for op in taken),
                guard=guard if guard is not None else taken[0].guard,
                statements=tuple(dict.fromkeys(op.statement.origin for op in taken)),
            )
        )

    def hold(self, value: str, suffix: str, units: str, columns: str = "") -> str:
        """Name the region that holds ``value`` (or what ``suffix`` says of it)."""
        assert suffix in REGION_SUFFIXES, suffix
        region = f"{self.short(value)}_{suffix}"
        self.made[f"{value}/{suffix}"] = Made(region, units, columns)
        return region

    def holds(self, value: str, suffix: str) -> bool:
        """Whether a stage made ``value`` as ``suffix``."""
        key = f"{self.graph.base(value)}/{suffix}"
        return key in self.made or key in self.before

    def also(self, value: str, suffix: str, made: Made) -> None:
        """``value`` (as ``suffix``) is in a region another value named."""
        self.made[f"{value}/{suffix}"] = made

    def held(self, value: str, suffix: str) -> Made:
        """The region a stage made of ``value``. Raises :class:`NotReadyError` while none has."""
        key = f"{self.graph.base(value)}/{suffix}"
        found = self.made.get(key) or self.before.get(key)
        if found is None:
            raise NotReadyError(f"fuse: launch {self.graph.launch} needs {value} as {suffix}, which no stage makes")
        return found

    def short(self, value: str) -> str:
        """The value's name without its definition's path, where that is still the only one in the launch."""
        last = value.partition("@")[0].rpartition(".")[2]
        values = {v.partition("@")[0] for op in self.graph.operations for v in (*op.reads, *op.writes)}
        alike = [v for v in values if v.rpartition(".")[2] == last]
        return identifier(last if len(alike) <= 1 else value.partition("@")[0])

    def stage_name(self, operation: Operation, suffix: str) -> str:
        """A stage's name: the definition the operation stands in, and what the stage does."""
        scope = operation.statement.scope.rpartition(".")[2] or self.graph.launch
        return f"{identifier(scope)}_{suffix}"

    def in_memory(self, value: str) -> bool:
        """Whether ``value`` leaves the launch, so that a stage has to store it."""
        return value in self.graph.outputs

    def leaves_when(self, value: str) -> Formula:
        """In which builds ``value`` leaves the launch."""
        wanted: list[Formula] = []
        for entry in self.names.program.entries:
            if all(launch.name != self.graph.launch for launch in entry.launches):
                continue
            wanted += [TRUE] * (value in entry.outputs)
            wanted += [self.names.guard(h.guard) for h in entry.host_calls if value in h.arguments]
            others = [s for la in entry.launches if la.name != self.graph.launch for s in la.statements]
            wanted += [self.names.guard(s.guard) for s in others if value in s.operands]
        if TRUE in wanted or not wanted:
            return TRUE
        return formula(" or ".join(f"({w})" if " " in w else w for w in dict.fromkeys(wanted)))

    def given_when(self, tensor: str | None) -> Formula:
        """In which builds the host gives ``tensor`` (an optional operand)."""
        return TRUE if tensor is None else self.names.guard(self.names.program.tensor[tensor].guard)

    @property
    def two_hop(self) -> Formula:
        """In which builds all-reduces go through the columns' owners."""
        guard = self.names.program.schedule.two_hop
        return ZERO if guard is None else self.names.guard(guard)

    def second_hop(self, value: str, slices: str, columns: str) -> TwoHop | None:
        """The second hop of ``value``, a sum over ranks."""
        if self.two_hop == ZERO:
            return None
        return TwoHop(self.hold(value, "sums", slices, columns), "rank", self.two_hop)

    # ------------------------------------------------------------------ dimensions and slots

    def dim(self, value: str, axis: int) -> str:
        """A dimension of ``value`` as a plan expression."""
        return self.names.text(self.graph.types[value].shape[axis])

    def width_of(self, extent: BuildExpr | None, operation: Operation) -> str:
        """A tensor's axis as a plan expression. Raises :class:`PassError` where the spec leaves it open."""
        if extent is None:
            raise self.error(operation, "reads a tensor whose size the spec leaves open")
        return self.names.text(extent)

    def named(self, name: str, text: str) -> str:
        """A number the plan gives a name: ``text``, as stages write it. Not a name the spec has."""
        taken = {d.name for d in self.names.program.dims} | set(self.names.program.space.names())
        while name in taken:
            name += "_"
        self.properties[name] = formula(text)
        return f"b.{name}"

    def size(self, operation: Operation, value: AttributeValue) -> str:
        """A size attribute as a plan expression."""
        if isinstance(value, BuildExpr):
            return self.names.text(value)
        raise self.error(operation, f"has {value!r} where a size is needed")

    def when(self, operation: Operation) -> Formula:
        return self.names.guard(operation.guard)

    def maker(self, operations: Iterable[Operation]) -> SlotMaker:
        """A slot maker that inlines the maps among ``operations``."""
        maps = {op.writes[0]: op.map for op in operations if isinstance(op.statement, MapStatement)}
        extents: dict[str, int] = {}
        for statement in maps.values():
            for variable, extent in statement.extents:
                number = self.names.number(extent)
                if number is not None:
                    extents[variable] = number
        return SlotMaker(maps, extents)

    def slot(
        self, name: str, operation: Operation, inline: Iterable[Operation] = (), order: tuple[str, ...] = ()
    ) -> Slot:
        """The slot of ``operation``'s element, with the maps of ``inline`` folded in."""
        try:
            return self.maker([operation, *inline]).make(name, operation.writes[0], order)
        except SlotError as error:
            raise self.error(operation, f"is no scalar program: {error}") from None

    def function_slot(self, name: str, operation: Operation, attribute: str) -> Slot:
        """A function attribute of a structured operation as a slot; its inputs are the parameters in order."""
        function = self.attribute(operation, attribute)
        if not isinstance(function, ScalarFunction):
            raise self.error(operation, f"needs a function as {attribute}")
        inputs = tuple(SlotInput(p) for p in function.params)
        return Slot(name, inputs, (), (function.body,), (function.name,))

    def slot_of(self, name: str, operation: Operation, expr: Expr, order: tuple[str, ...] = ()) -> Slot:
        """The slot of a part ``expr`` of ``operation``'s expression."""
        part = replace(operation.map, expr=expr)
        try:
            return SlotMaker({"": part}, {}).make(name, "", order)
        except SlotError as error:
            raise self.error(operation, f"is no scalar program: {error}") from None


def _reading(shape: StageShape, reads: Mapping[str, Units], parts: Mapping[str, str]) -> StageShape:
    def changed(read: RegionRead) -> RegionRead:
        part = formula(parts[read.region]) if read.region in parts else read.part
        return replace(read, task_units=reads.get(read.region, read.task_units), part=part)

    return replace(shape, reads=tuple(changed(r) for r in shape.reads))


def slice_units(mine: str, made: Made, index: str = "i") -> Units:
    """The units of ``made`` that hold columns ``mine * i`` .. + ``mine`` of every token."""
    if not made.columns or made.columns == mine:
        return Units(formula(index, task=True))
    first = f"{index} * ({mine}) // ({made.columns})"
    return Units(formula(first, task=True), formula(f"max(1, ({mine}) // ({made.columns}))"))
