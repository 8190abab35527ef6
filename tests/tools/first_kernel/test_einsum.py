"""Einsum with an ellipsis: the axes without a letter, aligned at the right."""

from __future__ import annotations

from pathlib import Path

import pytest
from builtin_support import reference, written_and_verified

from kernelblaster.harness.task.loading import load_task
from kernelblaster.tools.first_kernel.operators.products import spelled_out

ELLIPSES = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(D, 4, 5))

    def forward(self, x, y):
        return (torch.einsum("...d,dhk->...hk", x, self.w), torch.einsum("b...d,...d", x, y),
                torch.einsum("...ad,...bd->...ab", x[0], y), torch.einsum("...d->d", x),
                torch.einsum("...ii->...i", x[..., :4, :4]),
                torch.einsum("a...d,...d,d...->a...", x, y, y.mT),
                torch.einsum("...,...->...", x, y), torch.einsum("ij,jk", x[0, 0, :, :1], y))


def get_inputs():
    return [torch.randn(N, 3, L, D), torch.randn(L, D)]
"""


@pytest.mark.parametrize(
    ("equation", "ranks", "terms", "output"),
    [
        ("...d,dhk->...hk", (3, 3), ["abd", "dhk"], "abhk"),
        ("...d, ...d", (2, 4), ["cd", "abcd"], "abc"),
        ("ij,jk", (2, 2), ["ij", "jk"], "ik"),
        ("Zba...", (4,), ["Zbac"], "cZab"),
        ("...i->i", (3,), ["abi"], "i"),
        ("...,...->...", (0, 0), ["", ""], ""),
    ],
)
def test_an_ellipsis_becomes_letters_that_are_not_in_use(
    equation: str, ranks: tuple[int, ...], terms: list[str], output: str
) -> None:
    assert spelled_out(equation, ranks) == (terms, output)


async def test_ellipses_compute_what_pytorch_does(tmp_path: Path) -> None:
    made = await load_task(reference(tmp_path, "ellipses", ELLIPSES, "N, L, D = 8, 10, 12"))
    await written_and_verified(made)
