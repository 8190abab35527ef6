"""Operators that slide a window: convolutions, their transposes, pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ..kernels.accumulators import lowest
from ..kernels.nests import Result, Value, Writing
from ..kernels.pen import Pen
from ..program.arrays import Array, shape
from ..program.calls import Call
from ..program.sizes import as_dim, count, divided, same_as_zero
from ..program.values import ONE, CannotWrite, Dim, Dims

_SPACE = ("z", "y", "x")
_KERNEL = ("kz", "ky", "kx")


def _rank(call: Call) -> int:
    for rank in (1, 2, 3):
        if f"{rank}d" in call.op:
            return rank
    raise CannotWrite(f"{call.where}: the number of its axes is not known")


def _inside(pen: Pen, index: str, size: Dim) -> list[str]:
    bound = pen.size(size, "bound")
    return [f"{index} >= 0", f"{index} < {bound}"]


def _convolution(write: Writing, call: Call) -> Value:
    if call.base == "convolution":
        return _general(write, call)
    rank = _rank(call)
    stride, padding, dilation = (
        call.sizes(3, "stride", rank, 1), call.get(4, "padding", 0),
        call.sizes(5, "dilation", rank, 1),
    )  # fmt: skip
    weight = write.array(call.args[1])
    if padding == "same":
        pads = tuple(
            write.known.following(lambda gap, size: gap * (size - 1) // 2, d, k)
            for d, k in zip(dilation, weight.dims[2:], strict=True)
        )
    else:
        pads = call.sizes(4, "padding", rank, 0) if padding != "valid" else (as_dim(0),) * rank
    return _convolved(
        write, call, call.args[0], weight, call.get(2, "bias"), stride, pads, dilation
    )


def _general(write: Writing, call: Call) -> Value:
    rank = len(call.args[1].dims) - 2
    weight = write.array(call.args[1])
    stride, padding, dilation = (
        call.sizes(place, "", rank, default) for place, default in ((3, 1), (4, 0), (5, 1))
    )
    if call.flag(6, "transposed"):
        return _spread(write, call, call.args[0], weight, call.args[2], stride, padding, dilation)
    return _convolved(
        write, call, call.args[0], weight, call.args[2], stride, padding, dilation
    )


def _batched(write: Writing, call: Call, value: Value, rank: int) -> tuple[Array, Dims]:
    if call.dims is None:
        raise CannotWrite(f"{call.where}: the shape of its result is not known")
    array = write.contiguous(value, call.name)
    if len(array.dims) == rank + 1:
        return write.array(write.reshape(array, (ONE, *array.dims))), (ONE, *call.dims)
    return array, call.dims


def _convolved(
    write: Writing, call: Call, value: Value, weight: Array, bias: Value | None,
    stride: Dims, padding: Dims, dilation: Dims,
) -> Value:  # fmt: skip
    rank = len(stride)
    array, dims = _batched(write, call, value, rank)
    out = write.new(call.name, dims, call.dtype or array.dtype)
    pen = write.pen(f"conv{rank}d", f"{call.where}: {shapes(array, weight)} -> {shape(dims)}")
    n, channel, *spot = pen.one_thread_each(dims, ("n", "channel", *_SPACE[-rank:]))
    each = weight.dims[1]
    first = "0"
    grouped = not each.same_as(array.dims[1])
    if grouped:
        # Each group of filters reads as many channels as a filter has.
        groups = write.known.named(divided(array.dims[1], each))
        per_group = write.known.named(divided(dims[1], groups))
        first = pen.name("first")
        filters = pen.size(per_group, "filters")
        group = channel if filters == "1" else f"{channel} / {filters}"
        text = f"{group} * {pen.size(each, 'depth')}" if not each.is_one else group
        pen.line(f"const index_t {first} = {text};")
    pen.line("float total = 0.0f;")
    names = ["c", *_KERNEL[-rank:]]
    strides = _each(pen, stride, "stride")
    pads = _each(pen, padding, "pad")
    apart = _each(pen, dilation, "gap")
    with pen.loops(weight.dims[1:], names) as (c, *window):
        places, guards = [], []
        for axis in range(rank):
            text = _affine(spot[axis], strides[axis], window[axis], apart[axis], pads[axis])
            name = pen.name(f"in_{'zyx'[-rank:][axis]}")
            pen.line(f"const index_t {name} = {text};")
            places.append(name)
            if not same_as_zero(padding[axis]):
                guards += _inside(pen, name, array.dims[2 + axis])
        single = all(index == "0" for index in (c, *window))
        if guards and not single:
            pen.line(f"if ({_refused(guards)}) continue;")
        channel_in = c if first == "0" else first if c == "0" else f"{first} + {c}"
        product = (
            f"{pen.load(array, [n, channel_in, *places], 'input')} * "
            f"{pen.load(weight, [channel, c, *window], 'weight')}"
        )
        if guards and single:
            pen.line(f"if ({' && '.join(guards)}) total += {product};")
        else:
            pen.line(f"total += {product};")
    text = "total"
    if bias is not None:
        text = f"total + {pen.load(write.array(bias), [channel], 'bias')}"
    pen.store(out, [n, channel, *spot], text)
    write.launch(pen)
    return out if call.dims == dims else write.reshape(out, call.dims or ())


def _each(pen: Pen, dims: Dims, hint: str) -> list[str]:
    """Return the names of one number for each spatial axis."""
    axes = "zyx"[-len(dims) :]
    return [pen.size(dim, f"{hint}_{axis}") for dim, axis in zip(dims, axes, strict=True)]


def _refused(guards: Sequence[str]) -> str:
    turned = {">=": "<", "<": ">="}
    words = [guard.split() for guard in guards]
    return " || ".join(f"{left} {turned[sign]} {right}" for left, sign, right in words)


def _affine(spot: str, stride: str, tap: str, gap: str, pad: str) -> str:
    terms = []
    if spot != "0":
        terms.append(spot if stride == "1" else f"{spot} * {stride}")
    if tap != "0":
        terms.append(tap if gap == "1" else f"{tap} * {gap}")
    text = " + ".join(terms) or "0"
    return text if pad == "0" else f"{text} - {pad}"


def _transposed(write: Writing, call: Call) -> Value:
    rank = _rank(call)
    weight = write.array(call.args[1])
    return _spread(
        write, call, call.args[0], weight, call.get(2, "bias"),
        call.sizes(3, "stride", rank, 1), call.sizes(4, "padding", rank, 0),
        call.sizes(7, "dilation", rank, 1),
    )  # fmt: skip


def _spread(
    write: Writing, call: Call, value: Value, weight: Array, bias: Value | None,
    stride: Dims, padding: Dims, dilation: Dims,
) -> Value:  # fmt: skip
    """Write a transposed convolution: each output looks for the inputs that reach it."""
    rank = len(stride)
    array, dims = _batched(write, call, value, rank)
    out = write.new(call.name, dims, call.dtype or array.dtype)
    pen = write.pen(
        f"conv_transpose{rank}d", f"{call.where}: {shapes(array, weight)} -> {shape(dims)}"
    )
    n, channel, *spot = pen.one_thread_each(dims, ("n", "channel", *_SPACE[-rank:]))
    filters = weight.dims[1]
    depth, first, filter_index = weight.dims[0], "0", channel
    if not filters.same_as(dims[1]):
        groups = write.known.named(divided(dims[1], filters))
        depth = write.known.named(divided(depth, groups))
        many = pen.size(filters, "filters")
        first, filter_index = pen.name("first"), pen.name("filter")
        pen.line(f"const index_t {first} = {channel} / {many} * {pen.size(depth, 'depth')};")
        pen.line(f"const index_t {filter_index} = {channel} % {many};")
    axes = "zyx"[-rank:]
    strides = _each(pen, stride, "stride")
    pads = _each(pen, padding, "pad")
    apart = _each(pen, dilation, "gap")
    pen.line("float total = 0.0f;")
    opened = ExitStack()
    places, window = [], []
    for axis in range(rank):
        loop = pen.loops([weight.dims[2 + axis]], [_KERNEL[-rank:][axis]])
        (tap,) = opened.enter_context(loop)
        window.append(tap)
        reach, name = pen.name(f"reach_{axes[axis]}"), pen.name(f"in_{axes[axis]}")
        text = spot[axis] if pads[axis] == "0" else f"{spot[axis]} + {pads[axis]}"
        if tap != "0":
            text += f" - {tap}" if apart[axis] == "1" else f" - {tap} * {apart[axis]}"
        bound = pen.size(array.dims[2 + axis], "bound")
        if strides[axis] == "1":
            pen.line(f"const index_t {name} = {text};")
            guard = f"{name} >= 0 && {name} < {bound}"
        else:
            pen.line(f"const index_t {reach} = {text};")
            pen.line(f"const index_t {name} = {reach} / {strides[axis]};")
            guard = f"{reach} >= 0 && {reach} % {strides[axis]} == 0 && {name} < {bound}"
        opened.enter_context(pen.block(f"if ({guard})"))
        places.append(name)
    with pen.loops([depth], ["c"]) as (c,):
        source = c if first == "0" else f"{first} + {c}"
        pen.line(
            f"total += {pen.load(array, [n, source, *places], 'input')} * "
            f"{pen.load(weight, [source, filter_index, *window], 'weight')};"
        )
    opened.close()
    text = "total"
    if bias is not None:
        text = f"total + {pen.load(write.array(bias), [channel], 'bias')}"
    pen.store(out, [n, channel, *spot], text)
    write.launch(pen)
    return out if call.dims == dims else write.reshape(out, call.dims or ())


def _max_pool(write: Writing, call: Call) -> Value | tuple[Value, ...]:
    rank = _rank(call)
    size = call.sizes(1, "kernel_size", rank, 1)
    stride = size if call.get(2, "stride") in (None, ()) else call.sizes(2, "stride", rank, 1)
    padding, dilation = call.sizes(3, "padding", rank, 0), call.sizes(4, "dilation", rank, 1)
    array, dims, lead = _planes(write, call, rank)
    out = write.new(call.name, dims, array.dtype)
    places = write.new(f"{call.name}_places", dims, "int64") if "indices" in call.op else None
    pen = write.pen(f"max_pool{rank}d", f"{call.where}: {shapes(array)} -> {shape(dims)}")
    plane, *spot = pen.one_thread_each(dims, ("plane", *_SPACE[-rank:]))
    pen.line(f"float result = {lowest('max', array.dtype)};")
    if places is not None:
        pen.line("long long position = 0;")
    tap = _window(pen, array, spot, size, stride, padding, dilation, call.flag(5, "ceil_mode"))
    with pen.loops(size, _KERNEL[-rank:]) as window:
        taps, guards = tap(window)
        value = pen.name("value")
        if guards and any(each != "0" for each in window):
            pen.line(f"if ({_refused(guards)}) continue;")
        pen.line(f"const float {value} = {pen.load(array, [plane, *taps], 'input')};")
        better = f"{value} > result || {value} != {value}"
        if places is None:
            pen.line(f"if ({better}) result = {value};")
        else:
            flat = taps[0]
            for index, dim in zip(taps[1:], array.dims[2:], strict=True):
                flat = f"({flat}) * {pen.size(dim)} + {index}"
            with pen.block(f"if ({better})"):
                pen.line(f"result = {value};")
                pen.line(f"position = {flat};")
    pen.store(out, [plane, *spot], "result")
    if places is not None:
        pen.store(places, [plane, *spot], "position", "places")
    write.launch(pen)
    final = write.reshape(out, lead)
    return final if places is None else (final, write.reshape(places, lead))


def _planes(write: Writing, call: Call, rank: int) -> tuple[Array, Dims, Dims]:
    """Return the input and the result's shape with all leading axes as one, and that shape."""
    if call.dims is None:
        raise CannotWrite(f"{call.where}: the shape of its result is not known")
    array = write.contiguous(call.args[0], call.name)
    lead = array.dims[: len(array.dims) - rank]
    planes = write.known.named(count(lead))
    flat = write.array(write.reshape(array, (planes, *array.dims[-rank:])))
    return flat, (planes, *call.dims[-rank:]), call.dims


