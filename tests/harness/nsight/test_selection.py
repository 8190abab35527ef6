"""Programs of many launches: all are timed in one pass, and those counted that the time goes into.

A stand-in for ncu profiles what the manifest of the launch program says, and answers with rows of a
recorded report.
"""

from __future__ import annotations

import csv
import io
import json
import stat
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import graph_support
import pytest
from places import DATA

from kernelblaster.harness.cuda.launching.launch_program import _parts
from kernelblaster.harness.cuda.parent import inspection
from kernelblaster.harness.cuda.parent.inspection import Stage, profile_candidate
from kernelblaster.harness.cuda.reports import LaunchAnswer
from kernelblaster.harness.host.plan import Content, Place, Plan, PlannedLaunch, PlannedTransfer
from kernelblaster.harness.nsight import selection
from kernelblaster.harness.nsight.command import TIMED, profile_command
from kernelblaster.harness.nsight.profile import NcuResult, profile_from_pages, unavailable
from kernelblaster.harness.nsight.selection import (
    NOT_COUNTED,
    counted_places,
    dominant_place,
    put_together,
    require_all,
    spread,
    timed_places,
)
from kernelblaster.harness.records.builds import Build
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.profiles import LaunchProfile, Profile
from kernelblaster.harness.records.timings import Provenance

PAGE = DATA / "ncu" / "ncu_full_raw.csv"
STAND_IN = """\
import csv, json, pathlib, sys
arguments = sys.argv[1:]
log = pathlib.Path(LOG)
if "--import" in arguments:
    report = json.loads(pathlib.Path(arguments[arguments.index("--import") + 1]).read_text())
    if arguments[arguments.index("--page") + 1] != "raw":
        sys.exit()
    header, units, *rows = list(csv.reader(open(PAGE)))
    kept = [at for at, name in enumerate(header) if at < 11 or name.startswith("launch__")
            or name in report["metrics"] or len(report["metrics"]) > 10]
    out = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
    out.writerow([header[at] for at in kept])
    out.writerow([units[at] for at in kept])
    for number, row in enumerate(report["rows"]):
        out.writerow([str(number) if at == 0 else rows[row][at] for at in kept])
    sys.exit()
manifest = json.loads(pathlib.Path(arguments[-1]).read_text())
kernels = [int(step["kernel"]) for step in manifest["plan"]["steps"] if "kernel" in step]
if "--profile-from-start" in arguments:
    kernels = [kernels[place] for place in manifest["profiled"]]
metrics = arguments[arguments.index("--metrics") + 1].split(",")
with log.open("a") as file:
    file.write(json.dumps({"arguments": arguments, "profiled": manifest["profiled"]}) + "\\n")
report = pathlib.Path(arguments[arguments.index("--export") + 1])
report.write_text(json.dumps({"metrics": metrics, "rows": kernels[:MOST]}))
"""


class Ncu:
    """Where the stand-in is first on PATH: what it was asked, and a program to put under it."""

    def __init__(self, folder: Path, most: int) -> None:
        self._log = folder / "log"
        text = textwrap.dedent(STAND_IN).replace("LOG", repr(str(self._log)))
        text = text.replace("PAGE", repr(str(PAGE))).replace("MOST", str(most))
        path = folder / "ncu"
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    @property
    def asked(self) -> list[dict[str, Any]]:
        """Arguments and profiled launches of each profiling run; of two at once the one that counts
        comes last."""
        found = [json.loads(line) for line in self._log.read_text().splitlines()]
        return sorted(found[:2], key=lambda run: "SpeedOfLight" in run["arguments"]) + found[2:]

    def profile(self, rows: Sequence[int], events: Sequence[float] = ()) -> NcuResult:
        """Profile a program whose launches are rows of the recorded page; equal ones are alike.

        Their times between events are what ncu says, unless others are given.
        """
        launches = tuple(
            PlannedLaunch(str(row), (4, 1, 1), (32, 1, 1), 0, (),
                          (Content("00" * 8, ((0, Place("x", 128 * at)),)),))
            for at, row in enumerate(rows)
        )  # fmt: skip
        built = Build(key="0", succeeded=True, arch="sm_90", compiler="", directory="/nowhere")
        stage = Stage(gpu_uuid="GPU-select", gpu="H200", memory_bytes=0, inputs={"x": "x.bin"})
        events = events or [recorded()[row].microseconds for row in rows]
        plan = Plan(launches, 0, {}, 0.0)
        timed = [
            LaunchAnswer(each.kernel, each.grid, each.block, 0, microseconds)
            for each, microseconds in zip(launches, events, strict=True)
        ]
        return profile_candidate(graph_support.text_task(), built, plan, stage, timed)


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Ncu:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(inspection, "replay_library", lambda: tmp_path / "replay.so")
    return Ncu(tmp_path, getattr(request, "param", 10_000))


