"""Awkward operands of every type: zeros, infinities, NaNs, subnormals, limits, random bits."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray
from reference_executor.formats import FORMATS, Format, encode, whole
from reference_executor.words import TYPE_BITS, limits, low

Bits = NDArray[np.uint64]


def float_edges(form: Format) -> list[int]:
    """Return bit patterns at the joints of a format."""
    infinity = (1 << form.exponent_bits) - 1 << form.fraction_bits
    one, sign = encode(form, whole(1)) >> form.padding, 1 << form.bits - form.padding - 1
    smallest_normal = 1 << form.fraction_bits
    positive = [
        0, infinity, form.nan >> form.padding, 1, one, smallest_normal - 1, smallest_normal,
        smallest_normal + 1, one - 1, one + 1, encode(form, whole(3)) >> form.padding,
        infinity - 1, one - smallest_normal, one + (1 << form.fraction_bits - 1),
    ]  # fmt: skip
    return [v << form.padding for p in positive for v in (p, p | sign)]


def integer_edges(type_name: str) -> list[int]:
    """Return the limits of an integer type and what lies beside them."""
    bits = TYPE_BITS[type_name]
    smallest, largest = limits(type_name)
    values = {0, 1, 2, -1, smallest, smallest + 1, largest, largest - 1, 1 << bits - 1,
              (1 << bits - 1) - 1, 1 << bits // 2, 0x5A}  # fmt: skip
    return sorted(low(v, bits) for v in values)


def _random_floats(random: np.random.Generator, form: Format, count: int) -> Bits:
    """Return any bits, then numbers of like size, whose results have something to round."""
    any_bits = random.integers(0, 1 << 64, count, np.uint64) >> np.uint64(64 - form.bits)
    exponent = random.integers(form.bias - 3, form.bias + 4, count).astype(np.uint64)
    place = np.uint64(form.fraction_bits + form.padding)
    mask = np.uint64((1 << form.exponent_bits) - 1)
    alike = (any_bits & ~(mask << place)) | exponent << place
    return np.where(random.random(count) < 0.4, any_bits, alike)


def values(name: str, position: int, count: int) -> Bits:
    """Return `count` operands; `name` is a type, or type/flavour.

    Edges come first, in an order of their own at each position, so that they meet each other.
    """
    type_name, _, flavour = name.partition("/")
    random = np.random.default_rng([zlib.crc32(name.encode()), position])
    bits = TYPE_BITS[type_name]
    if type_name == "pred":
        return random.integers(0, 2, count).astype(np.uint64)
    if flavour == "count":
        edges = [0, 1, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 0xFFFFFFFF]
        rest = random.integers(0, 70, count).astype(np.uint64)
    elif flavour == "lane":
        edges, rest = [], random.integers(0, 32, count).astype(np.uint64)
    elif flavour == "few":
        edges, rest = [], random.integers(0, 3, count).astype(np.uint64)
    elif type_name.endswith("x2"):
        half = type_name.removesuffix("x2")
        high = values(half, position + 10, count)
        return values(half, position, count) | high << np.uint64(16)
    elif type_name in FORMATS:
        edges, rest = float_edges(FORMATS[type_name]), _random_floats(
            random, FORMATS[type_name], count
        )  # fmt: skip
    else:
        edges = integer_edges(type_name)
        rest = random.integers(0, 1 << 64, count, np.uint64) >> np.uint64(64 - bits)
        small = random.integers(0, 64, count).astype(np.uint64)
        rest = np.where(random.random(count) < 0.2, small, rest)
    result = rest.copy()
    if edges:
        # Every pair of the first edges, every edge of all, and edges among the random ones.
        core = edges[:8]
        order = [core[(i, i // 8)[position % 2] % 8] for i in range(64)]
        turn = (1, 3, 5)[position % 3]
        order += [edges[(i * turn + position) % len(edges)] for i in range(2 * len(edges))]
        result[: len(order)] = order[:count]
        pick = random.random(count) < 0.25
        pick[: len(order)] = False
        result[pick] = random.choice(np.array(edges, np.uint64), int(pick.sum()))
    if flavour == "nonzero":
        result[result == 0] = 3
    elif flavour == "moderate":  # exponents far from the ends
        form = FORMATS[type_name]
        place = np.uint64(form.fraction_bits)
        exponent = np.uint64(form.bias - 8) + result % np.uint64(16)
        mask = np.uint64((1 << form.exponent_bits) - 1)
        result = (result & ~(mask << place)) | exponent << place
    return result
