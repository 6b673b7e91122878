"""Whole launches: several CTAs and ranks, determinism, hand-offs through memory, counts."""

# ruff: noqa: E501  (assembly lines stay whole)

from __future__ import annotations

import signal
from itertools import pairwise

import numpy as np
import pytest
from asm_text import kernel_text
from run_asm import LOAD_ARGUMENTS, run_body

from monoc.sim import Checks, HangError, Launch, Report, Simulator

# CTA n waits for the tagged pair n of mailbox s[4:5], adds its number, hands on to n + 1, stores to s[6:7].
RING = """\
\ts_lshl_b32 s20, s2, 3
\tv_mov_b32_e32 v1, s20
\tv_mov_b32_e32 v5, 1
\tv_cmp_eq_u32_e32 vcc, 0, v0
\ts_and_saveexec_b64 s[10:11], vcc
.LBB0_1:
\ts_sleep 1
\tglobal_load_dwordx2 v[2:3], v1, s[4:5] sc1
\ts_waitcnt vmcnt(0)
\tv_readfirstlane_b32 s21, v3
\ts_cmp_lg_u32 s21, 1
\ts_cbranch_scc1 .LBB0_1
\tv_add_u32_e32 v4, s2, v2
\tglobal_store_dwordx2 v1, v[4:5], s[4:5] offset:8 sc1
\tglobal_store_dwordx2 v1, v[4:5], s[6:7]
"""


def ring(ctas: int, **options: object) -> tuple[np.ndarray, Report]:  # type: ignore[type-arg]
    mailbox = np.zeros((ctas + 1, 2), np.uint32)
    mailbox[0] = (5, 1)
    out = np.zeros((ctas, 2), np.uint32)
    report = run_body(RING, [mailbox, out], grid=ctas, simulator=Simulator(**options))  # type: ignore[arg-type]
    return out, report


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 1, 99])
@pytest.mark.parametrize("checks", [Checks(), Checks(written=False), Checks(vgprs=True), Checks(lds_races=True)])
def test_bits_do_not_depend_on_threads_seed_or_checks(threads: int, seed: int, checks: Checks) -> None:
    out, _ = ring(40, threads=threads, seed=seed, checks=checks)
    np.testing.assert_array_equal(out[:, 0], 5 + np.cumsum(np.arange(40)))


@pytest.mark.parametrize("threads", [1, 2])
def test_counts_repeat_polls_apart(threads: int) -> None:
    def counts() -> tuple[dict[str, int], list[int], dict[str, int]]:
        _, report = ring(24, threads=threads, observe=True)
        assert report.observations is not None
        seen = report.observations
        return dict(seen.classes), [cta.instructions for cta in seen.ctas if cta.cta == 3], dict(seen.lines)

    assert counts() == counts()


def test_counts_by_class_line_buffer_and_cta() -> None:
    _, report = ring(4, threads=1, observe=True)
    seen = report.observations
    assert seen is not None
    assert seen.classes["store"] == 8
    assert seen.classes["smem"] == 3 * 4
    assert "load" not in seen.classes  # the only load is in the poll loop
    assert seen.polls >= 4 * 6
    assert 0 < seen.retries <= seen.polls
    assert sum(seen.classes.values()) + seen.polls == report.instructions
    assert [cta.stored for cta in sorted(seen.ctas, key=lambda cta: cta.cta)] == [16] * 4
    stored = {(t.buffer, t.policy): t.stored for t in seen.traffic if t.stored}
    assert stored == {("array0", "sc1"): 32, ("array1", ""): 32}
    assert (
        sum(count for key, count in seen.lines.items() if key.startswith("kernel:")) == report.instructions - seen.polls
    )
    assert sum(seen.line_bytes.values()) == sum(t.loaded + t.stored for t in seen.traffic)


def test_observers_change_no_bits_and_count_mfma_work() -> None:
    body = (
        "\tv_lshlrev_b32_e32 v9, 2, v0\n\tv_cvt_f32_u32_e32 v1, v0\n\tv_mfma_f32_16x16x4_f32 v[4:7], v1, v1, 0\n"
        "\tglobal_store_dword v9, v5, s[4:5]\n"
    )
    results = []
    for observe in (False, True):
        out = np.zeros(64, np.uint32)
        report = run_body(body, [out], simulator=Simulator(threads=1, observe=observe))
        results.append(out)
    assert report.observations is not None
    assert report.observations.mfma_macs == 16 * 16 * 4
    np.testing.assert_array_equal(results[0], results[1])


