"""What a package's device.py takes from the device library."""

from pathlib import Path

import pytest

from monoc.emit.device import DeviceLibrary, LibraryError, names_in


def _library(root: Path, **modules: str) -> DeviceLibrary:
    for name, text in modules.items():
        (root / f"{name}.py").write_text(text)
    return DeviceLibrary(root)


def test_only_what_is_used_and_what_that_uses(tmp_path: Path) -> None:
    library = _library(
        tmp_path,
        low='"""Low."""\nimport math\n\n# why two\n_TWO = 2\n\n\ndef twice(x):\n    return _TWO * x\n\n\n'
        "def root(x):\n    return math.sqrt(x)\n",
        high='"""High."""\nfrom monoc.device.low import twice\n\n\ndef four(x):\n    return twice(twice(x))\n',
    )
    text = library.source(frozenset({"four"}))
    assert library.closure(frozenset({"four"})) == ("_TWO", "twice", "four")
    assert "root" not in text
    assert "import math" not in text
    assert "monoc" not in text
    assert text.index("# why two\n_TWO = 2") < text.index("def twice") < text.index("def four")
    space: dict[str, object] = {}
    exec(text, space)
    assert space["four"](3) == 12  # type: ignore[operator]


def test_a_root_the_library_lacks(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="no definition of gone"):
        _library(tmp_path, a="def here(): pass\n").source(frozenset({"here", "gone"}))


def test_one_name_may_not_mean_two_things(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=r"f is defined differently in a\.py and b\.py"):
        _library(tmp_path, a="def f(): return 1\n", b="def f(): return 2\n")


def test_one_constant_in_two_modules_is_one(tmp_path: Path) -> None:
    library = _library(
        tmp_path,
        a="_K = 7\n\n\ndef f():\n    return _K\n",
        b="_K = 7  # the same\n\n\ndef g():\n    return _K\n",
    )
    assert library.closure(frozenset({"f", "g"})) == ("_K", "f", "g")


def test_import_cycles_are_named(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="a -> b -> a"):
        _library(tmp_path, a="from monoc.device.b import g\n", b="from monoc.device.a import f\n")


def test_names() -> None:
    assert names_in("a = b(c.d)\n") == {"a", "b", "c"}
