"""The `inputs:`, `weights:`, `caches:` and `outputs:` sections."""

from __future__ import annotations

from dataclasses import replace

from monoc.diagnostics import Code, Note
from monoc.expr.ir import DType, Span
from monoc.spec import ast
from monoc.spec.buildexpr import TRUE, BinOp, BuildBinary, BuildCall, BuildExpr, BuildFunction, BuildInt
from monoc.spec.builds import Samples
from monoc.spec.fields import Fields, Reader
from monoc.spec.names import NameKind, Names
from monoc.spec.program import (
    REPLICATED,
    Extent,
    Layout,
    Role,
    ScaleDecl,
    Sharding,
    ShardingKind,
    TensorDecl,
)
from monoc.spec.yamltree import YamlMap, YamlText

__all__ = ["FORMATS", "TensorSection"]

# Spec name -> element type and, for block-scaled formats, K elements an E8M0 code covers in hardware
FORMATS: dict[str, tuple[DType, bool]] = {
    "f32": (DType.F32, False),
    "bf16": (DType.BF16, False),
    "i32": (DType.I32, False),
    "i64": (DType.I64, False),
    "u8": (DType.U8, False),
    "mxfp8": (DType.E4M3, True),
    "mxfp4": (DType.E2M1X2, True),
}
_SHARDS = ("replicated", "rows", "columns", "partial")
_KEYS = ("dtype", "shape", "padded", "host_shape", "shard", "layout", "interleave", "scale", "when")
_SCALE_COLUMNS = 8  # columns of E8M0 codes are padded to this in Layout.SHUFFLE_SCALE


