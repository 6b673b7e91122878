"""What a second model costs: lines of DeepSeek-V4-Pro's spec, of operations only it has, of everything else.

    python benchmarks/lines.py

Two counts. *Today's tree*: the spec's files; the device library's definitions that V4-Pro's package holds and V4.1's
does not, found by name in both packages. *History*: what the commits in ``COMMITS`` added and took away, by what the
file is for. Those commits were picked by reading the log for what V4-Pro needed and V4.1 did not have; where one also
served V4.1 (the runner's rewrite for options found by size, the language's several program files) all of it counts.
Left out: what both models need and V4.1 was given first (the docking's language, the verification), changes for speed
of what V4-Pro had by then, formatting. Lines are those that are neither blank nor a comment alone.
"""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BY_HAND = 7900  # lines of the hand-written V4-Pro launches and their host side; 6,200 of them stand in V4.1's as well
BY_HAND_SHARED = 6200

# What V4-Pro needed -> the commits that made it.
COMMITS = {
    "a factor of each head's scores": ("9001c9f",),
    "gates before the streams collapse": ("a833505",),
    "programs in several files, sizes the host bounds": ("6c35dc9",),
    "the layer: key tables, given experts": ("4726945", "532ab78", "aac3573"),
    "a runner that finds its build by size": ("b34c538",),
    "two-hop all-reduce": ("f8672a8",),
    "reference and verification of these": ("70f9373",),
    "its docking": ("4539f48",),
}
# Where a path belongs: the first prefix that fits.
AREAS = (
    ("spec", ("layer_specs/",)),
    ("operations", ("monoc/device/", "monoc/skeletons/", "monoc/passes/rules/", "monoc/reference/")),
    ("everything else", ("monoc/", "grammar/")),
    ("tests", ("tests/",)),
    ("docs", ("docs/", "README.md", "CHANGELOG.md")),
)
NAMES = tuple(name for name, _ in AREAS)


@dataclass(frozen=True)
class Change:
    """Lines a commit added and took away, by area."""

    added: Counter[str]
    removed: Counter[str]


def counts(line: str) -> bool:
    """Whether a line says something."""
    text = line.strip()
    return bool(text) and not text.startswith(("#", "//", "{#"))


def lines_of(path: Path) -> int:
    return sum(counts(line) for line in path.read_text(encoding="utf-8").splitlines())


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def area_of(path: str) -> str | None:
    return next((name for name, prefixes in AREAS if path.startswith(prefixes)), None)


def change(commit: str) -> Change:
    """Counted from the commit's own diff, moved lines on both sides."""
    added: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    area: str | None = None
    for line in git("show", "--unified=0", "--format=", "--no-color", commit).splitlines():
        if line.startswith("diff --git "):
            area = area_of(line.rpartition(" b/")[2])
        elif area is not None and line[:1] in "+-" and line[:3] not in ("+++", "---") and counts(line[1:]):
            (added if line[0] == "+" else removed)[area] += 1
    return Change(added, removed)


def definitions(path: Path) -> dict[str, int]:
    """Top-level names of an emitted module -> lines of their definitions."""
    text = path.read_text(encoding="utf-8").splitlines()
    found: dict[str, int] = {}
    for node in ast.parse("\n".join(text)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[node.name] = sum(counts(line) for line in text[first - 1 : node.end_lineno])
    return found


def spec_table() -> tuple[Table, int]:
    specs = ROOT / "layer_specs"
    own = ("dsv4_pro.yaml", "programs/mhc_mla_moe_pro.monoc", "docking/dsv4_pro.yaml")
    table = Table(title="The spec, today", box=None, title_justify="left")
    table.add_column("file")
    table.add_column("lines", justify="right")
    for name in own:
        table.add_row(name, str(lines_of(specs / name)))
    table.add_row("programs/deepseek_v4.monoc (V4.1's too)", str(lines_of(specs / "programs/deepseek_v4.monoc")))
    total = sum(lines_of(specs / name) for name in own)
    table.add_row("its own", str(total))
    return table, total


def device_table() -> Table:
    mine, other = (definitions(ROOT / "generated" / name / "device.py") for name in ("dsv4_pro", "dsv41"))
    table = Table(title="Device functions only V4-Pro's package has, today", box=None, title_justify="left")
    table.add_column("function")
    table.add_column("lines", justify="right")
    for name in sorted(mine.keys() - other.keys()):
        table.add_row(name, str(mine[name]))
    table.add_row("all", str(sum(mine[n] for n in mine.keys() - other.keys())))
    return table


def history_table() -> tuple[Table, Counter[str], Counter[str]]:
    table = Table(title="History: lines added - taken away", box=None, title_justify="left")
    table.add_column("for")
    for name in NAMES:
        table.add_column(name, justify="right")
    added: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    for what, commits in COMMITS.items():
        changes = [change(c) for c in commits]
        more = sum((c.added for c in changes), Counter[str]())
        less = sum((c.removed for c in changes), Counter[str]())
        table.add_row(what, *(f"{more[n]} - {less[n]}" if more[n] or less[n] else "" for n in NAMES))
        added += more
        removed += less
    table.add_row("all", *(f"{added[n]} - {removed[n]}" for n in NAMES))
    return table, added, removed


def main() -> None:
    known = git("log", "--format=%h", "--abbrev=7").split()
    missing = [c for commits in COMMITS.values() for c in commits if c not in known]
    if missing:
        raise SystemExit(f"the history lacks {', '.join(missing)}: count in a clone that has all of it")
    console = Console(width=130)
    spec, own = spec_table()
    console.print(spec)
    console.print(device_table())
    history, added, removed = history_table()
    console.print(history)
    code = added["operations"] + added["everything else"]
    console.print(
        f"V4-Pro: {own} lines of spec; {added['operations']} lines added to operations and {added['everything else']} "
        f"to everything else, of code {code} in all ({removed['operations']} and {removed['everything else']} taken "
        f"away).\nBy hand: {BY_HAND} lines, {BY_HAND - BY_HAND_SHARED} of them not in V4.1's."
    )


if __name__ == "__main__":
    main()
