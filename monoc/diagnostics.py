"""Errors a user can act on: what is wrong, where it is written, what to do about it.

Every pass reports to one :class:`Diagnostics` collector, so that a run shows all errors together;
:meth:`Diagnostics.check` raises them as one :class:`CompileErrors`. Rendered, one reads::

    layer.yaml:12:14: error[unknown-key]: weight `wqkv` has no key `shap`
       12 |   wqkv: {dtype: mxfp8, shap: [hidden]}
          |                        ^^^^
      help: did you mean `shape`?
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from monoc.expr.ir import Span

__all__ = ["Code", "CompileErrors", "Diagnostic", "Diagnostics", "ExitCode", "Note", "counted", "quoted", "suggestion"]


class ExitCode(IntEnum):
    """What a command's exit code says."""

    GOOD = 0
    FOUND = 1  # the command ran and found something: a stale file, a spill, a mismatch
    BAD_INPUT = 2  # bad usage or a bad spec


class Code(StrEnum):
    """Kinds of errors; the text in brackets. docs/language.md lists them with an example each."""

    # reading
    FILE = "file"
    YAML_SYNTAX = "yaml-syntax"
    YAML_FEATURE = "yaml-feature"
    DUPLICATE_KEY = "duplicate-key"
    UNKNOWN_KEY = "unknown-key"
    MISSING_KEY = "missing-key"
    WRONG_KIND = "wrong-kind"
    BAD_NAME = "bad-name"
    BAD_TEXT = "bad-text"
    UNKNOWN_CHOICE = "unknown-choice"
    SYNTAX = "syntax"
    INDENTATION = "indentation"
    TOO_DEEP = "too-deep"
    TOO_LARGE = "too-large"
    # names
    DUPLICATE_NAME = "duplicate-name"
    UNKNOWN_NAME = "unknown-name"
    UNKNOWN_FUNCTION = "unknown-function"
    RECURSION = "recursion"
    UNUSED = "unused"
    NO_ARGUMENT = "no-argument"
    # builds
    BUILD_RANGE = "build-range"
    BUILD_EMPTY = "build-empty"
    VARIANT = "variant"
    GUARD = "guard"
    UNDEFINED_IN_BUILD = "undefined-in-build"
    REDEFINED = "redefined"
    NOT_YET_WRITTEN = "not-yet-written"
    # dimensions and types
    DIM_EXPRESSION = "dim-expression"
    DIM_VALUE = "dim-value"
    RANK = "rank"
    SHAPE = "shape"
    DTYPE = "dtype"
    SCALE_SHAPE = "scale-shape"
    ALIGNMENT = "alignment"
    LAYOUT = "layout"
    INDEX = "index"
    BOUNDS = "bounds"
    PARTIAL = "partial"
    SHARDING = "sharding"
    ARGUMENTS = "arguments"
    ATTRIBUTE = "attribute"
    RESULTS = "results"
    EXPRESSION = "expression"
    OUTPUT = "output"
    RUNNER = "runner"
    SCHEDULE = "schedule"
    UNFIT = "unfit"  # from here on of the passes, not of reading
    DOCKING = "docking"


@dataclass(frozen=True)
class Note:
    """A second place that matters, e.g. the first definition."""

    message: str
    span: Span


