"""Target descriptions: what a GPU offers a persistent launch."""

from monoc.target.gfx950 import GFX950
from monoc.target.model import Target, UnknownTargetError

__all__ = ["GFX950", "Target", "UnknownTargetError", "target"]

_TARGETS = {t.name: t for t in (GFX950,)}


def target(name: str) -> Target:
    """The target called ``name``. Raises :class:`UnknownTargetError`, naming those there are."""
    if name not in _TARGETS:
        raise UnknownTargetError(f"target {name!r} is not known; choose one of {', '.join(sorted(_TARGETS))}")
    return _TARGETS[name]
