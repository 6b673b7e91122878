"""Parse gfx9 assembly text as LLVM prints it into kernels of instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from monoc.sim.asm.data import DataBuilder
from monoc.sim.asm.metadata import KernelMetadata, parse_metadata
from monoc.sim.asm.modifiers import parse_modifier, parse_waitcnt
from monoc.sim.asm.module import AsmModule, Kernel
from monoc.sim.asm.operands import Operand, OperandSyntaxError, parse_operand, split_top
from monoc.sim.errors import AsmError

__all__ = ["Instruction", "parse_asm"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `line` is the 1-based line of the text, `loc` the (file number, line) of debug info."""

    mnemonic: str
    operands: tuple[Operand, ...]
    modifiers: tuple[tuple[str, int], ...]
    line: int
    text: str
    loc: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class _Body:
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    local: dict[str, int] = field(default_factory=dict)  # how often each number was a label so far


_LABEL = re.compile(r'("?)([A-Za-z_.$][\w.$@]*)\1:\s*(.*)\Z')
# Local labels of inline assembly: `1:`, reached as `1b` (the last one) and `1f` (the next one).
_LOCAL = re.compile(r"(\d+):\s*(.*)\Z")
_LOCAL_USE = re.compile(r"(s_c?branch\S*\s+)(\d+)([bf])\Z")
_COMMENT = re.compile(r"\s*(?:;|//).*\Z")


def _strip(line: str) -> str:
    if '"' in line:
        return line.strip()
    return _COMMENT.sub("", line).strip() if (";" in line or "//" in line) else line.strip()


def _number(text: str, symbols: dict[str, int]) -> int | None:
    text = text.strip()
    if text in symbols:
        return symbols[text]
    try:
        return int(text, 0)
    except ValueError:
        return None


def _parse_instruction(text: str, line: int, loc: tuple[int, int]) -> Instruction:
    mnemonic, _, rest = text.partition(" ")
    if "\t" in mnemonic:
        mnemonic, _, rest = text.partition("\t")
    rest = rest.strip()
    if mnemonic == "s_waitcnt":
        return Instruction(mnemonic, (), parse_waitcnt(rest), line, text, loc)
    operands: list[Operand] = []
    modifiers: list[tuple[str, int]] = []
    parts = split_top(rest)
    for index, part in enumerate(parts):
        words = split_top(part, " ") if " " in part else [part]
        for position, word in enumerate(words):
            modifier = parse_modifier(word) if position or index + 1 == len(parts) else None
            if modifier is not None:
                modifiers.append(modifier)
            elif position == 0:
                operands.append(parse_operand(word))
            else:
                raise OperandSyntaxError(f"cannot read modifier {word!r}")
    return Instruction(mnemonic, tuple(operands), tuple(modifiers), line, text, loc)


def _local_name(number: str, count: int) -> str:
    return f".Llocal_{number}_{count}"


