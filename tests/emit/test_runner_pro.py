"""A runner whose steps find their build by what they are given: tables of the host's width, given experts, settled
streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from monoc.build.device import DeviceLaunch
from monoc.build.package import EmittedPackage
from monoc.compiler import compile_spec
from monoc.emit.files import write_package
from monoc.sim.host import DeviceMemory, simulate

SPEC = Path(__file__).parents[2] / "layer_specs" / "tiny_pro.yaml"
ROWS, HIDDEN, STREAMS = 3, 256, 4


class Nothing:
    """An engine no launch of these tests reaches: they are caught where the runner calls them."""

    arch = "gfx950"
    ranks = 1

    def run_together(self, launches: Mapping[int, DeviceLaunch], memory: DeviceMemory) -> int:
        raise AssertionError("a launch ran")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> EmittedPackage:
    folder = tmp_path_factory.mktemp("emitted") / "tiny_pro"
    write_package(folder, compile_spec(str(SPEC)).files)
    return EmittedPackage.load(folder)


class Layer:
    """A runner with weights; :meth:`forward` runs one step, given what differs from a usual one."""

    def __init__(self, package: EmittedPackage, host: Any, ratio: int, bias: bool = True, max_topk: int = 0) -> None:
        m = package.part("runner")
        self.build = m.find_build(tp=1, ratio=ratio)
        self.runner = m.TinyProRunner(1, 0, host.group, "cuda", max_topk=max_topk)
        self.attn = m.AttnWeights(layer_id=0, ratio=ratio, **self._tensors(m, m.AttnWeights))
        rest = self._tensors(m, m.MonoLayerWeights)
        self.weights = m.MonoLayerWeights(attn=self.attn, bias=torch.zeros(16, device="cuda") if bias else None, **rest)
        self.dims = m.Dims(1)
        self.selected: list[tuple[int, ...]] = []
        self.launched: list[tuple[str, Any]] = []  # launch, build
        self.runner._launch = lambda name, b: lambda *values, stream: self.launched.append((name, b))

    def _tensors(self, m: Any, kind: Any) -> dict[str, torch.Tensor]:
        found: dict[str, Any] = {}
        real, m.check_tensors = m.check_tensors, lambda owner, tensors, wants: found.update(wants)
        try:
            empty = object.__new__(kind)
            empty.bias = None
            kind.check(empty, m.Dims(1))
        finally:
            m.check_tensors = real
        return {name: self._zeros(*want) for name, want in found.items()}

    @staticmethod
    def _zeros(dtype: torch.dtype, axes: Any, strides: Any) -> torch.Tensor:
        shape = [a[0] if isinstance(a, tuple) else 2 if a is None else a for a in axes]
        wide = [shape[0], strides[0]] if strides is not None else shape
        kind = torch.uint8 if dtype.itemsize == 1 else dtype
        return torch.zeros(wide, dtype=kind, device="cuda").view(dtype)[..., : shape[-1]]

    @staticmethod
    def per_row() -> dict[str, torch.Tensor]:
        """The inputs of a step of one row that have a row a token."""
        kinds = {torch.bfloat16: {"x": (HIDDEN,), "residual": (STREAMS, HIDDEN)},
                 torch.float32: {"post_mix": (STREAMS, 1), "res_mix": (STREAMS, STREAMS)},
                 torch.int64: {"positions": (), "slot_mapping": ()}}  # fmt: skip
        return {n: torch.zeros((1, *shape), dtype=d) for d, named in kinds.items() for n, shape in named.items()}

    def forward(self, width: int, **changed: Any) -> tuple[torch.Tensor, ...]:
        def zeros(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device="cuda")

        f32, i32, i64, u8 = torch.float32, torch.int32, torch.int64, torch.uint8
        given = {
            "x": zeros(torch.bfloat16, ROWS, HIDDEN),
            "residual": zeros(torch.bfloat16, ROWS, STREAMS, HIDDEN),
            "post_mix": zeros(f32, ROWS, STREAMS, 1),
            "res_mix": zeros(f32, ROWS, STREAMS, STREAMS),
            "positions": zeros(i64, ROWS),
            "slot_mapping": zeros(i64, ROWS),
            "swa_cache": zeros(u8, 1, 64, 328),
            "swa_indices": zeros(i32, ROWS, 1, 32),
            "swa_lens": zeros(i32, ROWS),
            "token_to_req": zeros(i32, ROWS),
            "topk_indices": zeros(i32, ROWS, width),
            "comp_cache": zeros(u8, 1, 64, 328),
            "select": lambda y, q_lat: self.selected.append((*y.shape, *q_lat.shape)),
        }
        made: tuple[torch.Tensor, ...] = self.runner.forward(self.weights, **{**given, **changed})
        return made


@pytest.fixture
def host() -> Iterator[Any]:
    with simulate(Nothing()) as made:
        yield made


def blocks() -> dict[str, torch.Tensor]:
    return {"comp_block_table": torch.zeros((1, 1), dtype=torch.int32, device="cuda")}


@pytest.mark.parametrize(
    ("ratio", "width", "more", "picks"),
    [(4, 50, {}, 64), (8, 20, {}, 32), (8, 33, {}, 128), (8, 20, {"topk": 400}, 512)],
)
def test_the_narrowest_build_that_holds_the_table(
    package: EmittedPackage, host: Any, ratio: int, width: int, more: dict[str, int], picks: int
) -> None:
    layer = Layer(package, host, ratio)
    layer.forward(width, **more, **(blocks() if ratio == 4 else {"global_keys": True}))
    assert [(name, b.picks) for name, b in layer.launched] == [("k1", picks), ("k2", picks)]
    assert layer.selected == [(ROWS, HIDDEN, ROWS, 512)]
    layer.runner.close()


@pytest.mark.parametrize(("rows", "pitch", "width"), [(ROWS, 100, 100), (ROWS, 20, 20), (1, 100, 20)])
def test_a_table_of_the_first_columns_of_wider_rows(
    package: EmittedPackage, host: Any, rows: int, pitch: int, width: int
) -> None:
    """A host may keep rows for its longest context and hand over as many columns as this step's contexts need."""
    layer, seen = Layer(package, host, 8), {}

    def launch(name: str, b: Any) -> Any:
        arguments = package.part("runner")._BUILDERS[name][1]
        return lambda *values, stream: seen.update({name: (b, dict(zip(arguments, values, strict=True)))})

    layer.runner._launch = launch
    table = torch.zeros((5, pitch), dtype=torch.int32, device="cuda")[:rows, :20]
    one = {n: torch.zeros((rows, *t.shape[1:]), dtype=t.dtype, device="cuda") for n, t in layer.per_row().items()}
    layer.forward(0, global_keys=True, topk_indices=table, **one)
    b, given = seen["k2"]
    assert (b.tokens, b.picks) == (rows, 128 if width > 32 else 32)
    assert (given["topk_indices"], given["topk_indices_width"]) == (table.data_ptr(), width)
    layer.runner.close()


