"""Takes operators apart that no first kernel is written for, where PyTorch says how."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._decomp import decomposition_table

WHOLE = frozenset(
    """
    __and__ __lshift__ __or__ __rshift__ __xor__ _cdist_forward _conj _embedding_bag
    _fused_rms_norm _index_put_impl _log_softmax _reshape_alias _softmax _to_copy
    _unsafe_index_put _unsafe_view abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add addcdiv
    addcmul addmm addmv alias all alpha_dropout amax amin any arange argmax argmin argsort
    as_strided asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d baddbmm batch_norm
    binary_cross_entropy binary_cross_entropy_with_logits bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm broadcast_tensors broadcast_to
    bucketize cat cdist ceil chunk clamp clamp_max clamp_min clone concat constant_pad_nd
    contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    convolution copy copysign cos cosh cosine_similarity cross_entropy_loss cummax cummin
    cumprod cumsum detach diag diag_embed diagonal div dot double dropout einsum elu embedding
    embedding_bag empty empty_like eq erf erfc erfinv exp exp2 expand expand_as expm1 eye
    feature_dropout flatten flip float floor floor_divide fmax fmin fmod full full_like gather
    ge gelu ger glu greater greater_equal group_norm gru gt half hardshrink hardsigmoid
    hardswish hardtanh heaviside huber_loss hypot identity index index_add index_copy index_put
    index_reduce index_select inner instance_norm isfinite isinf isnan kl_div kthvalue l1_loss
    layer_norm le leaky_relu lerp less less_equal lgamma lift_fresh lift_fresh_copy
    linalg_vector_norm linear linspace log log10 log1p log2 log_sigmoid log_softmax logaddexp
    logcumsumexp logical_and logical_not logical_or logical_xor logsumexp lstm lt mT masked_fill
    masked_scatter matmul max max_pool1d max_pool1d_with_indices max_pool2d
    max_pool2d_with_indices max_pool3d max_pool3d_with_indices maximum mean median min minimum
    mish mm movedim mse_loss mul multiply mv narrow native_dropout native_layer_norm ne neg
    new_full new_ones new_zeros nll_loss nll_loss_nd norm not_equal numpy_T one_hot ones
    ones_like outer pad permute pixel_shuffle pixel_unshuffle positive pow prelu prod ravel
    reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 remainder repeat
    repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape reshape_as
    resolve_conj rms_norm rnn_relu rnn_tanh roll round rsqrt rsub scalar_tensor
    scaled_dot_product_attention scatter scatter_add scatter_reduce searchsorted select
    select_scatter selu sigmoid sign silu sin sinh slice slice_scatter smooth_l1_loss softmax
    softplus softshrink softsign sort special_erfinv split split_with_sizes sqrt square squeeze
    stack std std_mean sub sum swapaxes swapdims t tan tanh tensor_split threshold tile to topk
    transpose tril triplet_margin_loss triu true_divide trunc type_as unbind unflatten unfold
    unsqueeze upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_trilinear3d var var_mean vdot view view_as where xlogy zeros
    zeros_like
    """.split()
)
"""Operators that stay as they are, by their names without overload: tools/first_kernel knows them.

What stands here twice is held together by a test.
"""
_PASSED_OVER = ("_assert", "sym_constrain", "_check")


def taken_apart(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program in which fewer kinds of operators are not WHOLE, or the same one.

    Where all are, nothing is changed: a program then reads as it was written.
    """
    strange = set(_strange(exported))
    if not strange:
        return exported
    table: dict[Any, Any] = dict(torch.export.default_decompositions())
    table |= {
        operator: apart for operator, apart in decomposition_table.items()
        if isinstance(operator, torch._ops.OpOverload) and operator not in table
    }  # fmt: skip
    table = {operator: apart for operator, apart in table.items() if not _is_whole(operator)}
    with contextlib.suppress(Exception):  # It raises many types, also of PyTorch's internals.
        found = exported.run_decompositions(table)
        if len(set(_strange(found))) < len(strange):
            return found
    return exported


def _strange(exported: torch.export.ExportedProgram) -> Iterator[str]:
    """Yield the names of operators that are not WHOLE."""
    for node in exported.graph.nodes:
        if node.op == "call_function" and not _is_whole(node.target):
            yield str(node.target)


def _is_whole(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__name__", "") == "getitem"
    library, name, *_ = str(target).split(".")
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return library == "aten" and (name in WHOLE or name.startswith(_PASSED_OVER))
