"""What finished runs claim of their winners, with all that it takes to measure them again.

It is read from a directory, or from a report, in which it is embedded.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, FiniteFloat, ValidationError

from ..harness.errors import UserError
from ..harness.files import read_source, read_text
from ..harness.metrics import VALID
from ..harness.records.evaluations import DeviceIdentity
from ..harness.records.readings import AS_WRITTEN, Reading
from ..harness.records.record import Record
from ..harness.records.tasks import Task
from ..harness.records.timings import Provenance
from ..harness.task.unseen import MOST_SHAPES
from ..memory.run.artifacts import ArtifactStore
from ..memory.run.directory import ARTIFACTS
from ..memory.run.journal import latest
from ..memory.run.run_store import RunStore
from ..nodes.records.plan import RunPlan
from ..nodes.records.result import RunResult
from ..nodes.run.beginning.begin import stored_plan
from ..nodes.run.ending.report import stored_result
from .directory import is_suite, read_outcomes, read_suite

ELEMENT = "claims"
"""Id of the element of a page that holds them."""
LARGEST_CLAIMS = 32 << 20
"""Bytes of what is embedded in a page, unpacked; of a larger bench the directory alone is measured
again."""
SAME = 1e-3
"""How far two figures of one simulated gain may be apart, relative."""
_EMBEDDED = re.compile(rf'<script type="text/plain" id="{ELEMENT}">([A-Za-z0-9+/=]*)</script>')
_WRITE_IT = "write it again with `kernelblaster report DIRECTORY --html FILE`"


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Figures(Record):
    """What is said of a winner: claimed, or measured now."""

    gpu: str
    provenance: Provenance
    initial_us: Positive
    best_us: Positive
    gain: Positive
    """Time of the initial kernel over the winner's."""
    gain_interval: tuple[Positive, Positive]
    baselines: dict[str, FiniteFloat]
    """PyTorch's times and the speedup over the faster of them, where it was measured."""


class Texts(Record):
    """A task and two kernels of it, and how a run reads and judges them."""

    name: str
    """The task's."""
    reference: str
    initial: str
    winner: str
    dimensions: dict[str, int] = Field(default_factory=dict)
    reading: Reading = AS_WRITTEN
    reference_seconds: Positive | None = None
    confirm_seconds: float = Field(ge=0)
    shapes: int = Field(ge=0, le=MOST_SHAPES)
    """How many unseen sizes were drawn, with the run's seed."""
    held: tuple[dict[str, int], ...] = ()
    """The unseen sizes at which the winner held: what differs from the task's."""


class Claim(Record):
    """What one run claims; where it claims nothing, why."""

    run: str
    """Directory of the run, from what was asked for; empty where it had none."""
    policy: str
    task: str = ""
    seed: int = 0
    figures: Figures | None = None
    texts: Texts | None = None
    reason: str = ""
    """Why there is nothing to measure."""
    damaged: bool = False
    """Whether that is since what it stored cannot be read."""


class Claims(Record):
    """Those of a bench or run."""

    device: DeviceIdentity
    """What they were measured on."""
    claims: tuple[Claim, ...]


def claims_of(place: Path) -> Claims:
    """Return the claims of a directory of a bench or run, or of a report in HTML.

    Raises:
        UserError: nothing was run there, or what is there is damaged.
    """
    found = _of_page(place) if place.is_file() else claims_in(place)
    if not found.claims:
        raise UserError(f"{place} holds no run that is over: there is nothing to run again")
    return found


def claims_in(directory: Path) -> Claims:
    """Return the claims of a directory of a bench or run. Raises UserError."""
    if not is_suite(directory):
        plan = stored_plan(directory)
        return Claims(device=plan.identity, claims=(_claim(directory, directory, plan.policy),))
    lock = read_suite(directory)
    claims = [
        _claim(directory, directory / ended.run, run.variant) if ended.run else Claim(
            run="", policy=run.variant, task=run.task, seed=run.seed,
            reason=f"the run came to no result: {ended.reason}",
        )
        for run, ended in read_outcomes(directory, lock)
    ]  # fmt: skip
    return Claims(device=lock.device, claims=tuple(claims))


