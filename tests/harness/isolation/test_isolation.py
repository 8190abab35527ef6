"""What host code of candidates cannot reach, tried in real child processes."""

from __future__ import annotations

import asyncio
import errno
import os
import platform
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
import simulated_kernels as kernels

from kernelblaster.harness.cuda.worker.isolation import devices
from kernelblaster.harness.devices.simulated import device as simulated
from kernelblaster.harness.errors import UserError
from kernelblaster.harness.isolation import landlock, seccomp
from kernelblaster.harness.isolation.kernel import Refused
from kernelblaster.harness.isolation.probe import sandbox
from kernelblaster.harness.isolation.system_calls import (
    ABSENT,
    AUDIT_ARCHITECTURES,
    FOR_NO_CANDIDATE,
    FOR_NOBODY,
    MACHINES,
    NEWEST,
    NUMBERS,
)
from kernelblaster.harness.records.outcomes import Outcome
from kernelblaster.harness.records.tasks import Task
from kernelblaster.harness.simt.child import isolation_facts
from kernelblaster.harness.task.loading import cases_directory, load_task


def landlock_version() -> int:
    try:
        return landlock.version()
    except Refused:
        return 0


needs_landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
needs_filter = pytest.mark.skipif(not seccomp.can_kill(), reason="this kernel filters no calls")


class Ran(NamedTuple):
    status: int
    output: str


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret" / "key"
    path.parent.mkdir()
    path.write_text("do not tell")
    return path


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir()
    return path


def child(code: str, scratch: Path, before: str = "") -> Ran:
    """Run Python code in a process that has shut itself off; `before` runs before that."""
    head = """
        import ctypes, errno, os, signal, socket, subprocess, sys, threading
        from pathlib import Path
        from kernelblaster.harness.isolation.candidate_process import enclose_process
    """
    enclose = "missing = enclose_process([], [Path.cwd()])"
    text = "\n".join([textwrap.dedent(head), textwrap.dedent(before), enclose,
                      textwrap.dedent(code)])  # fmt: skip
    return run(text, scratch)


def run(text: str, scratch: Path) -> Ran:
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(text)],
        cwd=scratch, capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
             "HOME": str(scratch), "TMPDIR": str(scratch)},
    )  # fmt: skip
    return Ran(done.returncode, done.stdout.strip() + done.stderr.strip())


# ---- the process of a simulated candidate ----


@needs_landlock
@needs_filter
def test_nothing_is_missing_where_the_kernel_has_all(scratch: Path) -> None:
    missing = child("print(missing)", scratch)
    lacks = [word for since, word in ((3, "truncating"), (5, "devices"), (6, "signals"))
             if landlock_version() < since]  # fmt: skip
    assert all(word in missing.output for word in lacks)
    assert (missing.output == "[]") == (not lacks)


@needs_landlock
def test_work_inside_the_scratch_folder_goes_on(scratch: Path) -> None:
    code = """
        Path("a").mkdir()
        Path("a/b").write_text("x")
        Path("a/b").rename("c")
        Path("c").unlink()
        os.truncate(os.open("d", os.O_CREAT | os.O_RDWR), 10)
        os.close(os.memfd_create("tile"))
        Path("/dev/null").write_text("x")
        import json.tool, statistics
        ctypes.CDLL("libm.so.6")
        print("done")
    """
    assert child(code, scratch) == Ran(0, "done")


FILES = {
    "read": "Path(SECRET).read_text()",
    "list": "os.listdir(Path(SECRET).parent)",
    "write": "Path(SECRET).write_text('x')",
    "append": "open(SECRET, 'a')",
    "create": "Path(SECRET).with_name('new').write_text('x')",
    "make a folder": "Path(SECRET).with_name('new').mkdir()",
    "remove": "os.unlink(SECRET)",
    "rename": "os.rename(SECRET, 'mine')",
    "read the password file": "Path('/etc/passwd').read_text()",
    "read the parent's environment": "Path(f'/proc/{os.getppid()}/environ').read_bytes()",
    "write in the home folder": "Path('/tmp/kernelblaster-test-isolation').write_text('x')",
}


