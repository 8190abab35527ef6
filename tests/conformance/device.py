"""What every device must do, whatever runs behind it: inherit and offer a `device` and a `task`.

The task is `x * 2 + 1` on one float32 vector (simulated_kernels.SCALE_TASK).
"""

from __future__ import annotations

import pytest
import simulated_kernels as kernels

from kernelblaster.harness.devices.gates import Gates, unconfirmed_because
from kernelblaster.harness.devices.protocol import Capability, Device, Incapable
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.records.timings import Provenance
from kernelblaster.harness.task.claims import NOT_AN_INPUT, ClaimedInput, Fill

WRONG_SOURCES = {
    "compile_error": kernels.WRONG["does not compile"][0],
    "forbidden": kernels.WRONG["getenv"][0],
    "wrong_answer": kernels.WRONG["wrong answer"][0],
}


class CapabilitiesConformance:
    """What a device declares is what it does; the kernel of a subclass passes its task."""

    kernel = kernels.SCALE
    wrong_at = kernels.SCALE.replace("y[i] =", "y[i] = x[i] == 3.5f ? 0.0f :")
    """A kernel that is wrong where x is 3.5, and that no case of the task's tells from right."""

    async def test_confirming_is_a_verification(self, device: Device, task: Task) -> None:
        if Capability.CONFIRM not in device.capabilities:
            with pytest.raises(Incapable, match="confirm"):
                await device.confirm(task, self.kernel)
            return
        confirmed = await device.confirm(task, self.kernel)
        assert confirmed.outcome is Outcome.PASSED, confirmed.reason

    async def test_a_fresh_measurement_is_a_measurement(self, device: Device, task: Task) -> None:
        if Capability.FRESH not in device.capabilities:
            with pytest.raises(Incapable, match="fresh"):
                await device.time_fresh(task, self.kernel)
            return
        measured = await device.time_fresh(task, self.kernel)
        assert measured.stage.outcome is Outcome.PASSED, measured.stage.reason
        assert measured.timing is not None and measured.profile is not None

    async def test_comparing_gives_a_ratio(self, device: Device, task: Task) -> None:
        compared = await Gates(device).compare(task, self.kernel, self.kernel)
        if Capability.COMPARE not in device.capabilities:
            assert compared is None
            with pytest.raises(Incapable, match="compare"):
                await device.compare(task, self.kernel, self.kernel)
            return
        assert compared is not None and compared.ratio is not None
        low, high = compared.ratio.interval
        assert low <= compared.ratio.ratio <= high

    async def test_counters_are_there_or_their_absence_is_told(
        self, device: Device, task: Task
    ) -> None:
        measured = await device.profile(task, self.kernel)
        assert measured.profile is not None, measured.stage.reason
        if Capability.COUNTERS not in device.capabilities:
            assert measured.profile.provenance is Provenance.EVENTS
        elif measured.profile.provenance is Provenance.EVENTS:
            assert measured.stage.facts["profiler_unavailable"]
        else:
            assert measured.profile.launches[0].metrics

    async def test_a_claimed_input_is_run_and_one_that_is_none_is_told(
        self, device: Device, task: Task
    ) -> None:
        claim = ClaimedInput(tensors=(Fill(tensor="x", kind="constant", first=3.5),))
        if Capability.CLAIMS not in device.capabilities:
            with pytest.raises(Incapable, match="claims"):
                await device.verify_claim(task, self.kernel, claim)
            return
        right = await Gates(device).claimed(task, self.kernel, claim)
        assert right.outcome is Outcome.PASSED, right.reason
        wrong = await Gates(device).claimed(task, self.wrong_at, claim)
        assert wrong.outcome is Outcome.WRONG_ANSWER and claim.id in wrong.reason
        large = ClaimedInput(tensors=(Fill(tensor="x", kind="constant", first=5000.0),))
        refused = await device.verify_claim(task, self.wrong_at, large)
        assert refused.outcome is Outcome.PASSED and NOT_AN_INPUT in refused.facts

    async def test_a_winner_goes_through_both_gates_again(self, device: Device, task: Task) -> None:
        first = (await Gates(device).run(task, self.kernel)).timing
        again = await Gates(device).confirm(task, self.kernel)
        assert first is not None and again.timing is not None, again.last.reason
        assert "did not pass" not in unconfirmed_because(first, again)

    async def test_it_answers_again_after_it_was_closed(self, device: Device, task: Task) -> None:
        device.close()
        assert (await device.verify(task, self.kernel)).outcome is Outcome.PASSED


class DeviceConformance(CapabilitiesConformance):
    """The suite. Subclasses give the fixtures `device` and `task`."""

    def test_its_identity_is_stable_and_complete(self, device: Device) -> None:
        assert device.identity == device.identity
        assert device.identity.gpu and device.identity.arch and device.identity.toolchain

    async def test_a_right_kernel_passes_every_stage(self, device: Device, task: Task) -> None:
        compiled = await device.compile(task, kernels.SCALE)
        assert compiled.outcome is Outcome.PASSED, compiled.reason
        assert compiled.build is not None and compiled.build.kernels[0].registers > 0
        verified = await device.verify(task, kernels.SCALE)
        assert verified.outcome is Outcome.PASSED, verified.reason
        assert verified.facts["cases"] >= 5
        measured = await device.profile(task, kernels.SCALE)
        assert measured.stage.outcome is Outcome.PASSED, measured.stage.reason
        assert measured.timing is not None and measured.profile is not None
        assert measured.timing.microseconds > 0
        # Events time what counters profile; simulated and measured never stand side by side.
        simulated = Provenance.SIMULATED
        assert (measured.timing.provenance is simulated) is (
            measured.profile.provenance is simulated
        )
        launch = measured.profile.launches[0]
        assert launch.block == (256, 1, 1)
        assert launch.metrics["launch__block_size"] == 256
        assert launch.metrics["gpu__time_duration.sum"] > 0

    async def test_a_failure_is_data_with_a_reason_and_no_time(
        self, device: Device, task: Task
    ) -> None:
        for outcome, source in WRONG_SOURCES.items():
            stage = await device.compile(task, source)
            if stage.outcome is Outcome.PASSED:
                stage = await device.verify(task, source)
            assert stage.outcome.value == outcome
            assert stage.reason and "\n" not in stage.reason
            assert stage.diagnostics

    async def test_a_candidate_leaves_nothing_behind_for_the_next(
        self, device: Device, task: Task
    ) -> None:
        await device.verify(task, kernels.WRONG["null dereference"][0])
        after = await device.verify(task, kernels.SCALE)
        assert after.outcome is Outcome.PASSED, after.reason
