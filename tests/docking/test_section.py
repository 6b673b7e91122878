"""What a docking section may say: each thing it may not is one error at its place, with what to do."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from passes.specs import ROOT
from variants import edited_spec

from monoc.diagnostics import CompileErrors, Diagnostics
from monoc.emit.docking_print import Body
from monoc.spec.ast import Node
from monoc.spec.docking import Docking
from monoc.spec.docking_ast import Constant
from monoc.spec.docking_syntax import DockingSyntax
from monoc.spec.load import load_program

EDITS = [
    ("  draft: draft\n", "  draft: draft\n  target: draft\n", "0 variants have no condition"),
    ("  draft: draft\n", "  drafts: draft\n", "variant `drafts` is not known"),
    ("[normed, q_latent]", "[normed]", "`select` is given 2 values"),
    ("[normed, q_latent]", "[normed, topk]", "`topk` cannot be an argument"),
    ("      select: ", "      selects: ", "host call `selects` is not known"),
    ("    method: ffn\n", "    method: __call__\n", "the class has a method `__call__` already"),
    ("    method: ffn\n", "    method: weights\n", "the class has a method `weights` already"),
    ("  ffn_only: entry", "  weights: entry", "`weights` is a method"),
    ("class: MonoDecodeLayer", "class: AttnWeights", "`AttnWeights` is a class of `runner`"),
    ("\nattributes:", "\noptions: {depth: 3}\nattributes:", "constructor option `depth` is not known"),
    ("      fold = not first", "      topk = not first", "`topk` cannot be assigned"),
    ("      fold = not first", "      given = not first", "`given` cannot be assigned"),
    ("  draft: attn.layer_id", "  window: attn.layer_id", "a build parameter, dimension or constant has this name"),
    ("  draft: attn.layer_id", "  x: attn.layer_id", "an entry's argument has this name"),
    ("  draft: attn.layer_id", "  attn: attn.layer_id", "the key `attn` is given twice"),
    ("{when: swa is None, why: no", "{when: vllm_config is None, why: no", "unknown name `vllm_config`"),
    ("attn.compress_ratio not in ratio", "attn.compress_ratio != ratio", "`ratio` is all values of the builds"),
    ("not in ratio", "not in ratio and rows", "unknown name `rows`"),
    ("not in ratio", "not in ratio and first", "`first` is made of `residual`"),
    ("tp_size() not in tp,", "tp_size() not in experts,", "`experts` is one number in a layer"),
    ("tp_size() not in tp,", "tp_size() != experts,", "depends on the layer's variant"),
    ("tp_size() not in tp,", "tp_size() == heads,", "`heads` depends on the build"),
    ("tp_size() not in tp,", "cdiv(1) == 2,", "`cdiv` takes 2 arguments, not 1"),
    ("tp_size() not in tp,", "cdiv == 2,", "`cdiv` is a function"),
    ("tp_size() not in tp,", "1 in 2,", "nothing is in a single constant"),
    ("swa_cache: records(attn", "swa_lens: records(attn", "`records` views a KV cache, and `swa_lens` is none"),
    ("    layer_id: attn.layer_id\n", "", "`AttnWeights` lacks the key `layer_id`"),
    ("  AttnWeights:\n", "  AttnWeight:\n", "lacks the class `AttnWeights`"),
    ("envs: vllm.envs", "envs: vllm.os", "the attribute `os` leads out of the framework"),
    ("envs: vllm.envs", "envs: vllm.envs.f_globals", "the attribute `f_globals` leads out of the framework"),
    ("envs: vllm.envs", "envs: vllm", "`vllm` is not of the framework"),
    ("layer_id: attn.layer_id", "layer_id: attn.__dict__", "`__dict__` cannot be an attribute"),
    ("layer_id: attn.layer_id", "layer_id: lambda", "`lambda` cannot be a name"),
    ("layer_id: attn.layer_id", "layer_id: " + "-" * 60 + "1", "nested deeper"),
    ("layer_id: attn.layer_id", "layer_id: " + "1 + " * 300 + "1", "longer than 1000 characters"),
    ("title: DSv4.1 mono decode", "title: 'DSv4 \\'", "no plain text"),
    ("title: DSv4.1 mono decode", "title: DSv4 %s", "no plain text"),
    ("  draft: attn.layer_id", "  name: attn.layer_id", "it is part of the docking language"),
    ("  ffn_only: entry == 'ffn'", "  ffn_only: True when entry == 'ffn'", "`ffn_only` has no value otherwise"),
    ("why: needs CDNA4", "why: 'needs {'", "plain characters with values in braces"),
    ("why: needs CDNA4", "why: 'needs CDNA{cdna_version()}'", "a message shows names and attributes"),
    ("why: needs CDNA4", "why: [needs, CDNA4]", "`why` of a rule is a list"),
    ("  - {when: cdna_version() != 4, why: needs CDNA4}", "  - cdna_version() != 4", "a rule is a word or number"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "says"), EDITS, ids=[e[2][:40] for e in EDITS])
def test_errors(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = edited_spec(tmp_path / "specs", "dsv41.yaml", [])
    section = path.parent / "docking" / "dsv41.yaml"
    text = section.read_text()
    assert old in text
    section.write_text(text.replace(old, new, 1))
    with pytest.raises(CompileErrors) as caught:
        load_program(str(path))
    found = [d for d in caught.value.diagnostics if says in d.message or says in (d.remedy or "")]
    assert found, str(caught.value)
    assert found[0].span.file == str(section)
    line = new.strip("\n").split("\n")[0].strip() if len(new) < 100 else ""
    assert line.split("#")[0] in section.read_text()


def test_the_section_is_part_of_the_digest(tmp_path: Path) -> None:
    path = edited_spec(tmp_path / "specs", "tiny.yaml", [])
    before = load_program(str(path)).digest
    section = path.parent / "docking" / "dsv41.yaml"
    text = section.read_text()
    section.write_text("# a comment\n" + text)
    assert load_program(str(path)).digest == before
    section.write_text(text.replace("engram_mask) when", "None) when"))
    assert load_program(str(path)).digest != before


# ---------------------------------------------------------------- printing

NOTHING = Docking("C", "t", "o", Constant(None, None), (), (), (), (), (), (), ())  # type: ignore[arg-type]


def _parse(text: str) -> Node | None:
    diagnostics = Diagnostics(sources={"": text})
    node = DockingSyntax(diagnostics).parse("value_text", text, "", 1, 1)
    assert not diagnostics.errors, [d.message for d in diagnostics.errors]
    return node  # type: ignore[no-any-return]


def _operations(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["or", "and", "+", "-", "*", "//", "==", "<=", "in", "not in"])
    return st.one_of(
        st.tuples(values, operators, values).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        st.tuples(st.sampled_from(["not ", "-"]), values).map(lambda t: f"{t[0]}({t[1]})"),
        values.map(lambda v: f"({v}) is not None"),
        values.map(lambda v: f"({v}).name"),
        st.tuples(values, values).map(lambda t: f"({t[0]})[{t[1]}, 1:]"),
        st.tuples(values, values).map(lambda t: f"({t[0]})({t[1]}, key={t[0]})"),
        st.tuples(values, values).map(lambda t: f"({t[0]}, {t[1]})"),
    )


@given(st.recursive(st.sampled_from(["a", "b1", "2", "0.5", "None", "True", "'text'"]), _operations, max_leaves=12))
def test_printed_trees_mean_what_was_written(text: str) -> None:
    """Where the syntax is Python's, what is printed parses to the same tree, whatever parentheses it leaves out."""
    node = _parse(text)
    assert node is not None
    printed = Body(NOTHING, {}).text(node)
    assert ast.dump(ast.parse(printed, mode="eval")) == ast.dump(ast.parse(text, mode="eval"))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a when b else c", None),
        ("(a when b else c).d", "(a if b else c).d"),
        ("f((a when b or c else (d when e else g)))", "f(a if b or c else (d if e else g))"),
        ("a.b?.c?.d", "_maybe(a, 'b', 'c').d"),
        ("a[b]?.c", "_item(a, b).c"),
        ("a - (b - c) - d", "a - (b - c) - d"),
        ("not a == b", "not a == b"),
        ("(not a) == b", "(not a) == b"),
        ("-a.b", "-a.b"),
        ("a or b and c", "a or b and c"),
        ("pad(a, 4)", "round_up(a, 4)"),
    ],
)
def test_printed(text: str, printed: str | None) -> None:
    diagnostics = Diagnostics(sources={"": text})
    node = DockingSyntax(diagnostics).parse("value_text", text, "", 1, 1)
    assert (None if node is None else Body(NOTHING, {}).text(node)) == printed


@given(st.text(max_size=40))
def test_any_text_is_a_tree_or_an_error(text: str) -> None:
    for start in ("value_text", "given_value", "line", "import_path", "argument_value"):
        diagnostics = Diagnostics(sources={"": text})
        node = DockingSyntax(diagnostics).parse(start, text, "", 1, 1)
        assert (node is None) is bool(diagnostics.errors)


def test_shipped_specs_have_their_docking() -> None:
    for name in ("dsv41", "tiny", "dsv4_pro", "tiny_pro"):
        assert load_program(str(ROOT / f"{name}.yaml")).docking is not None
