"""Checks and reports: bounds, alignment, poison, hangs, unknown instructions, bad calls."""

# ruff: noqa: E501  (assembly lines stay whole)

from __future__ import annotations

import numpy as np
import pytest
from asm_text import kernel_text
from run_asm import LOAD_ARGUMENTS, run_body

from monoc.sim import AsmError, Checks, Finding, HangError, Launch, SimulationError, Simulator, UsageError

LANE = "\tv_lshlrev_b32_e32 v9, 2, v0\n"
LOAD = LANE + "\tglobal_load_dword v2, v9, s[4:5]\n"


def finding_of(body: str, arrays: list, **options) -> Finding:  # type: ignore[no-untyped-def, type-arg]
    with pytest.raises(SimulationError) as caught:
        run_body(body, arrays, **options)
    return caught.value.findings[0]


def poison_of(body: str, *, output: bool = False, **kernel: int) -> Finding | None:
    """Runs `body` with a never-written array at s[4:5] and a written one at s[6:7]."""
    sim = Simulator(threads=1)
    unwritten, other = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    sim.register(0, unwritten, name="unwritten", written=False)
    sim.register(0, other, name="other", output=output)
    program = sim.load(kernel_text(LOAD_ARGUMENTS + body, arguments=(8, 8, 8), **kernel))
    try:
        sim.launch(Launch(program, [unwritten.ctypes.data, other.ctypes.data, 0]))
    except SimulationError as error:
        return error.findings[0]
    return None


def test_access_behind_a_buffer() -> None:
    data = np.zeros(63, np.uint32)
    finding = finding_of('\t.file 1 "/src" "k.py"\n\t.loc 1 12 0\n' + LOAD, [data])
    assert (finding.kind, finding.lane, finding.rank, finding.cta, finding.wave) == ("bounds", 63, 0, 0, 0)
    assert finding.address == data.ctypes.data + 63 * 4
    assert finding.instruction == "global_load_dword v2, v9, s[4:5]"
    assert finding.source == "/src/k.py:12"
    assert finding.kernel == "kernel"
    assert "lane 63" in str(finding)


def test_lds_behind_the_own_with_a_margin_only() -> None:
    """A read behind the CTA's LDS is a finding; with a margin it gives zeros, poison where it decides something."""
    read = "\tv_lshlrev_b32_e32 v9, 2, v0\n\tds_read_b32 v2, v9 offset:256\n\ts_waitcnt lgkmcnt(0)\n"
    assert finding_of(read, [], lds=256).kind == "bounds"
    out = np.full(64, 7, np.uint32)
    store = "\tv_and_b32_e32 v2, 0, v2\n\tglobal_store_dword v9, v2, s[4:5]\n"
    sim = Simulator(threads=1, checks=Checks(lds_margin=256))
    run_body(read + store, [out], simulator=sim, lds=256)
    assert not out.any()
    with pytest.raises(SimulationError, match="bounds"):
        run_body(read.replace("256", "512"), [out], simulator=sim, lds=256)


def test_store_straddling_the_end_names_the_buffer() -> None:
    data = np.zeros(255, np.uint32)
    body = "\tv_lshlrev_b32_e32 v1, 4, v0\n\tglobal_store_dwordx4 v1, v[2:5], s[4:5]\n"
    finding = finding_of(body, [data])
    assert (finding.kind, finding.lane, finding.buffer) == ("bounds", 63, "array0")


def test_memory_of_another_rank_is_foreign_unless_shared() -> None:
    sim = Simulator(ranks=2, threads=1)
    mine, shared = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    sim.register(1, mine, name="mine")
    sim.register(None, shared, name="shared")
    program = sim.load(kernel_text(LOAD_ARGUMENTS + LOAD, arguments=(8, 8, 8)))
    sim.launch({0: Launch(program, [shared.ctypes.data, 0, 0])})
    with pytest.raises(SimulationError, match="memory of rank 1"):
        sim.launch({0: Launch(program, [mine.ctypes.data, 0, 0])})


