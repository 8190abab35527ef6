"""A winner as a KernelBench solution: one Python file with the reference and a `ModelNew`.

`ModelNew` is the reference's own `Model` but for forward(): the same constructor draws the same
parameters under a seed. The kernel is compiled by torch.utils.cpp_extension.load_inline when the
file is executed, as KernelBench's evaluation expects.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from string import Template

from ...harness.errors import UserError
from ...harness.records.tensors import TensorSpec
from ...harness.task.contract import ctype
from ...harness.task.interface import Shape
from .winner import OPTIMISED, Winner

ALIGNMENT = 512
"""Of every tensor's first byte: what kernels are verified with."""

_SCALARS = {
    "float64": "Double", "float32": "Float", "float16": "Half", "bfloat16": "BFloat16",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
    "bool": "Bool",
}  # fmt: skip

_FILE = Template('''\
$comment

$reference

# The kernel, and the reference's Model with a forward() that calls it.
from torch.utils.cpp_extension import load_inline as _load_inline

KERNEL = $kernel

WRAPPER = $wrapper

_kernel = _load_inline(
    name="$extension",
    cpp_sources=[WRAPPER],
    cuda_sources=[KERNEL],
    functions=["run"],
    with_cuda=True,
    no_implicit_headers=True,
    extra_cuda_cflags=$flags,
    # Other extensions have a launch() too: this one calls its own.
    extra_ldflags=["-Wl,-Bsymbolic"],
)


class ModelNew(Model):
    """The reference's model, whose forward() is one call of the kernel."""
$constructor
    def forward($signature):
$checks        outputs = _kernel.run([$given])
        return $answer
''')

_CONSTRUCTOR = '''
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        # Tensors that modules hold as plain attributes go where the model goes.
        for module in self.modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, torch.Tensor):
                    delattr(module, name)
                    module.register_buffer(name, value, persistent=False)
'''

