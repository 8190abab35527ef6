"""Problems of a definition and its workloads become references, or are left out with a reason."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import pytest

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.suites.finding import find_suite
from kernelblaster.harness.suites.workloads import accepted, is_problem, read_problems
from kernelblaster.harness.task.loading import load_task_now

SCALE = "import torch\n\n\ndef run(x, gain):\n    return x * gain\n"
DRAWN = """from __future__ import annotations

import torch


def draw(sizes, device):
    return {"rows": torch.randint(0, sizes["ENTRIES"], (sizes["COUNT"],), device=device)}


@torch.no_grad()
def run(table, rows):
    return table[rows]
"""


def definition(**changes: Any) -> dict[str, Any]:
    return {
        "name": "scale_w64",
        "op_type": "elementwise",
        "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 64}},
        "inputs": {
            "x": {"shape": ["rows", "width"], "dtype": "float32"},
            "gain": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["rows", "width"], "dtype": "float32"}},
        "reference": SCALE,
    } | changes


def workload(rows: int = 512, **changes: Any) -> dict[str, Any]:
    return {
        "uuid": f"w{rows}",
        "axes": {"rows": rows},
        "inputs": {"x": {"type": "random"}, "gain": {"type": "scalar", "value": 0.5}},
    } | changes


def problem(folder: Path, said: dict[str, Any], *lines: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "definition.json").write_text(json.dumps(said))
    (folder / "workload.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


def test_each_workload_is_a_task_with_the_tolerance_of_its_origin_told(tmp_path: Path) -> None:
    strict = {"max_atol": 1e-3, "max_rtol": 1e-3, "required_matched_ratio": 0.95}
    folder = problem(
        tmp_path / "scale", definition(), workload(512), workload(2048, tolerance=strict),
        workload(512),
    )  # fmt: skip
    assert is_problem(folder)
    wrapped = {"definition": "scale_w64", "workload": workload(512), "solution": None}
    problem(tmp_path / "the_same_elsewhere", definition(), wrapped)
    tasks, left_out = read_problems(tmp_path)
    assert [task.name for task in tasks] == [
        "scale_w64__rows512", "scale_w64__rows2048", "scale_w64__rows512__2",
        "scale_w64__rows512__3",
    ]  # fmt: skip
    assert not left_out and not tasks[0].tolerance
    assert "required_matched_ratio 0.95" in accepted(tasks[1].tolerance)
    assert "rows = 2048\nwidth = 64\n" in tasks[1].source and SCALE.strip() in tasks[1].source


def test_a_task_of_a_workload_loads_and_its_axes_shrink(tmp_path: Path) -> None:
    axes = {
        "ENTRIES": {"type": "const", "value": 4096},
        "COUNT": {"type": "expr", "expression": "HALF * 4 / 2"},
        "HALF": {"type": "var"},
        "WIDTH": {"type": "const", "value": 256},
    }
    said = definition(
        name="picked", axes=axes, reference=DRAWN, custom_inputs_entrypoint="draw",
        inputs={
            "table": {"shape": ["ENTRIES", "WIDTH"], "dtype": "float32"},
            "rows": {"shape": ["COUNT"], "dtype": "int64"},
        },
    )  # fmt: skip
    asked = {"axes": {"HALF": 2048}, "inputs": {"rows": {"type": "custom"}}}
    problem(tmp_path / "picked", said, asked)
    ((task,), _) = read_problems(tmp_path / "picked")
    path = tmp_path / f"{task.name}.py"
    path.write_text(task.source)
    loaded = load_task_now(path)
    shapes = {tensor.name: tensor.shape for tensor in loaded.full.tensors}
    assert (shapes["table"], shapes["rows"]) == ((4096, 256), (4096,))
    assert loaded.verify.dimensions["WIDTH"] < 256


def test_a_set_of_definitions_beside_workloads_is_read_too(tmp_path: Path) -> None:
    for name in ("definitions/own/scale_w64.json", "workloads/own/scale_w64.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / "definitions/own/scale_w64.json").write_text(json.dumps(definition()))
    line = {"definition": "scale_w64", "workload": workload(128), "solution": None}
    (tmp_path / "workloads/own/scale_w64.jsonl").write_text(json.dumps(line) + "\n")
    ((task,), left_out) = read_problems(tmp_path)
    assert task.name == "scale_w64__rows128" and not left_out
    lines = ['{"definition": "other"}', json.dumps(line), "{"]
    (tmp_path / "workloads/own/scale_w64.jsonl").write_text("\n".join(lines))
    (tmp_path / "definitions/own/torn.json").write_text("{")
    ((task,), left_out) = read_problems(tmp_path)
    assert task.name == "scale_w64__rows128"
    torn, other, open_ended = (each.reason for each in left_out)
    assert "torn.json is damaged" in torn and "line 1: there is no definition other" in other
    assert "line 3 is not JSON" in open_ended


@pytest.mark.parametrize("place", ["definitions/lonely.json", "lonely/definition.json"])
def test_a_definition_that_nothing_gives_a_size_is_left_out_and_says_so(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / place).parent.mkdir()
    (tmp_path / place).write_text(json.dumps(definition(name="lonely")))
    tasks, (left,) = read_problems(tmp_path)
    assert not tasks and left.name == "'lonely'" and "no workload" in left.reason


@pytest.mark.parametrize(
    ("said", "asked", "why"),
    [
        ({}, {"inputs": {"x": {"type": "safetensors", "path": "a", "tensor_key": "x"}}}, "file of"),
        ({}, {"inputs": {"x": {"type": "random"}}}, "gain is a number, and"),
        ({}, {"axes": {}}, "rows has no size"),
        ({"inputs": {"x": {"shape": ["rows"], "dtype": "float8_e4m3fn"}}}, {}, "does not take"),
        ({"reference": "def walk(): pass"}, {}, "no function run"),
        ({"reference": "def run(:"}, {}, "no Python"),
        ({"reference": SCALE + "\nrows = 3\n"}, {}, "the axis rows has the name of something"),
        ({"axes": {"class": {"type": "const", "value": 2}}}, {}, "no variable for"),
        ({"axes": {"rows": {"type": "expr", "expression": "f(2)"}}}, {}, "more than arithmetic"),
        ({"axes": {"rows": {"type": "expr", "expression": "x * 2"}}}, {}, "what is not there"),
        ({"axes": {"rows": {"type": "expr", "expression": "-" * 9**5 + "1"}}}, {}, "too deeply"),
        ({"reference": "x = " + "a + " * 9**5 + "a"}, {}, "too deeply"),
    ],
)
def test_what_cannot_be_a_task_is_left_out_and_says_why(
    tmp_path: Path, said: dict[str, Any], asked: dict[str, Any], why: str
) -> None:
    problem(tmp_path / "p", definition(**said), workload(**asked))
    tasks, (left,) = read_problems(tmp_path)
    assert not tasks and why in left.reason


def test_a_number_that_has_no_literal_is_python_still(tmp_path: Path) -> None:
    inputs = {"gain": {"type": "scalar", "value": math.inf}}
    problem(tmp_path / "p", definition(), workload(inputs=inputs))
    ((task,), _) = read_problems(tmp_path)
    assert "float('inf')" in task.source


def test_an_eight_bit_input_is_left_out_by_its_type(tmp_path: Path) -> None:
    inputs = {"x": {"shape": ["rows", "width"], "dtype": "float8_e4m3fn"},
              "gain": {"shape": None, "dtype": "float32"}}  # fmt: skip
    problem(tmp_path / "p", definition(inputs=inputs), workload())
    assert "of type float8_e4m3fn" in read_problems(tmp_path)[1][0].reason


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("definition.json", "{", "is not JSON"),
        ("definition.json", '{"name": "a"}', "is no definition: axes"),
        ("workload.jsonl", "[1]\n", "line 1: a workload is a JSON object"),
        ("workload.jsonl", '\n{"axes": {"rows": "many"}}\n', "line 2 is no workload: axes.rows"),
    ],
)
def test_a_damaged_file_is_one_clear_line_and_keeps_no_other_back(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    folder = problem(tmp_path / "p", definition(), workload())
    problem(tmp_path / "q", definition(name="whole"), workload())
    (folder / name).write_text(text)
    ((task,), (left,)) = read_problems(tmp_path)
    assert task.name == "whole__rows512"
    assert said in left.reason and "\n" not in left.reason
    with pytest.raises(UserError, match=f"no task can be made of them; the first: .*{said}"):
        find_suite(str(folder))


def test_the_text_that_is_made_is_python_whatever_the_names(tmp_path: Path) -> None:
    problem(tmp_path / "p", definition(name="a b/c"), workload())
    ((task,), _) = read_problems(tmp_path)
    ast.parse(task.source)
    assert task.name == "a-b-c__rows512"
