"""Where host machine code may go and what it may look at: calls by name, its own data, its frame.

Code that could call a computed address would need no symbol to reach any function of the process.
So a candidate calls and jumps only where its instructions say, through the slots that the linker
fills and seals, or by functions that let kernels alone through (build/pointer_calls.c); it does
not read the linker's tables or those slots, nor, as far as the distance to the stack pointer
tells, its return address. What is computed at run time (a walk over the stack or down from a
buffer) cannot be seen here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .elf_layout import Layout

PREFIXES = r"(?:(?:bnd|notrack|rep\w*|lock|data16|addr32|cs|ds|es|ss|fs|gs|rex\S*)\s+)*"
BRANCH = re.compile(PREFIXES + r"(?:j\w+|call\w*|loop\w*|xbegin)\s+([0-9a-f]+)\b")
COMPUTED = "calls or jumps to an address that is computed or read from memory"
TABLES = "reads what belongs to the dynamic linker"
RETURN = "reads or writes its own return address"
AT_EXIT = "registers a function whose address is computed"

_INDIRECT = re.compile(PREFIXES + r"(?:call|jmp)\w*\s+\*(.*)")
_RELATIVE = re.compile(r"(-?)(?:0x([0-9a-f]+))?\(%rip\)")
_LOAD = re.compile(r"movq?\s+\S+\(%rip\),(%r\w+)$")
_IS_THERE = re.compile(r"cmpq\s+\$0x0,\S+\(%rip\)$")
_STARTUP = {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
"""Weak functions that the compiler's start-up files call where there are such."""
_FIRST_ARGUMENT = re.compile(r"%(?:[re]di|dil?)\b")
_OWN_ADDRESS = re.compile(r"(lea|mov)q?\s+\S+\(%rip\),%rdi$")
_TAKES_ADDRESS = re.compile(r"lea\s+(?:-?0x[0-9a-f]+)?\(%rip\),(%r\w+)")
_COPIES = re.compile(r"mov\s+(%r\w+),(%r\w+)")
_POPS = re.compile(r"pop\s+(%r\w+)")
_KEEPS_REGISTERS = re.compile(r"endbr64|nop.*|push\s+%r\w+|(?:sub|add)\s+\$0x[0-9a-f]+,%rsp")
_KEPT_BY_CALLS = ("%rbx", "%rbp", "%r12", "%r13", "%r14", "%r15")
_ENDS = re.compile(PREFIXES + r"(?:ret|jmp|hlt|ud2)")
_STACK = re.compile(r"(-?)(?:0x([0-9a-f]+))?\(%(rsp|rbp)\)")
_NUMBER = r"\$(-?)0x([0-9a-f]+)"
_SETS_STACK = re.compile(r"\w+\s+(.*),%rsp$")
_UNDOES_FRAME = re.compile(r"\$-?0x[0-9a-f]+|-0x8\(%r\w+\)|(?:-?0x[0-9a-f]+)?\(%rbp\)")
"""What a compiler takes a frame down with: a constant, or where it kept the stack pointer."""
_NEVER_RETURNS = re.compile(
    r"call\w*\s+[0-9a-f]+ <(?:__stack_chk_fail|abort|_?_?exit|__assert_fail|_Unwind_Resume|"
    r"__cxa_(?:re)?throw|_ZSt9terminatev|_ZSt\d+__throw_\w+)@plt>"
)
_MOST_DEPTHS = 16
"""At one place: a loop that pushes would be followed for ever."""
_XMM = tuple(f"{16 * number:#x}(%rsp)" if number else "(%rsp)" for number in range(8))
_SAVED = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")
_ASKED = "kb_require_kernel"
"""What the stand-in runtime is asked before a call through a pointer; it returns for kernels."""
_ONLY_KERNELS = (
    *(f"push %{name}" for name in _SAVED), "sub $0x80,%rsp",
    *(f"movups %xmm{number},{place}" for number, place in enumerate(_XMM)),
    "mov 0xd0(%rsp),%rdi", _ASKED,
    *(f"movups {place},%xmm{number}" for number, place in enumerate(_XMM)),
    "add $0x80,%rsp", *(f"pop %{name}" for name in reversed(_SAVED)), "ret",
)  # fmt: skip
"""kb_only_kernels of build/pointer_calls.c: what a pointer leads to lies above its own return."""
_ARM_STARTUP = {"deregister_tm_clones", "register_tm_clones"}


