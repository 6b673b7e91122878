"""Kernel arguments given as text (`monoc sim --arg`): numbers, and buffers by size or from `.npy` files.

| text | argument |
| --- | --- |
| `42`, `0x2a`, `-1` | an integer of the argument's size |
| `f32:1.5` | the bits of a float (4 bytes) |
| `zeros:4096` | address of 4096 zero bytes |
| `empty:4096` | address of 4096 never-written bytes: reading them is poison |
| `random:4096` or `random:4096:7` | address of random bytes, seed 0 or 7 |
| `weights.npy` | address of the array's contents |
| `rank` | the rank's number |
| `peer:2` | address of the int64 table of all ranks' addresses of argument 2 (a buffer) |
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from monoc.build.resources import KernelArgument
from monoc.sim.errors import UsageError
from monoc.sim.host.memory import DeviceMemory

__all__ = ["ArgumentText", "bind", "parse_argument"]


@dataclass(frozen=True)
class ArgumentText:
    """One `--arg`, parsed. `kind`: value, float, zeros, empty, random, npy, rank or peer."""

    text: str
    kind: str
    number: int = 0
    seed: int = 0
    array: np.ndarray | None = None


def _integer(text: str, whole: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise UsageError(f"--arg {whole}: {text!r} is no integer") from None


def parse_argument(text: str) -> ArgumentText:
    """The argument `text` means; UsageError names the argument and what would be right."""
    head, _, tail = text.partition(":")
    if text.endswith(".npy"):
        try:
            array = np.ascontiguousarray(np.load(Path(text), allow_pickle=False))
        except (OSError, ValueError) as error:
            raise UsageError(f"--arg {text}: {error}") from error
        return ArgumentText(text, "npy", array.nbytes, array=array)
    if head in ("zeros", "empty", "random"):
        size, _, seed = tail.partition(":")
        number = _integer(size, text)
        if number <= 0:
            raise UsageError(f"--arg {text}: a buffer needs a positive size in bytes")
        if seed and head != "random":
            raise UsageError(f"--arg {text}: only random buffers have a seed")
        return ArgumentText(text, head, number, _integer(seed, text) if seed else 0)
    if head == "f32" and tail:
        try:
            return ArgumentText(text, "float", int.from_bytes(struct.pack("<f", float(tail)), "little"))
        except (ValueError, OverflowError):
            raise UsageError(f"--arg {text}: {tail!r} is no 32-bit float") from None
    if text == "rank":
        return ArgumentText(text, "rank")
    if head == "peer" and tail:
        return ArgumentText(text, "peer", _integer(tail, text))
    try:
        return ArgumentText(text, "value", int(text, 0))
    except ValueError:
        raise UsageError(
            f"--arg {text}: neither an integer, f32:VALUE, zeros:BYTES, empty:BYTES, random:BYTES[:SEED], "
            "FILE.npy, rank nor peer:INDEX"
        ) from None


def _tensor(argument: ArgumentText) -> torch.Tensor:
    if argument.array is not None:
        return torch.from_numpy(argument.array.reshape(-1).view(np.uint8).copy())
    if argument.kind == "random":
        generator = torch.Generator().manual_seed(argument.seed)
        return torch.randint(0, 256, (argument.number,), dtype=torch.uint8, generator=generator)
    fill = torch.zeros if argument.kind == "zeros" else torch.empty
    return fill(argument.number, dtype=torch.uint8)


def bind(
    arguments: Sequence[ArgumentText], layout: Sequence[KernelArgument], ranks: int, memory: DeviceMemory
) -> tuple[list[list[int]], list[dict[int, torch.Tensor]]]:
    """(values, buffers) for each rank: every rank gets buffers of its own, in `memory`.

    UsageError when counts differ from the kernel's `layout`, a number does not fit or a peer names no buffer.
    """
    if len(arguments) != len(layout):
        raise UsageError(f"the kernel takes {len(layout)} arguments, {len(arguments)} were given with --arg")
    buffers: list[dict[int, torch.Tensor]] = []
    for rank in range(ranks):
        mine = {}
        for index, argument in enumerate(arguments):
            if argument.kind in ("npy", "zeros", "empty", "random"):
                mine[index] = _tensor(argument)
                written = argument.kind != "empty"
                memory.adopt(mine[index], rank, written=written, name=f"arg{index}", shared=ranks > 1)
        buffers.append(mine)
    values = []
    for rank in range(ranks):
        row = []
        for index, (argument, place) in enumerate(zip(arguments, layout, strict=True)):
            if argument.kind == "peer":
                if argument.number not in buffers[rank]:
                    raise UsageError(f"--arg {argument.text}: argument {argument.number} is no buffer")
                table = torch.tensor([b[argument.number].data_ptr() for b in buffers], dtype=torch.int64)
                memory.adopt(table, rank, name=f"arg{index}")
                buffers[rank][index] = table
            if index in buffers[rank]:
                value = buffers[rank][index].data_ptr()
            else:
                value = rank if argument.kind == "rank" else argument.number
            bits = 8 * place.size
            if not -(1 << (bits - 1)) <= value < 1 << bits:
                raise UsageError(
                    f"--arg {argument.text}: argument {index} has {place.size} bytes; the value does not fit"
                )
            row.append(value & ((1 << bits) - 1))
        values.append(row)
    return values, buffers