_WRAPPER = Template(r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

size_t kernelblaster_workspace_bytes();
void kernelblaster_launch(void* const* tensors, void* workspace, cudaStream_t stream);

struct Expected {
    const char* name;
    at::ScalarType dtype;
    std::vector<int64_t> shape;
};

static const std::vector<Expected> OUTPUTS = {
$outputs
};
static const std::vector<Expected> GIVEN = {
$given
};

static at::Tensor ready(at::Tensor tensor, const Expected& expected, const at::Device& device) {
    TORCH_CHECK(tensor.device() == device, "$name: ", expected.name, " is on ", tensor.device(),
                ", and the kernel runs on ", device);
    TORCH_CHECK(tensor.sizes() == at::IntArrayRef(expected.shape), "$name: ", expected.name,
                " has shape ", tensor.sizes(), ", and the kernel is made for ",
                at::IntArrayRef(expected.shape));
    if (tensor.scalar_type() != expected.dtype) {
        // Integers and flags may come as floating numbers; numbers of another precision may not.
        TORCH_CHECK(!at::isFloatingType(expected.dtype), "$name: ", expected.name, " is ",
                    tensor.scalar_type(), ", and the kernel is made for ", expected.dtype);
        tensor = tensor.to(expected.dtype);
    }
    tensor = tensor.contiguous();
    const bool aligned = reinterpret_cast<uintptr_t>(tensor.data_ptr()) % $alignment == 0;
    return aligned ? tensor : tensor.clone();
}

std::vector<at::Tensor> run(std::vector<at::Tensor> given) {
    TORCH_CHECK(given.size() == GIVEN.size(), "$name: ", GIVEN.size(), " tensors are needed");
    const at::Device device =
        given.empty() ? at::Device(at::kCUDA, c10::cuda::current_device()) : given[0].device();
    TORCH_CHECK(device.is_cuda(), "$name: the kernel runs on CUDA devices, not on ", device);
    const c10::cuda::CUDAGuard guard(device);
    std::vector<at::Tensor> outputs;
    std::vector<void*> tensors;
    for (const Expected& each : OUTPUTS) {
        outputs.push_back(at::empty(each.shape, at::TensorOptions(each.dtype).device(device)));
        tensors.push_back(outputs.back().data_ptr());
    }
    for (size_t i = 0; i < given.size(); i++) {
        given[i] = ready(given[i], GIVEN[i], device);
        tensors.push_back(given[i].data_ptr());
    }
    at::Tensor workspace;
    if (const size_t bytes = kernelblaster_workspace_bytes())
        workspace = at::empty({int64_t(bytes)}, at::TensorOptions(at::kByte).device(device));
    kernelblaster_launch(tensors.data(), workspace.defined() ? workspace.data_ptr() : nullptr,
                         c10::cuda::getCurrentCUDAStream());
    C10_CUDA_CHECK(cudaGetLastError());
    return outputs;
}
""")

_LAUNCH = Template("""

size_t kernelblaster_workspace_bytes() { return workspace_bytes ? workspace_bytes() : 0; }

void kernelblaster_launch(void* const* tensors, void* workspace, cudaStream_t stream) {
    launch($arguments, workspace, stream);
}
""")


def model_new(winner: Winner) -> str:
    """Return the text of the solution.

    Raises:
        UserError: KernelBench would compare it with another computation.
    """
    _refuse(winner)
    task, full = winner.task, winner.task.full
    tree = ast.parse(task.source)
    given = [spec for spec in full.tensors if spec.role != "output"]
    text = _FILE.substitute(
        comment=_comment(winner),
        reference=_without_future(task.source, tree).strip(),
        kernel=_literal(_weak(winner.whole_source(full)) + _launcher(full.tensors)),
        wrapper=_literal(_wrapper(winner, given)),
        extension=f"{winner.name}_{winner.sha256[:12]}",
        flags=repr(_flags(winner.device.arch)),
        constructor=_CONSTRUCTOR if winner.interface.unregistered else "",
        signature=_signature(winner, tree),
        checks="".join(_checks(winner, tree)),
        given=", ".join(_tensors(winner, tree)),
        answer=_answer(winner.interface.outputs),
    )
    compile(text, f"{winner.name}.py", "exec")
    return text


def _refuse(winner: Winner) -> None:
    task = winner.task
    if task.reading.mode != "file":
        raise UserError(
            f"{task.name}: the run set the model to {task.reading.mode}, and KernelBench leaves it "
            "as its file does: run it without --mode"
        )
    kept = [name for name in task.variation.updated if name not in task.variation.unread]
    if kept:
        raise UserError(
            f"{task.name}: forward() changes {', '.join(kept)}, which its next answer depends on, "
            "and the kernel does not: this winner cannot stand for the model"
        )


def _comment(winner: Winner) -> str:
    lines = [
        f"{winner.task.name}: made by KernelBlaster, run {winner.run}, on {winner.device}.",
        *winner.facts,
    ]
    lost = [name for name in winner.task.variation.updated if name in winner.task.variation.unread]
    if lost:
        lines.append(f"Not updated, and no answer depends on them: {', '.join(lost)}.")
    return "\n".join(f"# {' '.join(line.split())}" for line in lines)


def _without_future(source: str, tree: ast.Module) -> str:
    """Return a reference without imports from __future__: KernelBench puts lines before them."""
    lines = source.splitlines()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines)


def _weak(source: str) -> str:
    # A candidate may define it: where it does not, its address is null.
    declared = 'extern "C" size_t workspace_bytes() __attribute__((weak));'
    return f"#include <cstddef>\n{declared}\n{source}"


def _launcher(tensors: tuple[TensorSpec, ...]) -> str:
    arguments = [
        f"static_cast<{'' if spec.role == 'output' else 'const '}{ctype(spec.dtype)}*>"
        f"(tensors[{place}])"
        for place, spec in enumerate(tensors)
    ]
    return _LAUNCH.substitute(arguments=",\n           ".join(arguments))


def _wrapper(winner: Winner, given: list[TensorSpec]) -> str:
    return _WRAPPER.substitute(
        name=winner.name,
        alignment=ALIGNMENT,
        outputs=",\n".join(map(_expected, winner.task.full.of_role("output"))),
        given=",\n".join(map(_expected, given)),
    )


def _expected(spec: TensorSpec) -> str:
    shape = ", ".join(map(str, spec.shape))
    return f'    {{"{spec.name}", at::ScalarType::{_SCALARS[spec.dtype]}, {{{shape}}}}}'


def _flags(arch: str) -> list[str]:
    flags = [*OPTIMISED, "-diag-suppress", "177"]  # Not all constants of task.cuh are used.
    flags.append("--extended-lambda")  # Which lambdas marked __device__ need, and all else stands.
    flags += [
        f"-U__CUDA_NO_{name}__"
        for name in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS",
                     "HALF2_OPERATORS")
    ]  # fmt: skip
    if arch[-1].isalpha():  # Instructions that this GPU alone has; else PyTorch knows the one here.
        flags.append(f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}")
    return flags


def _literal(text: str) -> str:
    """Return Python source of a text, readable where that can be."""
    plain = '"""' not in text and "\r" not in text and not text.rstrip().endswith(("\\", '"'))
    return f'r"""\n{text.strip()}\n"""' if plain else repr(text)


def _function(winner: Winner, tree: ast.Module) -> ast.FunctionDef:
    """Return the definition of the forward() that is called.

    Raises:
        UserError: it stands in no class of the file.
    """
    owner, _, name = winner.interface.forward.rpartition(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == owner.rpartition(".")[2]:
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name == name:
                    return each
    raise UserError(
        f"{winner.task.name}: {winner.interface.forward} stands in no class of the file, so that "
        "its arguments are not known: define forward() in class Model"
    )


def _signature(winner: Winner, tree: ast.Module) -> str:
    return ast.unparse(_function(winner, tree).args)


def _parameters(function: ast.FunctionDef, count: int) -> list[str]:
    """Return expressions of the first arguments of forward(), `self` left out."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)][1:]
    if function.args.vararg is not None:
        names += [f"{function.args.vararg.arg}[{k}]" for k in range(count - len(names))]
    return names


def _tensors(winner: Winner, tree: ast.Module) -> Iterator[str]:
    """Yield the expressions of what `launch` is given, in its order."""
    found: dict[str, str] = {}
    shapes = _given(winner)
    for name, shape in zip(_parameters(_function(winner, tree), len(shapes)), shapes, strict=False):
        found |= {str(leaf.name): text for leaf, text in _leaves(shape, name)
                  if leaf.kind == "tensor"}  # fmt: skip
    for spec in winner.task.full.tensors:
        if spec.role in ("parameter", "buffer"):
            yield _path(winner.interface.qualified[spec.name])
        elif spec.role == "input":
            yield found.get(spec.name) or _drawn(winner, spec, tree)


def _given(winner: Winner) -> list[Shape]:
    """Return what forward() is given."""
    return [each for each in winner.interface.arguments if each.kind != "drawn"]


def _drawn(winner: Winner, spec: TensorSpec, tree: ast.Module) -> str:
    """Return what draws a tensor as forward() does.

    Raises:
        UserError: nobody knows how.
    """
    if re.search(r"\b(generator|manual_seed)\b", ast.unparse(_function(winner, tree))):
        raise UserError(
            f"{winner.task.name}: forward() draws {spec.name} from a seed of its own, which is "
            "not written as a KernelBench solution; export an operator, which is given what is "
            "drawn"
        )
    function = re.match(r"(randn|rand)(_like)?_line", spec.name)
    if function is None:
        raise UserError(
            f"{winner.task.name}: forward() draws {spec.name}, which is not written as a "
            "KernelBench solution: only torch.randn and torch.rand are; export an operator, "
            "which is given what is drawn"
        )
    return f"torch.{function[1]}({spec.shape}, dtype=torch.{spec.dtype}, device='cuda')"


def _checks(winner: Winner, tree: ast.Module) -> Iterator[str]:
    """Yield statements that refuse other values of arguments that are constants of the kernel."""
    function, shapes = _function(winner, tree), _given(winner)
    names = _parameters(function, len(shapes))
    wanted = [
        (text, str(leaf.name))
        for name, shape in zip(names, shapes, strict=False)
        for leaf, text in _leaves(shape, name)
        if leaf.kind == "value"
    ]
    defaults = function.args.defaults[-len(names):] if names else []
    for name, default in zip(reversed(names), reversed(defaults), strict=False):
        if names.index(name) >= len(shapes) and isinstance(default, ast.Constant):
            wanted.append((name, repr(default.value)))
    for text, value in wanted:
        said = f"{winner.name}: {text} is {{{text}!r}}, and the kernel is made for {value}"
        yield f"        if {text} != {value}:\n            raise ValueError(f{said!r})\n"


def _leaves(shape: Shape, text: str) -> Iterator[tuple[Shape, str]]:
    if shape.kind in ("tensor", "value"):
        yield shape, text
    keys = shape.keys or tuple(map(str, range(len(shape.items))))
    for key, item in zip(keys, shape.items, strict=False):
        yield from _leaves(item, f"{text}[{key}]")


def _path(qualified: str) -> str:
    text = "self"
    for part in qualified.split("."):
        text += f"[{part}]" if part.isdecimal() else f".{part}"
    return text


def _answer(shape: Shape) -> str:
    if shape.kind == "tensor":
        return f"outputs[{str(shape.name).removeprefix('out')}]"
    if shape.kind == "value":
        return str(shape.name)
    items = [_answer(each) for each in shape.items]
    if shape.kind == "dict":
        pairs = zip(shape.keys, items, strict=True)
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
    joined = ", ".join(items)
    if shape.kind == "list":
        return f"[{joined}]"
    return f"({joined},)" if len(items) == 1 else f"({joined})"
