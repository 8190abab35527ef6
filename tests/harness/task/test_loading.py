"""References in, tasks and cases out: the examples, odd files, and files that are wrong."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from often_or_seldom import every
from places import EXAMPLES

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.cases import Case, prepare_cases, read_cases, read_degenerate
from kernelblaster.harness.task.contract import signature
from kernelblaster.harness.task.loading import load_task

Array = NDArray[Any]
HEAD = "import torch\nimport torch.nn as nn\n"
MODEL = "class Model(nn.Module):\n    def forward(self, x):\n        return {body}\n"
INPUTS = "def get_inputs():\n    return [torch.rand(N, 64)]\n"


@pytest.fixture(autouse=True, scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    previous = os.environ.get("KERNELBLASTER_CACHE")
    os.environ["KERNELBLASTER_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if previous is None:
        del os.environ["KERNELBLASTER_CACHE"]
    else:
        os.environ["KERNELBLASTER_CACHE"] = previous


def load(path: Path, **overrides: int) -> Task:
    return asyncio.run(load_task(path, overrides))


def written(folder: Path, text: str) -> Path:
    path = folder / "reference.py"
    path.write_text(text)
    return path


def tensor(task: Task, folder: Path, name: str) -> Array:
    (spec,) = [spec for spec in task.verify.tensors if spec.name == name]
    data = np.fromfile(folder / f"{name}.bin", dtype=np.dtype(spec.dtype))
    return data.reshape(spec.shape)


def test_an_example_is_described() -> None:
    task = load(EXAMPLES / "softmax.py")
    assert (task.name, task.op_class, task.dtype) == ("softmax", "softmax", "float32")
    assert "launch(float* out0, const float* x, void* workspace" in signature(task)
    assert task.program is not None and task.program_failure == ""
    assert [node.op for node in task.program.nodes] == ["aten.softmax.int"]
    assert [t.name for t in task.full.tensors] == [t.name for t in task.verify.tensors]
    assert sum(t.numel for t in task.verify.tensors) < 1 << 20 < task.full.tensors[0].numel
    cases = asyncio.run(prepare_cases(task))
    assert read_degenerate(cases) == ""


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_has_a_docstring_and_distinct_sizes(path: Path) -> None:
    text = path.read_text()
    assert text.startswith('"""') and "get_init_inputs" in text
    values = re.findall(r"^[A-Z_]+ = (\d+)$", text, re.MULTILINE)
    assert len(values) >= 2 and len(set(values)) == len(values)


def test_cases_cover_the_distributions_and_hold_pytorchs_answers() -> None:
    task = load(EXAMPLES / "softmax.py")
    directory = asyncio.run(prepare_cases(task))
    cases = {case.name.split("-")[1]: case for case in read_cases(directory)}
    assert set(cases) == {"normal", "gaussian", "uniform", "large", "constant", "zeros", "offset"}
    for case in cases.values():
        folder = directory / case.directory
        x, out = tensor(task, folder, "x"), tensor(task, folder, "out0")
        shifted = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        exact = shifted / shifted.sum(axis=1, keepdims=True)
        assert np.abs(out - exact).max() < 1e-6
        stored = np.fromfile(folder / "out0.f64.bin").reshape(out.shape)
        assert np.abs(stored - exact).max() < 1e-12
    large = tensor(task, directory / cases["large"].directory, "x")
    over, below = large[:-1].max(axis=1), large[-1]
    assert (over > 89).all(), "exp without subtracting the maximum must overflow"
    assert (below < -104).all(), "exp without subtracting the maximum must be nothing"
    zeros = tensor(task, directory / cases["zeros"].directory, "x")
    assert 0.4 < (zeros == 0).mean() < 0.6
    constant = tensor(task, directory / cases["constant"].directory, "x")
    assert (constant == -1.25 * (1 + 2.0**-8)).all()


def test_a_known_task_needs_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load(EXAMPLES / "softmax.py")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    start = time.monotonic()
    assert load(EXAMPLES / "softmax.py") == task
    asyncio.run(prepare_cases(task))
    assert time.monotonic() - start < 0.5