class Instruction(NamedTuple):
    """One line of the disassembler."""

    address: int
    data: bytes
    text: str
    function: str
    section: str

    @property
    def end(self) -> int:
        """Address of the next instruction."""
        return self.address + len(self.data)


Found = Iterator[tuple[Instruction, str]]


def check_flow(code: Sequence[Instruction], layout: Layout) -> Found:
    """Yield the refused instructions of x86-64 code, each with what it does."""
    targets = {int(match[1], 16) for each in code if (match := BRANCH.match(each.text))}
    to_kernels = _calls_of_kernels(code, layout, targets)
    for index, instruction in enumerate(code):
        before = code[max(0, index - 3) : index]
        if match := _INDIRECT.match(instruction.text):
            slot = _relative(instruction)
            if instruction.address in to_kernels:
                allowed = True
            elif slot is None:
                allowed = _startup_call(instruction, before, match[1], targets, layout)
            else:
                resolver = slot == layout.resolver and instruction.section == ".plt"
                allowed = layout.is_sealed(slot) and (slot in layout.slots or resolver)
            if not allowed:
                yield instruction, COMPUTED
        elif _returns_elsewhere(instruction, before[-1:]):
            yield instruction, COMPUTED
        elif _touches_tables(instruction, code[index + 1 : index + 4], layout):
            yield instruction, TABLES
    yield from _return_addresses(code)
    yield from _registrations(code, layout, targets)


def _calls_of_kernels(
    code: Sequence[Instruction], layout: Layout, targets: set[int]
) -> set[int]:
    """Return the jumps to what the runtime was asked for just before; see pointer_calls.c.

    All of it must be there, whole, and entered at its start only.
    """
    stubs = _stubs_of(_ASKED, code, layout)
    asking: set[int] = set()
    for index, first in enumerate(code):
        whole = code[index : index + len(_ONLY_KERNELS)]
        if first.text.split() == ["push", "%rax"] and _is_piece(whole, targets):
            words = tuple(
                _ASKED if (match := BRANCH.match(each.text)) and int(match[1], 16) in stubs
                else " ".join(each.text.split())
                for each in whole
            )  # fmt: skip
            if words == _ONLY_KERNELS:
                asking.add(first.address)
    found: set[int] = set()
    for index, jump in enumerate(code):
        match = re.fullmatch(r"jmp\s+\*(%r\w+)", jump.text)
        piece = code[max(0, index - 3) : index + 1]
        if not match or len(piece) < 4 or not _is_piece(piece, targets):
            continue
        keeps, asks, gets = (each.text.split() for each in piece[:3])
        called = BRANCH.match(piece[1].text)
        if (
            keeps == ["push", match[1]] and gets == ["pop", match[1]] and asks[0] == "call"
            and called and int(called[1], 16) in asking
        ):  # fmt: skip
            found.add(jump.address)
    return found


def _is_piece(code: Sequence[Instruction], targets: set[int]) -> bool:
    """Say whether instructions follow each other, and no branch leads behind the first."""
    joined = all(one.end == other.address for one, other in zip(code, code[1:], strict=False))
    return joined and targets.isdisjoint(each.address for each in code[1:])


def check_arm_flow(code: Sequence[Instruction]) -> Found:
    """Yield the computed branches of arm64 code outside the PLT and the start-up files' two."""
    seen: dict[str, int] = {}
    for instruction in code:
        if re.match(r"br\b|blr\b|bra[ab]|blra[ab]", instruction.text):
            seen[instruction.function] = seen.get(instruction.function, 0) + 1
            startup = instruction.function in _ARM_STARTUP and seen[instruction.function] == 1
            if not instruction.section.startswith(".plt") and not startup:
                yield instruction, COMPUTED


def harmless_initialisers(code: Sequence[Instruction], layout: Layout) -> set[int]:
    """Return which of the functions that run at load do nothing: x86-64 code.

    Headers leave one, for a static object whose constructor and destructor are empty functions:
    it runs straight through, calls empty functions and registers empty ones for the end.
    """
    at = {instruction.address: index for index, instruction in enumerate(code)}
    empty = {instruction.address for instruction in code if instruction.text == "ret"}
    empty |= {
        first.address
        for first, second in zip(code, code[1:], strict=False)
        if first.text == "endbr64" and second.address in empty
    }
    registering = _stubs_of("__cxa_atexit", code, layout)
    starts = {address: at[address] for address in layout.initialisers if address in at}
    return {
        address
        for address, start in starts.items()
        if _does_nothing(code[start : start + 256], empty, registering)
    }


