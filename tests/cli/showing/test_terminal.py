"""What a text of anybody's can do to a terminal: nothing."""

from __future__ import annotations

import ast
import io
import re
from pathlib import Path

import pytest
import typer
from rich.table import Table
from typer.testing import CliRunner

import kernelblaster.cli
import kernelblaster.cli.app
from kernelblaster.cli.commands import Commands
from kernelblaster.cli.showing.output import say
from kernelblaster.cli.showing.terminal import Terminal
from kernelblaster.harness.errors import in_shell

STEERING = "a\x1b[2Jb\x1b]0;title\x07c\rd\x9be"


@pytest.mark.parametrize("shape", ["text", "table"])
def test_control_characters_in_texts_are_blank_and_colours_stay(shape: str) -> None:
    stream = io.StringIO()
    terminal = Terminal(file=stream, force_terminal=True, color_system="standard", width=60)
    if shape == "text":
        terminal.print(f"[red]{STEERING}[/]", highlight=False)
    else:
        table = Table("title")
        table.add_row(f"[red]{STEERING}[/]")
        terminal.print(table)
    shown = stream.getvalue()
    assert "\x1b[31m" in shown
    for steering in ("\x1b[2J", "\x1b]", "\x07", "\r", "\x9b"):
        assert steering not in shown


def test_plain_lines_steer_nothing_either(capsys: pytest.CaptureFixture[str]) -> None:
    say(STEERING)
    said = capsys.readouterr().out
    assert said == "a [2Jb ]0;title c d e\n"


def test_commands_print_through_these_two_alone() -> None:
    """`Console(...)` and `typer.echo` would print what anybody wrote as it stands."""
    folder = Path(kernelblaster.cli.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("Console", "typer.echo", "print"), f"{path}:{node.lineno}"


def test_a_command_that_is_told_can_be_pasted_whatever_its_folder_is_called() -> None:
    bare = re.compile(
        r"(?:kernelblaster (?:\w+ )+|pip install )\{[\w.]*(?:run|path|directory|output|file|task)\}"
    )
    found = [
        f"{path}: {each[0]}"
        for path in Path(kernelblaster.__file__).parent.rglob("*.py")
        if not {"tests", "benchmarks"} & set(path.parts)
        for each in bare.finditer(path.read_text())
    ]
    assert not found and in_shell(Path("a b/c")) == "'a b/c'"


def test_ctrl_c_in_any_command_leaves_a_line() -> None:
    app = typer.Typer(cls=Commands)
    nested = typer.Typer()
    app.add_typer(nested, name="nested")

    @app.command("plain")
    @nested.command("inner")
    def stopped() -> None:
        raise KeyboardInterrupt

    for arguments in (["plain"], ["nested", "inner"]):
        ended = CliRunner().invoke(app, arguments)
        assert (ended.exit_code, ended.stderr) == (130, "kernelblaster: stopped\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_terminal_has_no_letters_for_ends_no_command(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding=encoding))
    table = Table("größer \u2265 \udcff")
    shown = lambda: (say("größer \u2265 \udcff"), Terminal().print(table))  # noqa: E731
    monkeypatch.setattr("kernelblaster.cli.app.app", shown)
    kernelblaster.cli.app.main()
    assert "größer" in written.getvalue().decode(encoding).replace("\\xf6\\xdf", "öß")
