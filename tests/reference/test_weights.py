"""Weights as loaded, contracted a few rows at a time, against one byte and one code at a time."""

from pathlib import Path

import pytest
import torch

from monoc.expr.ir import DType
from monoc.reference.formats import E2M1, decode_e4m3
from monoc.reference.weights import BlockWeight
from monoc.spec.load import load_program
from monoc.spec.program import Layout, Role, TensorDecl
from monoc.verify.inputs.weights import Weights

SPECS = Path(__file__).parents[2] / "layer_specs"
EXPERT = 3


def element(w: BlockWeight, row: int, column: int) -> float:
    """Number [row, column] of a weight (of expert 3 where there are experts), from the layouts as docs/language.md
    states them."""
    decl, (n, _) = w.decl, w.shape[-2:]
    assert decl.scale is not None
    stored, codes = w.stored.view(torch.uint8), w.codes
    if stored.dim() == 3:
        rows = stored.shape[1]
        stored, codes = stored[EXPERT], codes[EXPERT * rows : (EXPERT + 1) * rows]
    at = row
    if decl.interleave is not None:  # gate rows, then up rows: tile 2b is gate, 2b + 1 up
        half, of = divmod(row, n // 2)
        at = (2 * (of // decl.interleave) + half) * decl.interleave + of % decl.interleave
    packed = 2 if decl.dtype is DType.E2M1X2 else 1
    width, byte = stored.shape[1], column // packed
    flat = stored.flatten()
    if decl.layout is Layout.SHUFFLE16:
        value = int(flat[(at // 16) * 16 * width + (byte // 16) * 256 + (at % 16) * 16 + byte % 16])
    else:
        value = int(flat[at * width + byte])
    number = E2M1[value >> 4 * (column % 2) & 15] if packed == 2 else float(decode_e4m3(torch.tensor(value)))
    down, along = decl.scale.block
    r, c = at // down, column // along
    if decl.scale.layout is Layout.SHUFFLE_SCALE:
        tiles = codes.flatten().reshape(len(codes) // 32, codes.shape[1] // 8, 4, 16, 2, 2)
        code = int(tiles[r // 32, c // 8, c % 4, r % 16, c // 4 % 2, r // 16 % 2])
    else:
        code = int(codes[r, c])
    return float(number * 2.0 ** (code - 127))


def scaled(program_file: str) -> list[BlockWeight]:
    program = load_program(str(SPECS / program_file))
    build = next(program.space.builds(tokens=1, tp=1))
    env = program.environment(build)
    weights = Weights(program, env, 1, seed=5)
    weights.materialise([EXPERT])
    given = weights.tensors[0]
    decls: list[TensorDecl] = [t for t in program.tensors if t.role is Role.WEIGHT]
    return [BlockWeight(d, given[d.name], given[d.scale.name], env) for d in decls if d.scale is not None]


@pytest.mark.parametrize("file", ["tiny.yaml", "tiny_pro.yaml"])
def test_numbers_of_every_layout(file: str) -> None:
    random = torch.Generator().manual_seed(1)
    for w in scaled(file):
        n, k = w.shape[-2:]
        expert = EXPERT if len(w.shape) == 3 else None
        numbers = w.times(torch.eye(k, dtype=torch.float64), expert).T
        assert numbers.shape == (n, k)
        for row, column in torch.stack(
            [torch.randint(n, (40,), generator=random), torch.randint(k, (40,), generator=random)], 1
        ).tolist():
            assert float(numbers[row, column]) == element(w, row, column), (w.decl.name, row, column)


def test_groups_have_rows_of_their_own() -> None:
    w = next(w for w in scaled("tiny.yaml") if w.decl.name == "wo_a")
    n, k = w.shape
    x = torch.randn(3, 4, k, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    whole = torch.einsum("tgk,gnk->tgn", x, w.times(torch.eye(k, dtype=torch.float64)).T.reshape(4, n // 4, k))
    assert torch.allclose(w.grouped_times(x), whole, rtol=1e-12, atol=1e-12)


def test_no_memory_for_experts_nobody_needs() -> None:
    program = load_program(str(SPECS / "tiny.yaml"))
    env = program.environment(next(program.space.builds(tokens=1, tp=2)))
    weights = Weights(program, env, 2, seed=5)
    weights.materialise([EXPERT, 1])
    before = {n: t.view(torch.uint8).clone() for n, t in weights.tensors[1].items() if n in ("w13", "w13_s")}
    assert before["w13"][EXPERT].any()
    weights.forget([EXPERT])
    now = weights.tensors[1]
    assert not now["w13"].view(torch.uint8)[EXPERT].any()
    assert torch.equal(now["w13"].view(torch.uint8)[1], before["w13"][1])
    weights.materialise([EXPERT])
    assert all(torch.equal(now[n].view(torch.uint8), t) for n, t in before.items())
