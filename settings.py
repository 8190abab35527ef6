"""Settings: what a run uses unless a flag says otherwise; from the environment or a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from .harness.devices.protocol import CONFIRM_SECONDS
from .harness.records.record import Integer
from .harness.task.unseen import DEFAULT_SHAPES
from .memory.locations import default_knowledge_directory, default_runs_directory
from .tools.models.records import Budgets, ModelPlan, Price, Role

LIST_PRICES: dict[str, Price] = {
    name: Price(input_per_million=fresh, cached_per_million=cached, output_per_million=written)
    for name, fresh, cached, written in (
        ("gpt-5", 1.25, 0.125, 10.0),
        ("gpt-5-mini", 0.25, 0.025, 2.0),
        ("gpt-5-nano", 0.05, 0.005, 0.4),
        ("gpt-4.1", 2.0, 0.5, 8.0),
        ("gpt-4.1-mini", 0.4, 0.1, 1.6),
        ("gpt-4.1-nano", 0.1, 0.025, 0.4),
    )
}
"""OpenAI's list prices of August 2025, dollars for a million tokens. They change: set your own."""


class Settings(BaseSettings):
    """Each can be set as KERNELBLASTER_NAME in the environment or in `kernelblaster.env`.

    $KERNELBLASTER_KB and $KERNELBLASTER_RUNS move the knowledge base and the runs. Keys of models
    are no settings: they come from $OPENAI_API_KEY or the system's keyring.
    """

    model_config = SettingsConfigDict(
        env_prefix="KERNELBLASTER_",
        env_file="kernelblaster.env",
        extra="ignore",
        use_attribute_docstrings=True,
    )

    gpu: str = ""
    device: str = "auto"
    policy: str = "kernelblaster"
    """How the search goes (docs/policies.md)."""
    rounds: Integer = 10
    """Candidates of a policy that writes one a round."""
    iterations: Integer = 2
    rollouts: Integer = 2
    steps: Integer = 4
    repairs: Integer | None = None
    seed: Integer = 0
    shapes: Integer = DEFAULT_SHAPES
    """At how many shapes that the search never saw a winner is looked at."""
    confirm_seconds: float = Field(default=CONFIRM_SECONDS, ge=0)
    """How long Compute Sanitizer may look at a winner at full dimensions."""
    fresh: bool = False
    """Whether every kernel is evaluated anew, whatever earlier runs on this machine found."""
    writer: Literal["replies", "tools"] = "replies"
    """How a model writes kernels: a file a reply, or with tools to try it before."""
    agents: Literal["compact", "full"] = "compact"
    """When models are asked of a kernel's state: where the rule leaves it open, or always."""

    model: str = "builtin"
    """builtin, openai:NAME, import:package.module:factory, or ROLE=MODEL,ROLE=MODEL."""
    base_url: str = ""
    """OpenAI-compatible endpoint; by default $OPENAI_BASE_URL, and without that OpenAI itself."""
    structured_output: Literal["json_schema", "function_calling", "json_mode"] = "json_schema"
    temperature: float | None = Field(default=None, ge=0, le=2)
    streaming: bool = False
    model_timeout: float = Field(default=300.0, gt=0)
    """Seconds."""
    model_attempts: Integer = Field(default=5, ge=1)
    """Tries of a call that fails in transport."""
    on_model_failure: Literal["pause", "builtin"] = "pause"
    """What is done when an endpoint cannot be reached or refuses the key."""
    model_check_seconds: float = Field(default=10.0, ge=0)
    """How long an endpoint may take to say, before a run, that it can be asked; 0: not asked."""
    reasks: Integer = Field(default=2, ge=0)
    """How often a malformed reply is asked for again."""
    concurrency: Integer = Field(default=4, ge=1)
    requests_per_minute: float | None = Field(default=None, gt=0)
    max_output_tokens: Integer | None = Field(default=None, ge=1)
    rewrites_first: bool = False
    """Lowering tries the built-in rewrite of a technique before it asks a model."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """JSON, by model name; beside LIST_PRICES, and before them."""
    context_tokens: dict[Role, Annotated[Integer, Field(ge=1000)]] = Field(default_factory=dict)
    """JSON: tokens a role's prompt may have."""

    max_tokens: Integer | None = Field(default=None, ge=0)
    max_money: float | None = Field(default=None, ge=0)
    max_calls: Integer | None = Field(default=None, ge=0)
    max_gpu_seconds: float | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0)
    max_evaluations: Integer | None = Field(default=None, ge=0)
    on_budget: Literal["pause", "finish"] = "pause"
    """What is done when a cap is reached: the run stops with its place saved, or ends its search
    and announces the best so far."""

    @property
    def models(self) -> ModelPlan:
        """How models are asked; who answers in which role is `model`'s to say."""
        return ModelPlan(
            base_url=self.base_url or os.environ.get("OPENAI_BASE_URL", ""),
            method=self.structured_output,
            temperature=self.temperature,
            streaming=self.streaming,
            timeout_seconds=self.model_timeout,
            attempts=self.model_attempts,
            on_model_failure=self.on_model_failure,
            check_seconds=self.model_check_seconds,
            reasks=self.reasks,
            concurrency=self.concurrency,
            requests_per_minute=self.requests_per_minute,
            max_output_tokens=self.max_output_tokens,
            rewrites_first=self.rewrites_first,
            prices=LIST_PRICES | self.prices,
            context_tokens=self.context_tokens,
        )

    @property
    def budgets(self) -> Budgets:
        """Caps on what a run may use."""
        return Budgets(
            tokens=self.max_tokens,
            money=self.max_money,
            calls=self.max_calls,
            gpu_seconds=self.max_gpu_seconds,
            wall_seconds=self.max_seconds,
            evaluations=self.max_evaluations,
        )

    @property
    def knowledge_directory(self) -> Path:
        """Where the knowledge base lives."""
        return default_knowledge_directory()

    @property
    def runs_directory(self) -> Path:
        """Where new runs are made."""
        return default_runs_directory()