def test_atomic_queue_hands_out_each_ticket_once() -> None:
    body = (
        "\tv_mov_b32_e32 v1, 0\n\tv_mov_b32_e32 v2, 1\n\tv_cmp_eq_u32_e32 vcc, 0, v0\n\ts_and_saveexec_b64 s[10:11], vcc\n"
        "\tglobal_atomic_add v3, v1, v2, s[4:5] sc0\n\tv_lshlrev_b32_e32 v4, 2, v3\n\tv_mov_b32_e32 v5, 1\n"
        "\tglobal_atomic_add v4, v5, s[6:7]\n"
    )
    counter, tickets = np.zeros(1, np.uint32), np.zeros(200, np.uint32)
    run_body(body, [counter, tickets], grid=200, simulator=Simulator(threads=2))
    assert counter[0] == 200
    assert (tickets == 1).all()


def test_barrier_orders_lds_between_waves() -> None:
    body = (
        "\tv_lshlrev_b32_e32 v9, 2, v0\n\tds_write_b32 v9, v0\n\ts_waitcnt lgkmcnt(0)\n\ts_barrier\n"
        "\tv_xor_b32_e32 v1, 0xff, v0\n\tv_lshlrev_b32_e32 v1, 2, v1\n\tds_read_b32 v2, v1\n"
        "\tglobal_store_dword v9, v2, s[4:5]\n"
    )
    out = np.zeros(256, np.uint32)
    run_body(body, [out], block=256, lds=1024)
    np.testing.assert_array_equal(out, 255 - np.arange(256))


# Every wave appends its number to a list, 40 times; 100 instructions lie between.
APPEND = (
    "\tv_lshrrev_b32_e32 v7, 6, v0\n\tv_mov_b32_e32 v1, 0\n\tv_mov_b32_e32 v2, 1\n\ts_mov_b32 s20, 40\n\ts_mov_b64 exec, 1\n.LBB0_1:\n"
    "\tglobal_atomic_add v3, v1, v2, s[4:5] sc0\n\tv_lshlrev_b32_e32 v4, 2, v3\n\tglobal_store_dword v4, v7, s[6:7]\n"
    + "\ts_nop 0\n" * 100
    + "\ts_sub_u32 s20, s20, 1\n\ts_cmp_lg_u32 s20, 0\n\ts_cbranch_scc1 .LBB0_1\n"
)


def appended(seed: int) -> list[int]:
    counter, order = np.zeros(1, np.uint32), np.zeros(160, np.uint32)
    run_body(APPEND, [counter, order], simulator=Simulator(threads=1, seed=seed), block=256)
    assert sorted(order) == sorted([*range(4)] * 40)
    return [int(wave) for wave in order]


def test_seeds_mix_the_waves_of_a_cta() -> None:
    """Without a seed a wave that does not wait runs its whole slice; a seed cuts it short, each at places of its own."""

    def turns(order: list[int]) -> int:
        return sum(a != b for a, b in pairwise(order))

    assert turns(appended(0)) == 3
    mixed = {seed: appended(seed) for seed in range(1, 9)}
    assert sum(map(turns, mixed.values())) > 8 * 6
    assert len({tuple(order) for order in mixed.values()}) == 8
    assert len({order[0] for order in mixed.values()}) > 1
    assert all(appended(seed) == order for seed, order in mixed.items())


@pytest.mark.parametrize("seed", [1, 7])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_spin_of_many_waves_hangs_under_a_seed_too(seed: int, threads: int) -> None:
    """Waves without a sleep that are cut at random places would hardly come back to a state all together."""
    body = ".LBB0_1:\n\ts_load_dword s20, s[4:5], 0x0\n\ts_nop 0\n\ts_cmp_lg_u32 s20, 1\n\ts_cbranch_scc1 .LBB0_1\n"
    with pytest.raises(HangError):
        run_body(body, [np.zeros(1, np.uint32)], simulator=Simulator(threads=threads, seed=seed), grid=3, block=512)


