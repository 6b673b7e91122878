"""What the faults of mutated packages do: device functions that are wrong, put in place of the right ones at one call.

``device`` is the package's own device module. FlyDSL traces inline, so a function replaced while one call is traced is
wrong in that call alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import range_constexpr, rocdl

__all__ = ["another", "elsewhere", "instead", "lenient", "truncate", "unscoped"]

_MANTISSA_OF_BF16 = -65536
_MANTISSA_OF_E4M3 = -1048576


def instead(device: Any, name: str, wrong: str, call: Callable[[], Any]) -> Any:
    """``call()`` with ``device``'s function ``name`` replaced by the fault ``wrong`` while it is traced."""
    right = getattr(device, name)
    setattr(device, name, _WRONG[wrong](device, right))
    try:
        return call()
    finally:
        setattr(device, name, right)


def unscoped(device: Any, region: Any, bits: int) -> Any:
    """``region`` with scope bits ``bits`` cleared of all its accesses."""
    if hasattr(region, "words"):
        return replace(region, words=unscoped(device, region.words, bits))
    if hasattr(region, "policy"):
        return replace(region, policy=region.policy & ~bits)
    return _Unscoped(device, region, bits)


def elsewhere(region: Any, pairs: int) -> Any:
    """A peer region ``pairs`` pairs further on; other regions as they are."""
    if not hasattr(region, "copies"):
        return region
    by = fx.Int64(8 * pairs)
    return replace(region, copies=tuple(c + by for c in region.copies), own=region.own + by)


def another(region: Any) -> Any:
    """A peer region whose last copy is rank 0's and whose own one is the last."""
    if not hasattr(region, "copies"):
        return region
    return replace(region, copies=(*region.copies[:-1], region.copies[0]), own=region.copies[-1])


def truncate(x: Any) -> fx.Float32:
    """``x`` cut off after bf16's mantissa."""
    return fx.Float32((fx.Float32(x).bitcast(fx.Int32) & fx.Int32(_MANTISSA_OF_BF16)).bitcast(fx.Float32))


def lenient(device: Any, region: Any) -> Any:
    """``region`` with a ``get`` and a ``wait`` that take words of any tag but 0."""
    return _Lenient(device, region)


class _Around:
    """A region with some of its methods replaced."""

    def __init__(self, device: Any, region: Any) -> None:
        self._device, self._region = device, region

    def __getattr__(self, name: str) -> Any:
        return getattr(self._region, name)

    def __extract_to_ir_values__(self) -> list[Any]:
        return []

    @classmethod
    def __construct_from_ir_values__(cls, values: list[Any], exemplar: Any = None) -> Any:
        return exemplar


class _Lenient(_Around):
    def get(self, *args: Any, **options: Any) -> Any:
        return instead(self._device, "poll_pairs", "poll_any", lambda: self._region.get(*args, **options))

    def wait(self, *args: Any) -> Any:
        return instead(self._device, "poll_pairs", "poll_any", lambda: self._region.wait(*args))


class _Unscoped(_Around):
    """A peer region, whose scope is a constant of its device module."""

    def __init__(self, device: Any, region: Any, bits: int) -> None:
        super().__init__(device, region)
        self._bits = bits

    def _weak(self, call: Callable[[], Any]) -> Any:
        right = self._device.SYSTEM
        self._device.SYSTEM = right & ~self._bits
        try:
            return call()
        finally:
            self._device.SYSTEM = right

    def put(self, *args: Any) -> Any:
        return self._weak(lambda: self._region.put(*args))

    def get(self, *args: Any, **options: Any) -> Any:
        return self._weak(lambda: self._region.get(*args, **options))

    def owned(self, rank: Any) -> Any:
        return _Unscoped(self._device, self._region.owned(rank), self._bits)


def _pack_truncated(device: Any, right: Any) -> Any:
    def wrong(low: Any, high: Any) -> Any:
        return right(truncate(low), truncate(high))

    return wrong


def _round_truncated(device: Any, right: Any) -> Any:
    return truncate


def _e4m3_truncated(device: Any, right: Any) -> Any:
    def wrong(*values: Any) -> Any:
        cut = [fx.Float32(v).bitcast(fx.Int32) & fx.Int32(_MANTISSA_OF_E4M3) for v in values]
        return right(*(fx.Float32(c.bitcast(fx.Float32)) for c in cut))

    return wrong


def _code_down(device: Any, right: Any) -> Any:
    def wrong(x: Any) -> Any:
        return (fx.Float32(x).bitcast(fx.Int32) >> 23) & 0xFF

    return wrong


def _code_twice(device: Any, right: Any) -> Any:
    """Scale codes taken for the next larger power of two."""

    def wrong(*args: Any) -> Any:
        return right(*args) + 1

    return wrong


def _meet(device: Any, right: Any) -> Any:
    def wrong(cta: Any) -> None:
        cta.meet()

    return wrong


def _poll_any(device: Any, right: Any) -> Any:
    @flyc.jit  # type: ignore[untyped-decorator]
    def wrong(address: Any, tag: Any, wanted: list[tuple[Any, int]], policy: int, limit: Any = None) -> list[list[Any]]:
        total = sum(count for _, count in wanted)

        def load_all() -> Any:
            words: list[Any] = []
            for index, count in wanted:
                for first in range(0, count, 2):
                    some = min(2, count - first)
                    got = device.load(address, (fx.Int32(index) + first) * 2, fx.Int32, 2 * some, policy)
                    words += [got[e] for e in range(2 * some)]
            return fx.Vector.from_elements(words, fx.Int32)

        def empty(words: Any) -> Any:
            bad = words[1] == 0
            for e in range_constexpr(3, 2 * total, 2):
                bad = bad | (words[e] == 0)
            return bad

        v = load_all()
        while empty(v):
            rocdl.s_sleep(1)
            v = load_all()
        out: list[list[Any]] = []
        at = 0
        for _, count in wanted:
            out.append([v[2 * (at + e)] for e in range(count)])
            at += count
        return out

    return wrong


_WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "pack_truncated": _pack_truncated,
    "round_truncated": _round_truncated,
    "e4m3_truncated": _e4m3_truncated,
    "code_down": _code_down,
    "code_twice": _code_twice,
    "meet": _meet,
    "poll_any": _poll_any,
}