@needs_landlock
@pytest.mark.parametrize("name", list(FILES))
def test_files_elsewhere_are_out_of_reach(scratch: Path, secret: Path, name: str) -> None:
    code = f"""
        SECRET = {str(secret)!r}
        try:
            {FILES[name]}
        except OSError as error:
            print(errno.errorcode[error.errno])
    """
    ran = child(code, scratch)
    assert ran.status == 0 and ran.output in ("EACCES", "EXDEV", "EPERM"), ran
    assert secret.read_text() == "do not tell"
    assert os.listdir(secret.parent) == ["key"]


DEADLY = {
    "a socket": "socket.socket()",
    "a local socket": "socket.socketpair()",
    "a fork": "os.fork()",
    "a program": "os.execv('/bin/true', ['true'])",
    "a program in a child": "subprocess.run(['true'])",
    "a thread": "threading.Thread(target=print).start()",
    "a signal to the parent": "os.kill(os.getppid(), 0)",
    "a signal to the group": "os.kill(0, signal.SIGTERM)",
    "a signal to everyone": "os.kill(-1, signal.SIGTERM)",
    "a later signal": "signal.setitimer(signal.ITIMER_REAL, 1)",
    "another session": "os.setsid()",
    "a symbolic link": "os.symlink('/etc/passwd', 'report.json')",
    "a hard link": "Path('a').write_text(''); os.link('a', 'b')",
    "a mode": "os.chmod('.', 0o777)",
    "ptrace": "LIBC.ptrace(16, os.getppid(), 0, 0)",
    "another process's memory": "LIBC.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)",
    "a namespace": "LIBC.unshare(0x10000000)",
    "a mount": "LIBC.mount(b'none', b'/mnt', b'tmpfs', 0, 0)",
    "a BPF program": "LIBC.syscall({bpf}, 0, 0, 0)",
    "a performance counter": "LIBC.syscall({perf_event_open}, 0, 0, 0, 0, 0)",
    "a key": "LIBC.syscall({keyctl}, 0, 0)",
    "shared memory": "LIBC.shmget(1, 4096, 0o1600)",
    "another filter": "LIBC.prctl(22, 2, 0)",
}


def numbers() -> dict[str, int | None]:
    place = MACHINES.index(platform.machine())
    return {name: pair[place] for name, pair in NUMBERS.items()}


@needs_filter
@pytest.mark.parametrize("name", list(DEADLY))
def test_what_the_kernel_is_not_to_be_asked_for(scratch: Path, name: str) -> None:
    asked = DEADLY[name].format(**numbers())
    ran = child(f"LIBC = ctypes.CDLL(None)\nprint('ready', flush=True)\n{asked}\nprint('done')",
                scratch)  # fmt: skip
    assert ran == Ran(-signal.SIGSYS, "ready")


@needs_filter
def test_calls_that_libraries_try_fail_and_newer_ones_are_unknown(scratch: Path) -> None:
    known = numbers()
    asked = [known["clone3"], known["io_uring_setup"], NEWEST + 1, 0x40000000 | 39]
    code = f"""
        libc = ctypes.CDLL(None, use_errno=True)
        for number in {asked}:
            print(libc.syscall(ctypes.c_long(number), 0, 0, 0), ctypes.get_errno(), end=" ")
    """
    assert child(code, scratch) == Ran(0, " ".join([f"-1 {errno.ENOSYS}"] * 4))


@needs_filter
@pytest.mark.skipif(platform.machine() != "x86_64", reason="32-bit calls are x86's")
def test_calls_of_another_instruction_set_are_no_way_round(scratch: Path) -> None:
    code = """
        import mmap
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))  # mov eax, getpid; int 0x80; ret
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        print("ready", flush=True)
        ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        print("done")
    """
    ran = child(code, scratch)
    assert ran.output == "ready" and ran.status in (-signal.SIGSYS, -signal.SIGSEGV)


