"""Hand-off manifests: what is accepted, what is refused with which words."""

import re
from typing import Any

import pytest

from monoc.sim.errors import UsageError
from monoc.sim.handoff import Kind, Manifest, Region, Scope

FLAG = Region("ready", 0x1000, 64, Kind.FLAG)
DATA = Region("data", 0x2000, 4096, Kind.PLAIN, flag="ready", unit_bytes=512, readers=(1, 2))
PUSH = Region("push", 0x4000, 256, Kind.TAG, Scope.SYSTEM, rank=1, writer_ranks=(0, 1), reads=0)


def test_json_round_trip() -> None:
    manifest = Manifest((FLAG, DATA, PUSH))
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert manifest.to_json() == Manifest.of(iter(manifest)).to_json()


def test_ordered_data_names_no_flag() -> None:
    ordered = Region("data", 0x2000, 4096, Kind.PLAIN)
    assert Manifest((FLAG, ordered)).flag_index(ordered) == -1
    assert Manifest.from_json(Manifest((ordered,)).to_json()) == Manifest((ordered,))


def test_lookup() -> None:
    manifest = Manifest((PUSH, FLAG, DATA))
    assert manifest.find(0, "data") == DATA
    assert manifest.find(1, "data") is None
    assert [manifest.flag_index(region) for region in manifest] == [-1, -1, 1]
    assert FLAG.pairs == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "needs a name"),
        ({"nbytes": 0}, "must be positive"),
        ({"address": 0x2002}, "multiples of 4"),
        ({"flag": ""}, "goes with unit_bytes"),
        ({"unit_bytes": 0}, "goes with unit_bytes"),
        ({"kind": Kind.TAG}, "announces itself"),
        ({"kind": Kind.TAG, "flag": "", "unit_bytes": 0, "nbytes": 12}, "multiples of 8"),
        ({"kind": Kind.WORD, "flag": "", "unit_bytes": 0, "address": 0x2002}, "multiples of 4"),
        ({"reads": -1}, "negative"),
    ],
)
def test_bad_regions(changes: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {"name": "data", "address": 0x2000, "nbytes": 4096, "kind": Kind.PLAIN}
    values |= {"flag": "ready", "unit_bytes": 512}
    with pytest.raises(UsageError, match=message):
        Region(**{**values, **changes})


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ((FLAG, FLAG), "'ready' is declared twice for rank 0"),
        ((DATA,), "'ready' is no flag region of rank 0"),
        ((FLAG, Region("late", 0x1038, 16, Kind.TAG)), "'ready' and 'late' overlap at 0x1038"),
    ],
)
def test_bad_manifests(regions: tuple[Region, ...], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Manifest(regions)


@pytest.mark.parametrize("text", ["", "[]", '{"regions": [{}]}', '{"regions": [{"kind": "x", "scope": "device"}]}'])
def test_bad_json(text: str) -> None:
    with pytest.raises(UsageError, match="not a hand-off manifest"):
        Manifest.from_json(text)
