"""Initial CUDA by a model: repairs until it passes, the built-in writer behind it, clear ends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import graph_support
import pytest
import text_runs
from asked import Asked
from builtin_support import node, ref, task
from scripted_chat_model import ScriptedChatModel, http_error, refusal, use

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.process.children import Cancelled, caller_cancelled
from kernelblaster.harness.records.programs import Program
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.tools.first_kernel.writer import InitialKernel, NotWritten, write_initial_cuda
from kernelblaster.tools.models.code_reply import fenced

MODEL = "import:scripted_chat_model:current"


def text_kernel(us: float, *more: str) -> str:
    return fenced("".join(f"{line}\n" for line in (f"us: {us}", "// launch()", *more)))


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, model: ScriptedChatModel,
    events: list[Any] | None = None, **changes: Any,
) -> RunResult:  # fmt: skip
    graph_support.install(monkeypatch.setattr)
    return start(folder, monkeypatch, model, events, **changes)


def start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, model: ScriptedChatModel,
    events: list[Any] | None = None, **changes: Any,
) -> RunResult:  # fmt: skip
    values: dict[str, Any] = {
        "task": "text.py", "knowledge": str(folder / "kb"), "iterations": 1, "rollouts": 1,
        "steps": 1, "model": f"initial_cuda={MODEL}",
        "models": use(monkeypatch, model, "initial_cuda", first_wait_seconds=0.01),
    }  # fmt: skip
    session = Asked.of(**(values | changes)).session(folder / "run")
    try:
        return asyncio.run(session.run(events.append if events is not None else lambda _: None))
    finally:
        session.close()


def author(events: list[Any]) -> str:
    return next(str(event["author"]) for event in events if event["event"] == "initial")


def test_a_first_kernel_that_passes_begins_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    model = ScriptedChatModel([text_kernel(80.0)])
    result = run(tmp_path, monkeypatch, model, events)
    assert result.initial_us == 80.0 and author(events) == MODEL
    (call,) = model.calls
    assert 'extern "C" void launch(float* out0, const float* x' in call.prompt
    assert "SEARCH" not in call.prompt


def test_a_first_kernel_is_mended_until_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    model = ScriptedChatModel(
        [
            text_kernel(80.0, "outcome: compile_error"),
            text_kernel(80.0, "outcome: wrong_answer"),
            text_kernel(70.0),
        ]
    )
    result = run(tmp_path, monkeypatch, model, events)
    assert result.initial_us == 70.0
    assert [message.type for message in model.calls[2].messages] == [
        "system", "human", "ai", "human", "ai", "human",
    ]  # fmt: skip
    assert "does not compile" in str(model.calls[1].messages[3].content)
    assert "differ from PyTorch's" in str(model.calls[2].messages[5].content)
    assert result.outcomes["compile_error"] == result.outcomes["wrong_answer"] == 1
    rejected = [event for event in events if event["event"] == "initial_rejected"]
    assert [event["outcome"] for event in rejected] == ["compile_error", "wrong_answer"]


@pytest.mark.parametrize(
    "replies",
    [
        [text_kernel(80.0 + i, "outcome: race") for i in range(4)],
        ["no code"] * 3,
        [refusal()] * 3,
        [""] * 3,
        ["```cuda\nlaunch("] * 3,
        [http_error(500)] * 5,
        [text_kernel(80.0, "outcome: race"), "no code", "no code", "no code"],
    ],
)
def test_the_built_in_kernel_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: list[Any]
) -> None:
    events: list[Any] = []
    model = ScriptedChatModel(replies)
    result = run(tmp_path, monkeypatch, model, events)
    assert result.initial_us == 100.0
    assert author(events).startswith(f"builtin ({MODEL} failed: ")


def test_where_nobody_can_write_it_one_line_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    monkeypatch.setattr(
        "kernelblaster.nodes.initial_cuda.builtin.write_builtin",
        lambda task: NotWritten(reason="aten.fft is unknown"),
    )
    with pytest.raises(UserError, match=r"wrote no kernel that passes .*aten\.fft.*--start"):
        start(tmp_path, monkeypatch, ScriptedChatModel(["no code"] * 3))


@pytest.mark.parametrize(
    ("general", "starts_at"),
    [("us: 90.0\n", 90.0), ("us: 90.0\noutcome: wrong_answer\n", 100.0)],
)
def test_the_kernel_that_names_all_sizes_is_taken_where_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, general: str, starts_at: float
) -> None:
    graph_support.install(monkeypatch.setattr)
    builtin = "kernelblaster.nodes.initial_cuda.builtin"
    monkeypatch.setattr(
        f"{builtin}.write_for_all_sizes", lambda *_: InitialKernel(source=general)
    )
    events: list[Any] = []
    result = start(tmp_path, monkeypatch, ScriptedChatModel(["no code"] * 3), events)
    assert result.initial_us == starts_at and author(events).startswith("builtin (")
    notes = [event["text"] for event in events if event["event"] == "note"]
    assert any("names all sizes fails" in note for note in notes) == (starts_at == 100.0)


def test_telling_sizes_apart_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    begun, ended = threading.Event(), threading.Event()

    def told_apart_now(task: Any) -> Any:
        begun.set()
        for _ in range(1000):
            if caller_cancelled():
                ended.set()
                raise Cancelled
            time.sleep(0.01)

    monkeypatch.setattr(
        "kernelblaster.nodes.initial_cuda.builtin.told_apart_now", told_apart_now
    )

    async def cancel() -> None:
        session = Asked.of(task="text.py", knowledge=str(tmp_path / "kb")).session(tmp_path / "run")
        running = asyncio.create_task(session.run(lambda _: None))
        await asyncio.to_thread(begun.wait, 10)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        session.close()

    asyncio.run(cancel())
    assert ended.is_set()


def test_a_persons_kernel_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.cu").write_text("us: 60.0\n")
    model = ScriptedChatModel([])
    result = run(tmp_path, monkeypatch, model, start=str(tmp_path / "mine.cu"))
    assert result.initial_us == 60.0 and model.calls == []


@pytest.mark.seldom
def test_a_real_kernel_goes_through_compiler_and_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written from the prompt's own facts: signature, constants, stream."""
    path = tmp_path / "twice.py"
    path.write_text(
        "import torch\nimport torch.nn as nn\n\nN = 5000\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, x):\n        return 2 * x + 1\n\n\n"
        "def get_inputs():\n    return [torch.randn(N)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    wrong = """#include "task.cuh"
__global__ void twice(float* out0, const float* x) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < X_NUMEL) out0[i] = 2.0f * x[i];
}
extern "C" void launch(float* out0, const float* x, void* workspace, cudaStream_t stream) {
    twice<<<(X_NUMEL + 255) / 256, 256, 0, stream>>>(out0, x);
}
"""
    model = ScriptedChatModel([fenced(wrong), fenced(wrong.replace("x[i];", "x[i] + 1.0f;"))])
    result = start(tmp_path, monkeypatch, model, task=str(path), device="simulated", gpu="H100")
    assert result.outcomes["wrong_answer"] == 1 and result.initial_us > 0
    mend = str(model.calls[1].messages[3].content)
    assert "out0[0]: expected" in mend and "get_inputs()'s own" in mend
    with RunStore(tmp_path / "run" / "run.sqlite") as store:
        assert store.outcomes()["passed"] >= 1


def function(us: float, *more: str) -> str:
    """The text of the function that `lacking` has no kernel for."""
    lines = (f"us: {us}", "constexpr size_t launch_special_i0_scratch = 0;",
             "static void launch_special_i0(float* out0, const float* x0)", *more)  # fmt: skip
    return fenced("".join(f"{line}\n" for line in lines))


def lacking(_: Any) -> NotWritten:
    """What the built-in writer makes of a task with one operator that it does not know."""
    shapes = ((1024,), (1024,))
    nodes = [
        node("relu", "aten.relu.default", [ref("x")], (1024,)),
        node("i0", "aten.special_i0.default", [ref("relu")], (1024,)),
    ]
    made = task("text", {"x": shapes}, nodes, {"i0": shapes})
    typed = tuple(each.model_copy(update={"dtype": "float32", "line": 1}) for each in nodes)
    program = Program(nodes=typed, outputs=("i0",))
    found = write_initial_cuda(made.model_copy(update={"program": program}))
    assert isinstance(found, NotWritten)
    return found


def test_a_model_writes_only_the_kernels_that_the_built_in_writer_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What of it fails is mended by the same functions again, or by edits of these."""
    graph_support.install(monkeypatch.setattr)
    monkeypatch.setattr("kernelblaster.nodes.initial_cuda.builtin.write_builtin", lacking)

    def edit(old: str, new: str) -> str:
        return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"

    model = ScriptedChatModel(
        [
            text_kernel(80.0),
            function(80.0, 'extern "C" void launch(float* out0)'),
            function(80.0, "outcome: compile_error"),
            fenced("static void launch_special_i0(float* out0)\n"),
            function(80.0, "outcome: wrong_answer"),
            edit('#include "task.cuh"', "#include <mine.cuh>"),
            edit("outcome: wrong_answer", "mended"),
        ]
    )
    events: list[Any] = []
    result = start(tmp_path, monkeypatch, model, events)
    assert result.initial_us == 80.0 and author(events) == MODEL
    assert result.outcomes["compile_error"] == result.outcomes["wrong_answer"] == 1
    asked = next(event for event in events if event["event"] == "initial_asked")
    assert asked["reason"] == "no kernel is known for aten.special_i0.default (line 1)"
    first, *later = (call.prompt for call in model.calls)
    assert "static void launch_special_i0(float* out0, const float* x0, void* scratch, " in first
    assert "`aten.special_i0.default(x0)`, line 1 of the reference" in first
    assert "x0: float [1024]" in first and "constexpr size_t PLACE_1 = PLACE_0 +" in first
    assert "// kernel elementwise_relu_kernel: " in first and "if (i >= " not in first
    for said, prompt in zip(
        ("no fenced block defines launch_special_i0", "launch() is generated",
         "does not compile", "does not define launch_special_i0_scratch",
         "differ from PyTorch's", "edit your own functions only"), later, strict=True,
    ):  # fmt: skip
        assert said in prompt