class TensorSection:
    """Reads tensor declarations; sizes are checked by :meth:`check` once the builds are known."""

    def __init__(self, reader: Reader, names: Names) -> None:
        self.reader, self.names = reader, names
        self.tensors: list[TensorDecl] = []
        self.faulty: set[str] = set()  # tensors with an error of their own: what uses them is not checked
        self._written_scales: dict[str, tuple[BuildExpr, ...]] = {}

    def read(self, node: YamlMap, role: Role) -> None:
        """Adds the section's tensors to ``tensors`` and ``names``."""
        for key, value in node.items:
            name = self.reader.name(key, "a tensor")
            fields = self.reader.kind(value, YamlMap, f"tensor `{key.text}`")
            if name is None or fields is None:
                self.names.faulty.add(key.text)
                continue
            before = len(self.reader.diagnostics.errors)
            tensor = self._tensor(name, key.span, role, Fields(self.reader, fields, f"tensor `{name}`", _KEYS))
            if len(self.reader.diagnostics.errors) > before:
                self.faulty.add(name)
                self.names.faulty |= _scale_name(fields)
                if tensor is None:
                    self.names.faulty.add(name)
            if self.names.declare(name, NameKind.TENSOR, key.span) and tensor is not None:
                self.tensors.append(tensor)

    def _tensor(self, name: str, span: Span, role: Role, f: Fields) -> TensorDecl | None:
        dtype = f.choice("dtype", FORMATS, required=True)
        shape = self._shape(f, "shape", required=True)
        shard = f.choice("shard", _SHARDS) or "replicated"
        layout = Layout(f.choice("layout", [x.value for x in Layout if x is not Layout.SHUFFLE_SCALE]) or Layout.ROWS)
        interleave = f.integer("interleave", least=1)
        guard = self._guard(f)
        if dtype is None or shape is None:
            return None
        element, scaled = FORMATS[dtype]
        stored = self._shape(f, "padded") or shape
        if len(stored) != len(shape) or any(
            a.size is None or b.size is None for a, b in zip(stored, shape, strict=False) if a != b
        ):
            self.reader.diagnostics.error(
                Code.RANK,
                f"`padded` of `{name}` has other axes than `shape`",
                f.at("padded"),
                "pad the sizes, axis by axis",
            )
            stored = shape
        scale = self._scale(name, f, stored) if scaled else None
        if not scaled and f.has("scale"):
            self.reader.diagnostics.error(
                Code.SCALE_SHAPE, f"tensor `{name}` is {dtype}, which has no scales", f.at("scale"),
                "remove `scale`, or give a block-scaled dtype",
            )  # fmt: skip
        if scaled and scale is None and not f.has("scale"):
            self.reader.diagnostics.error(
                Code.SCALE_SHAPE, f"tensor `{name}` is {dtype} but has no `scale`", f.at("dtype"),
                "add `scale: {name: ..., block: [rows, columns]}`",
            )  # fmt: skip
        if scaled and role is not Role.WEIGHT:
            self.reader.diagnostics.error(
                Code.DTYPE, f"{role} `{name}` is {dtype}", f.at("dtype"), "only weights are block-scaled"
            )
        if (layout is Layout.FP8_DS_MLA) is not (role is Role.CACHE):
            self.reader.diagnostics.error(
                Code.LAYOUT, f"{role} `{name}` has layout {layout}", f.at("layout"),
                f"caches, and only they, have the layout `{Layout.FP8_DS_MLA}`",
            )  # fmt: skip
        host = self._shape(f, "host_shape") or _held(stored, element)
        return TensorDecl(
            name,
            role,
            element,
            shape,
            stored,
            host,
            self._sharding(shard, shape, f),
            layout,
            interleave,
            scale,
            guard,
            span,
        )

    def _guard(self, f: Fields) -> BuildExpr:
        text = f.text("when")
        ast_ = None if text is None else self.reader.expression("guard_value", text)
        guard = None if ast_ is None else self.names.build_expr(ast_, "a guard")
        return TRUE if guard is None else guard

    def _sharding(self, shard: str, shape: tuple[Extent, ...], f: Fields) -> Sharding:
        if shard == "partial":
            return Sharding(ShardingKind.PARTIAL)
        if shard == "replicated":
            return REPLICATED
        axis = len(shape) - 1 if shard == "columns" or len(shape) == 1 else len(shape) - 2
        return Sharding(ShardingKind.SPLIT, axis)

    def _shape(self, f: Fields, key: str, required: bool = False) -> tuple[Extent, ...] | None:
        got = f.list(key, required=required)
        if got is None:
            return None
        extents: list[Extent] = []
        for item in got.items:
            text = self.reader.kind(item, YamlText, f"an axis of `{key}`")
            node = None if text is None else self.reader.expression("extent_value", text)
            if not isinstance(node, ast.Extent):
                return None
            if node.size is None:
                extents.append(Extent(None))
                continue
            size = self.names.build_expr(node.size, "a shape")
            if size is None:
                return None
            extents.append(Extent(size, node.bound == ">=", node.bound == "<="))
        if not extents:
            self.reader.diagnostics.error(
                Code.RANK, f"`{key}` of {f.what} is empty", got.span, "write one axis or more"
            )
            return None
        return tuple(extents)

    def _scale(self, name: str, f: Fields, shape: tuple[Extent, ...]) -> ScaleDecl | None:
        node = f.map("scale")
        if node is None:
            return None
        s = Fields(self.reader, node, f"the scale of `{name}`", ("name", "block", "layout", "shape"))
        text = s.text("name", required=True)
        scale = None if text is None else self.reader.name(text, "a scale tensor")
        sides = [self.reader.integer(t, "a side of `block`", 1) for t in s.texts("block", required=True)]
        layout = Layout(s.choice("layout", [Layout.ROWS, Layout.SHUFFLE_SCALE]) or Layout.ROWS)
        if len(sides) != 2 and s.has("block"):
            self.reader.diagnostics.error(
                Code.SCALE_SHAPE, f"`block` of {s.what} has {len(sides)} sides", s.at("block"), "write [rows, columns]"
            )
        sizes = tuple(e.size for e in shape if e.size is not None)
        if scale is None or text is None or len(sides) != 2 or None in sides:
            return None
        if len(sizes) != len(shape) or len(shape) < 2:
            self.reader.diagnostics.error(
                Code.RANK, f"`{name}` is block-scaled but is no matrix of known size", f.at("shape"), "write its sizes"
            )
            return None
        rows, columns = sides
        assert rows is not None
        assert columns is not None
        written = self._shape(s, "shape")
        if written is not None:
            self._written_scales[name] = tuple(e.size for e in written if e.size is not None)
        self.names.declare(scale, NameKind.SCALE, text.span)
        return ScaleDecl(scale, (rows, columns), layout, _scale_shape(sizes, rows, columns, layout), text.span)

    # ---- checks that need sizes

    def check(self, samples: Samples) -> None:
        """Sizes in every build: blocks cover their axes, written scale shapes and host shapes agree."""
        for t in self.tensors:
            span = t.span or Span("", 1, 1)
            self._check_host_shape(t, span, samples)
            for a, b in zip(t.shape, t.stored, strict=True):
                if a.size is None or b.size is None or not samples.known(a.size, b.size):
                    continue
                short = [(y, x) for x, y in zip(samples.values(a.size), samples.values(b.size), strict=True) if y < x]
                if short:
                    self.reader.diagnostics.error(
                        Code.SHAPE, f"`padded` of `{t.name}` is {short[0][0]} where `shape` is {short[0][1]}", span,
                        "the padded size is the larger one",
                    )  # fmt: skip
            if t.scale is None:
                continue
            sizes = [e.size for e in t.stored if e.size is not None]
            for axis, side, what in ((-2, t.scale.block[0], "rows"), (-1, t.scale.block[1], "columns")):
                bad = next((v for v in samples.values(sizes[axis]) if v % side and samples.known(sizes[axis])), None)
                if bad is not None:
                    self.reader.diagnostics.error(
                        Code.ALIGNMENT,
                        f"`{t.name}` has {bad} {what}, no multiple of its scale block's {side}",
                        span,
                        f"pad the dimension: `pad(n, {side})`",
                    )
            written = self._written_scales.get(t.name)
            if written is not None and (
                len(written) != len(t.scale.shape)
                or not all(samples.equal(a, b) for a, b in zip(written, t.scale.shape, strict=True))
            ):
                have = ", ".join(map(str, written))
                self.reader.diagnostics.error(
                    Code.SCALE_SHAPE,
                    f"scale `{t.scale.name}` of `{t.name}` has shape [{have}]",
                    t.scale.span or span,
                    f"a block of {t.scale.block[0]} x {t.scale.block[1]} gives [{', '.join(map(str, t.scale.shape))}]",
                    Note("the weight is declared", span),
                )
            if (
                t.interleave is not None
                and samples.known(sizes[-2])
                and any(v % (2 * t.interleave) for v in samples.values(sizes[-2]))
            ):
                self.reader.diagnostics.error(
                    Code.ALIGNMENT, f"`{t.name}`: its rows are no multiple of 2 x {t.interleave}", span,
                    "an interleaved weight has whole tiles of gate and up rows",
                )  # fmt: skip

    def _check_host_shape(self, t: TensorDecl, span: Span, samples: Samples) -> None:
        held = _held(t.stored, t.dtype)
        if t.host_shape == held or not samples.known(*(e.size for e in (*held, *t.host_shape) if e.size is not None)):
            return
        a, b = ([samples.values(e.size) for e in shape if e.size is not None] for shape in (held, t.host_shape))
        if [_product(column) for column in zip(*a, strict=True)] != [
            _product(column) for column in zip(*b, strict=True)
        ]:
            self.reader.diagnostics.error(
                Code.SHAPE, f"`host_shape` of `{t.name}` holds another number of elements", span,
                "give the same elements, e.g. a trailing 1 more",
            )  # fmt: skip


