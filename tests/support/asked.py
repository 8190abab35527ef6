"""What a test asks of a run: request and context from one set of keywords."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelblaster.graph.session import Session
from kernelblaster.harness.records.record import Record
from kernelblaster.nodes.records.plan import OptimizeRequest, RunContext


class Asked(Record):
    """A request under its context."""

    request: OptimizeRequest
    context: RunContext

    @classmethod
    def of(cls, **values: Any) -> Asked:
        """Put each value where it belongs; models are asked at every step if nothing else is."""
        values.setdefault("agents", "full")
        names = [name for name in OptimizeRequest.model_fields if name in values]
        request = {name: values.pop(name) for name in names}
        return cls(request=OptimizeRequest(**request), context=RunContext(**values))

    def session(self, directory: Path) -> Session:
        """Lay out a run in a directory."""
        request = self.request.model_copy(update={"run": str(directory)})
        return Session.create(request, self.context)
