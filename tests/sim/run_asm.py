"""Run a kernel body on arrays: the tests' shortest way to see what instructions do."""

from __future__ import annotations

from typing import Any

import numpy as np
from asm_text import kernel_text

from monoc.sim import Launch, Report, Simulator

__all__ = ["LOAD_ARGUMENTS", "run_body", "scalar_results"]

# s[4:5], s[6:7], ... = the pointer arguments
LOAD_ARGUMENTS = """\
\ts_load_dwordx2 s[4:5], s[0:1], 0x0
\ts_load_dwordx2 s[6:7], s[0:1], 0x8
\ts_load_dwordx2 s[8:9], s[0:1], 0x10
\ts_waitcnt lgkmcnt(0)
"""


def run_body(
    body: str,
    arrays: list[np.ndarray[Any, Any]],
    *,
    grid: int = 1,
    simulator: Simulator | None = None,
    written: bool = True,
    **kernel: Any,
) -> Report:
    """Runs `body` with up to three arrays; missing ones are scratch. Arrays change in place."""
    sim = simulator or Simulator(threads=1)
    arrays = [*arrays, *(np.zeros(64, np.uint32) for _ in range(3 - len(arrays)))]
    for index, array in enumerate(arrays):
        sim.register(0, array, name=f"array{index}", written=written)
    try:
        program = sim.load(kernel_text(LOAD_ARGUMENTS + body, arguments=(8, 8, 8), **kernel))
        return sim.launch(Launch(program, [array.ctypes.data for array in arrays], grid=(grid, 1, 1)))
    finally:
        for array in arrays:
            sim.unregister(array.ctypes.data)


def scalar_results(body: str, registers: int = 1) -> list[int]:
    """Runs scalar code; values of s20.. afterwards, and SCC last."""
    stores = "".join(
        f"\tv_mov_b32_e32 v1, s{20 + i}\n\tglobal_store_dword v0, v1, s[4:5] offset:{4 * i}\n" for i in range(registers)
    )
    out = np.zeros(registers + 1, np.uint32)
    full = (
        "\tv_mov_b32_e32 v0, 0\n"
        + body
        + "\n\ts_cselect_b32 s30, 1, 0\n"
        + stores
        + f"\tv_mov_b32_e32 v1, s30\n\tglobal_store_dword v0, v1, s[4:5] offset:{4 * registers}\n"
    )
    run_body(full, [out])
    return [int(value) for value in out]