@needs_filter
@pytest.mark.parametrize("how", ["os.abort()", "os.kill(os.getpid(), signal.SIGABRT)"])
def test_a_process_may_end_itself(scratch: Path, how: str) -> None:
    assert child(how, scratch).status == -signal.SIGABRT


@needs_filter
@pytest.mark.skipif(os.getuid() != 0, reason="only root has rights to lose")
def test_an_imported_package_imports_more_of_itself_and_nothing_beside_it(
    scratch: Path, tmp_path: Path
) -> None:
    package = tmp_path / "elsewhere" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "later.py").write_text("VALUE = 7")
    (package.parent / "beside.py").write_text("")
    before = f"import sys; sys.path.append({str(package.parent)!r}); import package"
    code = "from package.later import VALUE; assert VALUE == 7; import beside"
    ran = child(code, scratch, before)
    assert ran.status == 1 and ran.output.endswith("beside.py'")


def test_root_is_root_no_more(scratch: Path) -> None:
    code = "print([line for line in OPEN if line.startswith('CapEff')])"
    before = """
        status = open("/proc/self/status")
    """
    ran = child("OPEN = status.read().splitlines()\n" + code, scratch, before)
    assert ran.status == 0 and int(ran.output.split("\\t")[1][:16], 16) in (0, 2)


REFUSING = """
    from kernelblaster.harness.isolation import seccomp
    from kernelblaster.harness.isolation.privileges import no_new_privileges
    no_new_privileges()
    rules = [seccomp.Rule(call, seccomp.refuse_with(errno.{error})) for call in {calls}]
    seccomp.install([*rules, *{more}], seccomp.ALLOW)
"""


@needs_filter
@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
def test_what_the_surroundings_forbid_is_stated(scratch: Path, error: str) -> None:
    """As in a container whose own filter knows none of these calls."""
    before = textwrap.dedent(REFUSING).format(
        error=error,
        calls=["landlock_create_ruleset", "seccomp", "capset", "unshare"],
        more="[seccomp.Rule('prctl', seccomp.refuse_with(errno.EINVAL), 0, equal_to=22)]",
    )
    ran = child("print(*missing, sep='\\n')", scratch, before)
    assert ran.status == 0, ran.output
    words = os.strerror(getattr(errno, error))
    expected = [
        f"a file system of its own ({words})",
        "a filter of system calls (Invalid argument)",
        f"a network of its own ({words})",
    ]
    if os.getuid() == 0:
        expected.insert(0, f"dropping capabilities ({words})")
    assert ran.output.splitlines() == expected


def test_what_is_missing_becomes_a_fact() -> None:
    assert isolation_facts([]) == {}
    assert isolation_facts(["a", "b"]) == {"isolation_missing": "a; b"}


@needs_landlock
@needs_filter
def test_the_finding_for_doctor_agrees(scratch: Path) -> None:
    found = sandbox()
    own = [words for words in found.missing if "for the GPU's worker" not in words]
    assert "\n" not in found.finding
    assert repr(own) == child("print(missing)", scratch).output
    assert found.complete != bool(found.remedy)


# ---- the process beside a GPU, in which no host code of candidates runs ----


WORKER = """
    import ctypes, errno, os, signal, socket, subprocess, sys, threading
    from pathlib import Path
    from kernelblaster.harness.cuda.worker.isolation import give_up, shut_off
    missing = give_up() + shut_off([Path.cwd()])
    LIBC = ctypes.CDLL(None, use_errno=True)
    def show(call):
        try:
            call()
            print("ok", end=" ")
        except (OSError, RuntimeError) as error:
            print(errno.errorcode.get(getattr(error, "errno", None), "failed"), end=" ")
    def libc(name, *arguments):
        if getattr(LIBC, name)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), name)
    SECRET = {secret!r}
    for call in [{calls}]:
        show(call)
    print()
"""

