"""Proposals of a model that were not chosen: they stay on the table without being asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...memory.knowledge.knowledge_base import KnowledgeBase
from ...memory.records.evidence import Step
from ...tools.workspace import Workspace
from ..records.accounts import StepAccount
from ..records.choices import Proposal
from .table import Table

FEWEST = 2
"""Proposals for the very kernel from which on nobody is asked for more: between them is a
choice."""
MOST_KEPT = 8
"""The newest: what was thought of longest ago was thought of another kernel."""


def of_earlier_rollouts(
    workspace: Workspace, steps: Iterable[Step], source_sha256: str
) -> tuple[Proposal, ...]:
    """Return what models proposed for a kernel in the steps that may be spoken of."""
    accounts = [
        StepAccount.model_validate_json(workspace.artifacts.get_text(step.account_sha256))
        for step in steps
        if step.parent_sha256 == source_sha256 and step.account_sha256
    ]
    return together(*(by_models(each.proposals) for each in accounts))


def by_models(proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
    """Return those that a model made, now or before."""
    return tuple(each for each in proposals if each.source in ("model", "kept"))


def together(*proposals: Sequence[Proposal]) -> tuple[Proposal, ...]:
    """Return each technique once, as it was proposed last; the earliest sets of it come last."""
    found: dict[str, Proposal] = {}
    for some in reversed(proposals):
        for each in some:
            found.setdefault(each.technique, each)
    return tuple(found.values())[:MOST_KEPT]


def still_on(
    table: Table, kept: Sequence[Proposal], knowledge: KnowledgeBase, at: int
) -> tuple[Proposal, ...]:
    """Return those that may be tried on the kernel at hand, with what to expect of them on it."""
    able = [
        each for each in kept
        if table.refusal(each.technique) is None and each.technique not in table.unfit
    ]  # fmt: skip
    aims = {each.technique: each.launch for each in able if each.launch in table.kernels}
    told = knowledge.beliefs(
        table.where, [each.optimization or each.technique for each in able], table.aimed(aims), at
    )
    return tuple(
        each.model_copy(
            update={
                "source": "kept",
                "settings": prospect.settings,
                "launch": prospect.launch,
                "expected": prospect.expected,
            }
        )
        for each, prospect in zip(able, told, strict=True)
        if prospect.settings
    )