def test_where_the_missing_kernel_never_passes_one_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    monkeypatch.setattr("kernelblaster.nodes.initial_cuda.builtin.write_builtin", lacking)
    model = ScriptedChatModel([function(80.0 + i, "outcome: race") for i in range(4)])
    with pytest.raises(UserError, match=r"wrote no kernel that passes .*special_i0.*line 1"):
        start(tmp_path, monkeypatch, model)


SOLUTION = """from torch.utils.cpp_extension import load_inline
text = '''
// us: 60.0
__global__ void copy(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
torch::Tensor copied(torch::Tensor x) {
    auto out = torch::empty_like(x);
    copy<<<1, 1024>>>(x.data_ptr<float>(), out.data_ptr<float>());
    return out;
}
'''
ext = load_inline("ext", "", text, functions=["copied"])
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.copied(x)
"""


def test_a_plain_solution_needs_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    (tmp_path / "solution.py").write_text(SOLUTION)
    model = ScriptedChatModel([])
    given = str(tmp_path / "solution.py")
    result = run(tmp_path, monkeypatch, model, events, start=given)
    assert result.initial_us == 60.0 and author(events) == "person" and not model.calls


def test_a_model_restates_a_solution_that_the_reader_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    solution = SOLUTION.replace("ext.copied(x)", "ext.copied(x) + 1")
    model = ScriptedChatModel([text_kernel(50.0)])
    result = run(tmp_path, monkeypatch, model, events, start=solution)
    assert result.initial_us == 50.0 and author(events) == MODEL
    (call,) = model.calls
    assert "ext.copied(x) + 1" in call.prompt and "does what this solution does" in call.prompt


@pytest.mark.parametrize("by_model", [False, True])
def test_a_solution_that_nobody_restates_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_model: bool
) -> None:
    given = tmp_path / "solution.py"
    given.write_text(SOLUTION.replace("ext.copied(x)", "ext.copied(x) + 1"))
    if by_model:
        replies = [text_kernel(50.0 + us, "outcome: wrong_answer") for us in range(4)]
        with pytest.raises(UserError, match="restated it in no way that passes: wrong answer"):
            run(tmp_path, monkeypatch, ScriptedChatModel(replies), start=str(given))
        return
    graph_support.install(monkeypatch.setattr)
    with pytest.raises(UserError, match=r"solution\.py:14: forward\(\) computes .* in PyTorch; "):
        text_runs.run(tmp_path, start=str(given))
