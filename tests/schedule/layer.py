"""A decode layer's three launches as stage shapes, dimensions like DeepSeek-V4.1-Flash's: what the schedule
tests use."""

from __future__ import annotations

from dataclasses import replace

from monoc.schedule.formula import Formula, formula
from monoc.schedule.make import Draft
from monoc.schedule.model import (
    Field,
    Form,
    Launch,
    LdsMember,
    RegionRead,
    RegionWrite,
    Stage,
    StageShape,
    Take,
    Units,
    Variant,
)

FLAG_ONLY = (Form.FLAG, Form.BARRIER)


def task(text: str) -> Formula:
    return formula(text, task=True)


def units(first: str, count: str = "1", stride: str = "1") -> Units:
    return Units(task(first), task(count), task(stride))


def own() -> Units:
    return units("i")


def every(count: str) -> Units:
    return units("0", count)


def write(region: str, words: str, total: str, task_units: Units, **options: object) -> RegionWrite:
    return RegionWrite(region, formula(words), formula(total), task_units, **options)  # type: ignore[arg-type]


def peer(region: str, total: str) -> RegionWrite:
    return write(region, "b.tp * b.tokens * HIDDEN // 2", total, own(), default=Form.PEER, forms=(Form.PEER,))


def read(region: str, task_units: Units, step: int = 0, part: str = "1") -> RegionRead:
    return RegionRead(region, task_units, step, formula(part))


def stage(
    name: str,
    tasks: str,
    reads: tuple[RegionRead, ...] = (),
    writes: tuple[RegionWrite, ...] = (),
    lds: str = "1024",
    guard: str = "True",
    **shape: object,
) -> Stage:
    return Stage(
        name,
        "test",
        None,
        StageShape(
            formula(tasks),
            lds=(LdsMember("rows", "f32", formula(lds)),),
            reads=reads,
            writes=writes,
            **shape,  # type: ignore[arg-type]
        ),
        guard=formula(guard),
    )


def seam(*inputs: RegionRead) -> tuple[Stage, ...]:
    return (
        stage(
            "slice",
            "SLICES",
            inputs,
            (
                write("lin", "b.tokens * HIDDEN // 2", "SLICES", own()),
                write("pmix", "SLICES * b.tokens * 25", "SLICES", own()),
            ),
            lds="b.tokens * 128 + 7168",
            weight_bytes=formula("24 * 128 * 4"),
        ),
        stage(
            "norm",
            "b.tokens",
            (read("lin", every("SLICES"), part="b.tokens"),),
            (write("x8", "b.tokens * (HIDDEN // 4 + HIDDEN // 32)", "b.tokens", own()),),
        ),
        stage("gate", "b.tokens", (read("pmix", every("SLICES"), part="b.tokens"),)),
    )


def moe() -> tuple[Stage, ...]:
    return (
        *seam(read("attn", units("2 * i", "2"))),
        stage(
            "router",
            "b.experts // 4",
            (read("x8", every("b.tokens")),),
            (write("logit", "4 * b.tokens * b.experts", "b.experts // 4", own()),),
            weight_bytes=formula("16 * HIDDEN // 2"),
        ),
        stage(
            "route",
            "b.tokens",
            (read("logit", every("b.experts // 4"), part="b.tokens"),),
            (write("picks", "2 * b.tokens * b.topk", "b.tokens", own(), copies=formula("8")),),
        ),
        stage(
            "shared",
            "b.shared_tasks",
            (
                read("x8", every("b.tokens")),
                # an odd task quantises the group it shares with its even neighbour
                read("smid", units("i - 1 + (i + 1) % 2", "i % 2"), step=2),
            ),
            (
                write("smid", "b.tokens * b.shared_tasks * 8", "b.shared_tasks", own(), forms=(Form.PAIR,)),
                write("sq", "b.tokens * b.shared_tasks * 5", "b.shared_tasks // 2", units("i // 2", "i % 2"), step=3),
            ),
        ),
        stage(
            "up",
            "min(b.tokens * b.topk, b.experts) * b.parts",
            (read("x8", every("b.tokens")), read("picks", every("b.tokens"))),
            (
                write(
                    "mid",
                    "b.tokens * b.topk * b.parts * 64",
                    "min(b.tokens * b.topk, b.experts) * b.parts",
                    own(),
                    counted=True,
                    default=Form.FLAG,
                    forms=FLAG_ONLY,
                ),
            ),
            take=Take.QUEUE,
            counters=("up_queue",),
            weight_bytes=formula("128 * HIDDEN // 2"),
        ),
        stage(
            "down",
            "COLUMNS",
            (
                read("picks", every("b.tokens")),
                read("mid", every("min(b.tokens * b.topk, b.experts) * b.parts")),
                read("sq", every("b.shared_tasks // 2")),
            ),
            (peer("ffn", "COLUMNS"),),
            take=Take.ARRIVAL,
            counters=("down_rank",),
        ),
        stage("reduce", "SLICES", (read("ffn", units("2 * i", "2")),)),
    )


