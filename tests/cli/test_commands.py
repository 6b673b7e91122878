"""The list of commands: what it says, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from monoc.cli import COMMANDS, make_app


def test_the_list_says_what_the_commands_say() -> None:
    """The summaries are written twice, so that the list imports no command."""
    group = get_command(make_app())
    assert list(group.commands) == list(COMMANDS)  # type: ignore[attr-defined]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        assert command.help.split("\n\n")[0].replace("\n", " ") == COMMANDS[name].summary


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["nothing"]])
def test_help_and_version_import_no_command(arguments: list[str]) -> None:
    script = (
        "import sys; from monoc.cli import run; sys.argv = ['monoc', *sys.argv[1:]]\n"
        "try: run()\n"
        "finally: print(sorted({'torch', 'flydsl', 'lark', 'numpy'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.returncode == (2 if arguments == ["nothing"] else 0)


def test_all_commands_are_listed() -> None:
    listed = CliRunner().invoke(make_app(["--help"]), ["--help"]).output
    assert all(name in listed for name in COMMANDS)
