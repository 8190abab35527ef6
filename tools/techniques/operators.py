"""Families of operators: what a task's graph must hold for a technique to have work there.

Names are ATen's, without namespace, overload and the underscore of operators in place.
"""

from __future__ import annotations

from ...harness.bound.flow import Flow
from ...harness.bound.windows import Axis, Convolution, convolution_of, pool_axes
from ...harness.records.tasks import Task
from ...memory.knowledge.states.conditions import operators

PRODUCTS = (
    "mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot",
    "inner", "outer", "einsum", "tensordot", "bilinear", "chain_matmul", "cdist",
)  # fmt: skip
TRANSPOSED_CONVOLUTIONS = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
CONVOLUTIONS = (
    "conv1d", "conv2d", "conv3d", "convolution", "_convolution", *TRANSPOSED_CONVOLUTIONS,
)  # fmt: skip
ATTENTION = (
    "scaled_dot_product_attention", "_native_multi_head_attention",
    "_transformer_encoder_layer_fwd",
)  # fmt: skip
RECURRENCES = (
    "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
    "rnn_relu_cell",
)  # fmt: skip
WITH_PRODUCTS = (*PRODUCTS, *CONVOLUTIONS, *ATTENTION, *RECURRENCES)
"""What tensor cores can serve."""
SOFTMAXES = (
    "softmax", "log_softmax", "_softmax", "_log_softmax", "logsumexp", "cross_entropy_loss", "exp",
)  # fmt: skip
"""`exp` for those written out by hand."""
NORMS = (
    "layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm", "group_norm",
    "native_group_norm", "batch_norm", "native_batch_norm", "_native_batch_norm_legit",
    "instance_norm", "renorm",
)  # fmt: skip
VARIANCES = ("var", "std", "var_mean", "std_mean", "pow", "square", "mul")
"""Where a variance may be written out; together with a mean it is one."""
SUMS = (
    "sum", "mean", "amax", "amin", "max", "min", "aminmax", "prod", "argmax", "argmin", "var",
    "std", "var_mean", "std_mean", "norm", "linalg_vector_norm", "logsumexp", "any", "all",
    "nansum", "count_nonzero", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity",
    "cosine_embedding_loss", "hinge_embedding_loss", "triplet_margin_loss", "nll_loss",
    "nll_loss_nd", "nll_loss2d", "pairwise_distance", "trace",
)  # fmt: skip
GLOBAL_POOLS = (
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d",
)  # fmt: skip
ROWS = tuple(name for name in (*SOFTMAXES, *NORMS, *SUMS, *GLOBAL_POOLS, *ATTENTION)
             if name != "exp")  # fmt: skip
"""What goes over whole rows or columns."""
POOLS = (
    "max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices",
    "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    *GLOBAL_POOLS,
)  # fmt: skip
SCANS = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
LOOKUPS = (
    "index", "gather", "embedding", "embedding_bag", "index_select", "take", "take_along_dim",
    "grid_sampler", "grid_sampler_2d",
)  # fmt: skip
SCATTERS = (
    "scatter", "scatter_add", "scatter_reduce", "index_add", "index_put", "index_copy",
    "index_reduce", "histc", "bincount", "masked_scatter",
)  # fmt: skip
SORTS = ("sort", "argsort", "topk", "kthvalue", "msort", "median", "mode", "argmax", "argmin")
MASKS = (
    "tril", "triu", "where", "masked_fill", "diag", "diag_embed", "diagonal", "block_diag",
    "constant_pad_nd", "pad",
)  # fmt: skip
"""What leaves a part of a tensor without work."""
MOVES = (
    "transpose", "permute", "t", "numpy_T", "mT", "swapaxes", "movedim", "contiguous", "clone",
    "flip", "roll", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "unfold", "im2col",
    "col2im", "cat", "stack",
)  # fmt: skip
"""What puts elements elsewhere."""


def may_compute(task: Task, *names: str) -> bool:
    """Say whether a task's graph holds one of these operators; of one without a graph, yes."""
    return task.program is None or not operators(task).isdisjoint(names)


def convolutions(task: Task) -> tuple[Convolution, ...]:
    """Return the sizes of a task's convolutions; none where the task has no program."""
    flow = _flow(task)
    found = (convolution_of(each, flow) for each in flow.operations) if flow else ()
    return tuple(each for each in found if each is not None)


def pools(task: Task) -> tuple[tuple[Axis, ...], ...]:
    """Return the axes of a task's pools of fixed windows; none where the task has no program."""
    flow = _flow(task)
    found = (pool_axes(each, flow) for each in flow.operations) if flow else ()
    return tuple(each for each in found if each is not None)


def reduced_dimensions(task: Task) -> tuple[tuple[int, ...], ...]:
    """Return what each reduction goes over, counted from the last dimension, which is -1.

    Of reductions over named dimensions, softmaxes and scans; none where the task has no program.
    """
    flow = _flow(task)
    if flow is None:
        return ()
    found = []
    for each in flow.operations:
        if each.op in (*SUMS, *SOFTMAXES, *SCANS) and each.values:
            rank = len(flow.shapes[each.values[0]])
            given = each.argument(2 if each.op.endswith("norm") else 1, "dim")
            dims = given if isinstance(given, list | tuple) else [given]
            if rank and dims and all(type(dim) is int for dim in dims):
                found.append(tuple(sorted(dim % rank - rank for dim in dims)))
        elif each.op.removeprefix("_").removeprefix("native_").startswith("batch_norm"):
            rank = len(flow.shapes[each.values[0]])
            found.append((-rank, *range(2 - rank, 0)))
    return tuple(found)


def _flow(task: Task) -> Flow | None:
    return Flow(task.program, task.full.tensors) if task.program is not None else None