def test_misaligned_access() -> None:
    finding = finding_of(
        "\tv_lshlrev_b32_e32 v1, 1, v0\n\tglobal_load_dword v2, v1, s[4:5]\n", [np.zeros(64, np.uint32)]
    )
    assert (finding.kind, finding.lane) == ("misaligned", 1)


def test_lds_bounds() -> None:
    finding = finding_of(LANE + "\tds_write_b32 v9, v0\n", [], lds=128)
    assert (finding.kind, finding.lane) == ("bounds", 32)


def test_scratch_bounds() -> None:
    finding = finding_of("\tscratch_load_dword v2, off, off offset:16\n", [], scratch=16)
    assert finding.kind == "bounds"


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("\tv_cmp_eq_u32_e32 vcc, 0, v2\n\ts_cbranch_vccnz .LBB0_1\n\ts_nop 0\n.LBB0_1:\n", "branch"),
        ("\tv_readfirstlane_b32 s20, v2\n\ts_cmp_eq_u32 s20, 3\n\ts_cbranch_scc1 .LBB0_1\n.LBB0_1:\n", "branch"),
        ("\tv_cmp_eq_u32_e32 vcc, 0, v2\n\ts_and_saveexec_b64 s[20:21], vcc\n", "EXEC"),
        ("\tv_cmpx_eq_u32_e32 vcc, 0, v2\n", "EXEC"),
        ("\tv_lshlrev_b32_e32 v3, 2, v2\n\tglobal_load_dword v4, v3, s[6:7]\n", "address"),
        ("\tv_readfirstlane_b32 s20, v2\n\ts_load_dword s21, s[6:7], s20\n", "address"),
        ("\tv_lshlrev_b32_e32 v3, 2, v2\n\tds_read_b32 v4, v3\n", "address"),
        ("\tv_add_f32_e32 v3, v2, v2\n\tglobal_store_dword v9, v3, s[6:7]\n", "output"),
        ("\tv_mov_b32_dpp v3, v2 row_shl:1 row_mask:0xf bank_mask:0xf\n\tglobal_store_dword v9, v3, s[6:7]\n", "output"),
        ("\tds_bpermute_b32 v3, v9, v2\n\tglobal_store_dword v9, v3, s[6:7]\n", "output"),
        ("\tds_write_b32 v9, v2\n\tds_read_b32 v3, v9\n\tglobal_store_dword v9, v3, s[6:7]\n", "output"),
        ("\tscratch_store_dword off, v2, off\n\tv_mov_b32_e32 v2, 0\n\tscratch_load_dword v3, off, off\n\tglobal_store_dword v9, v3, s[6:7]\n", "output"),
        ("\tv_mfma_f32_16x16x4_f32 v[4:7], v2, v2, 0\n\tglobal_store_dword v9, v4, s[6:7]\n", "output"),
    ],
)  # fmt: skip
def test_poison_is_reported_where_it_matters(use: str, message: str) -> None:
    finding = poison_of(LOAD + use, output=True, lds=256, scratch=16)
    assert finding is not None
    assert finding.kind == "poison"
    assert message in finding.message


@pytest.mark.parametrize(
    "use",
    [
        "\tv_mov_b32_e32 v3, 5\n\tv_cndmask_b32_e64 v3, v2, v3, s[20:21]\n\tglobal_store_dword v9, v3, s[6:7]\n",
        "\ts_mov_b64 exec, 0xff\n\tv_mov_b32_e32 v2, 1\n\tglobal_store_dword v9, v2, s[6:7]\n",
        "\tv_cmp_eq_u32_e32 vcc, 0, v2\n\ts_and_b64 vcc, vcc, 0\n\ts_cbranch_vccnz .LBB0_1\n.LBB0_1:\n",
        "\tv_mov_b32_e32 v2, 7\n\tv_readfirstlane_b32 s20, v2\n\ts_cmp_eq_u32 s20, 7\n\ts_cbranch_scc1 .LBB0_1\n.LBB0_1:\n",
    ],
)
def test_poison_selected_away_is_no_finding(use: str) -> None:
    assert poison_of("\ts_mov_b64 s[20:21], -1\n" + LOAD + use, output=True) is None


