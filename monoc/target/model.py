"""What the schedule and its proofs need to know of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HandOffCosts", "Target", "UnknownTargetError"]


class UnknownTargetError(ValueError):
    """A target name nobody described."""


@dataclass(frozen=True)
class HandOffCosts:
    """Times of the hand-off cost rule, nanoseconds, and its rates; estimates, only ever compared with each
    other.

    ``store``: until a device-scope store is visible to another CTA; ``load``: round trip of a device-scope load;
    ``meet``: a CTA barrier; ``grid``: a grid barrier beyond its stores and loads; ``bytes_per_ns``: what all CTAs
    together draw past their L2s; ``poll_words``: words a thread polls at a time; ``retries``: loads of a word until its
    tag is current, on average; ``spin``: how long readers usually wait, while their polls take bytes from the
    producers.
    """

    store: int
    load: int
    meet: int
    grid: int
    bytes_per_ns: int
    poll_words: int
    retries: float
    spin: int


@dataclass(frozen=True)
class Target:
    """A GPU: ``cus`` compute units (a persistent CTA each), ``lds_bytes`` of LDS a CTA, ``simds`` of a CU,
    ``registers`` 32-bit vector registers a lane of a SIMD, at most ``wave_registers`` of them a wave."""

    name: str
    cus: int
    lds_bytes: int
    wave: int
    simds: int
    registers: int
    wave_registers: int
    costs: HandOffCosts

    def vgpr_budget(self, threads: int) -> int:
        """Vector registers a lane may use when a CTA of ``threads`` is alone on its CU."""
        waves = -(-threads // (self.wave * self.simds))
        return min(self.registers // waves, self.wave_registers)