def test_tables_that_cannot_be_read(package: EmittedPackage, host: Any) -> None:
    layer = Layer(package, host, 8)
    row, columns = (torch.zeros(shape, dtype=torch.int32, device="cuda") for shape in ((1, 20), (ROWS, 40)))
    for table, says in (
        (row.expand(ROWS, -1), "rows of topk_indices lie 0 apart"),
        (columns[:, ::2], "topk_indices has strides"),
        (torch.zeros((ROWS, 600), dtype=torch.int32, device="cuda")[:, :20], "the builds have"),
    ):
        with pytest.raises(AssertionError, match=says):
            layer.forward(0, global_keys=True, topk_indices=table)
    layer.runner.close()


def test_what_no_build_serves(package: EmittedPackage, host: Any) -> None:
    layer = Layer(package, host, 8)
    with pytest.raises(AssertionError, match="the builds have"):
        layer.forward(600, global_keys=True)
    with pytest.raises(AssertionError, match="global_keys False"):
        layer.forward(20)
    with pytest.raises(AssertionError, match="select is missing"):
        layer.forward(20, global_keys=True, select=None)
    layer.runner.close()


def test_a_settled_layer_reads_no_mixes(package: EmittedPackage, host: Any) -> None:
    layer = Layer(package, host, 8)
    anything = torch.zeros((ROWS, STREAMS, HIDDEN), dtype=torch.bfloat16, device="cuda")
    mixes = {"x": anything, "post_mix": anything, "res_mix": anything}
    layer.forward(20, global_keys=True, fold=False, **mixes)
    assert [b.fold for _, b in layer.launched] == [False, False]
    with pytest.raises(AssertionError, match="res_mix is"):
        layer.forward(20, global_keys=True, **mixes)
    layer.runner.close()


def test_given_experts_need_no_bias(package: EmittedPackage, host: Any) -> None:
    layer = Layer(package, host, 8, bias=False)
    ids = torch.zeros((ROWS, 4), dtype=torch.int32, device="cuda")
    layer.forward(20, global_keys=True, route_ids=ids)
    assert all(b.hash_route for _, b in layer.launched)
    with pytest.raises(AssertionError, match="have no bias"):
        layer.forward(20, global_keys=True)
    layer.runner.close()


def test_padded_rows_are_checked(package: EmittedPackage, host: Any) -> None:
    layer = Layer(package, host, 8)
    layer.attn.check(layer.dims)
    layer.weights.check(layer.dims)
    layer.attn.wq_b = layer.attn.wq_b.view(torch.uint8).contiguous().view(torch.float8_e4m3fn)
    with pytest.raises(AssertionError, match="wq_b has strides"):
        layer.attn.check(layer.dims)
    layer.runner.close()
