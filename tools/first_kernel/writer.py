"""Writes the first CUDA kernel of a task: the direct translation, obviously correct, not yet fast.

Reads the task's ATen program; writes one kernel for each stage of it. Elementwise programs get one
thread per element, row programs one thread per row, matrix products one thread per element of the
result. The paper speaks of this as the CUDA that optimisation starts from.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...harness.records.record import Record
from ...harness.records.tasks import Task
from ...harness.task.names import constants_of, plain
from .general import write_general
from .kernels.missing import Sketch
from .program.values import (
    Buffer,
    CannotWrite,
    Dim,
    Dims,
    Load,
    Product,
    Value,
    offset,
    product,
    products,
    reductions,
    walk,
)
from .stages.aten import lower_program
from .stages.builder import Stage
from .stages.emission import Body, loaded
from .stages.sharing import StageKernel, StageLaunch, places_of, shared

C_TYPES = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}


LONGEST_LOOP = 1 << 16
"""Steps of one thread, and terms of one running sum, that a plain loop may have."""


class InitialKernel(Record):
    """A first CUDA source for a task."""

    source: str
    notes: tuple[str, ...] = ()
    """What was decided, one line for each kernel."""


class NotWritten(Record):
    """The built-in writer cannot write this task; a model or a person can."""

    reason: str
    sketch: Sketch | None = None
    """All but some operators' kernels, where it can write that."""


def write_initial_cuda(
    task: Task, beside: Sequence[Task] = ()
) -> InitialKernel | NotWritten:
    """Return a first CUDA source for the task, or the reason why there is none.

    Args:
        task: the task.
        beside: the same one, with other small variants in which the source is to hold, too.

    Raises nothing for a program outside the writer's reach: that is a `NotWritten`.
    """
    try:
        return _write(task)
    except CannotWrite as reason:
        short = str(reason)
    try:
        sketch = write_general(task, beside)
    except CannotWrite as reason:
        alone = task.program is not None and task.verify_program is None
        return NotWritten(reason=short if alone else str(reason))
    if sketch.missing:
        return NotWritten(reason=sketch.reason, sketch=sketch)
    return InitialKernel(source=sketch.completed(""), notes=sketch.notes)


def write_for_all_sizes(task: Task, apart: Sequence[Task]) -> InitialKernel | NotWritten:
    """Return a first CUDA source that names every size of the task that can change.

    Args:
        task: the task.
        apart: the same one, with small variants in which all sizes that can change are others.
    """
    if not apart:
        return NotWritten(reason="its sizes cannot change")
    return write_initial_cuda(apart[0], [task, *apart[1:]])


def _write(task: Task) -> InitialKernel:
    stages = lower_program(task)
    name = plain(task.name)
    name = f"task_{name}" if not name or name[0].isdigit() else name
    taken = {tensor.name for tensor in task.full.tensors} | {"workspace", "stream"}
    reserved = {*constants_of(task.full).scalars.values()} | taken
    written = []
    for number, stage in enumerate(stages):
        suffix = f"_{number + 1}" if len(stages) > 1 else ""
        writer = _StageWriter(stage, f"{name}{suffix}_kernel", suffix.upper(), taken, reserved)
        written.append(writer.write())
    kernels, launches = shared(written, task)
    scratch = [
        buffer for stage in stages for _, buffer in stage.results
        if buffer.name.startswith("scratch")
    ]  # fmt: skip
    lines = ['#include "task.cuh"', ""]
    for kernel in kernels:
        lines += [*kernel.constants, "", *kernel.definition, ""]
    lines += _host_half(task, kernels, launches, scratch)
    return InitialKernel(
        source="\n".join(lines) + "\n", notes=tuple(kernel.note for kernel in kernels)
    )


