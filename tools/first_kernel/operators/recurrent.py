"""Recurrent layers: one product for the inputs of all steps, then a block a sample that steps."""

from __future__ import annotations

from ..kernels.nests import Value, Writing
from ..kernels.pen import Pen
from ..program.arrays import Array, part, permuted, without
from ..program.calls import Call
from ..program.sizes import ZERO, as_dim, times
from ..program.values import ONE, CannotWrite, Dim, IsRandom
from .products import product

_SIGMOID = "1.0f / (1.0f + expf(-({})))"


def _recurrent(write: Writing, call: Call) -> tuple[Value, ...]:
    """aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu, all layers and both directions."""
    source = write.array(call.args[0], call.name)
    kind = call.base.split("_")[0]
    begins = call.args[1] if kind == "lstm" else (call.args[1],)
    weights, biases, layers, dropped, train, both, batch_first = call.args[2:9]
    if dropped and train:
        raise IsRandom(f"{call.where} with dropout is random")
    if not isinstance(layers, int):
        raise CannotWrite(f"{call.where}: the number of layers differs between the variants")
    states = [write.array(each, call.name) for each in begins]
    if len(source.dims) != 3:
        raise CannotWrite(f"{call.where} without a batch is not written")
    if not batch_first:
        source = permuted(source, (1, 0, 2))
    directions = 2 if both else 1
    finals = [write.new(f"{call.name}_last", state.dims, source.dtype) for state in states]
    hidden = states[0].dims[2]
    per = len(weights) // (layers * directions)
    projected = per > (4 if biases else 2)
    for layer in range(layers):
        wide = write.known.named(times(hidden, as_dim(directions)))
        out = write.new(f"{call.name}_{layer}", (*source.dims[:2], wide), source.dtype)
        for direction in range(directions):
            place = layer * directions + direction
            own = [write.array(each) for each in weights[place * per : (place + 1) * per]]
            projection = own.pop() if projected else None
            half = part(out, 2, _times(hidden, direction), hidden)
            _layer(
                write, call, kind, source, own, projection, half,
                [_row(each, place) for each in states], [_row(each, place) for each in finals],
                backwards=direction == 1,
            )  # fmt: skip
        source = out
    result = source if batch_first else permuted(source, (1, 0, 2))
    return (result, *finals)


def _times(dim: Dim, factor: int) -> Dim:
    return dim if factor else ZERO


def _row(array: Array, place: int) -> Array:
    return without(part(array, 0, as_dim(place), ONE), [0])


def _layer(
    write: Writing, call: Call, kind: str, source: Array, own: list[Array],
    projection: Array | None, out: Array, begins: list[Array], finals: list[Array], *,
    backwards: bool,
) -> None:  # fmt: skip
    """Write a layer in one direction.

    Args:
        projection: of an LSTM with proj_size, what multiplies each hidden state: there are then
            fewer numbers in that than in a cell.
    """
    into, across = own[0], own[1]
    samples, steps, hidden = out.dims
    inner = begins[-1].dims[1]
    title = write.title
    exact = "float64" if source.dtype == "float64" else "float32"
    write.title = f"{title}: the inputs of all steps by the weights of a layer"
    finish = (lambda total: write.apply("add", total, own[2])) if len(own) > 2 else None
    given = product(
        write, source, permuted(into, (1, 0)), source.dims[:1], f"{call.name}_inputs", exact,
        finish,
    )  # fmt: skip
    write.title = title
    kept = write.new(f"{call.name}_state", (as_dim(2), samples, hidden), exact)
    cell = write.new(f"{call.name}_cell", (samples, inner), exact)
    whole = write.new(f"{call.name}_unprojected", (samples, inner), exact)
    pen = write.pen(f"{kind}_layer{'_backwards' * backwards}",
                    f"{title}: all steps of a layer, a block for each sample")  # fmt: skip
    pen.block_per = samples
    sample = pen.name("sample")
    pen.line(f"const index_t {sample} = blockIdx.x;")
    units, count = pen.size(inner, "units"), pen.size(steps, "steps")
    states = units if projection is None else pen.size(hidden, "states")
    each_unit = f"for (index_t unit = threadIdx.x; unit < {units}; unit += blockDim.x)"
    each_state = f"for (index_t unit = threadIdx.x; unit < {states}; unit += blockDim.x)"
    with pen.block(each_state):
        first = pen.load(begins[0], [sample, "unit"], "begin")
        pen.store(kept, ["0", sample, "unit"], first, "state")
    if kind == "lstm":
        with pen.block(each_unit):
            start = pen.load(begins[1], [sample, "unit"], "begin_cell")
            pen.store(cell, [sample, "unit"], start, "cell")
    pen.line("__syncthreads();")
    with pen.block(f"for (index_t step = 0; step < {count}; ++step)"):
        time = f"{count} - 1 - step" if backwards else "step"
        pen.line(f"const index_t time = {time};")
        with pen.block(each_unit):
            _cell(pen, kind, given, across, own[3] if len(own) > 3 else None, kept, cell, units,
                  states, sample)  # fmt: skip
            if projection is None:
                pen.store(kept, ["(step + 1) % 2", sample, "unit"], "next", "state")
                pen.store(out, [sample, "time", "unit"], "next")
            else:
                pen.store(whole, [sample, "unit"], "next", "unprojected")
        pen.line("__syncthreads();")
        if projection is not None:
            with pen.block(each_state):
                pen.line("float next = 0.0f;")
                with pen.block(f"for (index_t k = 0; k < {units}; ++k)"):
                    term = pen.element(whole, [sample, "k"], "unprojected", written=True)
                    pen.line(f"next += {term} * {pen.load(projection, ['unit', 'k'], 'weight')};")
                pen.store(kept, ["(step + 1) % 2", sample, "unit"], "next", "state")
                pen.store(out, [sample, "time", "unit"], "next")
            pen.line("__syncthreads();")
    with pen.block(each_state):
        last = pen.element(kept, [f"{count} % 2", sample, "unit"], "state", written=True)
        pen.store(finals[0], [sample, "unit"], last, "last")
    if kind == "lstm":
        with pen.block(each_unit):
            held = pen.element(cell, [sample, "unit"], "cell", written=True)
            pen.store(finals[1], [sample, "unit"], held, "last_cell")
    write.launch(pen)


