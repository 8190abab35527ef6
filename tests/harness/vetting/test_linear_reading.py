"""Texts that a candidate controls are read in time as their length: the worst of each kind."""

from __future__ import annotations

import pytest
from often_or_seldom import every
from support.linear_reading import run_limited

HEAD = """
from pathlib import Path
from kernelblaster.harness.build.compiler_output import compile_errors, kernel_resources
from kernelblaster.harness.build.compiling import denied_files
from kernelblaster.harness.judge.findings import located, sentence
from kernelblaster.harness.records.builds import Diagnostic
from kernelblaster.harness.vetting.device_rules import device_code, names_its_own_places
from kernelblaster.harness.vetting.host_object import host_assembly
from kernelblaster.harness.vetting.source_rules import (
    check_source, logical_lines, macro_directive, may_rename_lines)
from kernelblaster.harness.vetting.symbols import check_symbols, readable
SIZE = 1 << 17
def repeated(unit):
    return (unit * (SIZE // len(unit)))[:SIZE - 1]
"""
UNITS = {
    "brackets": "[", "quotes": '\\"', "escaped quotes": '"\\"', "raw strings": 'R"(', "marks": "'",
    "comments": "/*", "ends of comments": "*/", "splices": "\\ ", "line breaks": "\n",
    "blanks": " ",
    "digits": "1", "separators": "1'", "hashes": "#", "hashes on lines": "\n#", "tabs": "\n\t",
    "probes": "__has_include(<", "probes of strings": '__has_include("', "attributes": "[[gnu::",
    "launches": "k<", "launches of launches": "k<<<", "names": "k", "slashes": "/a", "parens": "((",
    "colons": ":", "braces": "{", "statements": ";", "files": '.file 1 "', "places": ".loc 1 2 ",
    "inlined": "inlined_at ", "moves": "mov.b64 a,b;L2::cache_hint ", "marks of asm": "#APP\n",
    "errors": "candidate.cu(1): error: x\n", "denied": "error: a", "lengths": "1a",
    "names of C": "_Z",
    "ptxas": "ptxas a, line 3; error : x\n", "linkers": "ld ", "carets": "^ \n", "clocks": "%clock",
}  # fmt: skip
READINGS = {
    "source": "check_source(text); may_rename_lines(text); list(logical_lines(text)); "
    "macro_directive(text.encode())",
    "ptx": "device_code(text); device_code('L2::cache_hint ' + text); names_its_own_places(text)",
    "assembly": "host_assembly('#APP\\n' + text)",
    "log": "compile_errors(text, Path('none')); kernel_resources(text); denied_files(text)",
    "names": "check_symbols([text.replace(chr(10), '')]); readable('_ZN' + text)",
    "sentence": "sentence(Diagnostic(kind='a', message=text)); "
    "located(Diagnostic(kind='a', message='_Z1kv<<<1>>>'), text); "
    "located(Diagnostic(kind='a', message=text + '<<<'), 'x'); "
    "located(Diagnostic(kind='a', message='cudaMemcpyAsync failed'), text)",
}


@pytest.mark.parametrize("reading", every(8, READINGS))
def test_much_of_anything_is_read(reading: str) -> None:
    program = f"{HEAD}\nfor name, unit in {UNITS!r}.items():\n" + (
        f"    print(name, flush=True)\n    text = repeated(unit)\n    {READINGS[reading]}\n"
    )
    run_limited(program)


def test_a_long_chain_of_moves_is_followed() -> None:
    program = HEAD + (
        "chain = ''.join(f'mov.b64 %rd{n}, %rd{n + 1};\\n' for n in range(20000))\n"
        "load = 'ld.global.L2::cache_hint.f32 %f1, [%rd9], %rd0;'\n"
        "head = '.version 9.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k()\\n'\n"
        "text = head + '{\\n' + chain + load + '\\nret;\\n}\\n'\n"
        "found = device_code(text)\n"
        "assert len(found) == 1 and 'cache hint' in found[0].message, found\n"
    )
    run_limited(program)
