"""Models by flag, environment and file; caps, resume, keys and views, through the command line."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import graph_support
import pytest
from asked import Asked
from openai_server import OpenAiServer, Say
from run_child import start_run

from kernelblaster.cli.flags import read_settings
from kernelblaster.graph.checkpoints import checkpoint_serializer
from kernelblaster.graph.optimize import build_graph
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.process.children import python_environment, scrubbed_environment
from kernelblaster.harness.records.evaluations import DeviceIdentity
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.nodes.records.plan import OptimizeRequest, RunContext, RunPlan
from kernelblaster.nodes.records.result import RunResult
from kernelblaster.settings import LIST_PRICES, Settings
from kernelblaster.tools.models.budgets import read_budgets
from kernelblaster.tools.models.chat_models import (
    check_base_url,
    check_models,
    parse_models,
    read_key,
)
from kernelblaster.tools.models.records import ROLES, Budgets, ModelPlan

SECRET = "sk-test-58be0d21f7cc49aa"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no setting of this machine's user into a test."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KERNELBLASTER_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("KERNELBLASTER_KB", str(tmp_path / "kb"))


Done = SimpleNamespace


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    """An endpoint that writes kernels for the text device: nine tenths of the time shown."""
    with OpenAiServer(otherwise=kernel_writer).running() as running:
        yield running


def kernel_writer(body: dict[str, Any]) -> Say:
    shown = re.findall(r"us: ([\d.]+)", str(body["messages"]))
    assert shown, "the prompt shows the kernel"
    return Say(f"```cuda\nus: {float(shown[0]) * 0.9:.6f}\n// launch()\n```")


@pytest.fixture
def optimize(
    command: Callable[..., Done], server: OpenAiServer, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[..., Done]:  # fmt: skip
    """Run `optimize` on the text device, its kernels written by the endpoint."""
    graph_support.install(monkeypatch.setattr)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (tmp_path / "text.py").write_text("")

    def run(*arguments: object) -> Done:
        return command(
            "optimize", "text.py", "--device", "simulated", "--run", "run", "--iterations", 1,
            "--rollouts", 1, "--steps", 2, "--model", "kernel_writer=openai:small",
            "--base-url", server.url, *arguments,
        )  # fmt: skip

    return run


def last_json(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out.strip().splitlines()[-1])
    return found


# Who answers in which role -----------------------------------------------------------------------


def test_one_model_stands_for_every_role() -> None:
    assert parse_models("openai:gpt-5") == dict.fromkeys(ROLES, "openai:gpt-5")
    assert parse_models("builtin") == {}


def test_roles_are_named_one_by_one_and_the_others_are_builtin() -> None:
    text = "kernel_writer=openai:org/model:tag, state_extractor=builtin"
    assert parse_models(text) == {"kernel_writer": "openai:org/model:tag"}


def test_a_plain_model_stands_for_the_roles_that_no_pair_names() -> None:
    roles = parse_models("openai:small,kernel_writer=openai:large,gap_analysis=builtin")
    plan = ModelPlan(roles=roles)
    assert plan.model_of("kernel_writer") == "openai:large"
    assert plan.model_of("gap_analysis") == "builtin"
    assert plan.model_of("parameter_update") == "openai:small"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpt-5", "unknown model 'gpt-5'"),
        ("openai:", "unknown model"),
        ("openai:a b", "unknown model"),
        ("", "unknown model"),
        ("kernel_writer=", "unknown model"),
        ("import:os", "unknown model"),
        ("import:a/b:c", "unknown model"),
        ("lowring=openai:a", "unknown role 'lowring'; the roles are initial_cuda"),
        ("kernel_writer=openai:a,kernel_writer=openai:b", "kernel_writer is named twice"),
        ("openai:a,openai:b", "both stand for all roles"),
    ],
)
def test_a_models_name_that_is_none(text: str, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        parse_models(text)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://a/v1", "http://", "http://a:99999/v1"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(UserError, match="is no address"):
        check_base_url(url)


def test_a_key_of_the_systems_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    keyring = types.ModuleType("keyring")
    keyring.errors = SimpleNamespace(KeyringError=RuntimeError)  # type: ignore[attr-defined]
    keyring.get_password = lambda service, user: f"{service}/{user}"  # type: ignore[attr-defined]
    keyring.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    assert read_key() == "kernelblaster/openai"
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert read_key() == SECRET, "the environment comes first"


# Settings and flags ------------------------------------------------------------------------------


def test_settings_come_from_file_environment_and_flags_in_that_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernelblaster.env").write_text(
        "KERNELBLASTER_MODEL=openai:file\nKERNELBLASTER_MAX_CALLS=1\nKERNELBLASTER_REASKS=7\n"
    )
    monkeypatch.setenv("KERNELBLASTER_MODEL", "openai:environment")
    monkeypatch.setenv("KERNELBLASTER_MAX_CALLS", "2")
    found = read_settings(model="openai:flag", max_tokens=None)
    assert (found.model, found.budgets.calls, found.models.reasks) == ("openai:flag", 2, 7)


def test_prices_are_added_to_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {"input_per_million": 1, "cached_per_million": 0.5, "output_per_million": 2}
    monkeypatch.setenv("KERNELBLASTER_PRICES", json.dumps({"mine": mine, "gpt-5": mine}))
    prices = Settings().models.prices
    assert prices["mine"] == prices["gpt-5"] != LIST_PRICES["gpt-5"]
    assert prices["gpt-5-mini"] == LIST_PRICES["gpt-5-mini"]


def test_the_usual_variable_for_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://there/v1")
    assert Settings().models.base_url == "http://there/v1"
    assert Settings(base_url="http://here/v1").models.base_url == "http://here/v1"


BAD = {
    "model": (["--model", "gpt-5"], {}, "unknown model 'gpt-5'"),
    "role": (["--model", "writer=openai:a"], {}, "unknown role 'writer'"),
    "no key": (["--model", "openai:gpt-5"], {}, "OPENAI_API_KEY"),
    "import": (["--model", "import:no_such_module:f"], {}, "ModuleNotFoundError"),
    "not a model": (["--model", "import:json:dumps"], {}, "cannot be used: TypeError"),
    "a number": (["--model", "import:time:time"], {}, "gives a float"),
    "address": (["--model", "openai:a", "--base-url", "here"], {}, "is no address"),
    "secret address": (
        ["--model", "openai:a", "--base-url", f"http://me:{SECRET}@a/v1"], {}, "OPENAI_API_KEY",
    ),
    "method": (["--structured-output", "xml"], {}, "--structured-output 'xml'"),
    "temperature": (["--temperature", "3"], {}, "--temperature 3.0"),
    "tokens": (["--max-tokens", "-1"], {}, "--max-tokens -1"),
    "no price": (
        ["--model", "openai:a", "--base-url", "http://a/v1", "--max-money", "1"], {},
        "needs a price for openai:a",
    ),
    "prices": ([], {"KERNELBLASTER_PRICES": "{"}, "settings: "),
    "price": ([], {"KERNELBLASTER_PRICES": '{"a": {}}'}, "settings: --prices.a"),
    "calls": ([], {"KERNELBLASTER_MAX_CALLS": "many"}, "settings: --max-calls 'many'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_values_are_one_line_before_any_work(
    command: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    flags, variables, words = BAD[name]
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    (tmp_path / "text.py").write_text("")
    done = command("optimize", "text.py", "--device", "simulated", "--run", "run", *flags)
    assert done.code == 2, done.out + done.err
    assert len(done.err.strip().splitlines()) == 1 and words in done.err
    assert SECRET not in done.err and "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


def test_help_names_the_flags(command: Callable[..., Done], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = command("optimize", "--help").out
    for flag in ("--model", "--base-url", "--max-money", "--max-gpu-seconds", "--events"):
        assert flag in out


# Runs --------------------------------------------------------------------------------------------


def test_a_run_with_a_model_counts_what_it_cost(
    optimize: Callable[..., Done], server: OpenAiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    price = {"input_per_million": 1000, "cached_per_million": 0, "output_per_million": 0}
    monkeypatch.setenv("KERNELBLASTER_PRICES", json.dumps({"small": price}))
    result = last_json(optimize("--json", "--max-money", 5))
    assert result["outcome"] == "improved"
    assert result["model_calls"] == len(server.chats) == 2
    assert result["tokens"] == 240
    assert result["money"] == pytest.approx(2 * 60 * 1000 / 1e6)
    report = Path("run/report.txt").read_text()
    assert "2 model calls, 240 tokens, $0.1200" in report
    assert (
        "kernel_writer (openai:small): 2 calls, 0 of them malformed, 0 refused; "
        "200 tokens in (80 cached), 40 out, $0.1200" in report
    )


def test_events_are_json_lines(optimize: Callable[..., Done]) -> None:
    done = optimize("--events", "jsonl")
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "task" and kinds[-1] == "end"
    assert kinds.count("thinking") == kinds.count("answered") == 2
    thinking = next(event for event in events if event["event"] == "thinking")
    assert (thinking["role"], thinking["model"]) == ("kernel_writer", "openai:small")
    answered = [event for event in events if event["event"] == "answered"]
    assert [event["all_tokens"] for event in answered] == [120, 240]
    assert events[-1]["outcome"] == "improved" and events[-1]["model_calls"] == 2


def test_the_view_shows_the_tree_and_what_was_spent(optimize: Callable[..., Done]) -> None:
    out = optimize().out
    lines = " ".join(out.split())  # The tree is folded to the width of the terminal.
    assert re.search(r"1\.1 best 81\.00 us: \w+ 1\.11x → \w+ 1\.11x", lines), out
    assert "2 model calls, 240 tokens" in out


def test_quiet_shows_only_the_result(optimize: Callable[..., Done]) -> None:
    out = optimize("--quiet").out
    assert "gain    1.23x" in out and "state" not in out.split("gain")[0]
    assert "iteration 1" not in out


def test_a_cap_stops_with_the_best_so_far_and_resume_goes_on(
    optimize: Callable[..., Done], command: Callable[..., Done], server: OpenAiServer,
    tmp_path: Path,
) -> None:  # fmt: skip
    stopped = last_json(optimize("--max-calls", 1, "--json"))
    assert stopped["outcome"] == "budget_reached"
    assert "--max-calls" in stopped["reason"] and "resume" in stopped["reason"]
    assert (stopped["best_us"], stopped["initial_us"]) == (90.0, 100.0)
    assert "us: 90.0" in Path(stopped["source"]).read_text()
    assert len(server.chats) == 1

    again = last_json(command("resume", "run", "--json"))
    assert again["outcome"] == "budget_reached" and len(server.chats) == 1
    assert "best so far: 90.00 us" in command("resume", "run").out

    finished = last_json(command("resume", "run", "--max-calls", 10, "--json"))
    assert finished["outcome"] == "improved" and finished["model_calls"] == 2
    assert len(server.chats) == 2, "the first call was not made again"
    assert read_budgets(tmp_path / "run") == Budgets(calls=10)


# Endpoints that are not there --------------------------------------------------------------------


GONE = {
    "dead port": ("http://127.0.0.1:9/v1", None, "connection refused"),
    "no such host": ("http://no-such-host.invalid/v1", None, "does not resolve"),
    "no TLS": ("https", None, "TLS: "),
    "wrong key": ("", Say(f"bad key {SECRET}", status=401), "bad key [key]); check the key"),
    "a web page": ("", Say(body="<html>Log in</html>"), "answers with a web page"),
    "hangs": ("", Say(seconds=1.0, body="{}"), "does not answer within 0.4 s"),
    "no such model": ("", None, "has no model large"),
}


@pytest.mark.parametrize("name", GONE)
def test_an_endpoint_that_cannot_be_asked_is_one_line_and_nothing_is_begun(
    optimize: Callable[..., Done], server: OpenAiServer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, name: str,
) -> None:  # fmt: skip
    url, server.listing, words = GONE[name]
    if url in ("", "https"):
        url = server.url.replace("http", url or "http", 1)
    if name == "hangs":
        monkeypatch.setenv("KERNELBLASTER_MODEL_CHECK_SECONDS", "0.4")
    model = "openai:large" if name == "no such model" else "openai:small"
    done = optimize("--base-url", url, "--model", model, "--quiet")
    assert done.code == 2, done.out
    assert len(done.err.strip().splitlines()) == 1 and words in done.err, done.err
    assert model in done.err and SECRET not in done.err and "Traceback" not in done.err
    assert server.chats == [] and not (tmp_path / "run").exists()


def test_a_graph_of_another_program_asks_too(
    server: OpenAiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_support.install(monkeypatch.setattr)
    server.listing = Say("who are you?", status=401)
    request = OptimizeRequest(task="text.py", run=str(tmp_path / "run"))
    context = RunContext(model="openai:small", models=ModelPlan(base_url=server.url))
    with pytest.raises(UserError, match="refuses the key"):
        asyncio.run(build_graph().compile().ainvoke(request, context=context))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("status", [429, 503])
def test_an_endpoint_that_is_busy_is_a_note(
    optimize: Callable[..., Done], server: OpenAiServer, status: int
) -> None:
    server.listing = Say("come back later", status=status)
    done = optimize("--events", "jsonl")
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    notes = [event["text"] for event in events if event["event"] == "note"]
    assert len(notes) == 1 and f"HTTP {status}: come back later" in notes[0]
    assert events[-1]["outcome"] == "improved" and len(server.chats) == 2


def dying(server: OpenAiServer, call: int) -> None:
    """Let a server end in the middle of a call, and answer those before it."""

    def answer(body: dict[str, Any]) -> Say:
        say = kernel_writer(body)
        if len(server.chats) >= call:
            server.die()
            say.drop = True
        return say

    server.otherwise = answer


@pytest.mark.parametrize("rollouts", [1, 2])
def test_a_server_that_dies_pauses_the_run_and_once_it_is_back_the_result_is_the_same(
    optimize: Callable[..., Done], command: Callable[..., Done], server: OpenAiServer,
    monkeypatch: pytest.MonkeyPatch, rollouts: int,
) -> None:  # fmt: skip
    monkeypatch.setattr("kernelblaster.tools.models.asking.WAITS_BEFORE_ANEW", 0)
    monkeypatch.setenv("KERNELBLASTER_MODEL_ATTEMPTS", "1")
    flags = ("--rollouts", rollouts, "--json")
    whole = last_json(optimize(*flags, "--run", "whole", "--kb", "other"))
    server.seen.clear()
    dying(server, rollouts + 1)
    done = optimize(*flags)
    stopped = last_json(done)
    assert stopped["outcome"] == "model_unavailable"
    assert "openai:small cannot be asked: " in stopped["reason"]
    assert stopped["reason"].endswith(f"kernelblaster resume {Path('run').resolve()}")
    assert stopped["best_us"] == 90.0, "what was found until then"
    assert not Path("run/report.txt").exists()
    asked = len(server.chats)

    still = command("resume", "run", "--json")
    assert still.code == 2 and "connection refused" in still.err.strip().splitlines()[-1]
    with OpenAiServer(otherwise=kernel_writer, port=server.port).running() as again:
        finished = last_json(command("resume", "run", "--json"))
        assert len(again.chats) <= rollouts, "what was answered is not asked again"
    for field in ("outcome", "best_us", "gain", "path", "evaluations"):
        assert finished[field] == whole[field], field
    # A call of the other rollout may have been cut off before the server had read it: it counts.
    cut_off = finished["model_calls"] - asked - len(again.chats)
    assert 0 <= cut_off < rollouts


def test_the_built_in_reasoner_stands_in_where_a_person_says_so(
    optimize: Callable[..., Done], server: OpenAiServer
) -> None:
    dying(server, 2)
    done = optimize("--on-model-failure", "builtin")
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "the built-in reasoner stands in" in said
    note = "openai:small did not answer 1 call as kernel_writer: the built-in reasoner stood in"
    assert note in said and note in Path("run/report.txt").read_text()


def test_the_choice_on_failure_is_one_of_two(optimize: Callable[..., Done]) -> None:
    done = optimize("--on-model-failure", "guess")
    assert done.code == 2 and "--on-model-failure 'guess'" in done.err


JUNK = [
    Say(""),
    Say("I cannot help with that."),
    Say(refusal="No."),
    Say("```cuda\n#include"),
    Say('{"technique": "cheat", "settings": null}'),
    Say("[1, 2, {"),
    Say("```cuda\nus: 1.0\n```"),
    Say("cut", finish="length"),
    Say(status=500),
    Say(body="{}"),
    Say(json.dumps({"reason": "x" * 5000})),
]


@pytest.mark.parametrize("streaming", ["false", "true"])
def test_a_model_that_answers_nothing_but_junk_loses_nothing(
    optimize: Callable[..., Done], server: OpenAiServer, monkeypatch: pytest.MonkeyPatch,
    streaming: str,
) -> None:  # fmt: skip
    """Every role asks it; the built-in reasoners answer in its place, and the run ends well."""
    for name, value in (("REASKS", "1"), ("MODEL_ATTEMPTS", "1"), ("STREAMING", streaming)):
        monkeypatch.setenv(f"KERNELBLASTER_{name}", value)
    server.otherwise = lambda body: JUNK[len(server.chats) % len(JUNK)]
    result = last_json(optimize("--model", "openai:small", "--json"))
    # Whether it improves depends on which technique is chosen: not all have a built-in rewrite.
    assert result["outcome"] in ("improved", "not_improved")
    assert result["best_us"] <= result["initial_us"] == 100.0
    assert Path(result["best_source"]).read_text().startswith("us: ")
    assert result["model_calls"] > 0
    with RunStore(Path("run/run.sqlite")) as store:
        assert store.ledger.totals().malformed > 0


@pytest.mark.parametrize(
    ("flag", "kept"), [("--max-seconds", "wall_seconds"), ("--max-gpu-seconds", "gpu_seconds")]
)
def test_caps_on_time_hold_without_any_model(
    optimize: Callable[..., Done], command: Callable[..., Done], flag: str, kept: str
) -> None:
    stopped = last_json(optimize("--model", "builtin", flag, 0, "--json"))
    assert stopped["outcome"] == "budget_reached" and flag in stopped["reason"]
    assert stopped["best_us"] == 100.0, "the initial kernel is the best so far"
    finished = last_json(command("resume", "run", flag, 1000, "--json"))
    assert finished["outcome"] == "improved" and finished["model_calls"] == 0
    assert getattr(read_budgets(Path("run")), kept) == 1000


def test_a_cap_that_is_no_number_is_refused_on_resume(
    optimize: Callable[..., Done], command: Callable[..., Done]
) -> None:
    optimize("--max-calls", 1)
    done = command("resume", "run", "--max-seconds", "-5")
    assert done.code == 2 and "--max-seconds" in done.err
    assert read_budgets(Path("run")) == Budgets(calls=1)


def test_a_resumed_run_needs_its_key_only_where_the_endpoint_does(
    optimize: Callable[..., Done], command: Callable[..., Done], monkeypatch: pytest.MonkeyPatch,
    server: OpenAiServer, tmp_path: Path,
) -> None:  # fmt: skip
    optimize("--max-calls", 1)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        check_models(ModelPlan(roles={"kernel_writer": "openai:a"}))
    done = command("resume", "run", "--max-calls", 9, "--json")
    assert last_json(done)["outcome"] == "improved"
    assert server.chats[-1].key == "none", "a server of one's own needs no key"


def test_two_rollouts_stop_at_a_cap_and_both_go_on(
    optimize: Callable[..., Done], command: Callable[..., Done], server: OpenAiServer
) -> None:
    stopped = last_json(optimize("--rollouts", 2, "--max-calls", 1, "--json"))
    assert stopped["outcome"] == "budget_reached" and len(server.chats) == 1
    finished = last_json(command("resume", "run", "--max-calls", 10, "--json"))
    assert finished["model_calls"] == len(server.chats) == 4


def test_ctrl_c_twice_leaves_a_call_at_once(
    optimize: Callable[..., Done], command: Callable[..., Done], server: OpenAiServer
) -> None:
    def interrupting(body: dict[str, Any]) -> Say:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        return Say("too late", seconds=60.0)

    server.answers = [interrupting]
    began = time.monotonic()
    done = optimize("--quiet")
    assert done.code == 130 and "resume" in done.err
    assert time.monotonic() - began < 30.0
    gc.collect()  # The exception's frames hold the database open; a process that ended would not.
    finished = last_json(command("resume", "run", "--json"))
    assert finished["outcome"] == "improved" and finished["model_calls"] == 3
    with RunStore(Path("run/run.sqlite")) as store:
        outcomes = [(row.outcome, row.reason) for row in store.ledger.rows()]
    assert outcomes == [("maybe_paid", "cancelled"), ("answered", ""), ("answered", "")]


def test_no_key_in_the_run_directory_output_or_a_candidates_environment(
    optimize: Callable[..., Done], server: OpenAiServer, tmp_path: Path
) -> None:
    server.answers = [Say(f"the key is {SECRET}", status=500), Say(f"```\n{SECRET}\n```")]
    done = optimize("--events", "jsonl")
    assert {seen.key for seen in server.chats} == {SECRET}
    assert SECRET not in done.out + done.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "checkpoints.sqlite" for path in files)
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    for candidates in (scrubbed_environment(tmp_path), python_environment(tmp_path)):
        assert SECRET not in str(candidates)


def plan_fields(models: ModelPlan) -> dict[str, Any]:
    return {
        "run_id": "r", "task": "t", "run": "d", "knowledge": "k", "repairs": 1,
        "device": "simulated", "gpu": "H100", "iterations": 1, "rollouts": 1, "steps": 1,
        "models": models,
        "identity": DeviceIdentity(kind="simulated", gpu="H100", arch="sm_90", toolchain="t"),
    }  # fmt: skip


def test_plans_of_today_and_of_yesterday_come_back_from_a_checkpoint(tmp_path: Path) -> None:
    models = ModelPlan(roles={"kernel_writer": "openai:a"}, prices=LIST_PRICES)
    plan = RunPlan.model_validate(plan_fields(models))
    serializer = checkpoint_serializer()
    for value in (plan, plan.models, Budgets(calls=3)):
        assert serializer.loads_typed(serializer.dumps_typed(value)) == value
    yesterday = plan.model_dump(exclude={"models"})
    assert RunPlan.model_validate(yesterday).models == ModelPlan()
    assert Asked.of(task="t.py").context.budgets == Budgets()


# kill -9 -----------------------------------------------------------------------------------------


def start(mode: str, folder: Path, server: OpenAiServer) -> subprocess.Popen[str]:
    asked = Asked.of(
        task="text.py", knowledge=str(folder / "kb"), iterations=1, rollouts=2, steps=2,
        model="kernel_writer=openai:small", models=ModelPlan(base_url=server.url),
    )  # fmt: skip
    return start_run(folder / "run", asked if mode == "create" else None)


@pytest.mark.seldom
def test_kill_in_the_middle_of_model_calls_of_a_run(tmp_path: Path, server: OpenAiServer) -> None:
    """Two rollouts, killed whenever a call is under way: no answered call is made again."""

    def slowly(body: dict[str, Any]) -> Say:
        say = kernel_writer(body)
        say.seconds = 0.15
        return say

    server.otherwise = slowly
    mode, kills = "create", 0
    while True:
        child = start(mode, tmp_path, server)
        before = len(server.chats)
        while len(server.chats) < before + 1 + kills % 2 and child.poll() is None:
            time.sleep(0.005)
        time.sleep(0.05 + 0.1 * (kills % 3))
        if child.poll() is not None or kills >= 4:
            break
        child.send_signal(signal.SIGKILL)
        child.communicate()
        mode, kills = "open", kills + 1
    out, error = child.communicate(timeout=120)
    assert child.returncode == 0, error
    assert kills >= 2
    result = RunResult.model_validate_json(out.strip().splitlines()[-1])
    with RunStore(tmp_path / "run" / "run.sqlite") as store:
        rows = store.ledger.rows()
    answered = Counter(row.key for row in rows if row.outcome == "answered")
    assert len(answered) == 4 and set(answered.values()) == {1}
    lost = [row for row in rows if row.outcome == "maybe_paid"]
    assert 1 <= len(lost) <= 2 * kills, "each kill hits at most one call of each rollout"
    assert len(server.chats) <= len(rows) == result.model_calls
    assert any("may have been paid" in note for note in result.notes)


# Tools for the kernel writer ---------------------------------------------------------------------


@pytest.mark.parametrize("streaming", ["false", "true"])
def test_calls_of_tools_go_over_the_wire_as_openai_has_them(
    optimize: Callable[..., Done], server: OpenAiServer, monkeypatch: pytest.MonkeyPatch,
    streaming: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("KERNELBLASTER_STREAMING", streaming)
    tried = "us: 30.0\n"
    server.answers = [
        Say(arguments={"source": tried}, finish="tool_calls"),
        Say(arguments='us: 30.0', finish="tool_calls"),
    ]
    found = last_json(optimize("--writer", "tools", "--steps", 1, "--json"))
    assert found["outcome"] == "improved" and found["model_calls"] == 3
    first, second, third = (seen.body["messages"] for seen in server.chats)
    offered = [tool["function"]["name"] for tool in server.chats[0].body["tools"]]
    assert offered[0] == "compile_kernel" and "optimize_kernel" not in offered
    said, answer = second[len(first) :]
    (call,) = said["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"source": tried}
    assert (answer["role"], answer["tool_call_id"]) == ("tool", call["id"])
    assert "compiles" in answer["content"] and "no JSON object" in third[-1]["content"]


def test_the_writers_mode_is_a_setting_too(
    optimize: Callable[..., Done], server: OpenAiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBLASTER_WRITER", "tools")
    last_json(optimize("--steps", 1, "--json"))
    assert "tools" in server.chats[0].body
    refused = optimize("--model", "builtin")
    assert refused.code == 2 and "--writer tools" in refused.err