def _window(
    pen: Pen, array: Array, spot: Sequence[str], size: Dims, stride: Dims, padding: Dims,
    dilation: Dims, beyond: bool,
) -> Callable[[Sequence[str]], tuple[list[str], list[str]]]:  # fmt: skip
    """Return what writes the indices of one tap, and the conditions for it to be inside."""
    rank = len(size)
    axes = "zyx"[-rank:]
    strides = _each(pen, stride, "stride")
    pads = _each(pen, padding, "pad")
    apart = _each(pen, dilation, "gap")

    def write(window: Sequence[str]) -> tuple[list[str], list[str]]:
        taps, guards = [], []
        for axis in range(rank):
            name = pen.name(f"in_{axes[axis]}")
            text = _affine(spot[axis], strides[axis], window[axis], apart[axis], pads[axis])
            pen.line(f"const index_t {name} = {text};")
            taps.append(name)
            if beyond or not same_as_zero(padding[axis]):
                guards += _inside(pen, name, array.dims[1 + axis])
        return taps, guards

    return write


def _average_pool(write: Writing, call: Call) -> Value:
    rank = _rank(call)
    size = call.sizes(1, "kernel_size", rank, 1)
    stride = size if call.get(2, "stride") in (None, ()) else call.sizes(2, "stride", rank, 1)
    padding = call.sizes(3, "padding", rank, 0)
    padded = call.flag(5, "count_include_pad", True)
    divisor = call.get(6, "divisor_override")
    array, dims, lead = _planes(write, call, rank)
    out = write.new(call.name, dims, array.dtype)
    pen = write.pen(f"avg_pool{rank}d", f"{call.where}: {shapes(array)} -> {shape(dims)}")
    plane, *spot = pen.one_thread_each(dims, ("plane", *_SPACE[-rank:]))
    factors = []
    bounds = []
    for axis in range(rank):
        letter = "zyx"[-rank:][axis]
        first, last, bound = pen.name(f"first_{letter}"), pen.name(f"last_{letter}"), pen.size(
            array.dims[1 + axis], "bound")  # fmt: skip
        pad = pen.size(padding[axis], f"pad_{letter}")
        step = pen.size(stride[axis], f"stride_{letter}")
        extent = pen.size(size[axis], f"kernel_{letter}")
        start = _affine(spot[axis], step, "0", "1", pad)
        pen.line(f"const index_t {first} = {start};")
        limit = bound if pad == "0" else f"{bound} + {pad}"
        pen.line(f"const index_t {last} = min({first} + {extent}, {limit});")
        factors.append((first, last, bound))
        bounds.append((f"max({first}, static_cast<index_t>(0))", f"min({last}, {bound})"))
    counted = (
        " * ".join(f"({last} - {first})" for first, last, _ in factors) if padded else
        " * ".join(f"({high} - {low})" for low, high in bounds)
    )  # fmt: skip
    if divisor is not None:
        counted = pen.size(as_dim(divisor), "divisor")
    pen.line("float total = 0.0f;")
    opened, taps = ExitStack(), []
    for axis, (low, high) in enumerate(bounds):
        name = pen.name(f"in_{'zyx'[-rank:][axis]}")
        head = f"for (index_t {name} = {low}; {name} < {high}; ++{name})"
        opened.enter_context(pen.block(head))
        taps.append(name)
    pen.line(f"total += {pen.load(array, [plane, *taps], 'input')};")
    opened.close()
    pen.store(out, [plane, *spot], f"total / static_cast<float>({counted})")
    write.launch(pen)
    return write.reshape(out, lead)


