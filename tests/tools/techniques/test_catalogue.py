"""A technique is one file: found by being there, with one set of names for its parameters."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import contributing
import pytest
from builtin_support import (
    attempt,
    gelu_task,
    initial,
    norm_task,
    product_task,
    softmax_task,
    transpose_task,
)

import kernelblaster
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.tasks import Task
from kernelblaster.memory.knowledge.seed import load_seed
from kernelblaster.tools.rewriting.records import Inapplicable, Rewritten
from kernelblaster.tools.rewriting.target import kernel_texts, target_of
from kernelblaster.tools.techniques.catalogue import first_rewrites, knowledge_seed, techniques
from kernelblaster.tools.workspace import open_knowledge

ALL = dict(techniques())
FOLDER = Path(kernelblaster.__file__).parent / "tools" / "techniques"
CHOICES = [
    (name, parameter, value)
    for name, technique in ALL.items()
    if technique.change
    for parameter, values in technique.parameters.items()
    for value in values
]


@pytest.mark.parametrize("name", ALL)
def test_a_technique_has_the_name_of_its_file_and_one_set_of_parameters(name: str) -> None:
    technique = ALL[name]
    assert technique.name == name
    assert (FOLDER / f"{name}.py").read_text().startswith(f'"""{name}: ')
    assert technique.sources, "a card says where it is from"
    told = {key: tuple(values) for key, values in technique.card.parameters.items()}
    assert told == technique.parameters
    assert all(values and len(set(values)) == len(values) for values in told.values())
    assert knowledge_seed().techniques[name] == technique.card
    if technique.rewrite:
        assert technique.rewrite.technique == name
        assert technique.rewrite.parameters == technique.parameters
    assert set(technique.formerly.values()) <= set(technique.parameters)
    assert set(technique.formerly).isdisjoint(technique.parameters)


@pytest.mark.parametrize(("name", "parameter", "value"), CHOICES)
def test_every_listed_value_is_taken(name: str, parameter: str, value: int) -> None:
    refusals = []
    for make in (gelu_task, softmax_task, norm_task, product_task, transpose_task):
        made = make()
        outcome = attempt(initial(made), made, name, **{parameter: value})
        if not isinstance(outcome, Rewritten):
            refusals.append(outcome.reason)
    assert all(refusals), "a refusal says why"
    assert not [why for why in refusals if "no parameter" in why or "is one of" in why]


@pytest.mark.parametrize(
    ("make", "name", "parameter"),
    [(gelu_task, "thread_coarsening", "factor"), (softmax_task, "tune_block_size", "block_size"),
     (product_task, "register_tiling", "thread_tile")],
)  # fmt: skip
def test_a_parameter_is_in_what_is_written(
    make: Callable[[], Task], name: str, parameter: str
) -> None:
    made = make()
    written = {}
    for value in ALL[name].parameters[parameter]:
        outcome = attempt(initial(made), made, name, **{parameter: value})
        if isinstance(outcome, Rewritten):
            written[value] = outcome
        else:
            assert outcome.reason.endswith(f"has {value} threads already")
    assert len({outcome.source for outcome in written.values()}) == len(written) >= 2
    assert all(str(value) in outcome.note for value, outcome in written.items())


def test_a_prior_on_a_technique_without_a_file_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown technique fast_math"):
        load_seed(card for name, card in knowledge_seed().techniques.items() if name != "fast_math")


def test_a_run_opens_its_knowledge_with_the_techniques_of_the_folder(tmp_path: Path) -> None:
    with open_knowledge(str(tmp_path / "kb")) as knowledge:
        assert set(knowledge.seed().techniques) == set(ALL)


# A technique from elsewhere: CONTRIBUTING.md's file, and one line of an entry point.

FROM_ELSEWHERE = contributing.text("say_hello.py")
USE_IT = """\
import json, sys
from kernelblaster.harness.records.tasks import Task
from kernelblaster.memory.records import PolicyContext
from kernelblaster.nodes.optimization_proposer.builtin import propose
from kernelblaster.tools.techniques.catalogue import applicable, rewrites, techniques
from kernelblaster.tools.workspace import open_knowledge

here = PolicyContext(device_kind="simulated", gpu="H100", arch="sm_90", family="hopper",
                     op_class="elementwise", dtype="float32")
with open_knowledge(sys.argv[1]) as knowledge:
    found = knowledge.beliefs(knowledge.states()[0], ["say_hello"], here)
source, task = sys.argv[2], Task.model_validate_json(sys.argv[3])
(proposal,) = propose((), found, applicable(source, task))
rewrite = next(each for each in rewrites() if each.technique == "say_hello")
print(json.dumps([list(techniques()), proposal.settings, proposal.reason,
                  rewrite.apply(source, task, proposal.settings[1]).source]))
"""