def test_never_written_lds_is_poison() -> None:
    body = LANE + "\tds_read_b32 v2, v9\n\tglobal_store_dword v9, v2, s[6:7]\n"
    finding = poison_of(body, output=True, lds=256)
    assert finding is not None
    assert "output" in finding.message


def test_poison_through_memory_and_partial_words() -> None:
    """A half-written dword stays poison; a poisoned store makes written memory poison again."""
    half = "\tv_lshlrev_b32_e32 v9, 2, v0\n\tglobal_store_short v9, v0, s[4:5]\n" + LOAD
    assert poison_of(half + "\tglobal_store_dword v9, v2, s[6:7]\n", output=True) is not None
    whole = "\tv_lshlrev_b32_e32 v9, 2, v0\n\tglobal_store_short v9, v0, s[4:5]\n\tglobal_store_short v9, v0, s[4:5] offset:2\n"
    assert poison_of(whole + LOAD + "\tglobal_store_dword v9, v2, s[6:7]\n", output=True) is None


def test_written_bits_are_readable_and_settable() -> None:
    sim = Simulator(threads=1)
    out = np.zeros(64, np.uint32)
    sim.register(0, out, name="out", written=False)
    body = "\ts_mov_b64 exec, 0xf\n" + LANE + "\tglobal_store_short v9, v0, s[4:5]\n"
    program = sim.load(kernel_text(LOAD_ARGUMENTS + body, arguments=(8, 8, 8)))
    sim.launch(Launch(program, [out.ctypes.data, 0, 0]))
    written = sim.written(out).reshape(64, 4)
    np.testing.assert_array_equal(written[:4], [[True, True, False, False]] * 4)
    assert not written[4:].any()
    sim.mark_written(out.ctypes.data, out.nbytes)
    assert sim.written(out).all()


def test_registers_are_poison_on_request() -> None:
    body = LANE + "\tglobal_store_dword v9, v5, s[4:5]\n"
    out = np.zeros(64, np.uint32)
    run_body(body, [out])
    sim = Simulator(threads=1, checks=Checks(vgprs=True))
    sim.register(0, out, output=True)
    program = sim.load(kernel_text(LOAD_ARGUMENTS + body, arguments=(8, 8, 8)))
    with pytest.raises(SimulationError, match="never-written value is stored to an output"):
        sim.launch(Launch(program, [out.ctypes.data, 0, 0]))


POLL = (
    "\tv_mov_b32_e32 v1, 0\n.LBB0_1:\n\ts_sleep 1\n\tglobal_load_dword v2, v1, s[4:5] sc1\n\ts_waitcnt vmcnt(0)\n"
    "\tv_readfirstlane_b32 s20, v2\n\ts_cmp_lg_u32 s20, 7\n\ts_cbranch_scc1 .LBB0_1\n"
)
SPIN = POLL.replace("\ts_sleep 1\n", "")


@pytest.mark.parametrize("body", [POLL, SPIN])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_hang_is_found_and_says_who_waits_for_what(body: str, threads: int) -> None:
    flag = np.full(1, 3, np.uint32)
    with pytest.raises(HangError) as caught:
        run_body(body, [flag], grid=4, block=128, simulator=Simulator(threads=threads))
    (group,) = caught.value.groups
    assert (group.rank, group.ctas, group.waves) == (0, (0, 1, 2, 3), 8)
    assert group.instruction == "global_load_dword v2, v1, s[4:5] sc1"
    assert (group.address, group.buffer, group.value) == (flag.ctypes.data, "array0", 3)
    assert "array0" in str(caught.value)