def _host_half(
    task: Task, kernels: list[StageKernel], launches: list[StageLaunch], scratch: list[Buffer]
) -> list[str]:
    """Return `launch`, and `workspace_bytes` where stages hand values on."""
    parameters = []
    for role in ("output", "input", "parameter", "buffer"):
        for tensor in task.full.of_role(role):
            const = "" if role == "output" else "const "
            parameters.append(f"{const}{C_TYPES[tensor.dtype]}* {tensor.name}")
    parameters += ["void* workspace", "cudaStream_t stream"]
    lines = []
    places = places_of(scratch, launches)
    owners = [buffer for buffer in scratch if places[buffer.name] == buffer.name]
    if owners:
        for buffer in owners:
            text = f"({product(buffer.dims).text} + 63) / 64 * 64"
            lines.append(f"constexpr long long {_floats(buffer)} = {text};")
        counts = " + ".join(_floats(buffer) for buffer in owners)
        lines += [
            "",
            'extern "C" size_t workspace_bytes() {',
            f"    return ({counts}) * sizeof(float);",
            "}",
            "",
        ]
    text = f'extern "C" void launch({", ".join(parameters)}) {{'
    if len(text) > 100:
        joined = ",\n                       ".join(parameters)
        text = f'extern "C" void launch({joined}) {{'
    lines.append(text)
    start = "static_cast<float*>(workspace)"
    for buffer in owners:
        lines.append(f"    float* {buffer.name} = {start};")
        start = f"{buffer.name} + {_floats(buffer)}"
    for buffer in scratch:
        if buffer not in owners:
            lines.append(f"    float* {buffer.name} = {places[buffer.name]};  // Read by then.")
    begun: set[int] = set()
    for launch in launches:
        kernel = kernels[launch.kernel]
        if launch.kernel not in begun:
            lines += ["    " + line for line in kernel.before_launch]
        begun.add(launch.kernel)
        arguments = ", ".join(launch.arguments)
        lines.append(f"    {kernel.name}<<<{kernel.configuration}, 0, stream>>>({arguments});")
    return [*lines, "}"]


def _floats(buffer: Buffer) -> str:
    """Name of the constant for a scratch buffer's size, rounded up so that the next is aligned."""
    return f"{buffer.name.upper()}_FLOATS"