def recorded() -> list[LaunchProfile]:
    profile = profile_from_pages(PAGE.read_text()).profile
    assert profile is not None
    return list(profile.launches)


def of(*microseconds: float) -> Profile:
    launches = tuple(
        LaunchProfile(kernel=f"k{at}", grid=(1, 1, 1), block=(32, 1, 1), microseconds=each,
                      metrics={}, bottleneck="latency")
        for at, each in enumerate(microseconds)
    )  # fmt: skip
    return Profile(launches=launches, gpu="H200", provenance=Provenance.NCU)


def test_many_launches_are_timed_once_and_the_costly_kinds_counted(ncu: Ncu) -> None:
    """Row 8 takes nearly all of the time."""
    rows = [0, 21, 8, 0, 4, 21, 8, 0]
    result = ncu.profile(rows)
    assert result.outcome is Outcome.PASSED and result.profile is not None
    timed, counted = ncu.asked
    assert "--profile-from-start" not in timed["arguments"] and timed["profiled"] == []
    assert ",".join(TIMED.metrics) in timed["arguments"]
    joined = " ".join(counted["arguments"])
    assert "--profile-from-start off" in joined and "--section SpeedOfLight" in joined
    assert counted["profiled"] == [2]
    known, found = recorded(), result.profile.launches
    assert [launch.kernel for launch in found] == [known[row].kernel for row in rows]
    assert [launch.microseconds for launch in found] == [known[row].microseconds for row in rows]
    assert [launch.like for launch in found] == [None, None, None, 0, None, 1, 2, 0]
    for place in (2, 6):
        assert found[place].metrics == known[8].metrics
        assert found[place].bottleneck == known[8].bottleneck == "atomic"
    assert set(found[0].metrics) & set(TIMED.metrics) == set(TIMED.metrics)
    assert len(found[0].metrics) < 60 and found[0].advice == (NOT_COUNTED,)
    assert result.profile.elapsed_cycles == pytest.approx(
        sum(known[row].metrics["gpc__cycles_elapsed.max"] for row in rows)
    )
    assert result.counted.startswith("1 of 8 launches (2), which stand for 2 and 9")
    assert result.collection == "counted"  # It takes 29 ms.


def test_where_events_name_another_launch_than_ncu_it_is_counted_after_all(ncu: Ncu) -> None:
    rows = [0, 21, 8, 0, 4, 21, 8, 0]
    result = ncu.profile(rows, [1.0, 1.0, 1.0, 1.0, 500.0, 1.0, 1.0, 1.0])
    assert sorted(each["profiled"] for each in ncu.asked[:2]) == [[], [4]]
    assert [each["profiled"] for each in ncu.asked[2:]] == [[2]]
    assert result.counted.startswith("1 of 8 launches (2)")


def test_few_launches_are_all_counted_in_one_run(ncu: Ncu) -> None:
    result = ncu.profile([0, 1, 0])
    assert result.profile is not None and result.counted == ""
    (asked,) = ncu.asked
    assert "--profile-from-start" not in asked["arguments"]
    assert [launch.like for launch in result.profile.launches] == [None] * 3