def together(found: Sequence[Claims]) -> Claims:
    """Return the claims of several, measured on what the first of them were."""
    return Claims(
        device=found[0].device, claims=tuple(each for one in found for each in one.claims)
    )


def embedded(claims: Claims) -> str:
    """Return claims as they stand in a page: base64 of gzip of JSON; "" where they are too many."""
    told = claims.model_dump_json().encode()
    if len(told) > LARGEST_CLAIMS:
        return ""
    return base64.b64encode(gzip.compress(told, mtime=0)).decode()


def _of_page(page: Path) -> Claims:
    found = _EMBEDDED.search(read_text(page, "a report"))
    if found is None:
        raise UserError(
            f"{page} is no report of a run or suite that can be measured again: {_WRITE_IT}"
        )
    try:
        unpacked = zlib.decompressobj(31).decompress(base64.b64decode(found[1]), LARGEST_CLAIMS)
        claims = Claims.model_validate_json(unpacked)
        for each in claims.claims:
            _require_one_story(each)
        return claims
    except (binascii.Error, zlib.error, ValidationError) as error:
        raise UserError(f"the claims in {page} are damaged: {_WRITE_IT}") from error


def _require_one_story(claim: Claim) -> None:
    """Require that what a page says of a winner is one gain, however it says it.

    Raises:
        UserError: it says several.
    """
    said = claim.figures
    if said is None:
        return
    low, high = said.gain_interval
    by_times = said.initial_us / said.best_us
    simulated = said.provenance is Provenance.SIMULATED  # Else it was found in pairs of rounds.
    if not low <= said.gain <= high or (simulated and abs(by_times / said.gain - 1.0) > SAME):
        raise UserError(
            f"the claim on {claim.task} ({claim.policy}) contradicts itself: a gain of "
            f"{said.gain:.4g}, between {low:.4g} and {high:.4g}, from {said.initial_us:.4g} to "
            f"{said.best_us:.4g} us"
        )


def _claim(directory: Path, run: Path, policy: str) -> Claim:
    """Return what a run claims."""
    claim = Claim(run=str(run.relative_to(directory)), policy=policy)
    try:
        plan = stored_plan(run)
        claim = claim.model_copy(update={"task": Path(plan.task).stem, "seed": plan.seed})
        result = stored_result(run)
        if result is None or result.outcome not in VALID:
            reason = "the run came to no result" if result is None else f"it is {result.outcome}"
            return claim.model_copy(update={"reason": reason})
        return claim.model_copy(
            update={"figures": figures_of(result), "texts": _texts(run, plan, result)}
        )
    except UserError as error:
        return claim.model_copy(update={"reason": str(error), "damaged": True})
    except (ValidationError, LookupError, TypeError) as error:
        reason = f"{run} is damaged: {' '.join(str(error).split())[:200]}"
        return claim.model_copy(update={"reason": reason, "damaged": True})


def figures_of(result: RunResult) -> Figures:
    """Return what a run says of its winner."""
    return Figures(
        gpu=result.gpu,
        provenance=result.provenance,
        initial_us=result.initial_us,
        best_us=result.best_us,
        gain=result.gain,
        gain_interval=result.gain_ci,
        baselines=result.baselines,
    )


def _texts(path: Path, plan: RunPlan, result: RunResult) -> Texts:
    """Return what a run stored of its task, its initial kernel and its winner.

    Raises:
        UserError: one of them is not stored.
    """
    with RunStore(path / "run.sqlite", copied=True) as store:
        state = latest(store.journal.entries())
    artifacts = ArtifactStore(path / ARTIFACTS)
    summary, initial = state.get("summary"), state.get("initial")
    if not (summary and initial):
        raise UserError(f"{path} does not hold its task and initial kernel; nothing can be done")
    stored = Task.model_validate_json(artifacts.get_text(summary["artifact"]))
    return Texts(
        name=stored.name,
        reference=stored.source,
        initial=artifacts.get_text(initial["source_sha256"]),
        winner=read_source(path / "best.cu"),
        dimensions=dict(plan.dimensions),
        reading=plan.reading,
        reference_seconds=plan.reference_seconds,
        confirm_seconds=plan.confirm_seconds,
        shapes=plan.shapes,
        held=tuple(each.dimensions for each in result.shapes if each.holds),
    )
