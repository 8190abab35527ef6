"""The cache's quota: what was unused for the longest time goes, what may be in use stays."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelblaster.harness.build import cache
from kernelblaster.harness.build.cache import new_entry, quota_bytes, trim_entries, used_entry
from kernelblaster.harness.errors import UserError

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of entries in a cache of 20 MiB."""
    monkeypatch.setenv("KERNELBLASTER_CACHE", str(tmp_path))
    monkeypatch.setenv("KERNELBLASTER_CACHE_GIB", str(20 / 1024))
    (tmp_path / "builds").mkdir()
    return tmp_path / "builds"


def add(folder: Path, number: int, hours: float, size: int = MIB) -> Path:
    """Add an entry that was last used so many hours ago."""
    entry = folder / f"{number % 7:02}" / f"key{number}"
    with new_entry(entry) as directory:
        (directory / "candidate.so").write_bytes(b"x" * size)
    used = time.time() - hours * 3600
    os.utime(entry, (used, used))
    trim_entries(folder, entry)
    return entry


def test_the_longest_unused_go_first(folder: Path) -> None:
    entries = [add(folder, number, hours=100 - number) for number in range(40)]
    left = [entry.exists() for entry in entries]
    assert left == sorted(left) and not left[0] and left[-1]
    assert sum(left) <= 21
    assert sorted(path.name for path in folder.parent.iterdir()) == ["builds"]


def test_what_is_used_again_stays(folder: Path) -> None:
    first = add(folder, 0, hours=500)
    for number in range(1, 60):
        used_entry(first)
        add(folder, number, hours=200 - number)
    assert (first / "candidate.so").is_file()


def test_what_may_be_in_use_stays_beyond_the_quota(folder: Path) -> None:
    entries = [add(folder, number, hours=0.1) for number in range(40)]
    assert all((entry / "candidate.so").is_file() for entry in entries)


def test_many_that_add_at_once_agree(folder: Path) -> None:
    def work(start: int) -> None:
        for number in range(start, start + 30):
            add(folder, number, hours=1000 - number / 10)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(work, range(0, 3000, 300)))
    left = list(folder.glob("*/*"))
    assert 0 < len(left) <= 40
    assert all((entry / "candidate.so").stat().st_size == MIB for entry in left)


def test_few_calls_look(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(cache, "_remove_unused", lambda folder, quota: looked.append(quota))
    monkeypatch.setenv("KERNELBLASTER_CACHE_GIB", "1")
    for number in range(50):
        add(folder, number, hours=1)
    assert looked == [1 << 30] * 2


@pytest.mark.parametrize("text", ["none", "0", "-3", "nan", "inf", "1e400"])
def test_a_quota_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("KERNELBLASTER_CACHE_GIB", text)
    with pytest.raises(UserError, match="not a number of GiB above 0") as caught:
        quota_bytes()
    assert "\n" not in str(caught.value)


def test_the_quota_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELBLASTER_CACHE_GIB", raising=False)
    assert quota_bytes() == 20 << 30