def test_an_installed_package_brings_a_technique(tmp_path: Path) -> None:
    contributing.install(tmp_path, "say_hello")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    made = gelu_task()
    done = subprocess.run(
        [sys.executable, "-c", USE_IT, str(tmp_path / "kb"), initial(made), made.model_dump_json()],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names, settings, reason, source = json.loads(done.stdout)
    assert names == sorted({*ALL, "say_hello"})
    assert settings == [{"times": 1}, {"times": 2}]
    assert reason == "Always."
    assert source == initial(made) + "// hello\n// hello\n"


@pytest.mark.parametrize(
    ("entry", "module", "what"),
    [
        ("say_hello:technique", FROM_ELSEWHERE.replace("say_hello", "fast_math"), "already"),
        ("say_hello:missing", FROM_ELSEWHERE, "cannot be loaded"),
        ("say_hello:technique", "raise RuntimeError('no licence')", "no licence"),
        ("say_hello:technique", "def technique(): return 'fast_math'", "gives no Technique"),
        ("say_hello:technique", FROM_ELSEWHERE.replace(", kernels)", ")"), "takes .source, task"),
    ],
)
def test_a_package_that_brings_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, module: str, what: str
) -> None:
    contributing.install(tmp_path, "say_hello", module, entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "say_hello", raising=False)
    with pytest.raises(UserError, match=what) as told:
        techniques.__wrapped__()
    assert "say_hello" in str(told.value)
    sys.modules.pop("say_hello", None)


def copied(source: str, kernels: int) -> str:
    """Return a source of one kernel with so many like it, each launched once."""
    (name,) = re.findall(r"__global__ void (\w+)\(", source)
    (kernel,) = re.findall(r"(?:^//[^\n]*\n)*^__global__.*?^}\n", source, re.M | re.S)
    (launch,) = re.findall(rf"^ *{name}<<<.*?;\n", source, re.M | re.S)
    names = [f"{name}_{number}" for number in range(kernels)]
    for one, many in (
        (kernel, "\n".join(kernel.replace(name, each) for each in names)),
        (launch, "".join(launch.replace(name, each) for each in names)),
    ):
        source = source.replace(one, many)
    return source


def calls_for(source: str, task: Task) -> int:
    """Return how many functions are called to ask every rewrite about a source."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        found = first_rewrites(source, task)
    finally:
        sys.setprofile(None)
    assert any(isinstance(each, Rewritten) for each in found.values())
    return calls


@pytest.mark.parametrize("make", [softmax_task, product_task, gelu_task])
def test_asking_about_many_kernels_grows_as_they_do(make: Callable[[], Task]) -> None:
    """What a file holds is not read anew for each of its kernels: 16 took 15 times what 4 took."""
    task = make()
    four, sixteen = (calls_for(copied(initial(task), number), task) for number in (4, 16))
    assert sixteen < 6 * four


OF_EVERY_KERNEL = {
    "fast_math", "pad_shared_memory", "read_only_cache", "remove_barriers", "tune_block_size",
    "unroll_loop",
}  # fmt: skip
"""Techniques that do the same to all kernels of a program at once."""


@pytest.mark.parametrize("make", [softmax_task, norm_task, product_task, gelu_task, transpose_task])
def test_the_kernel_that_is_named_is_changed_and_no_other(make: Callable[[], Task]) -> None:
    task = make()
    source = copied(initial(task), 3)
    before = kernel_texts(source)
    names = sorted(before)
    for technique, found in first_rewrites(source, task, [names[1], names[0]]).items():
        if technique not in OF_EVERY_KERNEL and isinstance(found, Rewritten):
            after = kernel_texts(found.source)
            assert [each for each in names if after[each] != before[each]] == [names[1]], technique
            assert target_of(found, source, names) == names[1]


@pytest.mark.parametrize("make", [softmax_task, norm_task, product_task, gelu_task, transpose_task])
def test_where_the_first_kernel_has_the_form_the_next_gets_it(make: Callable[[], Task]) -> None:
    task = make()
    source = copied(initial(task), 3)
    names = sorted(kernel_texts(source))
    for technique, found in first_rewrites(source, task, [names[2], names[1]]).items():
        if technique not in OF_EVERY_KERNEL and isinstance(found, Rewritten):
            again = first_rewrites(found.source, task, [names[2], names[1]])[technique]
            if techniques()[technique].parameters:  # Another setting of the first is tried.
                rewrite = techniques()[technique].rewrite
                assert rewrite is not None
                again = rewrite.apply(found.source, task, kernels=[names[2], names[1]])
            assert isinstance(again, Rewritten), technique
            assert target_of(again, found.source, names) == names[1], technique


def test_a_kernel_that_cannot_be_changed_stands_in_nobodys_way() -> None:
    task = product_task()
    source = copied(initial(task), 2)
    first, second = sorted(kernel_texts(source))
    tiling, squares = (
        techniques()[name].rewrite for name in ("shared_memory_tiling", "register_tiling")
    )
    assert tiling is not None and squares is not None
    done = squares.apply(source, task, kernels=[first])
    assert isinstance(done, Rewritten)
    other = tiling.apply(done.source, task, kernels=[first, second])
    assert isinstance(other, Rewritten) and other.note.startswith(f"{second}:")
    alone = tiling.apply(done.source, task, kernels=[first])
    assert isinstance(alone, Inapplicable) and "a square of results already" in alone.reason


def test_what_was_tried_on_one_kernel_is_done_to_the_next() -> None:
    task = product_task()
    source = copied(initial(task), 2)
    first, second = sorted(kernel_texts(source))
    found = first_rewrites(source, task, [first, second], {("register_tiling", first)})
    made = {name: each for name, each in found.items() if isinstance(each, Rewritten)}
    assert target_of(made["register_tiling"], source, [first, second]) == second
    assert target_of(made["shared_memory_tiling"], source, [first, second]) == first
