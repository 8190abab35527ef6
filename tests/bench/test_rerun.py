"""Winners measured again from what is stored: which claims hold, and what is not compared."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import graph_support
import pytest
from benches import done, planned

from kernelblaster.bench.claims import Figures, claims_in, embedded
from kernelblaster.bench.rerun import compared, rerun
from kernelblaster.harness.devices.gates import Gates
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.nodes.records.result import ShapeCheck
from kernelblaster.reports.reading import read_run
from kernelblaster.reports.run_page import run_html
from kernelblaster.reports.runs_page import runs_html
from kernelblaster.reports.suite_page import suite_html


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rerun") / "bench"
    with pytest.MonkeyPatch.context() as patch:
        graph_support.install(patch.setattr)
        graph_support.install_bench(patch.setattr)
        done(directory, planned(directory, "minimal", names=("one", "bad", "two"), evaluations=3))
    return directory


@pytest.fixture(autouse=True)
def text_device(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_support.install_bench(monkeypatch.setattr)


def verdicts(directory: Path, **options: Any) -> dict[str, str]:
    found = asyncio.run(rerun(directory, "simulated", **options))
    return {each.task: each.verdict for each in found.claims}


def test_claims_hold_where_nothing_changed(finished: Path) -> None:
    assert verdicts(finished) == {"one": "holds", "two": "holds", "bad": "no_claim"}
    alone = asyncio.run(rerun(finished / "runs" / "minimal" / "seed-0" / "one", "simulated"))
    assert alone.counts == {"holds": 1} and alone.claims[0].now is not None


def test_a_report_can_be_measured_again_by_whoever_gets_it(
    finished: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    page.write_text(suite_html(finished))
    assert verdicts(page) == {"one": "holds", "two": "holds", "bad": "no_claim"}
    run = finished / "runs" / "minimal" / "seed-0" / "one"
    page.write_text(run_html(read_run(run, whole=True)))
    assert verdicts(page) == {"one": "holds"}
    others = [finished / "runs" / "minimal" / "seed-0" / name for name in ("one", "two")]
    page.write_text(runs_html([read_run(each, whole=False) for each in others]))
    assert verdicts(page) == {"one": "holds", "two": "holds"}
    page.write_text(run_html(read_run(run, whole=True)))
    with pytest.raises(UserError, match="measures nothing here"):
        asyncio.run(rerun(page, "deferred", "H100"))
    text = page.read_text()
    page.write_text(text.replace('id="claims">', 'id="claims">AAAA'))
    with pytest.raises(UserError, match="are damaged: write it again"):
        verdicts(page)
    page.write_text(text.replace('id="claims">', 'id="other">'))
    with pytest.raises(UserError, match="is no report of a run or suite"):
        verdicts(page)


def edited(finished: Path, page: Path, of: str, **update: Any) -> Path:
    """A page in which a run's figures, or its texts, say something else."""
    known = claims_in(finished / "runs" / "minimal" / "seed-0" / "one")
    (claim,) = known.claims
    said = getattr(claim, of).model_copy(update=update)
    odd = known.model_copy(update={"claims": (claim.model_copy(update={of: said}),)})
    page.write_text(f'<script type="text/plain" id="claims">{embedded(odd)}</script>')
    return page


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"gain": float("nan")}, "are damaged"),
        ({"gain_interval": (1.0, float("inf"))}, "are damaged"),
        ({"best_us": 0.0}, "are damaged"),
        ({"gain": 50.0}, "contradicts itself"),
        ({"gain_interval": (0.5, 0.6)}, "contradicts itself"),
        ({"best_us": 0.1}, "contradicts itself"),
    ],
)
def test_what_a_page_says_of_a_gain_is_one_number(
    finished: Path, tmp_path: Path, update: dict[str, Any], words: str
) -> None:
    page = edited(finished, tmp_path / "page.html", "figures", **update)
    with pytest.raises(UserError, match=words):
        verdicts(page)


def test_a_page_names_no_file(finished: Path, tmp_path: Path) -> None:
    name = f"{tmp_path}/../\0escaped"
    page = edited(finished, tmp_path / "page.html", "texts", name=name)
    assert verdicts(page) == {"one": "holds"}
    assert not list(tmp_path.parent.glob("*escaped*"))