def draft() -> Draft:
    """K1, K2 and the FFN launch; two variants."""
    k1 = (
        *seam(),
        stage("key_table", "b.tokens", guard="not b.index"),
        stage(
            "wqkv",
            "224",
            (read("x8", every("b.tokens")),),
            (write("qkv", "2 * b.tokens * 1792", "224", own()),),
            weight_bytes=formula("16 * HIDDEN // 2"),
        ),
        stage(
            "qkv_norm",
            "b.tokens",
            (read("qkv", every("224"), part="b.tokens"),),
            (write("q8", "b.tokens * 360", "b.tokens", own()),),
        ),
        stage("wq_b", "b.heads * 32", (read("q8", every("b.tokens")),), weight_bytes=formula("16 * 1280")),
    )
    k2 = (
        stage(
            "key_table",
            "b.tokens",
            (),
            (write("keys", "b.tokens * 640", "b.tokens", own(), forms=FLAG_ONLY),),
            guard="b.index",
        ),
        stage(
            "split",
            "b.tokens * b.chunks",
            (read("keys", units("i // b.chunks", "(1 if b.index else 0)")),),
            (write("part", "b.tokens * b.chunks * b.heads * 258", "b.tokens * b.chunks", own()),),
            lds="24 * 1024",
        ),
        stage(
            "combine",
            "b.tokens * b.groups",
            (read("part", units("i // b.groups * b.chunks", "b.chunks")),),
            (write("xo", "b.tokens * b.groups * 1152", "b.tokens * b.groups", own()),),
        ),
        stage(
            "wo_a",
            "b.groups * 32",
            (read("xo", units("i // 32", "b.tokens", "b.groups")),),
            (write("xa", "b.tokens * b.groups * 288", "b.groups * 32", own()),),
        ),
        stage("wo_b", "COLUMNS", (read("xa", every("b.groups * 32")),), (peer("attn", "COLUMNS"),)),
        *moe(),
    )
    ffn = (stage("push", "SLICES", (), (write_push(),)), *moe())
    tokens, tp = Field("tokens", tuple(range(1, 49))), Field("tp", (2, 4))
    return Draft(
        name="layer",
        grid=256,
        threads=512,
        dims=(("HIDDEN", 5120), ("SLICES", 160), ("COLUMNS", 320)),
        properties=(
            ("heads", formula("64 // b.tp")),
            ("groups", formula("8 // b.tp")),
            ("chunks", formula("10 if b.heads == 32 and b.tokens * 10 <= 256 else 5")),
            ("shared_tasks", formula("2304 // b.tp // 16")),
            ("parts", formula("cdiv(2304 // b.tp // 32, 2)")),
        ),
        variants=(
            Variant(
                "target",
                (
                    tokens,
                    tp,
                    Field("ratio", (0, 1, 2)),
                    Field("fold", (True, False)),
                    Field("index", (False, True)),
                    Field("experts", (384,)),
                    Field("topk", (6,)),
                ),
            ),
            Variant(
                "draft",
                (
                    tokens,
                    tp,
                    Field("ratio", (0,)),
                    Field("fold", (True, False)),
                    Field("index", (False,)),
                    Field("experts", (128,)),
                    Field("topk", (3,)),
                ),
            ),
        ),
        require=(),
        launches=(
            Launch("k1", k1, tag=1),
            Launch("k2", k2, tag=2, ends_epoch=True),
            Launch("ffn", ffn, tag=2, ends_epoch=True),
        ),
    )


def write_push() -> RegionWrite:
    """The FFN launch pushes a column slice a task: two of the column tiles wo_b writes."""
    words = "b.tp * b.tokens * HIDDEN // 2"
    return write("attn", words, "COLUMNS", units("2 * i", "2"), default=Form.PEER, forms=(Form.PEER,))


def small(whole: Draft) -> Draft:
    """The same at few widths: what a test needs to run in a second."""
    variants = tuple(
        Variant(
            v.name,
            tuple(Field("tokens", (1, 3, 17)) if f.name == "tokens" else f for f in v.fields if f.name != "fold"),
        )
        for v in whole.variants
    )
    return replace(whole, variants=variants)