CALLS = {
    "Path('/dev/null').write_text('x')": "ok",
    "Path('mine').write_text('x')": "ok",
    "Path(SECRET).write_text('x')": "EACCES",
    "Path(f'/proc/{os.getppid()}/environ').read_bytes()": "EACCES",
    "subprocess.run(['true'], check=True)": "ok",
    "threading.Thread(target=int).start()": "ok",
    "socket.socket(socket.AF_UNIX)": "ok",
    "socket.socket(socket.AF_INET)": "EACCES",
    "os.kill(os.getppid(), 0)": "EPERM",
    "libc('ptrace', 16, os.getppid(), 0, 0)": "EPERM",
    "libc('unshare', 0x10000000)": "EPERM",
    "libc('mount', b'none', b'/mnt', b'tmpfs', 0, 0)": "EPERM",
}


@pytest.mark.skipif(landlock_version() < 6, reason="Landlock 6 or later is compared with")
@needs_filter
def test_the_worker_keeps_what_pytorch_needs(scratch: Path, secret: Path) -> None:
    calls = ", ".join(f"lambda: {call}" for call in CALLS)
    ran = run(WORKER.replace("{secret!r}", repr(str(secret))).replace("{calls}", calls), scratch)
    assert dict(zip(CALLS, ran.output.split(), strict=True)) == CALLS


@needs_filter
def test_the_worker_can_still_compile(scratch: Path) -> None:
    code = WORKER.replace("{secret!r}", "''").replace("{calls}", "") + """
    Path("a.c").write_text("int main(void) { return 0; }")
    subprocess.run(["cc", "a.c", "-o", "a.out"], check=True)
    subprocess.run(["./a.out"], check=True)
    print(missing)
    """
    ran = run(code, scratch)
    assert ran.status == 0, ran.output
    assert "filter" not in ran.output