def test_ranks_push_to_each_other() -> None:
    """Each rank stores its id to every peer through a table of addresses and waits for all pairs."""
    ranks = 4
    body = """\
\tv_lshlrev_b32_e32 v1, 3, v0
\tglobal_load_dwordx2 v[2:3], v1, s[4:5]
\ts_load_dword s12, s[0:1], 0x18
\ts_waitcnt lgkmcnt(0)
\tv_mov_b32_e32 v6, s12
\tv_mov_b32_e32 v7, 1
\ts_lshl_b32 s13, s12, 3
\tv_cmp_gt_u32_e32 vcc, 4, v0
\ts_and_saveexec_b64 s[10:11], vcc
\tv_add_co_u32_e32 v2, vcc, s13, v2
\tv_addc_co_u32_e32 v3, vcc, 0, v3, vcc
\tglobal_store_dwordx2 v[2:3], v[6:7], off sc0 sc1
.LBB0_1:
\ts_sleep 1
\tglobal_load_dwordx2 v[4:5], v1, s[6:7] sc0 sc1
\ts_waitcnt vmcnt(0)
\tv_cmp_ne_u32_e32 vcc, 1, v5
\ts_cbranch_vccnz .LBB0_1
\tv_lshlrev_b32_e32 v9, 2, v0
\tglobal_store_dword v9, v4, s[8:9]
"""
    sim = Simulator(ranks=ranks, threads=2)
    boxes = [np.zeros((ranks, 2), np.uint32) for _ in range(ranks)]
    table = np.array([box.ctypes.data for box in boxes] + [boxes[0].ctypes.data] * 60, np.uint64)
    outs = [np.zeros(ranks, np.uint32) for _ in range(ranks)]
    sim.register(None, table, name="table")
    for rank in range(ranks):
        sim.register(None, boxes[rank], name=f"box{rank}")
        sim.register(rank, outs[rank], name=f"out{rank}", written=False, output=True)
    program = sim.load(kernel_text(LOAD_ARGUMENTS + body, arguments=(8, 8, 8, 4)))
    sim.launch(
        {
            rank: Launch(program, [table.ctypes.data, boxes[rank].ctypes.data, outs[rank].ctypes.data, rank])
            for rank in range(ranks)
        }
    )
    for out in outs:
        np.testing.assert_array_equal(out, np.arange(ranks))


def test_constant_data_is_reached_through_its_symbol() -> None:
    body = (
        "\ts_getpc_b64 s[10:11]\n\ts_add_u32 s10, s10, table@rel32@lo+4\n\ts_addc_u32 s11, s11, table@rel32@hi+12\n"
        "\ts_load_dwordx2 s[12:13], s[10:11], 0x0\n\ts_waitcnt lgkmcnt(0)\n\tv_mov_b32_e32 v1, 0\n\tv_mov_b32_e32 v2, s13\n"
        "\tglobal_store_dword v1, v2, s[4:5]\n"
    )
    out = np.zeros(1, np.uint32)
    extra = '\t.section .rodata,"a",@progbits\n\t.p2align 4\ntable:\n\t.long 11, 22\n\t.text'
    run_body(body, [out], extra=extra)
    assert out[0] == 22


def test_the_same_text_is_decoded_once() -> None:
    sim = Simulator()
    assert sim.load(kernel_text("\ts_nop 3")) is sim.load(kernel_text("\ts_nop 3"))


def test_a_signal_ends_a_run() -> None:
    """Ctrl-C reaches a launch that would never end."""

    class Stopped(Exception):  # noqa: N818
        pass

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(Stopped):
            run_body(".LBB0_1:\n\ts_add_u32 s20, s20, 1\n\ts_branch .LBB0_1\n", [], simulator=Simulator(threads=2))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_only_a_failed_first_try_runs_counts_as_poll() -> None:
    """The block before a poll loop that a successful first try jumps over is no work."""
    body = (
        "\tv_mov_b32_e32 v1, 0\n\tglobal_load_dword v2, v1, s[4:5] sc1\n\tv_readfirstlane_b32 s20, v2\n"
        "\ts_cmp_eq_u32 s20, 1\n\ts_cbranch_scc1 .LBB0_2\n\ts_mov_b32 s21, 5\n.LBB0_1:\n\ts_sleep 1\n"
        "\tglobal_load_dword v2, v1, s[4:5] sc1\n\tv_readfirstlane_b32 s20, v2\n\ts_cmp_lg_u32 s20, 1\n"
        "\ts_cbranch_scc1 .LBB0_1\n\ts_nop 0\n.LBB0_2:\n\ts_nop 1\n"
    )
    # CTA 1 (other instructions: the writer) raises the flag for CTA 0.
    writer = (
        "\ts_cmp_eq_u32 s2, 0\n\ts_cbranch_scc1 .LBB0_9\n\tv_mov_b32_e32 v1, 0\n\tv_mov_b32_e32 v2, 1\n"
        "\tglobal_store_dword v1, v2, s[4:5] sc1\n\ts_endpgm\n.LBB0_9:\n"
    )
    work = []
    for value in (0, 1):
        report = run_body(
            writer + body, [np.full(1, value, np.uint32)], grid=2, simulator=Simulator(threads=1, observe=True)
        )
        assert report.observations is not None
        work.append((sum(report.observations.classes.values()), report.observations.polls > 0))
    assert work[0][0] == work[1][0]
    assert (work[0][1], work[1][1]) == (True, False)


