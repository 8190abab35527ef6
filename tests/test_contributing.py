"""CONTRIBUTING.md's agent, laid into a copy of the package as it says: it stands and it speaks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import contributing
import pytest
from places import ROOT, SUPPORT

USES = """
import sys
from pathlib import Path

import pytest

import kernelblaster
import test_floors
from model_role_support import new_folder, run
from scripted_chat_model import ScriptedChatModel

assert Path(kernelblaster.__file__).parent == Path(sys.argv[1]) / "kernelblaster"
for path in (test_floors.ROOT / "nodes" / "code_reader").glob("*.py"):
    test_floors.test_no_import_points_up(path)
    test_floors.test_modules_say_why_they_exist_and_import_relatively(path)
test_floors.test_no_import_points_up(test_floors.ROOT / "graph" / "rollout.py")
test_floors.test_packages_are_listed_for_installation()
folder = Path(sys.argv[1])
model = ScriptedChatModel(otherwise={"remark": "It reads by rows."})
with pytest.MonkeyPatch.context() as patch:
    builtin = run(new_folder(folder, "builtin"), patch, model)
    print(len(model.calls), builtin.told("code_remark")[0])
    asked = run(new_folder(folder, "asked"), patch, model, "code_reader")
    print(asked.told("code_remark")[0])
print(len(model.calls_of("code_reader")) == len(asked.told("code_remark")) == len(asked.steps))
print(model.calls[0].prompt)
"""
FOLDERS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
NEW = [name for name in contributing.BLOCKS if name.startswith("nodes/code_reader/")]
CHANGED = ["graph/rollout.py", "tools/models/records.py", "pyproject.toml", "tests/test_floors.py"]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = tmp_path_factory.mktemp("scratch") / "kernelblaster"
    package.mkdir()
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, package / folder)
    for file in (*ROOT.glob("*.py"), ROOT / "pyproject.toml"):
        shutil.copy2(file, package)
    (package / "tests").mkdir()
    shutil.copy2(ROOT / "tests" / "test_floors.py", package / "tests")
    for name in NEW:
        target = package / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(contributing.text(name))
    for name in CHANGED:
        target = package / name
        target.write_text(contributing.patched(name, target.read_text()))
    return package.parent


def test_an_agent_is_one_folder_and_its_place_in_a_graph(copy: Path) -> None:
    path = os.pathsep.join(map(str, (copy, copy / "kernelblaster" / "tests", SUPPORT)))
    done = subprocess.run(
        [sys.executable, "-c", USES, str(copy)], capture_output=True, text=True, cwd=copy,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    by_itself, by_model, as_often, *prompt = done.stdout.splitlines()
    assert by_itself.startswith("0 ") and "The source has 1 lines." in by_itself
    assert "'author': 'builtin'" in by_itself
    assert "It reads by rows." in by_model and "scripted_chat_model" in by_model
    assert as_often == "True"
    assert prompt[:2] == ["## The kernel", "us: 100.0"], prompt


def test_every_block_is_of_a_change_that_a_test_makes() -> None:
    packages = {f"{name}.{end}" for name in ("say_hello", "asked_twice") for end in ("py", "toml")}
    assert set(contributing.BLOCKS) == {*NEW, *CHANGED, *packages, "harness/gpus.py"}
    assert len(NEW) == 6
