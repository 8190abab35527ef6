"""Records keep their stored form: what earlier versions wrote is read, under the same id."""

from __future__ import annotations

import json

from kernelblaster.memory.records.evidence import (
    LATER_FIELDS,
    Applied,
    Circumstances,
    Evidence,
    Step,
)
from kernelblaster.memory.records.policy import PolicyContext

EVIDENCE = (
    '{"task_id":"t","run":"r-1","iteration":1,"rollout":0,"step":2,"op_class":"softmax",'
    '"dtype":"float32","parent_sha256":"p","child_sha256":"c","state_before":'
    '"dram_bandwidth_bound","state_after":"l2_bound","signature_before":[0.0,0.25],"technique":'
    '"fast_math","parameters":{"b":1,"a":[2]},"previous_technique":"unroll_loop",'
    '"expected_log_gain":0.1,"outcome":"passed","log_gain":0.3,"standard_error":0.01,'
    '"device_kind":"simulated","gpu":"H100","arch":"sm_90","family":"hopper","toolchain":"nvcc",'
    '"harness":"2","author":"builtin","prompt_sha256":null,"repairs":1,"created":"2026-01-01"}'
)
EVIDENCE_ID = "f1dcee100be228114ab4e307fba697c4ff17fa89e0e04f22c36ae8c0ce3582f1"
FACT_ID = "75cd9cf3a866083821a6ba4708bedaf44784bc779a9d0c1453db5c7d7d9ce8eb"
STEP = (
    '{"run":"r-1","iteration":1,"rollout":0,"step":2,"state_id":"dram_bandwidth_bound",'
    '"technique":"fast_math","parameters":{"b":1},"expected_log_gain":0.1,"outcome":"passed",'
    '"reason":"","log_gain":0.3,"parent_sha256":"p","child_sha256":"c","microseconds_before":2.0,'
    '"microseconds_after":1.5,"bottleneck_before":"dram","bottleneck_after":"l2","author":'
    '"builtin","evaluation_key":"k","evidence_id":"e","optimization":null}'
)
STEP_ID = "b86a27ad0b83a04100afc5ae7b41516d7a59e1c63f88b76e45b5a25b522e2beb"


def test_evidence_of_an_earlier_version_is_read_under_the_same_id() -> None:
    row = Evidence.model_validate_json(EVIDENCE)
    assert (row.id, row.fact_id) == (EVIDENCE_ID, FACT_ID)
    left_out = set(LATER_FIELDS) - set(json.loads(EVIDENCE))
    assert json.loads(row.model_dump_json(exclude=left_out)) == json.loads(EVIDENCE)


def test_a_step_of_an_earlier_version_is_read_under_the_same_id() -> None:
    step = Step.model_validate_json(STEP)
    assert step.id == STEP_ID
    said = json.loads(step.model_dump_json())
    assert {name: said[name] for name in json.loads(STEP)} == json.loads(STEP)


def test_what_steps_and_evidence_share_is_declared_once() -> None:
    shared = set(Step.model_fields) & set(Evidence.model_fields)
    assert shared == set(Applied.model_fields)
    assert set(PolicyContext.model_fields) & set(Evidence.model_fields) == set(
        Circumstances.model_fields
    )
    for own in (Step, Evidence, PolicyContext):
        declared = set(own.__annotations__)
        assert not declared & (set(Applied.model_fields) | set(Circumstances.model_fields))
