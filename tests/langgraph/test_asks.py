"""A server's clients (Studio is one) are asked, and answer through the SDK."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dev_server import Server

sdk = pytest.importorskip("langgraph_sdk")


async def test_accept_edit_and_reject_through_the_sdk(server: Server) -> None:
    client = sdk.get_client(url=server.url)
    context = {"approve": ["plan", "technique", "winner"], "rollouts": 2, "steps": 2}
    assistant = await client.assistants.create("optimize", context=context)
    thread = (await client.threads.create())["thread_id"]

    async def go_on(**given: Any) -> dict[str, Any]:
        """Run until it asks or ends; return what is asked, by id."""
        await client.runs.wait(thread, assistant["assistant_id"], **given)
        state = await client.threads.get_state(thread)
        return {each["id"]: each["value"] for each in state.get("interrupts") or ()}

    (plan,) = (await go_on(input={"task": server.task})).values()
    assert plan["kind"] == "plan" and plan["rollouts"] == 2
    asked = await go_on(command={"resume": {"edit": {"iterations": 1}}})
    assert [each["kind"] for each in asked.values()] == ["technique"] * 2
    (first, one), (second, _) = asked.items()
    again = await go_on(command={"resume": {first: {"reject": "not here"}, second: "acept"}})
    hints = sorted(each["hint"] for each in again.values())
    assert hints[0] == "" and "'acept': ''} is no answer" in hints[1]
    asked = again
    while all(each["kind"] == "technique" for each in asked.values()):
        asked = await go_on(command={"resume": dict.fromkeys(asked, "accept")})
    (winner,) = asked.values()
    assert winner["kind"] == "winner" and winner["cost"]["evaluations"] > 1
    assert Path(winner["run"], "run.json").is_file()
    while asked:
        asked = await go_on(command={"resume": "reject:unreadable"})
    result = json.loads(Path(winner["run"], "result.json").read_text())
    assert result["best_us"] > winner["microseconds"] and "person" in result["lesson_authors"]
    assert len(result["steps"]) == 4
    mine = [each["technique"] for each in result["steps"] if each["rollout"] == one["rollout"] - 1]
    assert one["technique"] not in mine
