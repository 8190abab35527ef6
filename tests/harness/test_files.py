"""Files that are none: pipes, devices and files without end are refused at once, in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from often_or_seldom import every
from places import EXAMPLES

from kernelblaster.harness.errors import UserError
from kernelblaster.harness.files import read_regular, write_atomically

LIMIT_KIB = 6_000_000
"""Of address space: what is read without a bound ends in a MemoryError, and does not fill the
machine."""


def limited(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line with little memory and little patience."""
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(
        ["/bin/sh", "-c", f'ulimit -v {LIMIT_KIB}; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
             "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("kernelblaster: ")
    for word in words:
        assert word in done.stderr


def fifo(folder: Path) -> Path:
    path = folder / "pipe"
    os.mkfifo(path)
    return path


def sparse(folder: Path, size: int = 1 << 40) -> Path:
    path = folder / "sparse"
    with path.open("wb") as file:
        file.truncate(size)
    return path


def link_to_a_device(folder: Path) -> Path:
    """Only ever read: a file that has no end."""
    path = folder / "endless"
    path.symlink_to("/dev/zero")
    return path


def process_file(folder: Path) -> Path:
    """A regular file that says it has no bytes, and has some."""
    return Path("/proc/self/status")


def test_what_is_read_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, 9, 10):
        path.write_bytes(b"x" * size)
        assert read_regular(path, 10, "this") == b"x" * size
    path.write_bytes(b"x" * 11)
    with pytest.raises(UserError, match="has 11 bytes: this has at most 10"):
        read_regular(path, 10, "this")
    big = os.urandom((3 << 20) + 5)
    path.write_bytes(big)
    assert read_regular(path, 1 << 23, "this") == big
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 10, "this")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (fifo, "is a pipe: this is a regular file"),
        (link_to_a_device, "is a device"),
        (sparse, "at most 10"),
        (process_file, "has 11 bytes"),
        (lambda folder: folder, "is a folder"),
    ],
)
def test_what_is_no_file_is_not_read(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        read_regular(make(tmp_path), 10, "this")


@pytest.mark.parametrize("make", [fifo, sparse, link_to_a_device])
def test_jobs_run_reads_no_such_file(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path)
    done = limited("kernelblaster.harness.jobs", "run", path, "-o", tmp_path / "r.json")
    assert_refused(done, str(path))


@pytest.mark.slow
@pytest.mark.parametrize("make", every(3, [fifo, sparse, link_to_a_device]))
def test_evaluate_and_resume_read_no_such_file(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    path, kernel, task = make(tmp_path), tmp_path / "k.cu", EXAMPLES / "row_sum.py"
    kernel.write_text("extern")
    flags = ("--device", "simulated")
    for arguments in (
        ("evaluate", path, "--task", task, *flags),
        ("evaluate", kernel, "--task", path, *flags),
        ("resume", tmp_path, "--results", path),
    ):
        assert_refused(limited("kernelblaster", *arguments), str(path))


@pytest.mark.seldom
def test_a_file_as_large_as_the_memory_is_one_line(tmp_path: Path) -> None:
    path = sparse(tmp_path, (1 << 30) - 1)
    command = ["kernelblaster.harness.jobs", "run", path, "-o", tmp_path / "r.json"]
    assert_refused(limited(*command), str(path))


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    path = fifo(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(path)
    for target in (path, link):
        with pytest.raises(UserError, match="is a pipe: name a new file"):
            write_atomically(target, b"x")
    assert path.is_fifo() and link.is_symlink()
    assert sorted(found.name for found in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "null"
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes device nodes")
    with pytest.raises(UserError, match="is a device"):
        write_atomically(path, b"x")
    assert path.is_char_device()


def test_jobs_run_makes_nothing_beside_a_results_file_that_is_none(tmp_path: Path) -> None:
    from text_jobs import job_of, lay_out

    jobs = lay_out(tmp_path, job_of("us: 1.0\n"))
    (tmp_path / "out").mkdir()
    path = fifo(tmp_path / "out")
    assert_refused(limited("kernelblaster.harness.jobs", "run", jobs, "-o", path), "is a pipe")
    assert [found.name for found in path.parent.iterdir()] == ["pipe"]


def test_a_regular_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two" and [*path.parent.iterdir()] == [path]


def test_what_is_handed_on_may_be_read_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        for handed_on, mode in ((True, 0o640), (False, 0o600)):
            write_atomically(tmp_path / "file", b"x", handed_on=handed_on)
            assert (tmp_path / "file").stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