@dataclass(frozen=True)
class Diagnostic:
    """One error: what is wrong, where (``span``), what to do about it (``remedy``), a second place (``note``)."""

    code: Code
    message: str
    span: Span
    remedy: str | None = None
    note: Note | None = None

    def render(self, sources: Mapping[str, str]) -> str:
        """The text shown to the user (no trailing newline); ``sources`` are file contents by path."""
        at = self.span
        lines = [f"{at.file}:{at.line}:{at.column}: error[{self.code}]: {self.message}"]
        lines += _excerpt(at, sources)
        if self.note is not None:
            at = self.note.span
            lines.append(f"  note: {self.note.message} at {at.file}:{at.line}:{at.column}")
            lines += _excerpt(at, sources)
        if self.remedy is not None:
            lines.append(f"  help: {self.remedy}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        at = self.span
        record: dict[str, object] = {
            "code": self.code.value,
            "message": self.message,
            "file": at.file,
            "line": at.line,
            "column": at.column,
            "length": at.length,
            "help": self.remedy,
        }
        if self.note is not None:
            at = self.note.span
            record["note"] = {"message": self.note.message, "file": at.file, "line": at.line, "column": at.column}
        return record


def _excerpt(at: Span, sources: Mapping[str, str]) -> list[str]:
    lines = sources.get(at.file, "").splitlines()
    if not 1 <= at.line <= len(lines):
        return []
    text = "".join(
        c if c.isprintable() else " " if c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in lines[at.line - 1]
    )
    shown, start = text.rstrip(), at.column - 1
    width = max(1, min(at.length, len(shown) - start))
    cut = max(0, start - 80)  # a line too long for a terminal is shown around the caret
    shown = shown[cut : cut + 160]
    width = min(width, max(1, cut + len(shown) - start))
    return [f"{at.line:>5} | {shown}", f"      | {' ' * (start - cut)}{'^' * width}"]


class CompileErrors(Exception):  # noqa: N818 -- it carries several
    """All errors of one run. ``str()`` is the rendered text."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> None:
        self.diagnostics = tuple(diagnostics)
        self.sources = dict(sources)
        super().__init__(self.render())

    def render(self) -> str:
        n = len(self.diagnostics)
        texts = [d.render(self.sources) for d in self.diagnostics]
        return "\n".join([*texts, f"{n} error{'s' if n != 1 else ''}"])


@dataclass
class Diagnostics:
    """Collects the errors of a run and the texts they point into."""

    sources: dict[str, str] = field(default_factory=dict)
    calls: list[Span] = field(default_factory=list)  # of definitions being expanded, outermost first
    _errors: dict[tuple[Span, str], Diagnostic] = field(default_factory=dict)

    def error(self, code: Code, message: str, span: Span, remedy: str | None = None, note: Note | None = None) -> None:
        """Report an error; the same message at the same place is reported once.

        Inside a definition an error without a note says for which call it arose."""
        if note is None and self.calls:
            note = Note("in the call", self.calls[0])
        self._errors.setdefault((span, message), Diagnostic(code, message, span, remedy, note))

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """What was reported, by file (in order of first use), line and column."""
        files = {name: i for i, name in enumerate(self.sources)}
        return tuple(
            sorted(
                self._errors.values(), key=lambda d: (files.get(d.span.file, len(files)), d.span.line, d.span.column)
            )
        )

    def check(self) -> None:
        """Raise :class:`CompileErrors` if anything was reported."""
        if self._errors:
            raise CompileErrors(self.errors, self.sources)

    def read(self, path: str, span: Span | None = None, limit: int = 1 << 20) -> str | None:
        """The text of a UTF-8 file of at most ``limit`` bytes, kept for excerpts; None (reported) if unreadable."""
        at = span or Span(path, 1, 1)
        try:
            if stat.S_ISREG(os.stat(path).st_mode):
                with open(path, "rb") as file:
                    raw = file.read(limit + 1)
            else:  # a pipe may never end, nor a device
                raise OSError(errno.EINVAL, "Is a directory" if os.path.isdir(path) else "Not a regular file")
        except (OSError, ValueError) as e:
            why = getattr(e, "strerror", None) or "not a usable path"
            self.error(Code.FILE, f"cannot read {quoted(path)}: {why}", at, "give the path of a readable file")
            return None
        if len(raw) > limit:
            self.error(Code.TOO_LARGE, f"{quoted(path)} has more than {limit} bytes", at, "split the file")
            return None
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as e:
            line = raw.count(b"\n", 0, e.start) + 1
            self.sources[path] = raw.decode("utf-8", "replace")
            column = e.start - (raw.rfind(b"\n", 0, e.start) + 1) + 1
            self.error(Code.FILE, "not UTF-8 text", Span(path, line, column), "save the file as UTF-8")
            return None
        self.sources[path] = text
        return text


def quoted(text: str) -> str:
    """``text`` in backquotes, unprintable characters replaced, shortened to 60 characters."""
    clean = "".join(c if c.isprintable() and c != "`" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return f"`{clean if len(clean) <= 60 else clean[:57] + '...'}`"


def counted(n: int, what: str, plural: str | None = None) -> str:
    """``1 argument``, ``2 arguments``."""
    return f"{n} {what}" if n == 1 else f"{n} {plural or what + 's'}"


def suggestion(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """``did you mean `x`?`` for the nearest of ``known``, else ``otherwise``."""
    near = difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else otherwise
