"""What skeletons need of the sizes, knobs and waves they are given, each with its reason: the one place of all of them.

:mod:`monoc.passes.legalise` refuses what no choice of stages could take, before fusing; these follow from the stages
that were chosen (tiles, chunks, splits over the CTA's waves) and are held against every build.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from monoc.schedule.formula import Formula, formula
from monoc.skeletons.attend_combine import AttendCombineParams
from monoc.skeletons.attend_split import AttendSplitParams
from monoc.skeletons.base import SkeletonParams
from monoc.skeletons.expert_down import ExpertDownParams
from monoc.skeletons.expert_up import ExpertUpParams
from monoc.skeletons.gemv import GemvParams, MxOut
from monoc.skeletons.latent_norm import LatentNormParams
from monoc.skeletons.quantise import QuantiseParams
from monoc.skeletons.rank_reduce import RankPushParams, RankReduceParams
from monoc.skeletons.route import RouteParams
from monoc.skeletons.router import RouterParams
from monoc.skeletons.row_norm import RowNormParams
from monoc.skeletons.row_slice import RowSliceParams
from monoc.skeletons.token_program import TokenProgramParams

__all__ = ["Need", "needs"]

_RECORD_BLOCKS = 8  # code bytes of a record


@dataclass(frozen=True)
class Need:
    """``left`` and ``right`` (formulas) are in ``relation``: ``multiple`` (of), ``most`` or ``least``; ``what``, in the
    spec's words, is ``left``; ``help`` says what to change."""

    what: str
    left: Formula
    relation: str
    right: Formula
    why: str
    help: str

    def holds(self, left: int, right: int) -> bool:
        if self.relation == "multiple":
            return right > 0 and left % right == 0
        return left <= right if self.relation == "most" else left >= right

    @property
    def words(self) -> str:
        """The relation in words."""
        return {"multiple": "a multiple of", "most": "at most", "least": "at least"}[self.relation]


def needs(p: SkeletonParams) -> Iterator[Need]:
    """The preconditions of a stage with parameters ``p``."""
    match p:
        case AttendSplitParams():
            nope = f"({p.head}) - ({p.rope})"
            yield _waves(p.threads, f"({p.chunk}) // 16", "a chunk of keys has a wave for each 16")
            yield _of("the keys of a chunk", p.chunk, 32, "values are multiplied 32 keys at a time")
            yield _of("the columns of a head that are not turned", nope, 64, "a record has a code for 64 of them")
            blocks = f"({nope}) // 64"
            why = f"a record has {_RECORD_BLOCKS} codes"
            yield _need("64-column blocks of a head that are not turned", blocks, "most", _RECORD_BLOCKS, why)
            yield _of("the columns of a head that are turned", p.rope, 32, "an MFMA takes 32 of them")
        case AttendCombineParams():
            yield _of("heads", p.heads, p.task_heads, "every task merges as many heads")
            yield _need("heads of a task", p.task_heads, "most", "THREADS // 64", "a wave merges one head")
            yield _need("the width of a head", p.head, "least", 256, "a lane holds at least four of its values")
        case ExpertUpParams():
            yield _waves(p.threads, f"2 * ({p.groups})", "gate and up of every 32-column group have waves of their own")
            yield from _expert(p.inter, p.padded)
            yield _of("the depth of gate and up", p.hidden, 256, "they are multiplied in pairs of 128 columns")
        case ExpertDownParams():
            yield from _expert(p.inter, p.padded)
            yield _of("the rows of down", p.hidden, f"16 * {p.row_tiles_text}", "a task takes whole row tiles")
        case GemvParams():
            yield _of(f"the depth of {p.weight}", p.k, 32 * p.parts, f"K is {p.parts} parts of groups of 32")
            yield _of(f"the rows of {p.weight}", p.rows, 32, "a scale covers 32 rows")
            if p.wave_groups != 1:
                yield _of("row tiles of a task", str(p.tiles), str(p.wave_groups), "groups of waves share them")
                yield _waves(p.threads, str(p.wave_groups), "groups of waves have as many")
            if isinstance(p.epilogue, MxOut):
                yield _of(f"outputs a task of {p.weight}", str(p.task_outputs), 32, "a code covers 32 of them")
        case LatentNormParams():
            yield _of("the normed columns", p.latent.columns, 32, "a code covers 32 of them")
            yield _of("a record's columns that are not turned", p.nope, 64, "a record has a code for 64 of them")
            yield _of("a record's columns that are turned", p.rope, 32, "a wave turns 32 pairs of words")
        case QuantiseParams():
            yield _of("columns of a task", p.columns, 32, "a code covers 32 of them")
        case RankPushParams() | RankReduceParams():
            yield _of("the columns of a sum over the ranks", p.hidden, p.columns, "every task has as many")
            yield _of("columns of a task", p.columns, 4, "a thread moves four")
        case RouteParams():
            yield _need("picks of a token", p.topk, "most", p.experts, "it picks different experts")
        case RouterParams() | RowNormParams():
            yield _of("the columns of a row", p.hidden, 32, "rows are read in groups of 32 columns")
        case RowSliceParams():
            yield _of("the columns of a stream", p.hidden, p.columns, "a slice is as many")
            yield _of("columns of a slice", p.columns, 32, "a code covers 32 of them")
        case TokenProgramParams():
            for out in p.outputs:
                yield _need(f"the values of {out.label}", out.count, "most", 64, "a lane holds one")


def _expert(inter: str, padded: str) -> Iterator[Need]:
    yield _of("an expert's columns on a rank", inter, 32, "a code covers 32 of them")
    help_ = "pad the weight to 128 columns: `pad(..., 128)` in its `padded:`"
    why = "rows are read in steps of 128, the last one filled with zeros"
    yield _need("an expert's stored columns", padded, "multiple", 128, why, help_)
    yield _need("an expert's stored columns", padded, "least", inter, "they hold the real ones", help_)


def _waves(threads: str, count: str, why: str) -> Need:
    return _need(
        "the waves of a CTA", f"{threads} // 64", "multiple", count, why, "change `threads` of `target`: 64 a wave"
    )


def _of(what: str, left: str, right: str | int, why: str) -> Need:
    return _need(what, left, "multiple", right, why)


def _need(what: str, left: str, relation: str, right: str | int, why: str, help_: str = "") -> Need:
    help_ = help_ or "change the sizes this follows from in `dims` or `build`"
    return Need(what, formula(left), relation, formula(right), why, help_)
