"""tma_bulk_copy: one thread orders whole rows to be copied into shared memory (sm_90)."""

from __future__ import annotations

from .conditions import ON_A_GPU, already, at_least, first_of, nothing_staged
from .technique import Technique


def technique() -> Technique:
    """Return the technique; `stages` is the number of tiles in shared memory."""
    return Technique(
        name="tma_bulk_copy",
        description=(
            "Let one thread copy contiguous pieces between global and shared memory with "
            "cp.async.bulk (TMA), whose arrival an mbarrier counts in bytes."
        ),
        applies_when=(
            "sm_90 or newer; tiles of contiguous pieces whose copy instructions and address "
            "arithmetic take issue slots or registers."
        ),
        avoid_when=(
            "Older GPUs; pieces under about 1 KB or not in multiples of 16 bytes; values converted "
            "on the way. Tensor maps (cp.async.bulk.tensor) need a driver call that no file may "
            "make."
        ),
        side_effects=(
            "An mbarrier a stage; proxies to be fenced where threads touch the same shared memory."
        ),
        notes=(
            "mbarrier.init with count 1 and fence.mbarrier_init; one thread: arrive.expect_tx with "
            "the stage's bytes, then "
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes for each row; all "
            "others mbarrier.try_wait.parity, the parity turns each round. Stores: "
            "fence.proxy.async, cp.async.bulk.global.shared::cta, bulk.commit_group and "
            "wait_group. cp.reduce.async.bulk adds a tile to global memory."
        ),
        parameters={"stages": (3, 2, 4)},
        sources=(
            'PTX ISA, "cp.async.bulk"',
            'CUDA C++ Programming Guide, "Asynchronous Data Copies using the Tensor Memory '
            'Accelerator (TMA)"',
        ),
        conditions=(at_least("capability", 9.0), ON_A_GPU),
        unfit=first_of(
            already(r"cp\.async\.bulk|cp_async_bulk", "it copies in bulk already"), nothing_staged
        ),
    )
