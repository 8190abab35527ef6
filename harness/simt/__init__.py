"""The simulated GPU: what a device on top of it takes, and nothing else of it is needed there."""

from .child import (
    WORKER,
    Limits,
    Reply,
    Report,
    isolation_facts,
    require_sense,
    run_candidate,
)
from .counters import LaunchCounters, ProfileReport
from .model.constants import TimeConstants, constants_of
from .model.profile import describe_launch
from .model.time_model import hidden_microseconds, together
from .model.transfers import describe_transfer
from .run.library import core_library
from .sass.labelled import machine_listing, misreading

__all__ = [
    "WORKER", "LaunchCounters", "Limits", "ProfileReport", "Reply", "Report", "TimeConstants",
    "constants_of", "core_library", "describe_launch", "describe_transfer", "hidden_microseconds",
    "isolation_facts", "machine_listing", "misreading", "require_sense", "run_candidate",
    "together",
]  # fmt: skip