@pytest.mark.parametrize("waited", [False, True])
def test_weights_in_flight_when_a_wave_first_waits_for_another_cta(waited: bool) -> None:
    """Two waves request 4 x 256 bytes of weights each; wave 0 polls a hand-off word and both meet at a barrier. The
    fullest wait counts, what comes after the hand-off does not: not for the wave that waits at the barrier either."""
    loads = "".join(f"\tglobal_load_dword v{4 + i}, v1, s[4:5] offset:{256 * i}\n" for i in range(4))
    body = (
        "\tv_lshlrev_b32_e32 v1, 2, v0\n\tv_and_b32_e32 v1, 0xff, v1\n\tv_mov_b32_e32 v2, 0\n"
        "\tv_readfirstlane_b32 s21, v0\n"
        + loads
        + ("\ts_waitcnt vmcnt(1)\n" if waited else "")
        + "\ts_cmp_lg_u32 s21, 0\n\ts_cbranch_scc1 .LBB0_1\n\tglobal_load_dword v3, v2, s[6:7] sc1\n"
        "\ts_waitcnt vmcnt(0)\n.LBB0_1:\n\ts_barrier\n" + loads + loads + "\ts_waitcnt vmcnt(0)\n"
    )
    sim = Simulator(threads=1, observe=True)
    weights, word = np.zeros(256, np.uint32), np.zeros(1, np.uint32)
    sim.watch(weights.ctypes.data, "weight")
    sim.watch(word.ctypes.data, "handoff")
    report = run_body(body, [weights, word], simulator=sim, block=128)
    assert report.observations is not None
    (cta,) = report.observations.ctas
    assert cta.in_flight == 2 * 4 * 256
    assert cta.busiest < cta.instructions < 2 * cta.busiest


def test_what_follows_the_first_hand_off_is_not_in_flight() -> None:
    sim = Simulator(threads=1, observe=True)
    weights, word = np.zeros(256, np.uint32), np.zeros(1, np.uint32)
    sim.watch(weights.ctypes.data, "weight")
    sim.watch(word.ctypes.data, "handoff")
    body = (
        "\tv_mov_b32_e32 v2, 0\n\tglobal_load_dword v3, v2, s[6:7] sc1\n\ts_waitcnt vmcnt(0)\n"
        "\tglobal_load_dword v3, v2, s[4:5]\n\ts_waitcnt vmcnt(0)\n"
    )
    report = run_body(body, [weights, word], simulator=sim)
    assert report.observations is not None
    assert report.observations.ctas[0].in_flight == 0


_POLL = """\
\ts_load_dword s22, s[4:5], 0x0
\ts_waitcnt lgkmcnt(0)
"""


@pytest.mark.parametrize(
    "step",
    [
        "global_store_dword v1, v2, s[4:5] offset:128",
        "ds_write_b32 v1, v2",
        "ds_write_b16 v1, v2",
        "ds_write2_b32 v1, v2, v2 offset0:1 offset1:2",
        "scratch_store_dword off, v2, off",
        "s_barrier",
        "ds_write_b32 v1, v2\n\ts_barrier\n\tds_read_b32 v3, v1\n\ts_barrier",
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_wait_that_stores_or_meets_at_barriers_is_a_hang_too(step: str, threads: int) -> None:
    """Nothing it stores is new, so nothing can come of it."""
    body = f"\tv_mov_b32_e32 v1, 0\n\tv_mov_b32_e32 v2, 7\n.LBB0_1:\n\t{step}\n{_POLL}"
    body += "\ts_cmp_eq_u32 s22, 0\n\ts_cbranch_scc1 .LBB0_1\n"
    simulator = Simulator(threads=threads, instruction_limit=20_000_000)
    with pytest.raises(HangError, match="nothing changes"):
        run_body(body, [np.zeros(64, np.uint32)], grid=3, block=128, lds=256, scratch=16, simulator=simulator)


@pytest.mark.parametrize(
    ("keep", "take"),
    [
        ("scratch_store_dword off, v2, off", "scratch_load_dword v2, off, off"),
        ("ds_write_b32 v1, v2", "ds_read_b32 v2, v1"),
        ("global_store_dword v1, v2, s[6:7]", "global_load_dword v2, v1, s[6:7]"),
    ],
)
def test_a_counter_kept_in_memory_alone_is_no_hang(keep: str, take: str) -> None:
    """The registers are the same at every turn; the loop ends all the same, after far more turns than visits compared."""
    body = f"""\
\tv_lshlrev_b32_e32 v1, 2, v0
\tv_mov_b32_e32 v2, 0
\t{keep}
.LBB0_1:
\t{take}
\ts_waitcnt vmcnt(0) lgkmcnt(0)
\tv_add_u32_e32 v2, 1, v2
\t{keep}
\tv_cmp_gt_u32_e32 vcc, 0x7d0, v2
\tv_mov_b32_e32 v2, 0
\ts_sleep 1
\ts_cbranch_vccnz .LBB0_1
"""
    run_body(body, [np.zeros(64, np.uint32), np.zeros(64, np.uint32)], lds=256, scratch=16)
