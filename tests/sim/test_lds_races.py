"""LDS races between waves of a CTA: found whatever the order, at the byte, and nowhere else."""

# ruff: noqa: E501  (assembly lines stay whole)

from __future__ import annotations

import numpy as np
import pytest
from run_asm import run_body

from monoc.sim import Checks, Finding, SimulationError, Simulator

RACES = Checks(lds_races=True)
OWN = "\tv_lshlrev_b32_e32 v9, 2, v0\n"  # v9: the thread's own dword
OTHER = "\tv_xor_b32_e32 v1, 0x40, v0\n\tv_lshlrev_b32_e32 v1, 2, v1\n"  # v1: that of the neighbour wave's lane
BARRIER = "\ts_waitcnt lgkmcnt(0)\n\ts_barrier\n"
ALL_WRITE = OWN + OTHER + "\tds_write_b32 v9, v0\n" + BARRIER
# s20 = 0 in the first wave only; s[22:23] keeps EXEC
FIRST_WAVE = "\tv_readfirstlane_b32 s20, v0\n\ts_cmp_lg_u32 s20, 0\n"


def race_of(body: str, seed: int = 0, *, block: int = 128, lds: int = 1024) -> Finding | None:
    try:
        run_body(body, [], simulator=Simulator(threads=1, seed=seed, checks=RACES), block=block, lds=lds)
    except SimulationError as error:
        return error.findings[0]
    return None


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("body", "writer", "other"),
    [
        # Read after write, write after read, write after write.
        (OWN + OTHER + "\tds_write_b32 v9, v0\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b32 v2, v1\n", "ds_write_b32 v9, v0", "ds_read_b32 v2, v1"),
        (ALL_WRITE + "\tds_read_b32 v2, v1\n\ts_waitcnt lgkmcnt(0)\n\tds_write_b32 v9, v2\n", "ds_write_b32 v9, v2", "ds_read_b32 v2, v1"),
        (ALL_WRITE + "\tds_write_b32 v9, v0\n\tds_write_b32 v1, v0\n", "ds_write_b32 v9, v0", "ds_write_b32 v1, v0"),
        # Wide and paired accesses, transposed reads, atomics against reads.
        (OWN + "\tv_lshlrev_b32_e32 v3, 4, v0\n\tds_write_b32 v9, v0\n\tds_write_b128 v3, v[4:7]\n", "ds_write_b128 v3, v[4:7]", "ds_write_b32 v9, v0"),
        (ALL_WRITE + "\tds_read2_b32 v[2:3], v9 offset0:0 offset1:32\n\tds_write_b32 v9, v0\n", "ds_write_b32 v9, v0", "ds_read2_b32 v[2:3], v9 offset0:0 offset1:32"),
        (ALL_WRITE + "\tv_mov_b32_e32 v3, 0\n\tds_read_b64_tr_b16 v[4:5], v3\n\tds_write_b32 v9, v0\n", "ds_write_b32 v9, v0", "ds_read_b64_tr_b16 v[4:5], v3"),
        (ALL_WRITE + "\tds_add_u32 v9, v0\n\tds_read_b32 v2, v1\n", "ds_add_u32 v9, v0", "ds_read_b32 v2, v1"),
    ],
)  # fmt: skip
def test_race_names_both_instructions(body: str, writer: str, other: str, seed: int) -> None:
    found = race_of(body + BARRIER, seed, lds=2048)
    assert found is not None
    assert found.kind == "lds_race"
    assert found.instruction in (writer, other)
    assert f"({writer})" in found.message
    assert f"({other})" in found.message
    assert f"line {found.line} " in found.message


def test_race_at_the_kernels_end_and_across_ended_waves() -> None:
    """No barrier follows: the end of the last wave is looked at too, and a wave that ended still counts."""
    body = FIRST_WAVE + OWN + "\tv_mov_b32_e32 v3, 0\n\ts_cbranch_scc1 .LBB0_1\n\tds_write_b32 v3, v0\n\ts_endpgm\n"
    found = race_of(body + ".LBB0_1:\n\tds_read_b32 v2, v3\n\ts_barrier\n")
    assert found is not None
    assert (found.instruction, found.wave) == ("ds_write_b32 v3, v0", 0)
    assert "LDS byte 0: wave 0 writes it" in found.message
    assert "wave 1 reads it" in found.message


