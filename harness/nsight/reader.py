"""Reads a report with Nsight Compute's own Python module and prints JSON; run as a child process.

    python -P reader.py DIRECTORY_OF_NCU_REPORT REPORT OUT.json

The module is a native library of another installation: a crash in it must cost nothing but this
process. It needs only the standard library, so that any Python can run it.
"""

from __future__ import annotations

import ast
import json
import sys
from typing import Any

LINE_METRICS = (
    "inst_executed",
    "memory_l2_theoretical_sectors_global",
    "memory_l1_wavefronts_shared",
)


def main(directory: str, report: str, out: str) -> None:
    """Write the launches of a report as a JSON list."""
    sys.path.insert(0, directory)
    import ncu_report  # type: ignore[import-not-found]

    context = ncu_report.load_report(report)
    launches = []
    for index in range(context.num_ranges()):
        actions = context.range_by_idx(index)
        launches += [
            describe(actions.action_by_idx(number)) for number in range(actions.num_actions())
        ]
    with open(out, "w", encoding="utf-8") as file:
        json.dump(launches, file)


def describe(action: Any) -> dict[str, Any]:
    """Return one launch: its name, metrics with their units, rules, counters by source line."""
    names = list(action.metric_names())
    metrics = {}
    for name in names:
        metric = action.metric_by_name(name)
        value = metric.value() if metric is not None else None
        if isinstance(value, (int, float, str)):
            metrics[name] = (value, metric.unit() or "")
    return {
        "kernel": kernel_name(action),
        "metrics": metrics,
        "rules": [rule for each in rule_results(action) for rule in describe_rule(each)],
        "lines": source_lines(action, set(names)),
    }


def kernel_name(action: Any) -> str:
    """Return the demangled name, with template arguments where the module gives them."""
    base = getattr(action, "NameBase_DEMANGLED", None)
    if base is not None:
        try:
            return str(action.name(base))
        except (TypeError, ValueError, RuntimeError):
            pass
    return str(action.name())


def rule_results(action: Any) -> list[Any]:
    """Return the rules' results; releases before 2024.3 have none to give."""
    read = getattr(action, "rule_results_as_dicts", None)
    return list(read()) if read is not None else []


def describe_rule(rule: Any) -> list[dict[str, Any]]:
    """Return the rule as the arguments of `make_rule`, or nothing where it says nothing."""
    message = as_mapping(rule.get("rule_message"))
    speedup = as_mapping(rule.get("speedup_estimation"))
    if not message.get("message"):
        return []
    estimate = speedup.get("speedup")
    return [
        {
            "section": str(rule.get("section_identifier") or ""),
            "name": str(rule.get("rule_identifier") or rule.get("name") or ""),
            "kind": str(message.get("type", message.get("message_type", ""))),
            "message": str(message["message"]),
            "speedup": float(estimate) if estimate is not None else None,
            "scope": str(speedup.get("type", "")),
        }
    ]


def as_mapping(value: Any) -> dict[str, Any]:
    """Return a mapping; one release hands its nested ones out as their text."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return {}
    return value if isinstance(value, dict) else {}


def source_lines(action: Any, names: set[str]) -> list[list[Any]]:
    """Return [file, line, instructions, global sectors, shared wavefronts] of each line."""
    found: dict[tuple[str, int], list[float]] = {}
    for column, name in enumerate(LINE_METRICS):
        metric = action.metric_by_name(name) if name in names else None
        if metric is None or not metric.num_instances() or not metric.has_correlation_ids():
            continue
        addresses = metric.correlation_ids()
        for index in range(metric.num_instances()):
            info = action.source_info(addresses.as_uint64(index))
            if info is None or not info.line():
                continue
            counts = found.setdefault((info.file_name(), info.line()), [0.0, 0.0, 0.0])
            counts[column] += metric.as_double(index)
    return [[file, line, *counts] for (file, line), counts in found.items() if any(counts)]


if __name__ == "__main__":
    main(*sys.argv[1:4])