def _cell(
    pen: Pen, kind: str, given: Array, across: Array, bias: Array | None, kept: Array,
    cell: Array, units: str, states: str, sample: str,
) -> None:  # fmt: skip
    """Write one step of one unit: its gates, and the state that comes next.

    Args:
        units: how many there are.
        states: how many numbers of the step before each of them reads.
    """
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    for gate in range(gates):
        start = "0.0f"
        row = "unit" if gate == 0 else f"{gate} * {units} + unit" if gate > 1 else (
            f"{units} + unit")  # fmt: skip
        if bias is not None:
            start = pen.load(bias, [row], "bias")
        pen.line(f"float sum_{gate} = {start};")
    with pen.block(f"for (index_t k = 0; k < {states}; ++k)"):
        before = pen.element(kept, ["step % 2", sample, "k"], "state", written=True)
        pen.line(f"const float before = {before};")
        for gate in range(gates):
            row = "unit" if gate == 0 else f"{gate} * {units} + unit" if gate > 1 else (
                f"{units} + unit")  # fmt: skip
            pen.line(f"sum_{gate} += before * {pen.load(across, [row, 'k'], 'weight')};")
    taken = []
    for gate in range(gates):
        row = "unit" if gate == 0 else f"{gate} * {units} + unit" if gate > 1 else (
            f"{units} + unit")  # fmt: skip
        taken.append(pen.load(given, [sample, "time", row], "inputs"))
    if kind == "lstm":
        for name, gate in (("in", 0), ("forget", 1), ("out_gate", 3)):
            value = _SIGMOID.format(f"{taken[gate]} + sum_{gate}")
            pen.line(f"const float {name} = {value};")
        pen.line(f"const float fresh = tanhf({taken[2]} + sum_2);")
        held = pen.element(cell, [sample, "unit"], "cell", written=True)
        pen.line(f"const float held = forget * {held} + in * fresh;")
        pen.store(cell, [sample, "unit"], "held", "cell")
        pen.line("const float next = out_gate * tanhf(held);")
    elif kind == "gru":
        pen.line(f"const float reset = {_SIGMOID.format(f'{taken[0]} + sum_0')};")
        pen.line(f"const float keep = {_SIGMOID.format(f'{taken[1]} + sum_1')};")
        pen.line(f"const float fresh = tanhf({taken[2]} + reset * sum_2);")
        mine = pen.element(kept, ["step % 2", sample, "unit"], "state", written=True)
        pen.line(f"const float next = (1.0f - keep) * fresh + keep * {mine};")
    else:
        pen.line(f"const float sum = {taken[0]} + sum_0;")
        function = "tanhf(sum)" if "tanh" in pen.title else "fmaxf(sum, 0.0f)"
        pen.line(f"const float next = {function};")


OPERATORS = {
    "lstm": _recurrent, "gru": _recurrent, "rnn_tanh": _recurrent, "rnn_relu": _recurrent,
}  # fmt: skip
