"""System calls by name: their numbers, and which of them host code may not make.

Numbers are those of Linux's include/uapi/asm-generic/unistd.h and of
arch/x86/entry/syscalls/syscall_64.tbl; from 424 on they are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MACHINES = ("x86_64", "aarch64")
AUDIT_ARCHITECTURES = (0xC000003E, 0xC00000B7)
"""What a seccomp filter sees of each machine."""
NEWEST = 469
"""Later calls are unknown to the lists here: they are answered as if the kernel lacked them. So are
those of x86's x32, whose numbers are larger."""

_TABLE = """
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440,
process_mrelease 448 448, kcmp 312 272, pidfd_getfd 438 438,
mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, move_mount 429 429,
open_tree 428 428, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433,
mount_setattr 442 442, open_tree_attr 467 467, unshare 272 97, setns 308 268,
bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_uring_setup 425 425,
io_uring_enter 426 426, io_uring_register 427 427, add_key 248 217, request_key 249 218,
keyctl 250 219, init_module 175 105, finit_module 313 273, delete_module 176 106,
kexec_load 246 104, kexec_file_load 320 294, reboot 169 142, swapon 167 224, swapoff 168 225,
acct 163 89, quotactl 179 60, quotactl_fd 443 443, syslog 103 116, sethostname 170 161,
setdomainname 171 162, settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266,
adjtimex 159 171, iopl 172 -, ioperm 173 -, vhangup 153 58, open_by_handle_at 304 265,
lookup_dcookie 212 18, fanotify_init 300 262, modify_ldt 154 -,
clone 56 220, clone3 435 435, socket 41 198,
execve 59 221, execveat 322 281, fork 57 -, vfork 58 -, setsid 112 157, setpgid 109 154,
kill 62 129, tkill 200 130, tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240,
pidfd_open 434 434, pidfd_send_signal 424 424,
socketpair 53 199, connect 42 203, bind 49 200, listen 50 201, accept 43 202, accept4 288 242,
chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, fchown 93 55,
lchown 94 -, fchownat 260 54, truncate 76 45, mknod 133 -, mknodat 259 33, link 86 -,
linkat 265 37, symlink 88 -, symlinkat 266 36, setxattr 188 5, lsetxattr 189 6,
fsetxattr 190 7, setxattrat 463 463, removexattr 197 14, lremovexattr 198 15,
fremovexattr 199 16, removexattrat 466 466, file_setattr 469 469, utime 132 -, utimes 235 -,
utimensat 280 88, futimesat 261 -,
setitimer 38 103, timer_create 222 107, timerfd_create 283 85, alarm 37 -,
shmget 29 194, shmat 30 196, msgget 68 186, semget 64 190, mq_open 240 180,
setuid 105 146, setgid 106 144, setresuid 117 147, setresgid 119 149, setreuid 113 145,
setregid 114 143, setgroups 116 159, setfsuid 122 151, setfsgid 123 152, capget 125 90,
capset 126 91,
personality 135 92, seccomp 317 277, prctl 157 167,
landlock_create_ruleset 444 444, landlock_add_rule 445 445, landlock_restrict_self 446 446
"""


def _parsed() -> dict[str, tuple[int | None, int | None]]:
    found = {}
    for entry in _TABLE.replace("\n", " ").split(","):
        name, first, second = entry.split()
        found[name] = (
            None if first == "-" else int(first),
            None if second == "-" else int(second),
        )
    return found


NUMBERS: Mapping[str, tuple[int | None, int | None]] = MappingProxyType(_parsed())
"""Numbers on MACHINES; None where a machine has no such call."""

ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
"""Answered as if the kernel lacked them, which libraries expect. clone3 hides its flags from a
filter, so the C library is made to ask with clone; io_uring makes calls that no filter sees."""

FOR_NOBODY = tuple(
    """
    ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd
    mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick
    mount_setattr open_tree_attr unshare setns
    bpf perf_event_open userfaultfd add_key request_key keyctl
    init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct
    quotactl quotactl_fd syslog sethostname setdomainname settimeofday clock_settime clock_adjtime
    adjtimex iopl ioperm vhangup open_by_handle_at lookup_dcookie fanotify_init modify_ldt
    """.split()
)
"""Other processes' memory, mounts, namespaces, kernel facilities: not even PyTorch and the
compilers that it starts need any of them."""

FOR_NO_CANDIDATE = tuple(
    """
    execve execveat fork vfork clone setsid setpgid
    tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal
    socket socketpair connect bind listen accept accept4
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat truncate mknod mknodat
    link linkat symlink symlinkat setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr
    fremovexattr removexattrat file_setattr utime utimes utimensat futimesat
    setitimer timer_create timerfd_create alarm
    shmget shmat msgget semget mq_open
    setuid setgid setresuid setresgid setreuid setregid setgroups setfsuid setfsgid capset
    personality seccomp
    """.split()
)
"""Programs, processes and threads; signals to others; sockets; what Landlock leaves of files
(modes, owners, links, times); timers, whose signals would call a candidate back later; memory and
queues that outlive a process; identities; further filters."""