def _does_nothing(code: Sequence[Instruction], empty: set[int], registering: set[int]) -> bool:
    held: dict[str, int] = {}  # register: the address in it
    constructs = False
    for instruction in code:
        text = instruction.text
        if match := BRANCH.match(text):
            target = int(match[1], 16)
            if target in registering and held.get("%rdi") in empty:
                held = {name: value for name, value in held.items() if name in _KEPT_BY_CALLS}
            elif target not in empty:
                return False
            constructs = True
            if not text.startswith("call"):
                return text.startswith("jmp")
        elif text == "ret":
            return constructs
        elif match := _TAKES_ADDRESS.fullmatch(text):
            held[match[1]] = _relative(instruction) or 0
        elif match := _COPIES.fullmatch(text):
            held[match[2]] = held.get(match[1], 0)
        elif match := _POPS.fullmatch(text):
            held.pop(match[1], None)
        elif not _KEEPS_REGISTERS.fullmatch(text):
            return False
    return False


def _stubs_of(symbol: str, code: Sequence[Instruction], layout: Layout) -> set[int]:
    """Return where a function's stubs in the PLT begin."""
    return {
        instruction.address - (4 if index and code[index - 1].text == "endbr64" else 0)
        for index, instruction in enumerate(code)
        if instruction.section.startswith(".plt")
        and (slot := layout.slots.get(_relative(instruction) or 0))
        and slot.symbol == symbol
        and _INDIRECT.match(instruction.text)
    }


def _relative(instruction: Instruction) -> int | None:
    """Return the address that an instruction names relative to itself."""
    match = _RELATIVE.search(instruction.text)
    if match is None:
        return None
    distance = int(match[2] or "0", 16)
    return (instruction.end + (-distance if match[1] else distance)) & (1 << 64) - 1


def _startup_call(
    instruction: Instruction,
    before: Sequence[Instruction],
    operand: str,
    targets: set[int],
    layout: Layout,
) -> bool:
    """Recognise `mov slot, %rax; test %rax, %rax; je; call *%rax`, entered at its start only."""
    if len(before) < 3 or operand.strip() != "%rax":
        return False
    load, test, skip = before
    match, slot = _LOAD.match(load.text), _relative(load)
    if not match or match[1] != "%rax" or slot is None:
        return False
    whole = (
        re.fullmatch(r"test\s+%rax,%rax", test.text) is not None
        and re.match(r"je\s", skip.text) is not None
        and load.end == test.address
        and test.end == skip.address
        and skip.end == instruction.address
    )
    known = slot in layout.slots and layout.slots[slot].symbol in _STARTUP
    entered = targets & {test.address, skip.address, instruction.address}
    return whole and known and layout.is_sealed(slot) and not entered


def _returns_elsewhere(instruction: Instruction, before: Sequence[Instruction]) -> bool:
    """Say whether this returns from a stack that was set to a computed place.

    __builtin_eh_return writes an address where the stack pointer is then set to.
    """
    if not re.match(PREFIXES + "ret", instruction.text) or not before:
        return False
    match = _SETS_STACK.match(before[0].text)
    return match is not None and not _UNDOES_FRAME.fullmatch(match[1])


def _touches_tables(
    instruction: Instruction, after: Sequence[Instruction], layout: Layout
) -> bool:
    place = _relative(instruction)
    if place is None or not layout.in_table(place):
        return False
    slot = layout.slots.get(place)
    if slot is None or not layout.is_sealed(place):
        # The PLT's first stub pushes the word before the one it jumps through.
        return not (instruction.section == ".plt" and place == layout.resolver - 8)
    if _LOAD.match(instruction.text) and slot.defined:
        return False
    if slot.symbol == "__cxa_finalize":
        return not _IS_THERE.match(instruction.text)
    begins_call = (
        slot.symbol in _STARTUP
        and len(after) == 3
        and re.fullmatch(r"test\s+%rax,%rax", after[0].text)
        and re.match(r"je\s", after[1].text)
        and _INDIRECT.match(after[2].text)
    )
    return not (begins_call and _LOAD.match(instruction.text))


