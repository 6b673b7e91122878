"""Inputs of one step: activations, positions, slots, windows, selected keys, block tables, caches.

Every token has a context of its own length, in a request whose blocks lie anywhere in the cache. Whatever a kernel has
no right to use is poison: records no key points to, table entries past a context, picks past their count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from monoc.expr.ir import DType
from monoc.reference.formats import KV_GROUP
from monoc.reference.layouts import store_records
from monoc.reference.weights import sizes
from monoc.spec.buildexpr import BuildExpr, BuildValue
from monoc.spec.program import Entry, Program, Role, ShardingKind, TensorDecl
from monoc.verify.inputs.roles import Roles, op_statements
from monoc.verify.inputs.weights import positions_of

__all__ = ["POISON", "Contexts", "StepInputs", "make_step"]

Tensor = torch.Tensor
WORDS = 16  # that occur in a step, at most: so many tokens' experts fit in memory
SPARE = 3  # rows past the tokens where the host may give more
POISON = 0xFF  # a NaN as e4m3, bf16 and E8M0
GARBAGE = 0x7F7F7F7F


@dataclass(frozen=True)
class Contexts:
    """How the tokens of a step lie in their requests. ``positions``: fixed ones, drawn if None; ``padded``: tokens with
    slot -1; ``no_picks``: every selected key is -1; ``missing``: the share of selected keys that are -1; ``window``:
    keys of a window at most; ``narrow``: columns a table whose width is the host's has less than its bound;
    ``keys``: compressed keys of the tokens in turn, as far as positions go; ``blocks``: records a block of the window
    and of the compressed cache."""

    positions: tuple[int, ...] | None = None
    padded: tuple[int, ...] = ()
    no_picks: bool = False
    missing: float = 0.1
    window: int | None = None
    narrow: int = 7
    keys: tuple[int, ...] | None = None
    blocks: tuple[int, int] = (64, 64)


@dataclass
class StepInputs:
    """``tensors[rank]`` by name; ``selected``: what the host call writes between the launches, by tensor."""

    tensors: list[dict[str, Tensor]]
    selected: dict[str, Tensor] = field(default_factory=dict)


def make_step(
    program: Program, entry: Entry, env: Mapping[str, BuildValue], ranks: int, seed: int, contexts: Contexts
) -> StepInputs:
    """The inputs and caches of ``entry``."""
    rng = np.random.default_rng(seed)
    made = StepInputs([{} for _ in range(ranks)])
    names = [n for n in entry.arguments if program.tensor[n].guard.evaluate(env)]
    for name in names:
        decl = program.tensor[name]
        if decl.role is Role.INPUT and decl.dtype in (DType.F32, DType.BF16):
            own = decl.sharding.kind is ShardingKind.PARTIAL
            values = [_activation(decl, env, rng) for _ in range(ranks if own else 1)]
            for rank in range(ranks):
                made.tensors[rank][name] = values[rank if own else 0]
    given = Roles.of(replace(program, entries=(entry,))).tensors("route", "ids")
    for name in set(given) & set(names):
        for rank, ids in enumerate([_routes(program, entry, name, env, rng)] * ranks):
            made.tensors[rank][name] = ids
    if any(program.tensor[n].role is Role.CACHE for n in names):
        keys = _Keys(program, entry, env, rng, contexts).make()
        written = {n for h in entry.host_calls if h.guard.evaluate(env) for n in h.writes}
        for name in written & set(keys):
            made.selected[name] = keys[name]
            keys[name] = torch.full_like(keys[name], GARBAGE)
        for rank in range(ranks):
            made.tensors[rank].update({n: t.clone() if n in written else t for n, t in keys.items()})
    return made


def _activation(decl: TensorDecl, env: Mapping[str, BuildValue], rng: np.random.Generator) -> Tensor:
    shape = [n for n in sizes(decl.host_shape, env) if n is not None]
    if decl.dtype is DType.BF16:
        return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(torch.bfloat16)
    return torch.from_numpy(rng.random(shape, dtype=np.float32)) * (2 / max(shape[-1], 2))  # mixing coefficients


def _routes(
    program: Program, entry: Entry, name: str, env: Mapping[str, BuildValue], rng: np.random.Generator
) -> Tensor:
    """Distinct experts of every token, given by the host: those of its word, and words occur more than once."""
    statement = next(s for s in op_statements(program, entry) if s.op == "route" and s.operand("ids") == name)
    experts = int(program.type_of[statement.operand("score") or ""].shape[1].evaluate(env))
    tokens, topk = (n for n in sizes(program.tensor[name].shape, env) if n is not None)
    words = np.array([rng.choice(experts, topk, replace=False) for _ in range(min(tokens, WORDS))], dtype=np.int32)
    return torch.from_numpy(words[rng.integers(0, len(words), tokens)])


@dataclass
class _Keys:
    program: Program
    entry: Entry
    env: Mapping[str, BuildValue]
    rng: np.random.Generator
    contexts: Contexts

    def make(self) -> dict[str, Tensor]:
        roles = Roles.of(replace(self.program, entries=(self.entry,)))
        tokens = int(self.env["tokens"])
        self.tokens, self.rows = tokens, tokens + SPARE
        out: dict[str, Tensor] = {}
        positions = self._positions()
        slots = self._slots()
        window, lens, used = self._window(_axis(self.program, roles.one("key_table", "window_slots"), self.env), slots)
        picks = roles.one("key_table", "picks")
        given = {
            roles.one("key_table", "positions"): torch.from_numpy(positions),
            roles.one("key_table", "slots"): torch.from_numpy(slots),
            roles.one("key_table", "window_slots"): window,
            roles.one("key_table", "window_lens"): lens,
        }
        window_cache = roles.one("attend", "window")
        of_window, of_compressed = self.contexts.blocks
        given[window_cache] = self._cache(window_cache, used, -(-WINDOW_SLOTS * tokens // of_window), of_window)
        requests = max(1, (tokens + 1) // 2)
        owners = self.rng.integers(0, requests, self.rows).astype(np.int32)
        owners_given = owners.copy()
        owners_given[list(self.contexts.padded)] = GARBAGE
        given[roles.one("key_table", "requests")] = torch.from_numpy(owners_given)
        if picks is not None and self.program.tensor[picks].guard.evaluate(self.env):
            ratio = int(_ratio(self.program, self.entry).evaluate(self.env))
            width = _axis(self.program, picks, self.env)
            if self.program.tensor[picks].shape[-1].at_most:
                width -= self.contexts.narrow
            chosen, table, rows, blocks = self._picks(width, ratio, positions, owners, requests)
            paged = roles.one("key_table", "block_table")
            if paged is not None and self.program.tensor[paged].guard.evaluate(self.env):
                given[paged] = table
            else:
                chosen = self._through(chosen, table, positions, owners, ratio)
            given[picks] = chosen
            compressed = roles.one("attend", "compressed")
            given[compressed] = self._cache(compressed, rows, blocks, of_compressed)
        out.update({name: tensor for name, tensor in given.items() if name is not None})
        return out

    def _positions(self) -> np.ndarray:
        drawn = self.rng.integers(0, positions_of(self.program, self.env), self.tokens)
        drawn[:: max(1, self.tokens // 3)] = self.rng.integers(0, 70, len(drawn[:: max(1, self.tokens // 3)]))
        if self.contexts.positions is not None:
            fixed = np.array(self.contexts.positions)
            drawn[:] = np.resize(fixed, self.tokens)
        if self.contexts.keys is not None:
            ratio = max(1, int(_ratio(self.program, self.entry).evaluate(self.env)))
            most = positions_of(self.program, self.env) - 1
            drawn[:] = np.minimum(np.maximum(np.resize(np.array(self.contexts.keys), self.tokens) * ratio - 1, 0), most)
        return drawn.astype(np.int64)

    def _slots(self) -> np.ndarray:
        block = self.contexts.blocks[0]
        pool = -(-WINDOW_SLOTS * self.tokens // block) * block
        self.pool = self.rng.permutation(pool)
        slots = self.pool[: self.tokens].astype(np.int64)
        slots[list(self.contexts.padded)] = -1
        return slots

    def _window(self, width: int, slots: np.ndarray) -> tuple[Tensor, Tensor, np.ndarray]:
        """Each token's window: records of its request and its own; (slots, counts, records to fill)."""
        window = np.full((self.rows, 1, width), GARBAGE, dtype=np.int32)
        lens = np.full(self.rows, GARBAGE, dtype=np.int32)
        old = self.pool[self.tokens :]
        for t in range(self.tokens):
            count = int(self.rng.integers(1, width + 1)) if t % 2 else width
            count = min(count, self.contexts.window or width)
            keys = self.rng.choice(old, count, replace=False)
            if slots[t] >= 0:
                keys[-1] = slots[t]
            window[t, 0, :count], lens[t] = keys, count
        return torch.from_numpy(window), torch.from_numpy(lens), old

    def _picks(
        self, width: int, ratio: int, positions: np.ndarray, owners: np.ndarray, requests: int
    ) -> tuple[Tensor, Tensor, np.ndarray, int]:
        """(picks, block table, records to fill, blocks of the compressed cache)."""
        block = self.contexts.blocks[1]
        per = -(-positions_of(self.program, self.env) // ratio // block)
        blocks = requests * per
        table = np.full((requests + 1, per + 2), GARBAGE, dtype=np.int32)
        table[:requests, :per] = self.rng.permutation(blocks).reshape(requests, per)
        picks = np.full((self.rows, width), GARBAGE, dtype=np.int32)
        used: list[np.ndarray] = [np.zeros(0, dtype=np.int64)]
        for t in range(self.tokens):
            rows = (int(positions[t]) + 1) // ratio
            count = min(rows, width)
            keys = self.rng.choice(rows, count, replace=False).astype(np.int32) if count else np.zeros(0, np.int32)
            keys[self.rng.random(count) < self.contexts.missing] = -1
            if self.contexts.no_picks:
                keys[:] = -1
            picks[t, :count] = GARBAGE if t in self.contexts.padded else keys
            there = keys[keys >= 0].astype(np.int64)
            used.append(table[owners[t], there // block].astype(np.int64) * block + there % block)
        return torch.from_numpy(picks), torch.from_numpy(table), np.unique(np.concatenate(used)), blocks

    def _through(self, picks: Tensor, table: Tensor, positions: np.ndarray, owners: np.ndarray, ratio: int) -> Tensor:
        """The picks as slots of the compressed cache; those of padded rows stay what they are."""
        out, block = picks.clone(), self.contexts.blocks[1]
        for t in sorted(set(range(self.tokens)) - set(self.contexts.padded)):
            count = min((int(positions[t]) + 1) // ratio, picks.shape[1])
            rows = picks[t, :count]
            slots = table[int(owners[t]), (rows.clamp(min=0) // block).long()] * block + rows.clamp(min=0) % block
            out[t, :count] = torch.where(rows >= 0, slots, -1)
        return out

    def _cache(self, name: str | None, used: np.ndarray, blocks: int, block: int) -> Tensor:
        """A cache whose records at ``used`` are numbers near one and all else poison, its blocks spread out."""
        assert name is not None
        (record,) = sizes(self.program.tensor[name].shape[2:], self.env)
        assert record is not None
        statement = next(s for s in op_statements(self.program, self.entry) if s.op == "attend")
        q = self.program.type_of[statement.operand("q") or ""]
        head = int(q.shape[-1].evaluate(self.env))
        rope_width = statement.attribute("rope")
        assert isinstance(rope_width, BuildExpr)
        rope = int(rope_width.evaluate(self.env))
        gap = 256  # bytes between blocks
        whole = torch.full((blocks * (block * record + gap),), POISON, dtype=torch.uint8)
        cache = whole.as_strided((blocks, block, record), (block * record + gap, record, 1))
        if not len(used):
            return cache
        nope = head - rope
        values = torch.from_numpy(self.rng.standard_normal((len(used), nope), dtype=np.float32)) * 32
        tail = torch.from_numpy(self.rng.standard_normal((len(used), rope), dtype=np.float32)).to(torch.bfloat16)
        data = torch.cat([values.to(torch.float8_e4m3fn).view(torch.uint8), tail.view(torch.uint8)], dim=1)
        groups = nope // KV_GROUP
        codes = torch.from_numpy(self.rng.integers(121, 124, (len(used), groups), dtype=np.uint8))
        store_records(cache, torch.from_numpy(used.astype(np.int64)), data, codes, groups)
        return cache


WINDOW_SLOTS = 256  # records of the window cache for each token of a step


def _axis(program: Program, name: str | None, env: Mapping[str, BuildValue]) -> int:
    """The last axis of a tensor."""
    assert name is not None
    size = sizes(program.tensor[name].shape, env)[-1]
    assert size is not None
    return size


def _ratio(program: Program, entry: Entry) -> BuildExpr:
    value = next(s for s in op_statements(program, entry) if s.op == "key_table").attribute("ratio")
    assert isinstance(value, BuildExpr)
    return value
