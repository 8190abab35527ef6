"""Between runs and the GPU host: jobs of many runs into one file, results into the runs again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...harness.devices.deferred import mismatch
from ...harness.devices.job_records import (
    Job,
    JobResult,
    JobsFile,
    ResultsFile,
    RunJobs,
    another_machine,
    merged,
    write_jobs,
)
from ...harness.errors import UserError
from .run_store import RunStore


def count_waiting(run: Path) -> int:
    """Return how many jobs of a run have no result; 0 for one that asked for none."""
    if not _database(run).is_file():
        return 0
    with RunStore(_database(run)) as store:
        return store.jobs.count_waiting()


def export_jobs(runs: Sequence[Path], path: Path) -> dict[str, int]:
    """Write the waiting jobs of all runs to one file; return their number by run directory.

    Nothing is taken out of the runs: exporting again gives the same jobs again.

    Raises:
        UserError: no run has a job that waits, or the file cannot be written.
    """
    counts: dict[str, int] = {}
    asked: dict[str, RunJobs] = {}
    jobs: dict[str, Job] = {}
    for run in runs:
        counts[str(run)] = 0
        if not _database(run).is_file():
            continue
        with RunStore(_database(run)) as store:
            name, waiting, found = store.jobs.export()
        if name is not None and found:
            counts[str(run)] = len(found)
            asked = merged(asked, {name: waiting})
            jobs |= {job.id: job for job in found}
    if not jobs:
        listed = ", ".join(map(str, runs))
        raise UserError(
            f"no job waits in {listed}: jobs come from a run of device deferred, and are there "
            "until their results are (see: kernelblaster runs)"
        )
    write_jobs(path, JobsFile(runs=asked, jobs=tuple(jobs.values())))
    return counts


class NoResults(UserError):
    """A results file has nothing for a run: no reason to keep other runs from theirs."""


def import_results(run: Path, results: ResultsFile, origin: Path | str) -> int:
    """Store the results that are a run's; return how many were new.

    Checked as a whole before anything is stored: a file with one wrong result changes nothing.

    Args:
        run: the run directory.
        results: the body of the results file.
        origin: where they come from (the file's path), for messages.

    Raises:
        NoResults: none of the results is the run's.
        UserError: one was never asked for, or comes from another kind of device, GPU, architecture
            or harness than asked for, or from another machine than the run's earlier results.
    """
    found = _fitting(run, results, origin)
    with RunStore(_database(run)) as store:
        return store.jobs.answer(found)


def take_results(runs: Sequence[Path], results: ResultsFile, origin: Path) -> list[str]:
    """Store the results of each run that has any; return one line for each run.

    All are checked before the first is stored: one wrong result changes no run.

    Raises:
        UserError: as `import_results` does; NoResults only where no run has any.
    """
    without: dict[Path, NoResults] = {}
    for run in runs:
        try:
            _fitting(run, results, origin)
        except NoResults as none:
            without[run] = none
    if runs and len(without) == len(runs):
        raise without[runs[0]]
    return [
        f"{without[run]}; it goes on without"
        if run in without
        else f"{run}: {import_results(run, results, origin)} new results from {origin}"
        for run in runs
    ]


def _fitting(run: Path, results: ResultsFile, origin: Path | str) -> list[JobResult]:
    """Return a run's results if it may take all of them. Raises as `import_results` does."""
    if not _database(run).is_file():
        raise NoResults(f"{run} asked for no results: only runs of device deferred do")
    with RunStore(_database(run)) as store:
        name = store.jobs.run()
        if name is None:
            raise NoResults(f"{run} asked for no results: only runs of device deferred do")
        found = results.of_run(name)
        if not found:
            raise NoResults(f"{origin} holds no results for {run} (its run id is {name})")
        first = store.jobs.measured_by()
        for result in found:
            first = first or result.device
            reason = _refusal(store, result) or another_machine(first, result.device)
            if reason:
                raise UserError(f"{origin} does not fit {run}: {reason}; nothing was taken from it")
        return found


def _refusal(store: RunStore, result: JobResult) -> str:
    """Return why a result is not for this run, empty where it is."""
    job = store.jobs.get(result.id)
    if job is None:
        return f"it answers a job that this run never asked for ({result.id[:24]})"
    wrong = mismatch(job.device, job.executor, result.device)
    return f"{wrong} ({result.device})" if wrong else ""


def _database(run: Path) -> Path:
    return run / "run.sqlite"
