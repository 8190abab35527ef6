"""The C core's files stand on floors: no two of them call each other, by way of others either."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

from kernelblaster.harness.simt.run import library

CORE = Path(library.__file__).parent.parent / "core"
_DEFINITION = re.compile(
    r"^(?!static|typedef|#|extern)\w[\w \*]*?\b(\w+)\([^;{]*\)\s*\{", re.MULTILINE
)


def _calls(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return which files each file takes functions from."""
    code = {name: re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL) for name, text in sources.items()}
    home = {
        function: name for name, text in code.items() for function in _DEFINITION.findall(text)
    }
    return {
        name: {
            home[word] for word in set(re.findall(r"\w+", text)) if word in home
        } - {name}
        for name, text in code.items()
    }  # fmt: skip


def test_no_circle_of_files() -> None:
    calls = _calls({path.name: path.read_text() for path in CORE.glob("*.c")})
    order = list(TopologicalSorter(calls).static_order())  # raises CycleError
    assert {"memory.c", "run.c"} <= set(order) and "memory.c" in calls["run.c"]
    assert order.index("ordering.c") < order.index("memory.c") < order.index("grid.c")


def test_a_circle_would_be_seen() -> None:
    found = _calls({
        "a.c": "int one(int x) {\n    return two(x);\n}\n",
        "b.c": "static int hidden(void) { return 0; }\nint two(int x) {\n    return one(x);\n}\n",
    })  # fmt: skip
    assert found == {"a.c": {"b.c"}, "b.c": {"a.c"}}
