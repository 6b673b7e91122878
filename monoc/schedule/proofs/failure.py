"""What a proof finds: a claim that does not hold in a build, with the two things that break it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Failure"]


@dataclass(frozen=True)
class Failure:
    """``proof`` fails for ``launch`` in ``build`` because of ``culprits`` (stages, regions, tasks,
    widths)."""

    proof: str
    launch: str
    build: str
    culprits: tuple[str, str]
    message: str

    def __str__(self) -> str:
        where = f"launch {self.launch}" if self.launch else "package"
        return f"{self.proof}: {where}, {self.build}: {self.message}"