def _registrations(
    code: Sequence[Instruction], layout: Layout, targets: set[int]
) -> Found:
    """Yield the calls of __cxa_atexit whose function is not an address in the object."""
    stubs = _stubs_of("__cxa_atexit", code, layout)
    # libc's own `atexit` is linked in: it hands its argument on.
    passing = set(stubs)
    for index, instruction in enumerate(code):
        match = BRANCH.match(instruction.text)
        if match and int(match[1], 16) in stubs and instruction.text.split()[-3:-2] != ["call"]:
            if instruction.function != "atexit":
                continue
            start = index
            while start and code[start - 1].function == "atexit" and index - start < 9:
                start -= 1
            body = code[start:index]
            untouched = not any(_FIRST_ARGUMENT.search(each.text) for each in body[:-3])
            if len(body) <= 8 and untouched:
                passing.add(code[start].address)
    for index, instruction in enumerate(code):
        match = BRANCH.match(instruction.text)
        if not match or int(match[1], 16) not in passing or instruction.function == "atexit":
            continue
        known = False
        follower = instruction
        for earlier in reversed(code[max(0, index - 12) : index]):
            if follower.address in targets or BRANCH.match(earlier.text):
                break
            if _ENDS.match(earlier.text):
                break
            if _FIRST_ARGUMENT.search(earlier.text):
                slot = layout.slots.get(_relative(earlier) or 0)
                match = _OWN_ADDRESS.match(earlier.text)
                known = bool(match and (match[1] == "lea" or (slot and slot.defined)))
                break
            follower = earlier
        if not known:
            yield instruction, AT_EXIT


def _return_addresses(code: Sequence[Instruction]) -> Found:
    """Yield accesses at the return address, where the distance to it is known.

    A function is followed from its start along its branches; `depth` is how far the stack pointer
    (and the frame pointer, where it is one) lies below the return address. A place that is reached
    at several depths is looked at in each of them: behind a call that never returns lies another
    function, entered at another depth.
    """
    at = {instruction.address: index for index, instruction in enumerate(code)}
    seen: dict[int, set[tuple[int | None, int | None]]] = {}
    told: set[int] = set()
    for index, instruction in enumerate(code):
        named = instruction.function and not re.search(r"\.(cold|part)\b", instruction.function)
        if not named or (index and code[index - 1].function == instruction.function):
            continue
        waiting: list[tuple[int, int | None, int | None]] = [(index, 0, None)]
        while waiting:
            place, depth, frame = waiting.pop()
            while place < len(code) and not code[place].section.startswith(".plt"):
                here, known = code[place], seen.setdefault(place, set())
                if (depth, frame) in known or len(known) >= _MOST_DEPTHS:
                    break
                known.add((depth, frame))
                if place not in told and _is_return_address(here.text, depth, frame):
                    told.add(place)
                    yield here, RETURN
                branch = BRANCH.match(here.text)
                if branch and not here.text.split()[0].startswith("call"):
                    target = at.get(int(branch[1], 16))
                    if target is not None:
                        waiting.append((target, depth, frame))
                if _ENDS.match(here.text) or _NEVER_RETURNS.match(here.text):
                    break
                depth, frame = _moved(here.text, depth, frame)
                place += 1


def _is_return_address(text: str, depth: int | None, frame: int | None) -> bool:
    """Say whether an instruction names the return address, by its distance to either pointer."""
    for match in _STACK.finditer(text):
        distance = int(match[2] or "0", 16) * (-1 if match[1] else 1)
        base = depth if match[3] == "rsp" else frame
        if base is not None and 0 <= distance - base < 8:
            return True
    return False


def _moved(text: str, depth: int | None, frame: int | None) -> tuple[int | None, int | None]:
    """Return both depths after an instruction; None where it is not known any more."""
    if re.match(r"push", text):
        return (None if depth is None else depth + 8), frame
    if re.match(r"pop", text):
        frame = None if text.endswith("%rbp") else frame
        return (None if depth is None else depth - 8), frame
    if re.fullmatch(r"mov\s+%rsp,%rbp", text):
        return depth, depth
    if re.match(r"leave", text):
        return (None if frame is None else frame - 8), None
    if match := re.fullmatch(rf"(sub|add)q?\s+{_NUMBER},%rsp", text):
        change = int(match[3], 16) * (-1 if match[2] else 1) * (1 if match[1] == "sub" else -1)
        return (None if depth is None else depth + change), frame
    if text.endswith(",%rsp"):
        return None, frame
    if text.endswith(",%rbp"):
        return depth, None
    return depth, frame
