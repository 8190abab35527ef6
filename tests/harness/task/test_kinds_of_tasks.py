"""Tasks as users bring them: each loads, or is refused with a sentence that says what to do.

All are read by one child process, since PyTorch takes seconds to start.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from kinds_of_tasks import LOADED, X, reference
from often_or_seldom import every

Told = Mapping[str, Any]

REFUSED = {
    "dropout in training": (
        reference("return self.d(x)", X, init="n=0: self.d = nn.Dropout(0.1)"),
        r"self\.d with p=0\.1.*--mode eval",
    ),
    "random numbers that hang on others": (
        reference("return x + torch.bernoulli(x.sigmoid())", X),
        r"draws random numbers \(bernoulli in line \d+\).*get_inputs\(\)",
    ),
    "a missing module": ("import cv2_of_nobody\n" + reference("return x", X), "pip install cv2_of"),
    "an assertion without words": (
        reference("assert x.shape[0] == 3; return x", X),
        r"AssertionError: assert x\.shape\[0\] == 3.*line",
    ),
    "by keyword only": (
        reference("return x + y", "{'x': torch.randn(4), 'y': torch.randn(4)}", given="x, *, y"),
        "takes y by keyword only: let it be given in order",
    ),
    "an argument too many": (
        reference("return x", "{'x': torch.randn(4), 'z': torch.randn(4)}"),
        "does not fit forward.*z",
    ),
    "complex numbers": (
        reference("return torch.fft.fft(x)", X),
        "out0 has dtype complex64; supported are.*view_as_real",
    ),
    "casts that hang on the device": (
        reference("\n        with torch.autocast('cuda', torch.bfloat16): return self.l(x)", X,
                  init="n=64: self.l = nn.Linear(n, 8)"),
        r"autocast\('cuda'\) casts other operations.*--dtype bf16",
    ),
    "a number that is drawn": (
        reference("return x * alpha", "[torch.randn(96), random.random()]", given="x, alpha",
                  top="import random\n"),
        "draws the number alpha.*give it as a tensor",
    ),
    "weights that no kernel would be given": (
        reference("return x * self.w[0]", X, init="n=64: self.w = [torch.randn(n)]"),
        r"drawn in Model\(...\) that are no parameters.*nn\.ParameterList",
    ),
    "as many as are positive": (
        reference("return x[x > 0]", X), "how much forward.. returns hangs on the values.*mask",
    ),
    "nothing to read": (
        reference("return x.sum() + y", "[torch.randn(0, 4), torch.randn(4)]", given="x, y"),
        r"input x has no elements \(shape \[0, 4\]\).*leave it out",
    ),
    "a sparse input": (
        reference("return x @ x", "[torch.eye(4).to_sparse()]"), "a sparse tensor; only dense ones",
    ),
    "a sparse product": (
        reference("return torch.sparse_csr_tensor(a, b, x, (64, 64)) @ x[:64]",
                  "[torch.arange(0, 65) * 4, torch.arange(256) % 64, torch.randn(256)]",
                  given="a, b, x"),
        r"line \d+.*sparse tensors are not read: compute with what they consist of",
    ),
    "a package around it": (
        "from .layers import Thing\n" + reference("return x", X),
        r"imports from the package around it \(line 1\): a reference is one file",
    ),
    "weights in a file": (
        reference("return x", X, init="n=0: torch.load('weights.pt')"),
        r"No such file.*a reference is one file.*let it draw",
    ),
    "a result that is no tensor": (
        reference("return x, x.sum().item()", X), "returns a float, not a tensor",
    ),
    "as many as there are": (
        reference("return x.nonzero()", "[torch.tensor([0.0, 1.0, 2.0])]"), "",
    ),
}  # fmt: skip
"""The last may do either: what counts is that somebody is told."""


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    """Ask the reference child about all that a chosen test is of."""
    root = tmp_path_factory.mktemp("kinds")
    chosen = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    }
    known = LOADED | REFUSED
    sources = {name: text for name, (text, _) in known.items() if name in chosen}
    for number, (name, source) in enumerate(sources.items()):
        cases = root / str(number) / "cases"
        cases.mkdir(parents=True)
        asked = LOADED[name][1] if name in LOADED else {}
        reading = {key: asked[key] for key in ("mode", "dtype") if key in asked}
        asks = {"path": "reference.py", "source": source, "cases": str(cases), "set": {},
                "verify": None, "reading": reading}  # fmt: skip
        (root / str(number) / "request.json").write_text(json.dumps(asks))
    code = (
        "import sys, torch; from kernelblaster.harness.reference.child import main\n"
        "torch.set_num_threads(1)\n"
        "for folder in sys.argv[1:]: main([folder + '/request.json', folder + '/result.json'])"
    )
    folders = [root / str(number) for number in range(len(sources))]
    command = [sys.executable, "-c", code, *map(str, folders)]
    subprocess.run(command, check=True, capture_output=True, cwd=root)
    found = {}
    for name, folder in zip(sources, folders, strict=True):
        found[name] = json.loads((folder / "result.json").read_text())
        listed = folder / "cases" / "cases.json"
        if listed.is_file():
            found[name]["cases"] = json.loads(listed.read_text())
    return found


@pytest.mark.parametrize("name", every(8, LOADED))
def test_it_loads(name: str, told: dict[str, Told]) -> None:
    wanted = LOADED[name][1]
    assert "error" not in told[name], told[name]["error"]
    task = told[name]["task"]
    full, verify = task["full"]["tensors"], task["verify"]["tensors"]
    assert [each["name"] for each in full] == [each["name"] for each in verify]
    outputs = [f"{t['dtype']}{t['shape']}" for t in full if t["role"] == "output"]
    assert outputs == wanted.get("out", outputs)
    arguments = [each["name"] for each in full if each["role"] != "output"]
    assert arguments == wanted.get("args", arguments)
    assert task["full"]["scalars"] == wanted.get("scalars", task["full"]["scalars"])
    assert set(task["full"]["dimensions"]) >= wanted.get("dimensions", set())
    assert re.search(wanted.get("note", ""), " ".join(task["notes"]))
    assert re.search(wanted.get("degenerate", "^$"), told[name]["cases"]["degenerate"])
    assert (task["program"] is None) == wanted.get("no program", False), task["program_failure"]
    if task["program"]:
        known = {*arguments, *(node["name"] for node in task["program"]["nodes"])}
        assert {*re.findall(r"'ref': '(\w+)'", str(task["program"]))} <= known
    if groups := wanted.get("grouped"):
        assert verify[0]["shape"][1] >= 4 * groups
    if wanted.get("small"):
        total = sum(elements(each["shape"]) for each in verify)
        assert total <= 1 << 20 < sum(elements(each["shape"]) for each in full)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_what_to_do(name: str, told: dict[str, Told]) -> None:
    error = told[name].get("error", "")
    assert re.search(REFUSED[name][1], error), error
    assert "\n" not in error and "Traceback" not in error


def elements(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