def test_a_barrier_nobody_completes_is_a_hang() -> None:
    body = (
        "\tv_readfirstlane_b32 s21, v0\n\ts_cmp_eq_u32 s21, 0\n\ts_cbranch_scc1 .LBB0_2\n"
        + POLL
        + ".LBB0_2:\n\ts_barrier\n"
    )
    with pytest.raises(HangError) as caught:
        run_body(body, [np.zeros(1, np.uint32)], block=128)
    assert {group.why for group in caught.value.groups} == {"wait at a barrier", "poll"}


def test_a_long_computation_is_no_hang() -> None:
    body = (
        "\ts_mov_b32 s20, 0\n.LBB0_1:\n\ts_add_u32 s20, s20, 1\n\ts_cmp_lt_u32 s20, 0x80000\n\ts_cbranch_scc1 .LBB0_1\n"
    )
    report = run_body(body, [], simulator=Simulator(threads=1))
    assert report.instructions > 3 * 0x80000


def test_instruction_limit() -> None:
    body = ".LBB0_1:\n\ts_add_u32 s20, s20, 1\n\ts_branch .LBB0_1\n"
    with pytest.raises(HangError, match="over the limit"):
        run_body(body, [], simulator=Simulator(threads=1, instruction_limit=1_000_000))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("\tv_add_f33_e32 v0, v1, v2", "unknown instruction v_add_f33_e32; nearest known: v_add_f32"),
        ("\ts_addd_u32 s0, s1, s2", "nearest known: s_add"),
        ("\tglobal_load_dwordx5 v[0:4], v[0:1], off", "unknown instruction"),
        ("\tv_add_f32_e32 v0, v1", "operand 3 is missing"),
        ("\tv_add_f32_e32 v0, v1, v2, v3", "takes 3 operands, not 4"),
        ("\tv_add_f32_e32 v200, v1, v2", "lies behind the kernel's 32 vector registers"),
        ("\tglobal_load_dwordx2 v0, v[2:3], off", "moves 2 dwords"),
        ("\ts_branch .LBB9_9", "branch target .LBB9_9 is unknown"),
        ("\ts_mov_b64 s[0:1], v2", "source must be a scalar register"),
        ("\ts_getreg_b32 s0, hwreg(HW_REG_NOTHING)", "hardware register HW_REG_NOTHING is not modelled"),
    ],
)
def test_instructions_that_cannot_run_are_refused_at_load(line: str, message: str) -> None:
    with pytest.raises(AsmError) as caught:
        Simulator().load(kernel_text(line))
    assert message in str(caught.value)
    assert caught.value.line == 7
    assert line.strip() in str(caught.value)


def test_running_past_the_end_is_found() -> None:
    text = kernel_text("\ts_nop 0").replace("\ts_endpgm\n", "")
    sim = Simulator(threads=1)
    with pytest.raises(SimulationError, match="past the kernel's last instruction"):
        sim.launch(Launch(sim.load(text), [0]))


def test_bad_calls_name_the_argument() -> None:
    with pytest.raises(UsageError, match="architecture 'gfx90a'"):
        Simulator("gfx90a")
    with pytest.raises(UsageError, match="ranks must be at least 1"):
        Simulator(ranks=0)
    sim = Simulator()
    data = np.zeros(64, np.uint32)
    sim.register(0, data, name="data")
    with pytest.raises(UsageError, match="overlaps data"):
        sim.register(0, data[32:], name="tail")
    with pytest.raises(UsageError, match="rank 3 does not exist"):
        sim.register(3, data)
    program = sim.load(kernel_text(""))
    with pytest.raises(UsageError, match="takes 1 arguments, not 2"):
        sim.launch(Launch(program, [1, 2]))
    with pytest.raises(UsageError, match="1 to 1024 threads"):
        sim.launch(Launch(program, [1], block=(2048, 1, 1)))
    with pytest.raises(UsageError, match="no kernel other"):
        sim.load(kernel_text(""), "other")
    with pytest.raises(UsageError, match="no buffer starts at"):
        sim.unregister(16)
    with pytest.raises(AsmError, match="assembly is for gfx942"):
        sim.load(kernel_text("").replace("gfx950", "gfx942"))
