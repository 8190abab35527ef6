"""Jobs of the text device, and the file that holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deferred_support
import graph_support

from kernelblaster.harness.devices.job_records import Job, JobsFile, RunJobs, write_jobs
from kernelblaster.harness.records.evaluations import evaluation_key
from kernelblaster.harness.records.identity import source_sha256


def job_of(source: str, **changes: Any) -> Job:
    task = graph_support.text_task()
    job = deferred_support.DeferredTextDevice("H100")._job(task, source)
    made = job.model_copy(update=changes)
    key = evaluation_key(source_sha256(made.source), made.task.id, made.device)
    return made.model_copy(update={"key": key})


def lay_out(folder: Path, *jobs: Job, run: str = "run-1") -> Path:
    path = folder / "jobs.json"
    asked = RunJobs(jobs=tuple(job.id for job in jobs))
    write_jobs(path, JobsFile(runs={run: asked}, jobs=jobs))
    return path
