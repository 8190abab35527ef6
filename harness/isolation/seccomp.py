"""A filter of system calls for this thread and all that it starts, built as classic BPF."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from .kernel import Refused, machine, process_control, system_call
from .system_calls import (
    ABSENT,
    AUDIT_ARCHITECTURES,
    FOR_NO_CANDIDATE,
    FOR_NOBODY,
    MACHINES,
    NEWEST,
    NUMBERS,
)

ALLOW, KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
"""Answers of a filter: the call is made; the process dies of SIGSYS; errno in the low 16 bits."""

_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_AF_UNIX = 1
_NEW_NAMESPACES = 0x7E020000
_SET_SECCOMP, _FILTER_MODE = 22, 2
_SET_MODE_FILTER, _ACTION_AVAILABLE = 1, 2
_NO_SPECULATION_PENALTY = 1 << 2  # SECCOMP_FILTER_FLAG_SPEC_ALLOW

Instruction = tuple[int, int, int, int]
"""Operation, jump if true, jump if false, operand: struct sock_filter."""


def refuse_with(number: int) -> int:
    """Return the answer that fails a call with this errno."""
    return _ERROR | number


class Rule(NamedTuple):
    """What happens to one system call, by the low half of one argument where that matters."""

    call: str
    answer: int
    argument: int | None = None
    equal_to: int | None = None
    """The answer is given where the argument is this ..."""
    other_than: int | None = None
    """... or is not this ..."""
    any_bit_of: int | None = None
    """... or has one of these bits."""


def rules_for_worker() -> list[Rule]:
    """Return what PyTorch's process gives up for good, its compilers included.

    Everything is answered with an error, nothing with a signal: trusted code may probe.
    """
    error = refuse_with(errno.EPERM)
    return [
        *_common(error),
        Rule("clone", error, argument=0, any_bit_of=_NEW_NAMESPACES),
        Rule("socket", refuse_with(errno.EACCES), argument=0, other_than=_AF_UNIX),
    ]


def rules_for_compiler() -> list[Rule]:
    """Return what a compiler gives up for good: as the worker, and sockets of every kind."""
    rules = [rule for rule in rules_for_worker() if rule.call != "socket"]
    return [*rules, Rule("socket", refuse_with(errno.EACCES))]


def rules_for_candidate(refusal: int, own: int | None = None) -> list[Rule]:
    """Return what host code of a candidate may not do.

    Args:
        refusal: KILL, or an error where this kernel's filters cannot end a process.
        own: number of the process that is filtered; by default this one.
    """
    own = os.getpid() if own is None else own
    return [
        *_common(refusal),
        *(Rule(call, refusal) for call in FOR_NO_CANDIDATE),
        # A failed assertion may end its own process.
        Rule("kill", refusal, argument=0, other_than=own),
        Rule("tgkill", refusal, argument=0, other_than=own),
        Rule("prctl", refusal, argument=0, equal_to=_SET_SECCOMP),
    ]


def _common(refusal: int) -> list[Rule]:
    return [
        *(Rule(call, refuse_with(errno.ENOSYS)) for call in ABSENT),
        *(Rule(call, refusal) for call in FOR_NOBODY),
    ]


def filter_program(rules: Sequence[Rule], other_machine: int, name: str) -> list[Instruction]:
    """Return the filter for a machine of MACHINES; what no rule names is allowed.

    Args:
        rules: one for each call at most.
        other_machine: the answer to calls of another instruction set, such as 32-bit ones.
        name: the machine.
    """
    place = MACHINES.index(name)
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, AUDIT_ARCHITECTURES[place]),
        (_RETURN, 0, 0, other_machine),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_GREATER, 0, 1, NEWEST),
        (_RETURN, 0, 0, refuse_with(errno.ENOSYS)),
    ]
    for rule in rules:
        number = NUMBERS[rule.call][place]
        if number is not None:
            body = _body(rule)
            program += [(_EQUAL, 0, len(body), number), *body]
    return [*program, (_RETURN, 0, 0, ALLOW)]


def _body(rule: Rule) -> list[Instruction]:
    """Return what follows where the number is the rule's."""
    answer: Instruction = (_RETURN, 0, 0, rule.answer)
    if rule.argument is None:
        return [answer]
    # Both machines are little-endian: the low half comes first.
    load: Instruction = (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * rule.argument)
    allow: Instruction = (_RETURN, 0, 0, ALLOW)
    if rule.any_bit_of is not None:
        return [load, (_ANY_BIT, 0, 1, rule.any_bit_of), answer, allow]
    if rule.equal_to is not None:
        return [load, (_EQUAL, 0, 1, rule.equal_to), answer, allow]
    assert rule.other_than is not None
    return [load, (_EQUAL, 1, 0, rule.other_than), answer, allow]


def can_kill() -> bool:
    """Say whether this kernel's filters can end the whole process."""
    try:
        action = ctypes.create_string_buffer(struct.pack("I", KILL), 4)
        system_call("seccomp", _ACTION_AVAILABLE, 0, action)
    except Refused:
        return False
    return True


def native_filter(rules: Sequence[Rule], other_machine: int) -> bytes:
    """Return the filter for this machine as the kernel takes it: an array of struct sock_filter.

    Raises Refused where nothing is known of this processor.
    """
    name = machine()
    if name is None:
        raise Refused(0, "no system call numbers for this processor")
    program = filter_program(rules, other_machine, name)
    return b"".join(struct.pack("HBBI", *each) for each in program)


def install(rules: Sequence[Rule], other_machine: int) -> None:
    """Put a filter over this thread and whatever it starts from now on. Raises Refused.

    Needs no_new_privileges() first.
    """
    program = native_filter(rules, other_machine)
    code = ctypes.create_string_buffer(program)
    described = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    )
    try:
        # Older kernels slow a filtered process down unless asked not to.
        system_call("seccomp", _SET_MODE_FILTER, _NO_SPECULATION_PENALTY, described)
    except Refused:
        process_control(_SET_SECCOMP, _FILTER_MODE, described)