@pytest.mark.parametrize("shift", [0, 1])
def test_bytes_of_a_dword_are_apart(shift: int) -> None:
    """Wave 0 writes the even bytes, wave 1 the odd ones; one bit further both write the same byte."""
    body = (
        "\tv_and_b32_e32 v1, 63, v0\n\tv_lshlrev_b32_e32 v1, 1, v1\n\tv_lshrrev_b32_e32 v2, 6, v0\n"
        f"\tv_lshrrev_b32_e32 v2, {shift}, v2\n\tv_add_u32_e32 v1, v1, v2\n\tds_write_b8 v1, v0\n" + BARRIER
    )
    assert (race_of(body) is not None) == bool(shift)


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(
    "body",
    [
        # Ordered by barriers, also over a loop; what only one wave touches; reads by all; atomics by all.
        ALL_WRITE + "\tds_read_b32 v2, v1\n" + BARRIER + "\tds_write_b32 v9, v2\n",
        "\ts_mov_b32 s21, 5\n.LBB0_1:\n" + ALL_WRITE + "\tds_read_b32 v2, v1\n" + BARRIER
        + "\ts_sub_u32 s21, s21, 1\n\ts_cmp_lg_u32 s21, 0\n\ts_cbranch_scc1 .LBB0_1\n",
        OWN + "\tds_write_b32 v9, v0\n\tds_read_b32 v2, v9\n\tds_write_b32 v9, v2\n",
        ALL_WRITE + "\tds_read_b32 v2, v9\n\tds_read_b32 v3, v1\n",
        ALL_WRITE + "\tds_add_u32 v9, v0\n\tds_add_u32 v1, v0\n",
        # Both waves write the same values to the same dwords.
        OWN + "\tv_and_b32_e32 v9, 0xff, v9\n\tv_and_b32_e32 v2, 63, v0\n\tds_write_b32 v9, v2\n" + BARRIER,
        # Lanes that are off touch nothing.
        FIRST_WAVE + OWN + "\tv_mov_b32_e32 v3, 0\n\ts_cselect_b64 exec, 0, -1\n\tds_write_b32 v3, v0\n",
    ],
)  # fmt: skip
def test_no_race(body: str, seed: int) -> None:
    assert race_of(body, seed) is None


def test_loads_to_lds_are_writes() -> None:
    load = "\ts_mov_b32 m0, 0\n\tglobal_load_lds_dword v9, s[4:5]\n\ts_waitcnt vmcnt(0)\n"
    data = np.arange(128, dtype=np.uint32)
    with pytest.raises(SimulationError, match=r"wave 0 writes it at line \d+ \(global_load_lds_dword"):
        run_body(OWN + load + BARRIER, [data], simulator=Simulator(threads=1, checks=RACES), block=128, lds=1024)


def test_a_long_loop_between_barriers_keeps_its_race() -> None:
    """Instructions are remembered once each, however often they run: those of a loop and the one before it."""
    reads = "".join(f"\tds_read_b32 v2, v9 offset:{4 * i}\n" for i in range(600))
    body = (
        OWN + "\tv_mov_b32_e32 v3, 0\n\tds_write_b32 v3, v0 offset:8188\n\ts_mov_b32 s21, 3\n.LBB0_1:\n" + reads
        + "\ts_sub_u32 s21, s21, 1\n\ts_cmp_lg_u32 s21, 0\n\ts_cbranch_scc1 .LBB0_1\n"
    )  # fmt: skip
    found = race_of(body, lds=8192)
    assert found is not None
    assert found.instruction == "ds_write_b32 v3, v0 offset:8188"


def test_off_unless_asked_for_and_clean_after_a_finding() -> None:
    racy = OWN + OTHER + "\tds_write_b32 v9, v0\n\tds_write_b32 v1, v0\n"
    run_body(racy, [], simulator=Simulator(threads=1), block=128, lds=1024)
    sim = Simulator(threads=1, checks=RACES)
    with pytest.raises(SimulationError, match="lds_race"):
        run_body(racy, [], simulator=sim, block=128, lds=1024)
    run_body(ALL_WRITE, [], simulator=sim, block=128, lds=1024)
