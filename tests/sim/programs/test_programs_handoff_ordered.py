"""Data whose announcing flag follows from what happens; stores that are slow to show; words that guard themselves."""

import flydsl.compiler as flyc
import flydsl.expr as fx
import numpy as np
import pytest
import torch
from flydsl.expr import rocdl
from flydsl.expr.typing import Int32, Int64
from program_support import STREAM, get, load, pointer, put, store

from monoc.sim import Simulator
from monoc.sim.errors import SimulationError
from monoc.sim.handoff import Kind, Manifest, Region
from monoc.sim.host import simulate

WRITER, READER, LAST = 0, 1, 2  # CTAs, each of two waves


def scoped_store(address, index, value):
    fx.generic_store(
        pointer(address, index, fx.Int32), value, memory_order=fx.AtomicOrdering.Monotonic, syncscope="agent"
    )


@flyc.kernel(known_block_size=[128, 1, 1])
def relay(data: Int64, flags: Int64, out: Int64, tag: Int32, mistake: fx.Constexpr[str]):
    """The writer stores 127 words and raises flag 0; the reader waits for it, takes them and raises flag 1; the last
    CTA waits for that alone and takes them too."""
    tid = fx.thread_idx.x
    cta = fx.block_idx.x
    if cta == WRITER:
        if tid < 127:
            scoped_store(data, tid, tid * 3 + tag)
        if fx.const_expr(mistake == "undrained wave"):
            if tid < 64:
                rocdl.s_waitcnt(vmcnt=0)
        elif fx.const_expr(mistake != "undrained"):
            rocdl.s_waitcnt(vmcnt=0)
        fx.gpu.barrier()
        if tid == 0:
            put(flags, 0, fx.Int32(1), tag, "agent")
        if fx.const_expr(mistake == "behind the flag"):
            scoped_store(data, fx.Int32(5), tid * 3 + tag)
    elif cta == READER:
        if fx.const_expr(mistake == "cached"):
            store(out, 512 + tid, load(data, fx.Int32(127)))
        if fx.const_expr(mistake == "one wave"):
            if tid < 64:
                store(out, 512 + tid, get(flags, 0, tag, "agent"))
        elif fx.const_expr(mistake != "unseen"):
            store(out, 512 + tid, get(flags, 0, tag, "agent"))
        if fx.const_expr(mistake != "one wave"):
            fx.gpu.barrier()
        if tid < 127:
            store(out, 128 + tid, load(data, tid))
        rocdl.s_waitcnt(vmcnt=0)
        fx.gpu.barrier()
        if tid == 0:
            put(flags, 1, fx.Int32(1), tag, "agent")
    else:
        if tid < 64:
            store(out, 512 + tid, get(flags, 1, tag, "agent"))
        fx.gpu.barrier()
        if tid < 127:
            store(out, 256 + tid, load(data, tid))


@flyc.jit
def launch_relay(
    data: Int64, flags: Int64, out: Int64, tag: Int32, mistake: fx.Constexpr[str], stream: fx.Stream = STREAM
):
    relay(data, flags, out, tag, mistake).launch(grid=(3, 1, 1), block=(128, 1, 1), stream=stream)


def run(mistake: str, order: int = 0, late: bool = False) -> np.ndarray:
    simulator = Simulator("gfx950", ranks=1, threads=1)
    simulator.seed = order
    with simulate(simulator):
        data = torch.zeros(128, dtype=torch.int32, device="cuda")
        flags = torch.zeros(2, dtype=torch.int64, device="cuda")
        out = torch.zeros(1024, dtype=torch.int32, device="cuda")
        words = Region("words", data.data_ptr(), 512, Kind.PLAIN, writers=(WRITER,), readers=(READER, LAST), reads=0)
        flag = Region("ready", flags.data_ptr(), 16, Kind.FLAG, reads=0)
        simulator.set_manifest(Manifest((words, flag)), late=late)
        for tag in (1, 2):
            launch_relay(data.data_ptr(), flags.data_ptr(), out.data_ptr(), tag, mistake)
        return out.cpu().numpy()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_flag_publishes_what_came_before_it_and_what_its_writer_knew(order: int, late: bool) -> None:
    out = run("none", order, late)
    for start in (128, 256):
        np.testing.assert_array_equal(out[start : start + 127], np.arange(127) * 3 + 2)


@pytest.mark.parametrize(
    ("mistake", "violation"),
    [
        ("undrained", "undrained"),
        ("undrained wave", "undrained"),
        ("unseen", "unseen"),
        ("one wave", "unseen"),
        ("behind the flag", "unseen"),
    ],
)
def test_each_mistake_is_found_whatever_the_schedule(mistake: str, violation: str) -> None:
    for order in (0, 1, 2):
        with pytest.raises(SimulationError) as caught:
            run(mistake, order)
        finding = caught.value.findings[0]
        assert finding.kind == "handoff"
        assert finding.details["violation"] == violation
        assert finding.details["region"] == "words"


