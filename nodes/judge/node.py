"""Judge (CudaForge): feedback on the last round's candidate.

Reads plan, summary, round, initial, current, latest, candidate and feedback; writes feedback, or
`ended` where nothing is left to say. A candidate that failed is corrected, one that is right
optimised; a policy may have only one of the two. Source and evaluation are looked up by one key,
which is made of the source: counters of another kernel cannot be shown beside it.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from ...tools.models.records import BUILTIN, Answer, Message
from ...tools.progress import report_progress
from ...tools.workspace import Workspace
from ..common.asking import asked, stand_in
from ..common.policies import RULES, Mode
from ..common.workspaces import workspace_of
from ..records.kernels import KernelPoint
from ..records.plan import RunPlan
from ..records.rounds import Candidate, Feedback
from ..records.task import TaskSummary
from .builtin import Advice, correct, optimise
from .prompt import Subject, judge_messages, shown_counters
from .reply import Correction, Optimisation, optimisation_on


class Reads(TypedDict):
    """What this agent reads."""

    plan: RunPlan
    summary: TaskSummary
    round: int
    current: KernelPoint
    latest: Candidate | None
    candidate: Candidate | None
    feedback: Feedback | None


async def judge(state: Reads) -> dict[str, Any]:
    """Say one thing of one candidate."""
    plan = state["plan"]
    subject = await asyncio.to_thread(_subject, state)
    author, prompt, advice = BUILTIN, None, None
    if plan.models.model_of("judge") != BUILTIN:
        answer = await _ask(state, subject)
        author, prompt, advice = answer.author, answer.prompt_sha256, _advice(answer)
        if advice is None:
            author = stand_in(answer)
    if advice is None:
        advice = await asyncio.to_thread(_builtin, state, subject)
    if advice is None:
        return {"ended": "no technique of the library applies to this kernel"}
    feedback = Feedback(
        mode=subject.mode,
        source_sha256=subject.evaluation.source_sha256,
        evaluation_key=subject.evaluation.key,
        finding=advice.finding,
        method=advice.method,
        advice=advice.advice,
        expected_log_gain=advice.expected_log_gain,
        author=author,
        prompt_sha256=prompt,
    )
    report_progress("feedback", round=state["round"], **feedback.model_dump(mode="json"))
    return {"feedback": feedback}


def _subject(state: Reads) -> Subject:
    """Return what is judged: the last candidate, else, where it may not be corrected, the last
    kernel that passed."""
    latest, modes = state["latest"], RULES[state["plan"].policy].modes
    mode: Mode = "optimisation"
    sha256 = state["current"].source_sha256
    if latest is not None and latest.point is None and "correction" in modes:
        sha256, mode = str(latest.source_sha256), "correction"
    with workspace_of(state["plan"]) as workspace:
        task = workspace.task(state["summary"].artifact)
        source = workspace.artifacts.get_text(sha256)
        key = workspace.evaluator.key(task, source)
        return Subject(mode, source, workspace.evaluation(key))


def _builtin(state: Reads, subject: Subject) -> Advice | None:
    if subject.mode == "correction":
        return correct(subject.evaluation)
    last, done, plan = state["feedback"], state["candidate"], state["plan"]
    with workspace_of(plan) as workspace:
        task = workspace.task(state["summary"].artifact)
    assert subject.evaluation.profile is not None
    return optimise(
        subject.evaluation.profile,
        subject.source,
        task,
        left_out=(last.method if last else "", done.rewrite if done else ""),
        seed=plan.seed,
        place=state["round"],
    )


async def _ask(state: Reads, subject: Subject) -> Answer[Any]:
    form: type[Correction] | type[Optimisation] = Correction
    if subject.mode == "optimisation":
        assert subject.evaluation.profile is not None
        form = optimisation_on(shown_counters(subject.evaluation.profile))

    def prepare(workspace: Workspace) -> tuple[tuple[Message, ...], Any]:
        return judge_messages(workspace, state, subject), form

    return await asked(state["plan"], "judge", (state["round"],), prepare)


def _advice(answer: Answer[Any]) -> Advice | None:
    reply = answer.value
    if isinstance(reply, Correction):
        return Advice(reply.diagnosis, "correction", reply.hint)
    if isinstance(reply, Optimisation):
        return Advice(reply.bottleneck.replace("_", " "), reply.method, reply.plan)
    return None
