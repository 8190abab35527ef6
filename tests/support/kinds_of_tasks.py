"""Tasks of other kinds than KernelBench's, as users bring them, and how to write one in a line."""

from __future__ import annotations

from typing import Any

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def reference(
    forward: str, inputs: str, *, given: str = "x", init: str = "", initial: str = "", top: str = ""
) -> str:
    """Return a reference from the parts that differ; bodies are lines split by `;`."""
    arguments, _, body = init.partition(":")
    lines = [HEAD, top, "class Model(nn.Module):"]
    if init:
        lines += [f"    def __init__(self, {arguments}):", "        super().__init__()"]
        lines += [f"        {line.strip()}" for line in body.split(";") if line.strip()]
    lines += [f"    def forward(self, {given}):"]
    lines += [f"        {line.strip(' ')}" for line in forward.split(";")]
    lines += [f"def get_inputs():\n    return {inputs}"]
    if initial:
        lines += [f"def get_init_inputs():\n    return {initial}"]
    return "\n".join(lines) + "\n"


X = "[torch.randn(96, 64)]"

LOADED: dict[str, tuple[str, dict[str, Any]]] = {
    "several outputs, named": (
        reference("return {'top': x.amax(1), 'where': x.argmax(1), 'all': x * 2}", X),
        {"out": ["float32[96]", "int64[96]", "float32[96, 64]"]},
    ),
    "a tuple within a tuple": (
        reference("return x + 1, (x.sum(), [x > 0])", X),
        {"out": ["float32[96, 64]", "float32[]", "bool[96, 64]"]},
    ),
    "None beside a tensor, inputs one after the other": (
        reference("return [x + 1, None], None", "iter([torch.randn(96, 64)])"),
        {"out": ["float32[96, 64]"]},
    ),
    "argmin alone": (reference("return x.argmin(dim=0)", X), {"out": ["int64[64]"]}),
    "a comparison alone": (reference("return x > 0", X), {"out": ["bool[96, 64]"]}),
    "int32 in and out": (
        reference("return (x * 2).to(torch.int32)",
                  "[torch.randint(0, 50, (96, 64), dtype=torch.int32)]"),
        {"out": ["int32[96, 64]"], "args": ["x"]},
    ),
    "int16 in and out": (
        reference("return x.cumsum(1, dtype=torch.int16).amax(0), (x + x.flip(0)).to(torch.int16)",
                  "[torch.randint(-99, 99, (96, 64), dtype=torch.int16)]"),
        {"out": ["int16[64]", "int16[96, 64]"], "args": ["x"]},
    ),
    "a conversion alone": (
        reference("return x.half(), x != 0", "[torch.randn(96, 64).relu()]"),
        {"out": ["float16[96, 64]", "bool[96, 64]"], "degenerate": "^$"},
    ),
    "inputs by name": (
        reference("return x * scale + bias", "{'bias': torch.randn(64), 'x': torch.randn(96, 64)}",
                  given="x, bias, scale=2.0"),
        {"args": ["x", "bias"]},
    ),
    "inputs in order and by name": (
        reference("return x.masked_fill(mask, 0.0)",
                  "[torch.randn(96, 64), {'mask': torch.rand(96, 64) > 0.5}]",
                  given="x, mask=None"),
        {"args": ["x", "mask"]},
    ),
    "a dictionary as one input": (
        reference("return batch['a'] + batch['b']",
                  "[{'a': torch.randn(96, 64), 'b': torch.randn(64)}]", given="batch"),
        {"args": ["batch_a", "batch_b"]},
    ),
    "arguments of the model by name": (
        reference("return self.l(x)", X, init="width, out=8: self.l = nn.Linear(width, out)",
                  initial="{'width': 64, 'out': 24}"),
        {"out": ["float32[96, 24]"], "dimensions": {"width", "out", "x_0", "x_1"}},
    ),
    "arguments of the model in order and by name": (
        reference("return self.l(x)", X, init="width, out=8: self.l = nn.Linear(width, out)",
                  initial="[64, {'out': 24}]"),
        {"out": ["float32[96, 24]"]},
    ),
    "a list of sizes": (
        reference("return self.n(x)", X,
                  init="sizes: self.n = nn.Sequential(nn.Linear(*sizes[:2]), "
                  "nn.Linear(*sizes[1:]))",
                  initial="[[64, 32, 16]]"),
        {"dimensions": {"sizes_0", "sizes_1", "sizes_2", "x_0", "x_1"}},
    ),
    "an embedding": (
        reference("return self.e(ids)", "[torch.randint(0, 1000, (8, 12))]", given="ids",
                  init="n, d: self.e = nn.Embedding(n, d)", initial="[1000, 32]"),
        {"args": ["ids", "e_weight"], "out": ["float32[8, 12, 32]"]},
    ),
    "a table whose size stands in the class": (
        reference(
            "return self.table(i) @ self.w",
            "[torch.randint(0, 8192, (2, 16))]",
            init="n=0: self.table = nn.Embedding(8192, 192); "
            "self.w = nn.Parameter(torch.randn(192, 192))",
            given="i",
        ),
        {"small": True},
    ),
    "classes whose number stands in the class": (
        reference(
            "return nn.functional.cross_entropy(self.w(x), i)",
            "[torch.randn(4, 512), torch.randint(0, 4096, (4,))]",
            init="n=0: self.w = nn.Linear(512, 4096)",
            given="x, i",
        ),
        {"small": True},
    ),
    "tied weights": (
        reference("return self.b(self.a(x))", X,
                  init="n=64: self.a = nn.Linear(n, n, bias=False); "
                  "self.b = nn.Linear(n, n, bias=False); self.b.weight = self.a.weight"),
        {"args": ["x", "a_weight"]},
    ),
    "a parameter that nobody reads": (
        reference("return x * self.used", X,
                  init="n=64: self.used = nn.Parameter(torch.randn(n)); "
                  "self.spare = nn.Parameter(torch.randn(n))"),
        {"args": ["x", "used"]},
    ),
    "a buffer read for its shape alone": (
        reference("return x * self.table.shape[0]", X,
                  init="n=64: self.register_buffer('table', torch.zeros(n, 2))"),
        {"args": ["x"]},
    ),
    "a tensor that is no buffer": (
        reference("return x * self.scale", X, init="n=64: self.scale = torch.randn(n)"),
        {"args": ["x", "scale"]},
    ),
    "batch norm in training": (
        reference("return self.n(x)", X, init="n=64: self.n = nn.BatchNorm1d(n)"),
        {"args": ["x", "n_weight", "n_bias"], "note": "n_running_mean.*does not"},
    ),
    "batch norm in evaluation": (
        reference("return self.n(x)", X, init="n=64: self.n = nn.BatchNorm1d(n); self.eval()"),
        {"args": ["x", "n_weight", "n_bias", "n_running_mean", "n_running_var"]},
    ),
    "a cache that is written and read": (
        reference("self.seen.mul_(0.5).add_(x.mean(0)); return x - self.seen", X,
                  init="n=64: self.register_buffer('seen', torch.ones(n))"),
        {"args": ["x", "seen"], "note": "changes seen.*begins with the same"},
    ),
    "a state that is written before it is read": (
        reference("self.seen.copy_(x.mean(0)); return x - self.seen", X,
                  init="n=64: self.register_buffer('seen', torch.ones(n))"),
        {"args": ["x"], "note": "updates seen, which no answer depends on"},
    ),
    "an input changed in place": (reference("x.mul_(2); return x.sum(1)", X), {"args": ["x"]}),
    "an input changed and handed back": (reference("return x.relu_()", X), {"args": ["x"]}),
    "views that alias": (
        reference("y = x.t(); z = y[:32]; return z.reshape(-1), y.contiguous()[::2]", X),
        {"out": ["float32[3072]", "float32[32, 96]"]},
    ),
    "reshapes as of einops": (
        reference("b, s, d = x.shape; y = x.view(b, s, 4, d // 4).permute(0, 2, 1, 3); "
                  "return y.reshape(b * 4, s, d // 4)", "[torch.randn(2, 24, 64)]"),
        {"out": ["float32[8, 24, 16]"]},
    ),
    "a causal mask": (
        reference("t = x.shape[1]; s = x @ x.mT; m = torch.triu(torch.ones(t, t), 1).bool(); "
                  "return s.masked_fill(m, float('-inf')).softmax(-1) @ x",
                  "[torch.randn(2, 24, 16)]"),
        {"out": ["float32[2, 24, 16]"]},
    ),
    "bfloat16": (
        reference("return F.silu(x) * x", "[torch.randn(96, 64).bfloat16()]"),
        {"out": ["bfloat16[96, 64]"]},
    ),
    "half weights": (
        reference("return self.l(x)", "[torch.randn(96, 64).half()]",
                  init="n=64: self.l = nn.Linear(n, 32).half()"),
        {"out": ["float16[96, 32]"]},
    ),
    "double precision": (
        reference("return x.cos()", "[torch.randn(96, dtype=torch.float64)]"),
        {"out": ["float64[96]"]},
    ),
    "tiny": (reference("return x * 3", "[torch.randn(1)]"), {"out": ["float32[1]"]}),
    "one number": (
        reference("return x + alpha", "[torch.randn(7), 2.5]", given="x, alpha"),
        {"args": ["x"], "scalars": {"alpha": 2.5}},
    ),
    "huge": (
        reference("return torch.relu(x)", "[torch.randn(200000, 70000)]"), {"small": True},
    ),
    "a network of fixed width": (
        reference("return self.b(torch.relu(self.a(x)))", "[torch.randn(512, 8192)]",
                  init="n=0: self.a = nn.Linear(8192, 4096); self.b = nn.Linear(4096, 8192)"),
        {"small": True},
    ),
    "an image of one size": (
        reference("x = F.max_pool2d(self.c(x), 8); return self.l(x.flatten(1))",
                  "[torch.randn(256, 3, 224, 224)]",
                  init="n=10: self.c = nn.Conv2d(3, 64, 3, padding=1); "
                  "self.l = nn.Linear(64 * 28 * 28, n)"),
        {"small": True},
    ),
    "heads that divide a width": (
        reference("assert x.shape[-1] % self.heads == 0; return x.unflatten(-1, (self.heads, -1))"
                  ".softmax(-1)", "[torch.randn(4096, 768)]",
                  init="heads: self.heads = heads", initial="[12]"),
        {"small": True},
    ),
    "a loop over a size": (
        reference("h = x[0]; \n        for t in range(x.shape[0]): h = torch.tanh(h + x[t])\n"
                  "        return h", "[torch.randn(6, 8, 16)]"),
        {"out": ["float32[8, 16]"]},
    ),
    "a choice by shape": (
        reference("return x.softmax(-1) if x.shape[-1] > 32 else x.relu()", X),
        {"out": ["float32[96, 64]"]},
    ),
    "a choice by value": (
        reference("return x * 2 if x.sum() > 0 else x * 3", X), {"no program": True},
    ),
    "an LSTM": (
        reference("return self.r(x)[0]", "[torch.randn(2, 40, 8)]",
                  init="n=16: self.r = nn.LSTM(8, n, 2, batch_first=True)"),
        {"out": ["float32[2, 40, 16]"]},
    ),
    "a constant whatever the input": (
        reference("y = x.amax(1, keepdim=True); return (y - y.mean(1, keepdim=True)).relu()", X),
        {"degenerate": r"zeros passes every case.*sub in line \d+ gives 0 everywhere"},
    ),
    "the same for get_inputs() alone": (
        reference("return torch.relu(x)", "[torch.rand(96, 64)]"), {"degenerate": "^$"},
    ),
    "names that C++ has": (
        reference("return int * switch", "[torch.randn(8), torch.randn(8)]", given="int, switch"),
        {"args": ["t_int", "t_switch"]},
    ),
    "dropout in evaluation": (
        reference("return F.dropout(x, 0.5, self.training) * 2", X), {"mode": "eval"},
    ),
    "what is compiled is answered as it is written": (
        reference("return act(self.l(x))", X,
                  init="n=64: self.l = torch.compile(nn.Linear(n, 8), mode='max-autotune')",
                  top="@torch.compile(fullgraph=True)\ndef act(x):\n    return x * x.sigmoid()\n"),
        {"out": ["float32[96, 8]"], "args": ["x", "l_weight", "l_bias"]},
    ),
    "a GPU that is written into the file": (
        reference("torch.cuda.synchronize(); return self.l(x.to('cuda:0')) + "
                  "torch.ones(8, device='cuda')", "[torch.randn(96, 64).cuda()]",
                  init="n=64: self.l = nn.Linear(n, 8, device=torch.device('cuda'))",
                  top="torch.set_default_device('cuda')\n"),
        {"out": ["float32[96, 8]"]},
    ),
    "a default type of its own": (
        reference("return x * torch.full((64,), 3.0)", X,
                  top="torch.set_default_dtype(torch.bfloat16)\n"),
        {"out": ["bfloat16[96, 64]"]},
    ),
    "a command line of its own": (
        reference("return x * 2", X, top="import argparse\n"
                  "arguments = argparse.ArgumentParser().parse_args()\n"),
        {"args": ["x"]},
    ),
    "a word": (
        reference("return F.interpolate(x, scale_factor=2, mode=mode)",
                  "[torch.randn(2, 3, 8, 8), 'nearest']", given="x, mode"),
        {"args": ["x"], "scalars": {}},
    ),
    "parameters that come with the first call": (
        reference("return self.l(x)", X, init="n=8: self.l = nn.LazyLinear(n)"),
        {"args": ["x", "l_weight", "l_bias"]},
    ),
    "a table that the file keeps": (
        reference("return x * table(x.shape[-1])", X,
                  top="from functools import cache\n@cache\ndef table(n):\n"
                  "    return torch.arange(n).sin()\n"),
        {"out": ["float32[96, 64]"]},
    ),
    "a size that is no integer's literal": (
        reference("return x.exp()", "[torch.randn(ROWS, 64)]", top="ROWS = int(1e6)\n"),
        {"small": True},
    ),
    "groups as many as channels would be": (
        reference("return self.n(x)", "[torch.randn(1024, 8192)]",
                  init="n=8192: self.n = nn.GroupNorm(256, n)"),
        {"grouped": 256},
    ),
    "random numbers that forward() draws": (
        reference("h = torch.randn(64) if h is None else h; \n        for _ in range(2): "
                  "h = h + torch.rand_like(h).mul_(2)\n        return x + h, "
                  "x + torch.empty_like(x).normal_(std=3.0)", X, given="x, h=None"),
        {"args": ["x", "randn_line8", "rand_like_line10", "rand_like_line10_2", "normal_line11"],
         "note": "a kernel is given them, as randn_line8, rand_like_line10, .* and 1 more"},
    ),
    "a model with draws of its own": (
        reference("return self.draws(x) + torch.randn(64)", X,
                  init="n=64: self.draws = nn.Linear(n, n)"),
        {"args": ["x", "randn_line11", "draws_weight", "draws_bias"]},
    ),
    "a model that counts draws": (
        reference("return x * self.draws", X, init="n=3: self.draws = n"), {"args": ["x"]},
    ),
    "a type asked for": (
        reference("return self.l(x)", X, init="n=64: self.l = nn.Linear(n, 8)"),
        {"dtype": "bf16", "out": ["bfloat16[96, 8]"]},
    ),
}  # fmt: skip
