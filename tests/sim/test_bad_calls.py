"""Calls of the Python API that cannot work are `UsageError`s naming what is wrong."""

import threading
from typing import Any

import numpy as np
import pytest
from asm_text import kernel_text
from run_asm import run_body

from monoc.sim import Launch, SimulationError, Simulator, SimulatorError, UsageError


def _launch(text: str = kernel_text("", arguments=(4,)), **launch: Any) -> None:
    simulator = Simulator(threads=1)
    simulator.launch(Launch(simulator.load(text), **{"args": [0], **launch}))


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({"args": [1 << 40]}, "does not fit the kernel's 4 bytes"),
        ({"args": [-(1 << 33)]}, "does not fit the kernel's 4 bytes"),
        ({"args": ["x"]}, "no int, float"),
        ({"args": []}, "takes 1 arguments"),
        ({"kernarg": b"abc"}, "kernarg has 3 bytes"),
        ({"grid": (0, 1, 1)}, "grid .* three positive numbers"),
        ({"grid": (-1, 1, 1)}, "grid"),
        ({"grid": (1 << 33, 1, 1)}, "grid"),
        ({"grid": (1 << 20, 1 << 20, 1 << 20)}, "more than 4,194,304 CTAs"),
        ({"block": (0, 1, 1)}, "block"),
        ({"block": (1 << 16, 1 << 16, 1)}, "1 to 1024 threads"),
        ({"lds": -1}, "lds -1"),
        ({"lds": 1 << 20}, "160 KB of LDS"),
    ],
)
def test_launch_that_does_not_fit(launch: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _launch(**launch)


def test_numpy_scalars_are_arguments() -> None:
    _launch(args=[np.int64(-1)])
    _launch(args=[np.float32(1.5)])


def test_simulator_arguments() -> None:
    for arguments in ({"seed": -3}, {"instruction_limit": -1}, {"ranks": 0}, {"threads": 0}, {"arch": "gfx90a"}):
        with pytest.raises(UsageError):
            Simulator(**arguments)


def test_one_launch_a_rank() -> None:
    simulator = Simulator(ranks=2, threads=1)
    launch = Launch(simulator.load(kernel_text("", arguments=(4,))), [0])
    with pytest.raises(UsageError, match="one launch a rank"):
        simulator.launch([(0, launch), (0, launch)])
    with pytest.raises(UsageError, match=r"rank 0\.5"):
        simulator.launch([(0, launch), (0.5, launch)])  # type: ignore[list-item]


def test_failed_launch_leaves_nothing_behind() -> None:
    """The kernel arguments of a refused launch are not device memory any more."""
    simulator = Simulator(threads=1)
    program = simulator.load(kernel_text("", arguments=(4,)))
    for _ in range(3):
        with pytest.raises(UsageError, match="GiB of host memory"):
            simulator.launch(Launch(program, [0], grid=(1 << 22, 1, 1), block=(1024, 1, 1)))
        assert simulator.launch(Launch(program, [0])).instructions == 1


def test_two_launches_at_once_are_refused() -> None:
    simulator = Simulator(threads=1, instruction_limit=50_000_000)
    loop = simulator.load(kernel_text(".LBB0_1:\n\ts_memtime s[4:5]\n\ts_branch .LBB0_1", arguments=(4,)))
    together = threading.Barrier(2)
    errors: list[str] = []

    def run() -> None:
        together.wait()
        try:
            simulator.launch(Launch(loop, [0]))
        except SimulatorError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors[0] == "another launch of this simulator is running"
    assert "over the limit" in errors[1]


def test_array_that_is_not_writeable_is_read_only() -> None:
    array = np.zeros(64, np.uint32)
    array.setflags(write=False)
    body = "\tv_lshlrev_b32_e32 v1, 2, v0\n\tglobal_store_dword v1, v0, s[4:5]\n"
    with pytest.raises(SimulationError, match="read-only"):
        run_body(body, [array])
    assert not array.any()
