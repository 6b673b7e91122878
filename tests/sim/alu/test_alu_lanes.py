"""Selects, moves and exchanges between lanes; modifiers; equality of the builds for different CPUs."""

from collections.abc import Iterator

import numpy as np
import pytest
from alu_support import EDGES_F16, EDGES_F32, EDGES_F64, bits32, run, run64, words64

from monoc.sim import _core

LANE = np.arange(64, dtype=np.uint32)


def test_select() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 1 << 32, (2, 640), dtype=np.uint32)
    mask = rng.integers(0, 2, 640).astype(bool)
    np.testing.assert_array_equal(run("v_cndmask_b32", a, b, mask=mask), np.where(mask, b, a))


def test_moves() -> None:
    word = np.random.default_rng(2).integers(0, 1 << 63, 64, dtype=np.uint64)
    np.testing.assert_array_equal(run("v_mov_b64", words64(word)), words64(word))
    for mnemonic in (
        "v_accvgpr_read_b32",
        "v_accvgpr_write_b32",
        "v_accvgpr_mov_b32",
        "v_mov_b32_e32",
        "v_mov_b32_dpp",
    ):
        np.testing.assert_array_equal(run(mnemonic, LANE), LANE)


def test_exchanges() -> None:
    first, second = LANE, LANE + 100
    np.testing.assert_array_equal(run("v_swap_b32", first, second), [second, first])
    a, b = run("v_permlane32_swap_b32", first, second)
    np.testing.assert_array_equal(a, np.concatenate([first[:32], second[:32]]))
    np.testing.assert_array_equal(b, np.concatenate([first[32:], second[32:]]))
    a, b = run("v_permlane16_swap_b32", first, second)
    np.testing.assert_array_equal(a, np.concatenate([first[:16], second[:16], first[32:48], second[32:48]]))
    np.testing.assert_array_equal(b, np.concatenate([first[16:32], second[16:32], first[48:], second[48:]]))


def test_masked_bit_count() -> None:
    rng = np.random.default_rng(3)
    for mask in (0, 0xFFFFFFFF, 0x80000001, int(rng.integers(0, 1 << 32))):
        words = np.full(64, mask, np.uint32)
        low = [(mask & ((1 << min(lane, 32)) - 1)).bit_count() + 7 for lane in range(64)]
        high = [(mask & ((1 << max(lane - 32, 0)) - 1)).bit_count() + 7 for lane in range(64)]
        np.testing.assert_array_equal(run("v_mbcnt_lo_u32_b32", words, np.full(64, 7, np.uint32)), low)
        np.testing.assert_array_equal(run("v_mbcnt_hi_u32_b32", words, np.full(64, 7, np.uint32)), high)


@np.errstate(all="ignore")
@pytest.mark.parametrize(("kind", "edges"), [("f16", EDGES_F16), ("f32", EDGES_F32), ("f64", EDGES_F64)])
def test_modifiers(kind: str, edges: np.ndarray) -> None:
    words = np.zeros(64, edges.dtype)
    words[: edges.size] = edges
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
    value = words.view(dtype)

    def modified(**modifiers: object) -> np.ndarray:
        register = words64(words) if kind == "f64" else words.astype(np.uint32)[None]
        out = np.asarray(_core.alu_modify(kind, register, **modifiers))
        raw = (
            out[0].astype(np.uint64) | out[1].astype(np.uint64) << np.uint64(32)
            if kind == "f64"
            else (out[0] & ((1 << 8 * words.itemsize) - 1))
        )
        return raw.astype(edges.dtype).view(dtype)

    np.testing.assert_array_equal(modified(abs=True).view(edges.dtype), np.abs(value).view(edges.dtype))
    np.testing.assert_array_equal(modified(neg=True).view(edges.dtype), (-value).view(edges.dtype))
    np.testing.assert_array_equal(modified(abs=True, neg=True).view(edges.dtype), (-np.abs(value)).view(edges.dtype))
    for omod, factor in ((1, 2), (2, 4), (3, 0.5)):
        np.testing.assert_array_equal(modified(omod=omod), (value * dtype(factor)).astype(dtype))
    np.testing.assert_array_equal(modified(clamp=True), np.nan_to_num(value, nan=0.0).clip(0, 1))
    np.testing.assert_array_equal(modified(clamp=True, mode=0x2F0), value.clip(0, 1))  # without DX10_CLAMP a NaN stays
    tiny = np.finfo(dtype).tiny
    np.testing.assert_array_equal(
        modified(flush=True).view(edges.dtype)[np.abs(value) >= tiny], words[np.abs(value) >= tiny]
    )
    np.testing.assert_array_equal(modified(flush=True)[np.abs(value) < tiny], 0)
    np.testing.assert_array_equal(np.signbit(modified(flush=True)), np.signbit(value))


def test_errors_name_the_instruction() -> None:
    with pytest.raises(KeyError, match="v_frobnicate_f32"):
        run("v_frobnicate_f32", LANE)
    with pytest.raises(ValueError, match="v_add_f32 takes 2 sources"):
        run("v_add_f32", LANE)
    with pytest.raises(ValueError, match="source 1 must have the shape"):
        run("v_add_f64", words64(LANE.astype(np.uint64)), LANE)


def operands(rng: np.random.Generator, mnemonic: str) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Random bits, with edge values of all float formats strewn in."""
    info = _core.alu_describe(mnemonic)
    edges = np.concatenate([EDGES_F32, EDGES_F16.astype(np.uint32), (EDGES_F64 >> np.uint64(32)).astype(np.uint32)])

    def words(count: int) -> np.ndarray:
        any_bits = rng.integers(0, 1 << 32, (count, 256), dtype=np.uint32)
        near_one = bits32(rng.standard_normal((count, 256)) * 4)
        kind = rng.integers(0, 3, (count, 256))
        return np.select([kind == 0, kind == 1], [any_bits, near_one], rng.choice(edges, (count, 256)))

    return [words(n) for n in info["src_dwords"]], words(info["dst_dwords"]) if info["dst_dwords"] else None


@pytest.fixture
def restored_build() -> Iterator[str]:
    name = _core.alu_isa()
    yield name
    assert _core.alu_use_isa(name)


def test_builds_give_the_same_bits(restored_build: str) -> None:
    """Every instruction, in the builds of all instruction sets this CPU has."""
    results: dict[str, list[np.ndarray]] = {}
    for build in ("baseline", "avx2", "avx512"):
        if not _core.alu_use_isa(build):
            continue
        rng = np.random.default_rng(4)
        for mnemonic in _core.alu_mnemonics():
            sources, old = operands(rng, mnemonic)
            mask = rng.integers(0, 2, 256).astype(bool)
            mods = {
                "op_sel": int(rng.integers(0, 16)),
                "bitop3": int(rng.integers(0, 256)),
                "clamp": bool(rng.integers(0, 2)),
            }
            out = run64(mnemonic, *sources, old=old, mask=mask, **mods)
            results.setdefault(mnemonic, []).extend([np.append(out[0].ravel(), np.packbits(out[1]))])
    assert restored_build in ("baseline", "avx2", "avx512")
    different = [m for m, out in results.items() if any(not np.array_equal(out[0], other) for other in out[1:])]
    assert different == []
    assert len(results) > 500


def test_unknown_build_is_refused() -> None:
    assert not _core.alu_use_isa("avx1024")