class _StageWriter:
    """Writes the kernel of one stage."""

    def __init__(
        self, stage: Stage, name: str, suffix: str, taken: set[str], reserved: set[str]
    ) -> None:
        self._stage = stage
        self._name = name
        self._suffix = suffix
        self._taken = set(taken)
        self._reserved = reserved
        self._constants: list[str] = []
        self._sizes: dict[str, tuple[int, int]] = {}
        self._row, self._column, self._c, self._i, self._k, self._acc = (
            f"{name}_index" if name in taken else name
            for name in ("row", "col", "c", "i", "k", "acc")
        )
        values = [value for value, _ in stage.results]
        self._inputs = _read_buffers(values)
        largest = max(product(dims).full for dims in _shapes(values))
        self._index = "int" if largest < 2**31 else "long long"

    def write(self) -> StageKernel:
        value = self._stage.results[0][0]
        matrices = products(value)
        if matrices:
            return self._matrix_product(value, matrices[0])
        rows = [found for result, _ in self._stage.results for found in reductions(result)]
        if rows:
            return self._row_program(rows[0].rows, rows[0].columns)
        if _is_transposition(value):
            return self._transposition(value)
        return self._elementwise()

    # Families

    def _elementwise(self) -> StageKernel:
        value = self._stage.results[0][0]
        count = self._constant("N", product(value.dims))
        block = self._knob("BLOCK", 256)
        body = self._body(value.dims, ((self._i, len(value.dims)),), [])
        self._store_all(body)
        definition = [
            "// One thread computes one element.",
            *self._signature(),
            f"    const {self._index} {self._i} = {self._thread_index()};",
            f"    if ({self._i} < {count.text}) {{",
            *("        " + line for line in body.lines),
            "    }",
            "}",
        ]
        return self._line(definition, count, block, "one thread per element")

    def _row_program(self, rows: Dims, columns: Dims) -> StageKernel:
        _require_short(product(columns))
        row_count = self._constant("ROWS", product(rows))
        column_count = self._constant("COLS", product(columns))
        block = self._knob("BLOCK", 256)
        body = Body(
            (*rows, *columns), ((self._row, len(rows)),), [column_count, row_count],
            self._taken | {self._row, self._c}, len(columns), column_count.text, self._c,
        )  # fmt: skip
        wide = [pair for pair in self._stage.results if not body.computes(pair[0])]
        narrow = [pair for pair in self._stage.results if body.computes(pair[0])]
        body.expect([value for value, _ in narrow])
        inner = body.inside()
        inner.expect([value for value, _ in wide])
        for value, buffer in wide:
            inner.store(value, buffer)
        if wide:
            body.loop(inner)
        for value, buffer in narrow:
            body.store(value, buffer)
        definition = [
            "// One thread computes one row.",
            *self._signature(),
            f"    const {self._index} {self._row} = {self._thread_index()};",
            f"    if ({self._row} >= {row_count.text}) return;",
            *("    " + line for line in body.lines),
            "}",
        ]
        return self._line(definition, row_count, block, "one thread per row")

    def _matrix_product(self, value: Value, matrix: Product) -> StageKernel:
        leading, (depth, columns) = matrix.dims[:-1], matrix.right.dims
        _require_short(depth)
        m = self._constant("M", product(leading))
        n = self._constant("N", columns)
        k = self._constant("K", depth)
        x, y = self._knob("BLOCK_X", 16), self._knob("BLOCK_Y", 16)
        names = [k, n, m]
        left = offset(
            matrix.left, (*leading, depth), ((self._row, len(leading)), (self._k, 1)), names
        )
        right = offset(matrix.right, (depth, columns), ((self._k, 1), (self._column, 1)), names)
        body = self._body(value.dims, ((self._row, len(leading)), (self._column, 1)), [n, k, m])
        body.texts[id(matrix)] = self._acc
        self._store_all(body)
        index = self._index
        factors = " * ".join(
            loaded(load.buffer, element)
            for load, element in ((matrix.left, left), (matrix.right, right))
        )
        definition = [
            "// One thread computes one element of the result.",
            *self._signature(),
            f"    const {index} {self._column} = {self._thread_index('x')};",
            f"    const {index} {self._row} = {self._thread_index('y')};",
            f"    if ({self._row} >= {m.text} || {self._column} >= {n.text}) return;",
            f"    float {self._acc} = 0.0f;",
            f"    for (int {self._k} = 0; {self._k} < {k.text}; ++{self._k}) {{",
            f"        {self._acc} += {factors};",
            "    }",
            *("    " + line for line in body.lines),
            "}",
        ]
        return self._plane(definition, n, m, x, y, "one thread per element of the product")

    def _transposition(self, value: Value) -> StageKernel:
        rows = self._constant("ROWS", value.dims[0])
        columns = self._constant("COLS", value.dims[1])
        x, y = self._knob("BLOCK_X", 16), self._knob("BLOCK_Y", 16)
        body = self._body(value.dims, ((self._row, 1), (self._column, 1)), [columns, rows])
        self._store_all(body)
        definition = [
            "// One thread moves one element.",
            *self._signature(),
            f"    const {self._index} {self._column} = {self._thread_index('x')};",
            f"    const {self._index} {self._row} = {self._thread_index('y')};",
            f"    if ({self._row} < {rows.text} && {self._column} < {columns.text}) {{",
            *("        " + line for line in body.lines),
            "    }",
            "}",
        ]
        form = "transposition, one thread per element"
        return self._plane(definition, columns, rows, x, y, form)

    # Parts

    def _body(self, dims: Dims, axes: tuple[tuple[str, int], ...], names: list[Dim]) -> Body:
        taken = self._taken | {self._i, self._row, self._column, self._k, self._acc}
        body = Body(dims, axes, names, taken)
        body.expect([value for value, _ in self._stage.results])
        return body

    def _store_all(self, body: Body) -> None:
        for value, buffer in self._stage.results:
            body.store(value, buffer)

    def _constant(self, name: str, dim: Dim) -> Dim:
        """Declare a named constant equal to the dimension, and return it under that name."""
        chosen = self._free(name)
        self._constants.append(f"constexpr {self._index} {chosen} = {dim.text};")
        self._sizes[chosen] = (dim.full, dim.verify)
        return Dim(chosen, dim.full, dim.verify)

    def _knob(self, name: str, value: int) -> str:
        """Declare a constant that is worth tuning, and return its name."""
        chosen = self._free(name)
        self._constants.append(f"constexpr int {chosen} = {value};")
        self._sizes[chosen] = (value, value)
        return chosen

    def _free(self, name: str) -> str:
        suffix = self._suffix if name.isupper() else self._suffix.lower()
        chosen = f"{name}{suffix}"
        return f"{chosen}_" if chosen in self._reserved else chosen

    def _thread_index(self, axis: str = "x") -> str:
        first = f"static_cast<long long>(blockIdx.{axis})" if self._index != "int" else (
            f"blockIdx.{axis}")  # fmt: skip
        return f"{first} * blockDim.{axis} + threadIdx.{axis}"

    def _signature(self) -> list[str]:
        outputs = [f"{C_TYPES[buffer.dtype]}* {buffer.name}" for _, buffer in self._stage.results]
        inputs = [f"const {C_TYPES[buffer.dtype]}* {buffer.name}" for buffer in self._inputs]
        text = f"__global__ void {self._name}({', '.join(outputs + inputs)}) {{"
        if len(text) <= 100:
            return [text]
        joined = ",\n    ".join(outputs + inputs)
        return f"__global__ void {self._name}(\n    {joined}) {{".split("\n")

    def _line(self, definition: list[str], count: Dim, block: str, form: str) -> StageKernel:
        """Return a kernel whose threads are in a line."""
        grid = f"({count.text} + {block} - 1) / {block}"
        return self._kernel(definition, [], f"{grid}, {block}", form)

    def _plane(
        self, definition: list[str], columns: Dim, rows: Dim, x: str, y: str, form: str
    ) -> StageKernel:
        """Return a kernel whose threads are in a plane."""
        grid, block = self._free("grid"), self._free("block")
        before = [
            f"const dim3 {block}({x}, {y});",
            f"const dim3 {grid}(({columns.text} + {x} - 1) / {x}, ({rows.text} + {y} - 1) / {y});",
        ]
        return self._kernel(definition, before, f"{grid}, {block}", form)

    def _kernel(
        self, definition: list[str], before: list[str], configuration: str, form: str
    ) -> StageKernel:
        outputs = [buffer.name for _, buffer in self._stage.results]
        return StageKernel(
            self._name, tuple(self._constants), self._sizes,
            (*outputs, *(buffer.name for buffer in self._inputs)), len(outputs), tuple(definition),
            tuple(before), configuration, form,
        )  # fmt: skip


def _require_short(loop: Dim) -> None:
    """Raise CannotWrite where a thread would work long, and one sum have so many terms."""
    if loop.full > LONGEST_LOOP:
        raise CannotWrite(f"a loop of {loop.full} steps in one thread")


def _read_buffers(values: list[Value]) -> list[Buffer]:
    """Return the buffers that the values are loaded from, each once, in order of first use."""
    found: dict[str, Buffer] = {}
    for value in values:
        for part in walk(value):
            if isinstance(part, Load):
                found.setdefault(part.buffer.name, part.buffer)
    return list(found.values())


def _shapes(values: list[Value]) -> list[Dims]:
    return [part.dims for value in values for part in walk(value)]


def _is_transposition(value: Value) -> bool:
    """Whether a two-dimensional value reads something across its rows."""
    return len(value.dims) == 2 and any(
        isinstance(part, Load)
        and len(part.dims) == 2
        and not part.is_contiguous
        and part.strides[1] is not None
        and not part.strides[1].is_one
        for part in walk(value)
    )