def test_device_files_are_those_of_gpus(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvme0n1", "nvram", "sda", "null", "mem"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    (tmp_path / "nvidia-caps" / "nvidia-cap1").touch()
    found = {path.name for path in devices(tmp_path)}
    assert found == {"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps", "nvidia-cap1", "null"}


# ---- the filter's program ----


def evaluate(program: list[seccomp.Instruction], call: int, audit: int, *arguments: int) -> int:
    """Run a classic BPF program as the kernel does and return its answer."""
    words = {0: call, 4: audit}
    for place, argument in enumerate(arguments):
        words[16 + 8 * place] = argument & 0xFFFFFFFF
    at = value = 0
    while True:
        operation, if_true, if_false, operand = program[at]
        at += 1
        if operation == 0x20:
            value = words.get(operand, 0)
        elif operation == 0x06:
            return operand
        else:
            holds = {0x15: value == operand, 0x25: value > operand, 0x45: bool(value & operand)}
            at += if_true if holds[operation] else if_false


@pytest.mark.parametrize("place", range(len(MACHINES)), ids=MACHINES)
def test_the_filter_answers_as_the_rules_say(place: int) -> None:
    audit, number = AUDIT_ARCHITECTURES[place], {k: v[place] for k, v in NUMBERS.items()}
    rules = seccomp.rules_for_candidate(seccomp.KILL)
    program = seccomp.filter_program(rules, seccomp.KILL, MACHINES[place])
    absent = seccomp.refuse_with(errno.ENOSYS)
    for name in (*FOR_NOBODY, *FOR_NO_CANDIDATE):
        if number[name] is not None:
            assert evaluate(program, number[name], audit) == seccomp.KILL, name
    for name in ABSENT:
        assert evaluate(program, number[name], audit) == absent
    own, kill = os.getpid(), number["kill"]
    assert evaluate(program, kill, audit, own, 9) == seccomp.ALLOW
    assert evaluate(program, kill, audit, own + 1, 9) == seccomp.KILL
    assert evaluate(program, number["prctl"], audit, 22, 2) == seccomp.KILL
    assert evaluate(program, number["prctl"], audit, 15) == seccomp.ALLOW
    for call in ({0, 1, 3, 9, 10, 11}, {56, 57, 63, 64, 215, 222, 226})[place]:  # files, memory
        assert evaluate(program, call, audit) == seccomp.ALLOW
    assert evaluate(program, 0, AUDIT_ARCHITECTURES[1 - place]) == seccomp.KILL
    assert evaluate(program, NEWEST + 1, audit) == absent


@pytest.mark.parametrize("place", range(len(MACHINES)), ids=MACHINES)
def test_the_worker_keeps_what_compilers_need(place: int) -> None:
    audit, number = AUDIT_ARCHITECTURES[place], {k: v[place] for k, v in NUMBERS.items()}
    refused = seccomp.refuse_with(errno.EPERM)
    program = seccomp.filter_program(seccomp.rules_for_worker(), refused, MACHINES[place])
    for name in ("execve", "symlinkat", "setsid", "connect", "fchmodat", "tgkill"):
        assert evaluate(program, number[name], audit, 7) == seccomp.ALLOW
    assert evaluate(program, number["clone"], audit, 0x3D0F00) == seccomp.ALLOW
    assert evaluate(program, number["clone"], audit, 0x10000000 | 17) == refused
    assert evaluate(program, number["socket"], audit, 1) == seccomp.ALLOW
    assert evaluate(program, number["socket"], audit, 2) == seccomp.refuse_with(errno.EACCES)
    assert evaluate(program, number["ptrace"], audit) == refused


def test_every_call_has_a_number_and_one_rule() -> None:
    for make in (seccomp.rules_for_worker, lambda: seccomp.rules_for_candidate(seccomp.KILL)):
        calls = [rule.call for rule in make()]
        assert len(calls) == len(set(calls)) and set(calls) <= set(NUMBERS)
    for place in range(len(MACHINES)):
        known = [pair[place] for pair in NUMBERS.values() if pair[place] is not None]
        assert len(known) == len(set(known)) and max(known) <= NEWEST


# ---- whole evaluations ----


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "scale.py"
    path.write_text(kernels.SCALE_TASK)
    return asyncio.run(load_task(path))


@pytest.fixture
def ungated(monkeypatch: pytest.MonkeyPatch) -> simulated.SimulatedDevice:
    """A device that lets host code call anything: the sandbox alone stands."""
    monkeypatch.setattr(simulated, "judge_build", lambda built, source: None)
    return simulated.SimulatedDevice("H200")


def with_host_code(before: str, code: str) -> str:
    head = kernels.LAUNCH
    return kernels.SCALE.replace(head, before + head + code)


@needs_filter
async def test_a_candidate_that_opens_a_socket_is_refused(
    ungated: simulated.SimulatedDevice, task: Task
) -> None:
    source = with_host_code("#include <sys/socket.h>\n", "socket(AF_INET, SOCK_STREAM, 0);")
    result = await ungated.verify(task, source)
    assert result.outcome is Outcome.FORBIDDEN and "a socket" in result.reason
    assert result.diagnostics[0].kind == "forbidden"


@needs_landlock
@pytest.mark.parametrize("file", ["x.bin", "out0.bin"])
async def test_neither_inputs_nor_answers_can_be_read(
    ungated: simulated.SimulatedDevice, task: Task, file: str
) -> None:
    name = next((cases_directory(task) / "0").glob(file))
    # An early return leaves poison behind, which is a wrong answer.
    source = with_host_code(
        "#include <stdio.h>\n", f'FILE* f = fopen("{name}", "rb"); if (!f) return; fclose(f);'
    )
    result = await ungated.verify(task, source)
    assert result.outcome is Outcome.WRONG_ANSWER, result.reason


@pytest.mark.gpu
async def test_a_candidate_is_measured_beside_an_enclosed_worker_on_a_gpu(task: Task) -> None:
    from kernelblaster.harness.devices.cuda import CudaDevice

    try:
        device = CudaDevice(candidate_seconds=5.0)
        result = await device.verify(task, kernels.SCALE)
        measured = await device.profile(task, kernels.SCALE)
    except UserError as error:
        pytest.skip(str(error))
    assert result.outcome is Outcome.PASSED, result.reason
    assert measured.timing is not None, measured.stage.reason
    assert measured.stage.facts.get("compile_failure", "") == ""
    told = str(result.facts.get("isolation_missing", ""))
    if landlock_version() >= 2 and seccomp.can_kill():
        assert "file system" not in told and "filter" not in told
