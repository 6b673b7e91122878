"""Fetch vLLM's wheel and make its hand-written decode launches importable without vLLM's own dependencies."""

import subprocess
import sys
import types
import zipfile
from pathlib import Path

__all__ = ["MODELS", "add_packages", "fetch"]

VERSION = "0.33.0"
MODELS = ("deepseek_v4", "deepseek_v41")
_FOLDERS = tuple(f"vllm/models/{model}/amd/" for model in MODELS)


def fetch(folder: Path) -> Path:
    """Downloads the wheel (pip, no dependencies) and unpacks the launches below `folder`; done once."""
    root = folder / "unpacked"
    if all((root / name).is_dir() for name in _FOLDERS):
        return root
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), f"vllm=={VERSION}"]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob(f"vllm-{VERSION}*.whl")
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.startswith(_FOLDERS)]
        archive.extractall(root, members)
    wheel.unlink()  # some hundred megabytes; the launches are a few hundred kilobytes
    return root


def add_packages(root: Path) -> None:
    """Namespace packages for `vllm.models.<model>.amd`: vLLM's own `__init__` files import its torch extensions."""
    names = ["vllm", "vllm.models", *(f"vllm.models.{m}{tail}" for m in MODELS for tail in ("", ".amd"))]
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [str(root / name.replace(".", "/"))]
        sys.modules[name] = package
