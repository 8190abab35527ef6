"""The ledger: what a call costs, what a killed process leaves, and the time that was used."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelblaster.memory.run.ledger import Totals, Usage
from kernelblaster.memory.run.run_store import RunStore
from kernelblaster.tools.models.budgets import (
    BudgetReached,
    change_budgets,
    read_budgets,
    require_call,
    require_room,
)
from kernelblaster.tools.models.chat_models import priced
from kernelblaster.tools.models.records import Budgets, ModelPlan, Price


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    with RunStore(tmp_path / "run.sqlite") as opened:
        yield opened


def begin(store: RunStore, key: str = "k", tokens: int = 100, **expected: object) -> int:
    return store.ledger.begin(
        key=key,
        role="kernel_writer",
        place="[0]",
        model="openai:m",
        prompt_sha256="p",
        expected=Usage(tokens_in=tokens, estimated=True, **expected),
        allow=lambda totals: None,
    )


def test_an_answered_call_is_found_again_with_what_it_took(store: RunStore) -> None:
    assert store.ledger.reply("k") is None
    attempt = begin(store)
    assert store.ledger.reply("k") is None, "an open call has no reply"
    store.ledger.answered(
        "k", attempt, "r", Usage(tokens_in=90, tokens_cached=40, tokens_out=20, money=0.5)
    )
    row = store.ledger.reply("k")
    assert row is not None
    assert (row.reply_sha256, row.outcome, row.estimated) == ("r", "answered", False)
    assert row.finished is not None and row.finished >= row.started
    totals = store.ledger.totals()
    assert (totals.calls, totals.tokens, totals.tokens_cached, totals.money) == (1, 110, 40, 0.5)
    assert totals.unfinished == totals.failed == totals.unpriced == 0


def test_a_call_that_was_cut_off_may_be_answered_by_another_of_the_same_question(
    store: RunStore,
) -> None:
    begin(store, "cut off")
    store.ledger.answered("other", begin(store, "other"), "r", Usage(tokens_in=9))
    answered = store.ledger.same_question("kernel_writer", "openai:m", "p")
    assert answered is not None and answered.key == "other"
    store.ledger.reused("cut off", "[0]", answered)
    found = store.ledger.reply("cut off")
    assert found is not None and (found.outcome, found.reply_sha256) == ("reused", "r")
    outcomes = [row.outcome for row in store.ledger.rows() if row.key == "cut off"]
    assert outcomes == ["maybe_paid", "reused"] and store.ledger.totals().calls == 2


def test_an_open_call_counts_with_its_estimate_until_it_is_closed(store: RunStore) -> None:
    begin(store, tokens=100, tokens_out=30, money=0.25)
    totals = store.ledger.totals()
    assert (totals.calls, totals.tokens, totals.money, totals.unfinished) == (1, 130, 0.25, 1)


def test_refused_calls_cost_nothing(store: RunStore) -> None:
    store.ledger.not_answered("k", begin(store), "HTTP 429", maybe_paid=False)
    totals = store.ledger.totals()
    assert (totals.calls, totals.tokens, totals.failed) == (0, 0, 1)
    assert store.ledger.reply("k") is None


def test_a_call_that_timed_out_may_have_been_paid(store: RunStore) -> None:
    store.ledger.not_answered("k", begin(store, tokens=70), "timed out", maybe_paid=True)
    totals = store.ledger.totals()
    assert (totals.calls, totals.tokens, totals.unfinished, totals.failed) == (1, 70, 1, 0)


def test_a_killed_process_leaves_a_call_that_says_so(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as first:
        begin(first)
    with RunStore(tmp_path / "run.sqlite") as second:
        attempt = begin(second)
        assert attempt == 1
        second.ledger.answered("k", attempt, "r", Usage(tokens_in=5, tokens_out=5))
        outcomes = [(row.attempt, row.outcome) for row in second.ledger.rows()]
        assert outcomes == [(0, "maybe_paid"), (1, "answered")]
        assert "ended before the reply" in second.ledger.rows()[0].reason
        assert second.ledger.totals().calls == 2


def test_a_call_that_is_not_allowed_is_not_noted(store: RunStore) -> None:
    def refuse(totals: Totals) -> None:
        raise BudgetReached("no", "max_calls")

    with pytest.raises(BudgetReached):
        store.ledger.begin(
            key="k", role="r", place="[]", model="m", prompt_sha256="p",
            expected=Usage(tokens_in=1), allow=refuse,
        )  # fmt: skip
    assert store.ledger.rows() == []


def test_malformed_replies_stay_paid_and_stored(store: RunStore) -> None:
    store.ledger.answered("k", begin(store), "r", Usage(tokens_in=5, tokens_out=5))
    store.ledger.malformed("k", "no JSON")
    totals = store.ledger.totals()
    assert (totals.calls, totals.malformed, totals.tokens) == (1, 1, 10)
    row = store.ledger.reply("k")
    assert row is not None and row.reason == "no JSON"


def test_money_is_none_only_where_no_call_has_a_price(store: RunStore) -> None:
    assert store.ledger.totals().money is None
    store.ledger.answered("a", begin(store, "a"), "r", Usage(tokens_in=1))
    assert store.ledger.totals().money is None
    store.ledger.answered("b", begin(store, "b"), "r", Usage(tokens_in=1, money=0.25))
    totals = store.ledger.totals()
    assert (totals.money, totals.unpriced) == (0.25, 1)


def test_prices_tell_fresh_cached_and_written_tokens_apart() -> None:
    price = Price(input_per_million=2.0, cached_per_million=0.5, output_per_million=8.0)
    plan = ModelPlan(prices={"m": price})
    tokens = {"in": 1_000_000, "cached": 400_000, "out": 500_000}
    assert priced(plan, "openai:m", tokens) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.5 * 8)
    assert priced(plan, "openai:other", tokens) is None


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        (Budgets(calls=3), "max_calls"),
        (Budgets(tokens=149), "max_tokens"),
        (Budgets(money=1.2), "max_money"),
    ],
)
def test_a_call_must_fit_every_cap(caps: Budgets, words: str, tmp_path: Path) -> None:
    totals = Totals(
        calls=3, tokens_in=90, tokens_cached=0, tokens_out=10, money=1.0, unpriced=0,
        unfinished=0, malformed=0, failed=0, seconds=1.0,
    )  # fmt: skip
    expected = Usage(tokens_in=30, tokens_out=20, money=0.25)
    with pytest.raises(BudgetReached, match=rf"Command\(resume=\{{.{words}"):
        require_call(caps, totals, expected, tmp_path)
    # Where its checkpoints lie in its directory the command line can go on with a run.
    (tmp_path / "checkpoints.sqlite").touch()
    with pytest.raises(BudgetReached, match="--" + words.replace("_", "-")):
        require_call(caps, totals, expected, tmp_path)
    room = Budgets(calls=4, tokens=150, money=1.25)
    require_call(room, totals, expected, tmp_path)


def test_caps_on_time(store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("kernelblaster.memory.run.ledger.time.time", lambda: now)
    ledger = store.ledger
    ledger.sit_down()
    now = 1010.0
    ledger.add_device_seconds("k", "verify", 3.0)
    ledger.add_device_seconds("k", "profile", 4.0)
    require_room(Budgets(gpu_seconds=7.5, wall_seconds=10.5), store, tmp_path)
    with pytest.raises(BudgetReached, match="max_gpu_seconds"):
        require_room(Budgets(gpu_seconds=7.0), store, tmp_path)
    with pytest.raises(BudgetReached, match="max_seconds"):
        require_room(Budgets(wall_seconds=10.0), store, tmp_path)
    now = 5000.0
    ledger.sit_down()
    now = 5001.0
    ledger.still_working()
    now = 9000.0
    assert ledger.wall_seconds() == pytest.approx(11.0), "time between sittings is free"


def test_time_begins_when_a_run_is_first_worked_on_and_looking_adds_none(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("kernelblaster.memory.run.ledger.time.time", lambda: now)
    assert store.ledger.wall_seconds() == 0.0
    store.ledger.still_working()
    now = 1002.0
    assert store.ledger.wall_seconds() == 0.0
    store.ledger.still_working()
    assert store.ledger.wall_seconds() == 2.0


def test_caps_are_changed_one_by_one(tmp_path: Path) -> None:
    assert read_budgets(tmp_path) == Budgets()
    change_budgets(tmp_path, Budgets(tokens=10, calls=5))
    change_budgets(tmp_path, Budgets(tokens=20))
    assert read_budgets(tmp_path) == Budgets(tokens=20, calls=5)
    change_budgets(tmp_path, Budgets())
    assert read_budgets(tmp_path) == Budgets(tokens=20, calls=5)