def test_of_very_many_the_first_of_each_kind_is_timed(
    ncu: Ncu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "MOST_TIMED", 10)
    monkeypatch.setattr(selection, "MOST_TIMED", 10)
    rows = [0, 0, 8, 4] * 5
    result = ncu.profile(rows)
    assert result.profile is not None and len(result.profile.launches) == 20
    assert [each["profiled"] for each in ncu.asked] == [[0, 2, 3], [2]]
    known = recorded()
    assert [each.microseconds for each in result.profile.launches] == [
        known[row].microseconds for row in rows
    ]


@pytest.mark.parametrize("ncu", [3], indirect=True)
def test_a_report_that_lacks_launches_is_no_profile(ncu: Ncu) -> None:
    result = ncu.profile([0, 1, 2, 3, 4, 5, 6, 7])
    assert result.outcome is Outcome.PROFILER_UNAVAILABLE
    assert result.reason == "ncu timed 3 launches, and 8 were asked for"


def test_where_counting_fails_the_times_stand_and_it_is_told() -> None:
    kinds = [0, 1, 0, 3]
    profile = spread(of(5.0, 90.0, 4.0, 1.0), kinds)
    for counted in (
        unavailable("ncu ran past its limit", "less"),
        NcuResult(outcome=Outcome.PASSED, profile=of(1.0)),
    ):
        found = put_together(profile, kinds, [1], counted)
        assert found.profile == profile and found.collection == "timed"
        assert found.counted.startswith("none of 4 launches: ncu ")


def test_kinds_are_counted_until_they_cover_the_time() -> None:
    def counted(times: Sequence[float], kinds: Sequence[int]) -> list[int]:
        return counted_places(of(*times).launches, kinds)

    assert counted([80, 15, 5], [0, 1, 2]) == [0, 1]
    assert counted([91, 5, 4], [0, 1, 2]) == [0]
    assert counted([1, 60, *[2] * 40], [0, 1, *[2] * 40]) == [1, 2]  # Many that are short.
    assert counted([10.0] * 30, range(30)) == list(range(8))  # Not more than eight.
    # The dominant launch is among them: the longest of the kernel that takes most, of many shapes.
    many = of(*[5.0] * 10, *[6.0] * 9)
    named = tuple(
        launch.model_copy(update={"kernel": "many" if at < 10 else f"k{at}"})
        for at, launch in enumerate(many.launches)
    )
    places = counted_places(named, range(19))
    assert 0 in places and len(places) == 8
    assert named[dominant_place(named)] is many.model_copy(update={"launches": named}).dominant


def test_only_what_was_asked_for_is_accepted() -> None:
    kinds = [0, 1, 0]
    assert timed_places(kinds) == [0, 1, 2]
    whole = NcuResult(outcome=Outcome.PASSED, profile=of(1.0, 2.0, 3.0))
    assert require_all(whole, kinds) == whole
    assert require_all(whole, [0, 1]).profile is None
    refused = unavailable("no", "yes")
    assert require_all(refused, kinds) == refused


def test_the_program_starts_the_profiler_round_the_launches_that_are_asked_for() -> None:
    nowhere = Place("x", 0)
    launch = PlannedLaunch("k", (1, 1, 1), (32, 1, 1), 0, (), ())
    move = PlannedTransfer(False, 0, nowhere, 4, None, 0, 4, 1, Content(""))
    steps: list[Any] = [launch, move, launch, launch, move, launch]
    parts = _parts(steps, PlannedLaunch, {1, 2})
    assert [(watched, len(part)) for watched, part in parts] == [(False, 2), (True, 2), (False, 2)]
    assert _parts(steps, PlannedLaunch, set()) == [(False, steps)]
    assert _parts([], PlannedLaunch, {0}) == []


def test_one_pass_is_one_command() -> None:
    command = profile_command("ncu", ["a"], Path("r"), collection=TIMED, from_start=False)
    joined = " ".join(command)
    assert f"--section LaunchStats --metrics {','.join(TIMED.metrics)} " in joined
    assert joined.endswith("--profile-from-start off a") and "--set" not in joined
    header = next(csv.reader(io.StringIO(PAGE.read_text())))
    assert set(TIMED.metrics) <= set(header)