@pytest.mark.parametrize("lost", ["x.bin", "out0.bin", "out0.f64.bin"])
def test_lost_cases_are_made_again_alike(lost: str) -> None:
    task = load(EXAMPLES / "softmax.py")
    directory = asyncio.run(prepare_cases(task))
    before = {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*.bin")}
    next(directory.rglob(lost)).write_bytes(b"short")
    assert asyncio.run(prepare_cases(task)) == directory
    after = {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*.bin")}
    assert before == after


def test_this_process_never_imports_torch() -> None:
    code = (
        "import asyncio, sys, pathlib; from kernelblaster.harness.task.loading import load_task;"
        f"asyncio.run(load_task(pathlib.Path({str(EXAMPLES / 'softmax.py')!r})));"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


RICH = (
    HEAD
    + """
ROWS, FEATURES = 70001, 301
HEADS = 7

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.register_buffer("mask", (torch.arange(features) % 2).bool())

    def forward(self, int, pair, alpha, X=None):
        y = self.norm(int) * alpha + pair[0].float() + torch.tensor(2.0)
        best, where = y.max(dim=1)
        return y.masked_fill(self.mask, float("-inf")), where, y.to(torch.bfloat16)

def get_inputs():
    half = torch.rand(ROWS, FEATURES).half()
    return [torch.rand(FEATURES, ROWS).t(), [half, torch.ones(3)], 2.5, None]

def get_init_inputs():
    return [FEATURES]
"""
)


def test_a_rich_reference(tmp_path: Path) -> None:
    task = load(written(tmp_path, RICH))
    assert task.full.dimensions == {"ROWS": 70001, "FEATURES": 301, "HEADS": 7, "pair_1": 3}
    assert task.verify.dimensions == {
        "ROWS": 128 + 70001 % 128, "FEATURES": 173, "HEADS": 7, "pair_1": 3,
    }  # fmt: skip
    assert signature(task) == (
        'extern "C" void launch(float* out0, long long* out1, __nv_bfloat16* out2, '
        "const float* t_int, const __half* pair_0, const float* pair_1, "
        "const float* norm_weight, const float* norm_bias, const bool* mask, "
        "void* workspace, cudaStream_t stream)"
    )
    assert task.full.scalars == {"alpha": 2.5}
    assert task.program is not None
    (fill,) = [node for node in task.program.nodes if node.op == "aten.masked_fill.Scalar"]
    assert fill.args[1:] == ({"ref": "mask"}, {"float": "-inf"})
    assert any(node.args[1:] == (2.0,) for node in task.program.nodes if "add" in node.op)
    assert Task.model_validate_json(task.model_dump_json()) == task
    directory = asyncio.run(prepare_cases(task))
    folder = directory / "0"
    expected = tensor(task, folder, "out0")
    assert np.isneginf(expected).any(), "what the reference answers by design is kept"
    bits = np.fromfile(folder / "out2.bin", "<u2").astype(np.uint32) << 16
    assert np.isfinite(bits.view(np.float32)).all()
    assert any("norm_running_mean" in note and "does not" in note for note in task.notes)


def test_set_chooses_the_verify_sizes(tmp_path: Path) -> None:
    path = written(tmp_path, OK.replace("N = 128", "N = 4096"))
    chosen = load(path, N=40)
    assert chosen.verify.dimensions["N"] == 40 and chosen.full.dimensions["N"] == 4096
    with pytest.raises(UserError, match=r"no size M to set \(it has: N, x_1\)"):
        load(path, M=4)
    with pytest.raises(UserError, match="at least 1"):
        load(path, N=0)


OK = HEAD + "N = 128\n" + MODEL.format(body="x + 1") + INPUTS

BROKEN = {
    "empty": ("", "defines no class Model"),
    "no model": (HEAD + "N = 128\n" + INPUTS, "defines no class Model"),
    "no inputs": (HEAD + MODEL.format(body="x"), r"defines no function get_inputs\(\)"),
    "import": (
        "import nothing_like_this\n" + OK,
        "nothing_like_this, which is not installed.*pip install",
    ),
    "shapes": (OK.replace("x + 1", "x @ x"), r"forward\(\) raises RuntimeError: .*line 6"),
    "model needs arguments": (
        OK.replace("    def forward", "    def __init__(self, n):\n        pass\n    def forward"),
        r"Model\(...\) raises TypeError",
    ),
    "exit": ("raise SystemExit(3)\n", "SystemExit: 3"),
    "no tensor": (OK.replace("x + 1", "float(x.sum())"), "returns a float, not a tensor"),
    "nothing": (OK.replace("x + 1", "None"), "returns no tensor"),
    "part": (OK.replace("x + 1", "(x, 3)"), "returns a int, not a tensor"),
    "complex": (OK.replace("x + 1", "torch.complex(x, x)"), "output out0 has dtype complex64"),
    "float8": (OK.replace("x + 1", "x.to(torch.float8_e4m3fn)"), "dtype float8_e4m3fn; supported"),
    "string input": (OK.replace("[torch.rand(N, 64)]", "[b'a']"), "x as a bytes"),
    "no list": (OK.replace("[torch.rand(N, 64)]", "torch.rand(3)"), "returns a Tensor, not a list"),
    "no elements": (OK.replace("x + 1", "x[:0]"), "out0 has no elements"),
    "sparse": (OK.replace("x + 1", "x.to_sparse()"), "sparse"),
    "random": (OK.replace("x + 1", "torch.dropout(x, 0.5, True)"), "another answer"),
    "not a module": (
        HEAD + "N = 2\nclass Model:\n    pass\n" + INPUTS,
        "no torch.nn.Module but a Model",
    ),
    "too large": (
        OK.replace("N, 64", "*map(int, '100000 100000'.split())"),
        "too large to verify.*--set NAME=VALUE.*names: N",
    ),
}

ODD = {
    "structure": (
        HEAD
        + "N = 96\nclass Model(nn.Module):\n"
        + "    def forward(self, lower, even, positive):\n"
        + "        return lower @ even + torch.log(positive)\n"
        + "def get_inputs():\n    a = torch.rand(N, N)\n"
        + "    return [torch.tril(torch.rand(N, N)), a + a.T, torch.rand(N, N) + 0.1]\n"
    ),
    "tied": (
        HEAD
        + "WIDTH = 768\nROWS = 4096\n"
        + "class Model(nn.Module):\n    def forward(self, x, y):\n"
        + "        assert x.shape[1] % 12 == 0\n        return x + y\n"
        + "def get_inputs():\n    return [torch.rand(ROWS, WIDTH), torch.rand(ROWS, WIDTH)]\n"
    ),
    "branches": OK.replace("x + 1", "x * 2 if x.sum() > 0 else x * 3"),
    "numpy": "import numpy\n" + OK.replace("torch.rand(N, 64)", "torch.tensor(numpy.ones((N, 3)))"),
    "grows": OK.replace("x + 1", "torch.exp(x * 40)").replace("N = 128", "N = 1000"),
    "loss": OK.replace("x + 1", "nn.functional.triplet_margin_loss(x, x + 1, x * x)"),
    "attention": OK.replace("x + 1", "torch.softmax(x @ x.T, 1) @ x"),
    "written out": OK.replace("x + 1", "x.exp() / x.exp().sum(1, keepdim=True)"),
}


class Answer:
    """What the reference child said of one file."""

    def __init__(self, folder: Path) -> None:
        self.cases = folder / "cases"
        self.result = json.loads((folder / "result.json").read_text())

    def tensor(self, case: Case, name: str) -> Array:
        specs = self.result["task"]["verify"]["tensors"]
        (spec,) = [spec for spec in specs if spec["name"] == name]
        data = np.fromfile(self.cases / case.directory / f"{name}.bin", dtype=spec["dtype"])
        return data.reshape(spec["shape"])


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Ask the reference child about many files, in one process: PyTorch takes seconds to start."""
    root = tmp_path_factory.mktemp("references")
    sources = {name: text for name, (text, _) in BROKEN.items()} | ODD
    sources |= {f"example {path.stem}": path.read_text() for path in EXAMPLES.glob("*.py")}
    for name, source in sources.items():
        cases = root / name / "cases"
        cases.mkdir(parents=True)
        request: dict[str, Any] = {"path": "reference.py", "source": source, "cases": str(cases)}
        request |= {"set": {}, "verify": None, "reading": {}}
        (root / name / "request.json").write_text(json.dumps(request))
    code = (
        "import sys; from kernelblaster.harness.reference.child import main\n"
        "for folder in sys.argv[1:]: main([folder + '/request.json', folder + '/result.json'])"
    )
    command = [sys.executable, "-c", code, *(str(root / name) for name in sources)]
    subprocess.run(command, check=True, capture_output=True, cwd=root)
    return {name: Answer(root / name) for name in sources}


@pytest.mark.parametrize("name", every(2, BROKEN))
def test_a_broken_reference_is_one_line(name: str, answers: dict[str, Answer]) -> None:
    error = answers[name].result["error"]
    assert re.search(BROKEN[name][1], error), error
    assert "\n" not in error and "Traceback" not in error


@pytest.mark.parametrize(
    "text, message",
    [
        (OK + "def (:\n", r":9: not Python: "),
        ("a = '\0'\n", "not Python"),
        (OK.replace("x + 1", "self.missing(x)"), r"raises AttributeError: .*missing.*\(line 6\)"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
         r"crashed its process \(SIGSEGV\) in line 2; what is called there"),
        ("import os\nos.write(2, b'bye')\nos._exit(0)\n", "ended its process.*bye"),
    ],
)
def test_a_broken_file_is_a_user_error(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError, match=message) as raised:
        load(path)
    line = str(raised.value)
    assert line.startswith(str(path)) and "\n" not in line and "Traceback" not in line


@pytest.mark.parametrize(
    "given, crashes_at, runs",
    [
        ("torch.rand(8, 64)", "True", 1),
        ("torch.randint(3, 10, (8, 64))", "True", 1),
        ("torch.randint(3, 10, (8, 64))", "int(i.max()) > 9", 2),
    ],
)
def test_a_crash_is_repeated_only_where_other_integers_help(
    given: str, crashes_at: str, runs: int, tmp_path: Path
) -> None:
    noted = tmp_path / "noted"
    text = (
        f"import os, signal\nprint(os.getpid(), file=open({str(noted)!r}, 'a'))\n{HEAD}"
        "class Model(nn.Module):\n    def forward(self, i):\n"
        f"        if {crashes_at}:\n            os.kill(os.getpid(), signal.SIGSEGV)\n"
        f"        return i * 2\ndef get_inputs():\n    return [{given}]\n"
    )
    if runs == 1:
        with pytest.raises(UserError, match=r"\(SIGSEGV\) in line 8"):
            load(written(tmp_path, text))
    else:
        assert load(written(tmp_path, text)).variation.levels["i"] == "range"
    assert len(set(noted.read_text().split())) == runs


@pytest.mark.parametrize(
    "name, op_class",
    [
        ("example gelu_chain", "elementwise"),
        ("example layer_norm", "normalization"),
        ("example linear_gelu", "matmul"),
        ("example matmul", "matmul"),
        ("example rms_norm", "normalization"),
        ("example row_sum", "reduction"),
        ("example softmax", "softmax"),
        ("example transpose", "transpose"),
        ("attention", "mixed"),
        ("loss", "mixed"),
        ("written out", "softmax"),
        ("branches", "mixed"),
    ],
)
def test_the_class_of_a_task(name: str, op_class: str, answers: dict[str, Answer]) -> None:
    task = answers[name].result["task"]
    assert task["op_class"] == op_class
    if task["program"]:
        nodes = task["program"]["nodes"]
        known = {spec["name"] for spec in task["full"]["tensors"]} | {n["name"] for n in nodes}
        used = re.findall(r"'ref': '(\w+)'", str(nodes))
        assert {*used, *task["program"]["outputs"]} <= known
    if name.startswith("example"):
        sizes = task["verify"]["dimensions"].values()
        assert len(set(sizes)) == len(sizes), "rows taken for columns must show"


def test_weights_of_ones_and_biases_of_zeros_are_disturbed(answers: dict[str, Answer]) -> None:
    answer = answers["example layer_norm"]
    seen = set()
    for case in read_cases(answer.cases):
        weight, bias = answer.tensor(case, "norm_weight"), answer.tensor(case, "norm_bias")
        assert weight.std() > 0.1 and bias.std() > 0.1
        seen.add(weight.tobytes())
    assert len(seen) == len(read_cases(answer.cases)), "fresh parameters in each case"


def test_structure_and_domain_of_inputs_are_kept(answers: dict[str, Answer]) -> None:
    answer = answers["structure"]
    for case in read_cases(answer.cases):
        lower, even = answer.tensor(case, "lower"), answer.tensor(case, "even")
        assert (np.triu(lower, 1) == 0).all() and (even == even.T).all()
        assert np.isfinite(answer.tensor(case, "out0")).all(), case.name


def test_a_large_case_stays_within_what_pytorch_survives(answers: dict[str, Answer]) -> None:
    answer = answers["grows"]
    (large,) = [case for case in read_cases(answer.cases) if case.name.endswith("large")]
    assert large.factor < 128
    assert np.isfinite(answer.tensor(large, "out0")).all()


def test_dimensions_tied_together_are_found(answers: dict[str, Answer]) -> None:
    sizes = answers["tied"].result["task"]["verify"]["dimensions"]
    assert sizes["WIDTH"] % 12 == 0 and sizes["ROWS"] < 4096


def test_a_reference_that_cannot_be_traced_still_has_cases(answers: dict[str, Answer]) -> None:
    answer = answers["branches"]
    task = answer.result["task"]
    assert task["program"] is None and task["program_failure"]
    assert "\n" not in task["program_failure"]
    assert len(read_cases(answer.cases)) == 7


def test_double_precision_and_numpy_inputs(answers: dict[str, Answer]) -> None:
    task = answers["numpy"].result["task"]
    assert task["dtype"] == "float64" and task["tolerance"]["absolute"] == 1e-6


def test_what_is_no_file_of_python(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load(tmp_path / "missing.py")
    with pytest.raises(UserError, match="a folder"):
        load(tmp_path)
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\x7fELF\xff\xfe")
    with pytest.raises(UserError, match="no UTF-8 text"):
        load(binary)
