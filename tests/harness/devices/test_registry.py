"""Devices by name: a package of one's own brings one, and what is wrong with it is one line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import contributing
import pytest
import simulated_kernels as kernels
from conformance.device import DeviceConformance

from kernelblaster.harness.devices.protocol import Device
from kernelblaster.harness.devices.registry import brought, device_choice, open_device
from kernelblaster.harness.doctor import examine
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.task.loading import load_task

NAME = "asked_twice"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("site")
    contributing.install(folder, NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield
    sys.modules.pop(NAME, None)


@pytest.fixture(scope="module")
def device(installed: None) -> Device:
    return open_device(NAME, "A100")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "scale.py"
    path.write_text(kernels.SCALE_TASK)
    return asyncio.run(load_task(path))


class TestEntryPoint(DeviceConformance):
    """The device of CONTRIBUTING.md passes the suite, opened by its name."""


def test_a_device_of_a_package_is_named_and_opened(installed: None) -> None:
    assert brought() == [NAME]
    assert device_choice(NAME) == (NAME, "")
    assert open_device(NAME, "").identity.gpu == "H100"
    assert open_device(NAME, "A100").identity.toolchain.endswith("asked twice")
    with pytest.raises(UserError, match="cuda, deferred, asked_twice, or cuda:0,1"):
        open_device("quantum", "")
    with pytest.raises(UserError, match="unknown GPU 'GT 220'"):
        open_device(NAME, "GT 220")
    with pytest.raises(UserError, match="unknown device"):
        open_device(f"{NAME}:0", "")


def test_doctor_lists_the_device_of_a_package(installed: None) -> None:
    found = {check.name: check for check in asyncio.run(examine(""))}
    check = found[f"device {NAME}"]
    assert check.passed and not check.required
    assert check.finding.startswith("simulated H100") and f"--device {NAME}" in check.finding


@pytest.mark.parametrize(
    ("entry", "module", "what"),
    [
        (f"{NAME}:missing", None, "AttributeError"),
        (f"{NAME}:AskedTwice", "raise RuntimeError('no licence')", "no licence"),
        (f"{NAME}:AskedTwice", "def AskedTwice(): pass", "TypeError"),
        (f"{NAME}:AskedTwice", "def AskedTwice(gpu): return gpu", "gives no Device but str"),
        (f"{NAME}:AskedTwice", "import no_such_module", "no_such_module"),
    ],
)
def test_a_package_that_brings_none_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, module: str | None, what: str
) -> None:
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    contributing.install(tmp_path, NAME, module, entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=what) as told:
        open_device(NAME, "")
    assert entry in str(told.value) and "\n" not in str(told.value)
    assert "remove it" in str(told.value)
    sys.modules.pop(NAME, None)


def test_two_packages_may_not_bring_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        contributing.install(tmp_path / folder, NAME)
        facts = tmp_path / folder / f"{NAME}-1.0.dist-info"
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {folder}\nVersion: 1.0\n")
        facts.rename(facts.with_name(f"{folder}-1.0.dist-info"))
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    with pytest.raises(UserError, match="brings a device that .* brings too"):
        open_device(NAME, "")


def test_a_name_that_is_taken_is_told_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contributing.install(tmp_path, NAME)
    points = tmp_path / f"{NAME}-1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text().replace(f"{NAME} =", "simulated ="))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(open_device("simulated", "")).__name__ == "SimulatedDevice"
    found = {check.name: check for check in asyncio.run(examine(""))}
    assert "taken" in found["device simulated"].finding and not found["device simulated"].passed