class _Parser:
    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.lines = text.splitlines()
        self.functions: dict[str, _Body] = {}
        self.function_names: set[str] = set()
        self.descriptors: dict[str, dict[str, int]] = {}
        self.files: dict[int, str] = {}
        self.symbols: dict[str, int] = {}
        self.data = DataBuilder()
        self.target = ""
        self.body: _Body | None = None
        self.in_text = True
        self.loc = (0, 0)

    def error(self, message: str, line: int) -> AsmError:
        source = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return AsmError(message, path=self.path, line=line, source=source)

    def run(self) -> AsmModule:
        metadata: dict[str, KernelMetadata] = {}
        numbered = iter(enumerate(self.lines, 1))
        for number, raw in numbered:
            text = _strip(raw)
            if not text:
                continue
            if text == ".amdgpu_metadata":
                metadata = self.metadata(numbered, number)
                continue
            if text.startswith(".amdhsa_kernel"):
                words = text.split()
                if len(words) != 2:
                    raise self.error(".amdhsa_kernel wants the kernel's name", number)
                self.descriptor(numbered, words[1])
                continue
            while text:
                if match := _LABEL.match(text):
                    self.label(match[2])
                    text = match[3]
                elif self.in_text and self.body is not None and (match := _LOCAL.match(text)):
                    count = self.body.local[match[1]] = self.body.local.get(match[1], 0) + 1
                    self.body.labels[_local_name(match[1], count)] = len(self.body.instructions)
                    text = match[2]
                else:
                    break
            if not text:
                continue
            if text.startswith("."):
                self.directive(text, number)
            elif self.in_text:
                self.instruction(text, number)
        return self.module(metadata)

    def metadata(self, numbered: Iterator[tuple[int, str]], start: int) -> dict[str, KernelMetadata]:
        chunk: list[str] = []
        for _, raw in numbered:
            if raw.strip() == ".end_amdgpu_metadata":
                try:
                    return parse_metadata("\n".join(chunk))
                except ValueError as error:
                    raise self.error(f".amdgpu_metadata: {error}", start) from None
            chunk.append(raw)
        raise self.error(".amdgpu_metadata has no .end_amdgpu_metadata", start)

    def descriptor(self, numbered: Iterator[tuple[int, str]], name: str) -> None:
        values: dict[str, int] = {}
        for number, raw in numbered:
            text = _strip(raw)
            if text == ".end_amdhsa_kernel":
                self.descriptors[name] = values
                return
            if text.startswith(".amdhsa_"):
                key, _, value = text.partition(" ")
                parsed = _number(value, self.symbols)
                if parsed is None:
                    raise self.error(f"cannot read the value of {key}: {value!r}", number)
                values[key.removeprefix(".amdhsa_")] = parsed
        raise self.error(f".amdhsa_kernel {name} has no .end_amdhsa_kernel", len(self.lines))

    def label(self, name: str) -> None:
        if not self.in_text:
            self.data.label(name)
            return
        if name in self.function_names or self.body is None:
            self.body = self.functions.setdefault(name, _Body())
            self.loc = (0, 0)
        self.body.labels[name] = len(self.body.instructions)

    def directive(self, text: str, number: int) -> None:
        name, _, rest = text.replace("\t", " ").partition(" ")
        rest = rest.strip()
        if name == ".type" and rest.endswith("@function"):
            self.function_names.add(rest.split(",")[0].strip().strip('"'))
        elif name == ".amdgcn_target":
            self.target = rest.strip('"')
        elif name == ".text":
            self.in_text = True
        elif name == ".section":
            self.in_text = rest.startswith(".text")
        elif name in (".rodata", ".data", ".bss"):
            self.in_text = False
        elif name == ".file":
            self.file(rest)
        elif name == ".loc":
            words = rest.split()
            if len(words) < 2 or not words[0].isdecimal() or not words[1].isdecimal():
                raise self.error(".loc wants a file number and a line", number)
            self.loc = (int(words[0]) & 0xFFFFFFFF, int(words[1]) & 0xFFFFFFFF)
        elif name == ".set":
            key, _, value = rest.partition(",")
            parsed = _number(value, self.symbols)
            if parsed is not None:
                self.symbols[key.strip()] = parsed
        elif not self.in_text:
            try:
                self.data.directive(name, rest)
            except (ValueError, IndexError, OverflowError, MemoryError) as error:
                raise self.error(f"cannot read {name}: {error}", number) from None

    def file(self, rest: str) -> None:
        match = re.match(r'(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', rest)
        if match:
            directory, file = match[2], match[3]
            joined = directory if file is None else file if file.startswith("/") else f"{directory}/{file}"
            self.files[int(match[1])] = joined

    def instruction(self, text: str, number: int) -> None:
        if self.body is None:
            raise self.error("instruction before any function label", number)
        if match := _LOCAL_USE.match(text):
            count = self.body.local.get(match[2], 0) + (match[3] == "f")
            text = match[1] + _local_name(match[2], count)
        try:
            parsed = _parse_instruction(text, number, self.loc)
        except OperandSyntaxError as error:
            raise self.error(str(error), number) from None
        self.body.instructions.append(parsed)

    def module(self, metadata: dict[str, KernelMetadata]) -> AsmModule:
        if not self.descriptors:
            raise self.error("no kernel: the text has no .amdhsa_kernel descriptor", 0)
        kernels: dict[str, Kernel] = {}
        for name, descriptor in self.descriptors.items():
            body = self.functions.get(name)
            if body is None:
                raise self.error(f"kernel {name} has a descriptor but no code", 0)
            info = metadata.get(name, KernelMetadata())
            kernels[name] = Kernel(
                name=name,
                instructions=tuple(body.instructions),
                labels=body.labels,
                descriptor=descriptor,
                arguments=info.arguments,
                metadata=info.scalars,
                workgroup=info.workgroup,
            )
        return AsmModule(self.path, self.target, kernels, self.files, self.data.symbols())


def parse_asm(text: str, path: str = "<asm>") -> AsmModule:
    """Parse a whole `.s` text; raises `AsmError` naming the line for text outside the syntax."""
    return _Parser(text, path).run()
