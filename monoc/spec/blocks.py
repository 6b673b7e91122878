"""The block structure of a program text: indentation, comments, lines joined inside brackets.

A line continues on the next while a bracket is open; continuation lines are indented deeper than the line they
continue. Every logical line is parsed on its own, so one bad line hides no error in another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from monoc.diagnostics import Code, Diagnostics, Note, quoted
from monoc.expr.ir import Span
from monoc.spec.ast import (
    Def,
    EntryBlock,
    FaultyStatement,
    FnDef,
    HostStep,
    Ident,
    LaunchBlock,
    ProgramText,
    Return,
    StatementNode,
)
from monoc.spec.syntax import Syntax

__all__ = ["parse_program"]


# What a line assigns, before its `=` or `[`
_TARGETS = re.compile(r"([A-Za-z]\w*(?:\s*,\s*[A-Za-z]\w*)*)\s*[\[=]")


@dataclass(frozen=True)
class _Line:
    file: str
    line: int
    indent: int  # spaces before the text
    text: str
    broken: bool = False  # a bracket is not closed (reported)

    @property
    def word(self) -> str:
        return self.text.replace("(", " ").split()[0]

    @property
    def span(self) -> Span:
        return Span(self.file, self.line, self.indent + 1, len(self.text.split("\n")[0].rstrip()))


def _logical_lines(file: str, first: int, raw: Sequence[str], diagnostics: Diagnostics) -> list[_Line]:
    """Comments removed, blank lines dropped, open brackets joined."""
    lines: list[_Line] = []
    held: list[str] = []  # of the logical line being joined
    start, indent = 0, 0
    opened: list[Span] = []

    def finish() -> None:
        if held:
            lines.append(_Line(file, start, indent, "\n".join(held).strip(), bool(opened)))
        if opened:
            at = opened[-1]
            diagnostics.error(
                Code.SYNTAX, "this bracket is never closed", at, "close it, or indent the lines it goes on"
            )
        held.clear()
        opened.clear()

    for number, text in enumerate(raw, first):
        code = text.split("#", 1)[0].rstrip()
        body = code.lstrip(" ")
        here = len(code) - len(body)
        if body.startswith("\t"):
            at = Span(file, number, here + 1)
            diagnostics.error(Code.INDENTATION, "a tab in the indentation", at, "indent with spaces")
            body = body.lstrip()
            here = len(code[: len(code) - len(body)].expandtabs(4))
            code = " " * here + body
        if not body:
            continue
        if held and (not opened or here <= indent):
            finish()
        if not held:
            start, indent = number, here
            held.append(body)
        else:
            held.append(code)
        for column, c in enumerate(code, 1):
            if c in "([":
                opened.append(Span(file, number, column))
            elif c in ")]" and opened:
                opened.pop()
    finish()
    return lines


def parse_program(file: str, first: int, raw: Sequence[str], diagnostics: Diagnostics) -> ProgramText:
    """The program in ``raw`` (lines ``first``.. of ``file``); what cannot be parsed is reported and left out."""
    return _Blocks(_logical_lines(file, first, raw, diagnostics), Syntax(diagnostics)).program()


class _Blocks:
    def __init__(self, lines: list[_Line], syntax: Syntax) -> None:
        self.lines, self.syntax, self.at = lines, syntax, 0

    def _parse(self, start: str, line: _Line) -> object:
        if line.broken:
            return None
        return self.syntax.parse(start, line.text, line.file, line.line, line.indent + 1)

    def _peek(self) -> _Line | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def _body(self, header: _Line, what: str) -> list[_Line]:
        """The lines indented deeper than ``header``."""
        first = self.at
        while (line := self._peek()) is not None and line.indent > header.indent:
            self.at += 1
        body = self.lines[first : self.at]
        if not body:
            self.syntax.diagnostics.error(
                Code.INDENTATION, f"{what} has no lines", header.span, "write its lines below it, indented deeper"
            )
        return body

    def _level(self, lines: list[_Line], header: _Line) -> None:
        """Report lines not indented as the block's first one."""
        for line in lines:
            if line.indent != lines[0].indent:
                self.syntax.diagnostics.error(
                    Code.INDENTATION,
                    f"indented by {line.indent} columns, the lines of this block by {lines[0].indent}",
                    line.span,
                    "indent the lines of a block alike",
                    Note("the block begins", header.span),
                )

    def program(self) -> ProgramText:
        fns: list[FnDef] = []
        defs: list[Def] = []
        entries: list[EntryBlock] = []
        faulty: set[str] = set()
        base = self.lines[0].indent if self.lines else 0
        while (line := self._peek()) is not None:
            self.at += 1
            if line.indent != base:
                self.syntax.diagnostics.error(
                    Code.INDENTATION, "this line is indented but begins no block", line.span, "align it with the others"
                )
                self._skip(base)
            elif line.word == "fn":
                if isinstance(got := self._parse("fn_line", line), tuple):
                    fns.append(FnDef(got[0], tuple(got[1]), got[2]))
                else:
                    faulty.update(_second_word(line))
            elif line.word == "def":
                got = self._parse("def_line", line)
                body = self._statements(self._body(line, "this definition"), line)
                if isinstance(got, tuple):
                    defs.append(Def(got[0], tuple(got[1]), body))
                else:
                    faulty.update(_second_word(line))
            elif line.word == "entry":
                got = self._parse("entry_line", line)
                steps = self._steps(self._body(line, "this entry"), line)
                if isinstance(got, tuple):
                    entries.append(EntryBlock(got[0], tuple(got[1]), tuple(got[2]), steps))
            else:
                self.syntax.diagnostics.error(
                    Code.SYNTAX,
                    f"unexpected {quoted(line.word)}",
                    line.span,
                    "a program is made of `fn`, `def` and `entry` blocks",
                )
                faulty.update(_second_word(line))
                self._skip(base)
        return ProgramText(tuple(fns), tuple(defs), tuple(entries), frozenset(faulty))

    def _skip(self, base: int) -> None:
        while (line := self._peek()) is not None and line.indent > base:
            self.at += 1

    def _statements(self, lines: list[_Line], header: _Line) -> tuple[StatementNode, ...]:
        self._level(lines, header)
        found: list[StatementNode] = []
        for line in lines:
            got = self._parse("return_line" if line.word == "return" else "statement_line", line)
            if isinstance(got, StatementNode):
                if found and isinstance(found[-1], Return):
                    self.syntax.diagnostics.error(
                        Code.SYNTAX, "a statement after `return`", line.span, "move `return` to the end"
                    )
                found.append(got)
            else:
                found.append(FaultyStatement(line.span, _assigned(line)))
        return tuple(found)

    def _steps(self, lines: list[_Line], header: _Line) -> tuple[LaunchBlock | HostStep, ...]:
        inner = _Blocks(lines, self.syntax)
        steps: list[LaunchBlock | HostStep] = []
        base = lines[0].indent if lines else 0
        while (line := inner._peek()) is not None:
            inner.at += 1
            if line.indent != base:
                inner._level([lines[0], line], header)
            elif line.word in ("launch", "launch:"):
                name = self._parse("launch_line", line)
                body = inner._statements(inner._body(line, "this launch"), line)
                if name is not None:
                    steps.append(LaunchBlock(name, body))  # type: ignore[arg-type]
            elif line.word == "host":
                if isinstance(got := self._parse("host_line", line), tuple):
                    steps.append(HostStep(got[0], tuple(got[1]), tuple(got[2]), got[3]))
            else:
                self.syntax.diagnostics.error(
                    Code.SYNTAX,
                    f"unexpected {quoted(line.word)}",
                    line.span,
                    "an entry is made of `launch NAME:` blocks and `host` lines",
                )
        return tuple(steps)


def _second_word(line: _Line) -> list[str]:
    """The name a `fn` or `def` line seems to define."""
    return re.findall(r"\w+", line.text)[1:2]


def _assigned(line: _Line) -> tuple[Ident, ...]:
    found = _TARGETS.match(line.text)
    return tuple(Ident(n.strip(), line.span) for n in found.group(1).split(",")) if found else ()
