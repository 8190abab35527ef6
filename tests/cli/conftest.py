"""The command line in this process, for what does not need one of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelblaster.cli import app as cli

Done = SimpleNamespace


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> Callable[..., Done]:
    """Run the command line in this process: exit code, output, complaints."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["kernelblaster", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        code = left.value.code
        captured = capfd.readouterr()
        return Done(code=0 if code is None else code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def asked(
    command: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Stand in for `commands.kernelblaster` in this process, with the same arguments."""

    def ask(
        *arguments: object, folder: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as place:
            if folder:
                place.chdir(folder)
            for name, value in environment.items():
                place.setenv(name, value)
            done = command(*arguments)
        return subprocess.CompletedProcess(arguments, done.code, done.out, done.err)

    return ask