def _adaptive(write: Writing, call: Call) -> Value | tuple[Value, ...]:
    rank = _rank(call)
    array, dims, lead = _planes(write, call, rank)
    largest = "max" in call.base
    if not largest and all(dim.is_one for dim in dims[1:]):
        terms = write.known.named(count(array.dims[1:]))
        mean = write.reduce(
            "sum", array, range(1, rank + 1), name=call.name, dtype=array.dtype,
            finish=lambda result: write.apply("div", result, terms),
        )  # fmt: skip
        return write.reshape(mean, lead)
    out = write.new(call.name, dims, array.dtype)
    pen = write.pen(call.base, f"{call.where}: {shapes(array)} -> {shape(dims)}")
    plane, *spot = pen.one_thread_each(dims, ("plane", *_SPACE[-rank:]))
    ranges = []
    for axis in range(rank):
        letter = "zyx"[-rank:][axis]
        have = pen.size(array.dims[1 + axis], "have")
        wanted = pen.size(dims[1 + axis], "wanted")
        first, last = pen.name(f"first_{letter}"), pen.name(f"last_{letter}")
        pen.line(f"const index_t {first} = {spot[axis]} * {have} / {wanted};")
        pen.line(
            f"const index_t {last} = (({spot[axis]} + 1) * {have} + {wanted} - 1) / {wanted};"
        )
        ranges.append((first, last))
    pen.line(f"float total = {'-INFINITY' if largest else '0.0f'};")
    opened, taps = ExitStack(), []
    for axis, (first, last) in enumerate(ranges):
        name = pen.name(f"in_{'zyx'[-rank:][axis]}")
        head = f"for (index_t {name} = {first}; {name} < {last}; ++{name})"
        opened.enter_context(pen.block(head))
        taps.append(name)
    value = pen.load(array, [plane, *taps], "input")
    pen.line(f"total = fmaxf(total, {value});" if largest else f"total += {value};")
    opened.close()
    sizes = " * ".join(f"({last} - {first})" for first, last in ranges)
    text = "total" if largest else f"total / static_cast<float>({sizes})"
    pen.store(out, [plane, *spot], text)
    write.launch(pen)
    final = write.reshape(out, lead)
    return (final, Result(lead, "int64")) if largest else final


def shapes(*arrays: Array) -> str:
    """Return the shapes of operands, for comments."""
    return " by ".join(shape(array.dims) for array in arrays)


OPERATORS = {
    **{f"conv{rank}d": _convolution for rank in (1, 2, 3)}, "convolution": _convolution,
    **{f"conv_transpose{rank}d": _transposed for rank in (1, 2, 3)},
    **{f"max_pool{rank}d": _max_pool for rank in (1, 2, 3)},
    **{f"max_pool{rank}d_with_indices": _max_pool for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d": _average_pool for rank in (1, 2, 3)},
    **{f"adaptive_avg_pool{rank}d": _adaptive for rank in (1, 2, 3)},
    **{f"adaptive_max_pool{rank}d": _adaptive for rank in (1, 2, 3)},
}  # fmt: skip