def test_a_line_read_before_it_was_written_is_not_read_through_the_caches_again() -> None:
    """Found in the schedules in which the reader comes first."""
    found = [message for order in range(6) if (message := message_of("cached", order))]
    assert 0 < len(found) < 6
    assert all("a die that holds its line" in message for message in found)


def message_of(mistake: str, order: int) -> str:
    try:
        run(mistake, order)
    except SimulationError as error:
        return error.findings[0].message
    return ""


@flyc.kernel(known_block_size=[64, 1, 1])
def peek(pairs: Int64, out: Int64, tag: Int32, checks: fx.Constexpr[bool]):
    """CTA 0 puts 64 pairs; CTA 1 takes them, or whatever is there."""
    lane = fx.thread_idx.x
    if fx.block_idx.x == 0:
        put(pairs, lane, lane + tag * 100, tag, "agent")
    else:
        if fx.const_expr(checks):
            store(out, lane, get(pairs, lane, tag, "agent"))
        else:
            pair = fx.generic_load(
                pointer(pairs, lane, fx.Int64),
                dtype=fx.Int64,
                memory_order=fx.AtomicOrdering.Monotonic,
                syncscope="agent",
            )
            store(out, lane, fx.Int32(pair))


@flyc.jit
def launch_peek(pairs: Int64, out: Int64, tag: Int32, checks: fx.Constexpr[bool], stream: fx.Stream = STREAM):
    peek(pairs, out, tag, checks).launch(grid=(2, 1, 1), block=(64, 1, 1), stream=stream)


@pytest.mark.parametrize(("checks", "late"), [(True, True), (False, True), (False, False)])
def test_who_does_not_wait_for_a_late_store_takes_what_was_there(checks: bool, late: bool) -> None:
    """Some quarters of the wave do: 16 lanes load together."""
    simulator = Simulator("gfx950", ranks=1, threads=1)
    with simulate(simulator):
        pairs = torch.zeros(64, dtype=torch.int64, device="cuda")
        out = torch.zeros(64, dtype=torch.int32, device="cuda")
        simulator.set_manifest(Manifest((Region("pairs", pairs.data_ptr(), 512, Kind.TAG, reads=0),)), late=late)
        for tag in (1, 2):
            launch_peek(pairs.data_ptr(), out.data_ptr(), tag, checks)
        seen = (out.cpu().numpy() - np.arange(64)) // 100
        assert {tuple(quarter) for quarter in seen.reshape(4, 16)} <= {(1,) * 16, (2,) * 16}
        assert (1 in seen) == (late and not checks)
        np.testing.assert_array_equal(out.cpu().numpy(), np.arange(64) + 100 * seen)


@flyc.kernel(known_block_size=[64, 1, 1])
def turn(word: Int64, marks: Int64, out: Int64, waits: fx.Constexpr[bool]):
    """Every CTA reads the word and marks that; CTA 0 counts it up, after CTA 1's mark or before."""
    seen = rocdl.readfirstlane(fx.Int32.ir_type, _word(word))
    if fx.thread_idx.x == 0:
        if fx.block_idx.x == 1:
            put(marks, 0, fx.Int32(1), fx.Int32(seen) + 1, "agent")
        else:
            if fx.const_expr(waits):
                store(out, fx.Int32(0), get(marks, 0, fx.Int32(seen) + 1, "agent"))
            scoped_store(word, fx.Int32(0), fx.Int32(seen) + 1)


def _word(address):
    value = fx.generic_load(
        pointer(address, fx.Int32(0), fx.Int32),
        dtype=fx.Int32,
        memory_order=fx.AtomicOrdering.Monotonic,
        syncscope="agent",
    )
    return value.ir_value() if hasattr(value, "ir_value") else value


@flyc.jit
def launch_turn(word: Int64, marks: Int64, out: Int64, waits: fx.Constexpr[bool], stream: fx.Stream = STREAM):
    turn(word, marks, out, waits).launch(grid=(2, 1, 1), block=(64, 1, 1), stream=stream)


@pytest.mark.parametrize("waits", [True, False])
def test_a_word_is_stored_once_all_have_read_it(waits: bool) -> None:
    simulator = Simulator("gfx950", ranks=1, threads=1)
    with simulate(simulator):
        word = torch.zeros(1, dtype=torch.int32, device="cuda")
        marks = torch.zeros(1, dtype=torch.int64, device="cuda")
        out = torch.zeros(1, dtype=torch.int32, device="cuda")
        region = Region("epoch", word.data_ptr(), 4, Kind.WORD, writers=(0,), reads=2)
        for _ in range(2):
            simulator.set_manifest(Manifest((region,)))
            if waits:
                launch_turn(word.data_ptr(), marks.data_ptr(), out.data_ptr(), waits)
                continue
            with pytest.raises(SimulationError) as caught:
                launch_turn(word.data_ptr(), marks.data_ptr(), out.data_ptr(), waits)
            assert caught.value.findings[0].details["violation"] == "unread"
            return
        assert int(word.cpu()[0]) == 2
