"""Memory that is not there until it is written."""

from __future__ import annotations

import mmap

import torch

__all__ = ["Pages"]


class Pages:
    """``bytes``: ``nbytes`` zeros (uint8) that take no memory until they are written."""

    def __init__(self, nbytes: int) -> None:
        self._pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.bytes = torch.frombuffer(self._pages, dtype=torch.uint8)

    def give_back(self, first: int, end: int) -> None:
        """Make bytes ``first`` to ``end`` zero again; whole pages of them take no memory then."""
        page = mmap.PAGESIZE
        inner, outer = min(-(-first // page) * page, end), max(end // page * page, first)
        self.bytes[first:inner] = 0
        self.bytes[outer:end] = 0
        if inner < outer:
            self._pages.madvise(mmap.MADV_DONTNEED, inner, outer - inner)
