"""Settings: what a run uses unless a flag says otherwise; from the environment or a file."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

from .memory.locations import default_knowledge_directory, default_runs_directory


class Settings(BaseSettings):
    """Each can be set as KERNELBLASTER_NAME in the environment or in `kernelblaster.env`.

    $KERNELBLASTER_KB and $KERNELBLASTER_RUNS move the knowledge base and the runs.
    """

    model_config = SettingsConfigDict(
        env_prefix="KERNELBLASTER_", env_file="kernelblaster.env", extra="ignore"
    )

    gpu: str = ""
    device: str = "auto"
    model: str = "builtin"
    iterations: int = 2
    rollouts: int = 2
    steps: int = 4
    seed: int = 0

    @property
    def knowledge_directory(self) -> Path:
        """Where the knowledge base lives."""
        return default_knowledge_directory()

    @property
    def runs_directory(self) -> Path:
        """Where new runs are made."""
        return default_runs_directory()
