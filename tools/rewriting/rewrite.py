"""A technique as a pure function from source to source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...harness.records.tasks import Task
from .records import Apply, Inapplicable, Kernels, NotRecognised, Outcome, Parameters, Rewritten
from .source.local_constants import with_sizes_before
from .source.tidying import tidied

LARGEST_READ = 1 << 18
"""Characters of a source: all rewrites read it. A model of 100 first kernels has half as many."""


@dataclass(frozen=True)
class Rewrite:
    """One technique as a change of source text.

    `apply` is pure: the same arguments give the same text. Parameters
    that are left out take the first of their listed values.
    """

    technique: str
    change: Apply
    parameters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def apply(
        self, source: str, task: Task, parameters: Parameters | None = None, kernels: Kernels = ()
    ) -> Outcome:
        """Return the new source, or why the technique does not apply.

        Args:
            source: a file of kernels.
            task: what it computes.
            parameters: values by name.
            kernels: those that may be changed, by name; the first that can be is. Without any that
                the source defines, all may, in its order.
        """
        chosen = {name: values[0] for name, values in self.parameters.items()}
        for name, value in (parameters or {}).items():
            if name not in self.parameters:
                return Inapplicable(reason=f"{self.technique} has no parameter {name}")
            if value not in self.parameters[name]:
                return Inapplicable(reason=f"{name} is one of {list(self.parameters[name])}")
            chosen[name] = value
        if len(source) > LARGEST_READ:
            return Inapplicable(reason=f"built-in rewrites read up to {LARGEST_READ} characters")
        try:
            outcome = self.change(source, task, chosen, kernels)
            if isinstance(outcome, Rewritten):
                moved = with_sizes_before(source, outcome.source)
                outcome = outcome if moved == source else self.change(moved, task, chosen, kernels)
        except NotRecognised as reason:
            return Inapplicable(reason=str(reason))
        except RecursionError:  # The tree is walked down; the parser nests without a limit.
            return Inapplicable(reason="an expression or a block is nested too deeply to be read")
        if isinstance(outcome, Inapplicable):
            return outcome
        text = tidied(source, outcome.source)
        if text == source:
            return Inapplicable(reason="the source has this form already")
        return outcome.model_copy(update={"source": text})
