"""The counters that the Judge reads: a few that go with run time, chosen by a script.

`benchmarks/profiling/metric_subset.py` makes metric_subset.json, as CudaForge does: the
counters whose correlation with run time, over the candidates of a task, tasks agree on.
"""

from __future__ import annotations

import functools
import json
from importlib import resources

FILE = "metric_subset.json"


@functools.cache
def metric_subset() -> tuple[str, ...]:
    """Return the counters by Nsight Compute's names, the most telling first."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return tuple(entry["metric"] for entry in json.loads(text)["metrics"])