def test_sizes_that_are_not_looked_at_again_are_told(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*given: Any, **more: Any) -> tuple[()]:
        return ()

    monkeypatch.setattr("kernelblaster.bench.rerun.unseen_tasks", none)
    page = edited(finished, tmp_path / "page.html", "texts", held=({"nosuch": 3},))
    told = asyncio.run(rerun(page, "simulated")).claims[0]
    assert told.verdict == "holds" and "not drawn again: nosuch = 3" in told.reason


def test_a_reference_that_fails_is_named_by_itself(finished: Path, tmp_path: Path) -> None:
    page = edited(finished, tmp_path / "page.html", "texts", name="bad")
    told = asyncio.run(rerun(page, "simulated")).claims[0]
    assert (told.verdict, told.reason) == ("fails", "bad.py: the reference is no Python")


def test_a_claim_that_was_too_high_and_a_winner_that_fails_are_told(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (finished / "runs" / "minimal" / "seed-0" / name for name in ("one", "two"))
    stored = (one / "result.json").read_text()
    said = json.loads(stored)
    (one / "result.json").write_text(json.dumps(said | {"gain": 50.0, "gain_ci": [49.0, 51.0]}))
    winner = (two / "best.cu").read_text()
    (two / "best.cu").write_text(winner + "outcome: race\n")
    try:
        assert verdicts(finished) == {"one": "slower", "two": "fails", "bad": "no_claim"}
    finally:
        (one / "result.json").write_text(stored)
        (two / "best.cu").write_text(winner)


def test_unseen_sizes_at_which_a_winner_held_are_tried_again(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = finished / "runs" / "minimal" / "seed-0" / "one" / "result.json"
    stored = one.read_text()
    held = {"dimensions": {"N": 96}, "outcome": "passed"}
    failed = {"dimensions": {"N": 48}, "outcome": "wrong_answer", "reason": "out0[0] differs"}
    one.write_text(json.dumps(json.loads(stored) | {"shapes": [held, failed]}))
    sizes = {"a": {"N": 96}, "b": {"N": 48}, "c": {"N": 7}}

    async def drawn(task: Any, count: int, seed: int, *, measured: bool) -> tuple[str, ...]:
        return tuple(sizes)

    now = Outcome.PASSED

    async def checked(gates: Gates, task: Any, other: str, source: str) -> ShapeCheck:
        return ShapeCheck(dimensions=sizes[other], outcome=now, reason="now it differs")

    again = "kernelblaster.bench.rerun"
    monkeypatch.setattr(f"{again}.unseen_tasks", drawn)
    monkeypatch.setattr(f"{again}.changed_dimensions", lambda task, other: sizes[other])
    monkeypatch.setattr(f"{again}.shape_check", checked)
    try:
        claim = asyncio.run(rerun(one.parent, "simulated")).claims[0]
        assert claim.verdict == "holds"
        assert [each.dimensions for each in claim.shapes] == [{"N": 96}], "what was claimed alone"
        now = Outcome.WRONG_ANSWER
        claim = asyncio.run(rerun(one.parent, "simulated")).claims[0]
        assert claim.verdict == "fails" and claim.reason.startswith("at N = 96: "), claim.reason
    finally:
        one.write_text(stored)


def test_another_gpu_is_told_and_not_compared(finished: Path) -> None:
    assert set(verdicts(finished, gpu="A100").values()) == {"not_compared", "no_claim"}


def test_figures_are_compared_by_their_intervals_against_pytorch_too() -> None:
    def figures(low: float, high: float, **changes: Any) -> Figures:
        return Figures(
            gpu="NVIDIA H200", provenance=Provenance.EVENTS, initial_us=10.0, best_us=5.0,
            gain=2.0, gain_interval=(1.9, 2.1),
            baselines={"speedup_low": low, "speedup_high": high},
        ).model_copy(update=changes)  # fmt: skip

    claimed = figures(1.4, 1.6)
    assert compared(claimed, figures(1.5, 1.7)) == ("holds", "")
    assert compared(claimed, figures(1.1, 1.3))[0] == "slower"
    assert compared(claimed, figures(1.7, 1.9))[0] == "faster"
    assert compared(claimed, figures(1.5, 1.7, gain_interval=(1.0, 1.8)))[0] == "slower"
    assert compared(claimed, figures(1.1, 1.3, gpu="NVIDIA H100"))[0] == "not_compared"
    simulated = figures(1.4, 1.6, provenance=Provenance.SIMULATED)
    assert compared(claimed, simulated)[0] == "not_compared"


def test_a_directory_without_runs_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run"):
        asyncio.run(rerun(tmp_path))