def _scale_name(fields: YamlMap) -> set[str]:
    """The name the scale of a faulty tensor seems to have."""
    scale = fields.get("scale")
    name = scale.get("name") if isinstance(scale, YamlMap) else None
    return {name.text} if isinstance(name, YamlText) else set()


def _product(values: tuple[int, ...]) -> int:
    out = 1
    for v in values:
        out *= v
    return out


def _held(shape: tuple[Extent, ...], dtype: DType) -> tuple[Extent, ...]:
    """The shape as torch holds it: packed pairs halve the last axis."""
    last = shape[-1]
    if dtype is not DType.E2M1X2 or last.size is None:
        return shape
    return (*shape[:-1], replace(last, size=BuildBinary(BinOp.DIV, last.size, BuildInt(2))))


def _scale_shape(sizes: tuple[BuildExpr, ...], rows: int, columns: int, layout: Layout) -> tuple[BuildExpr, ...]:
    """Shape of the codes: blocks along the last two axes; shuffled ones are one matrix with padded columns."""
    down = sizes[-2] if rows == 1 else BuildBinary(BinOp.DIV, sizes[-2], BuildInt(rows))
    across: BuildExpr = BuildBinary(BinOp.DIV, sizes[-1], BuildInt(columns))
    if layout is Layout.ROWS:
        return (*sizes[:-2], down, across)
    for size in reversed(sizes[:-2]):
        down = BuildBinary(BinOp.MUL, size, down)
    across = BuildCall(BuildFunction.PAD, (across, BuildInt(_SCALE_COLUMNS)))
    return (down, across)
