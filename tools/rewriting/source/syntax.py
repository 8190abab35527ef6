"""CUDA source as a syntax tree: kernels, launches, statements, and edits by byte range."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from ....harness.vetting.symbols import bare_name
from ..records import Kernels, NotRecognised

MOST_KERNELS = 128
"""Of a file that is written again: for each, the whole file is looked through."""
TREES = 64
"""Kept of what was read last. The nodes of a file of 1,500 lines take 4 MB."""


@functools.lru_cache(maxsize=TREES)
def parse(data: bytes) -> Node:
    """Return the root of the syntax tree of a CUDA source.

    Every rewrite looks at the same few sources: their trees are kept, with the nodes below that
    were looked at. Nobody changes one.
    """
    return Parser(Language(tree_sitter_cuda.language())).parse(data).root_node


def text_of(node: Node) -> str:
    """Return the source text of a node."""
    return (node.text or b"").decode()


def descendants(node: Node, *kinds: str) -> Iterator[Node]:
    """Yield the node and everything below it that is of one of the kinds, in source order."""
    return (each for kind, each in _below(node) if kind in kinds)


@functools.lru_cache(maxsize=64 * TREES)
def _below(node: Node) -> tuple[tuple[str, Node], ...]:
    """Return the node and everything below it with their kinds, in source order.

    Each rewrite looks through the same kernels, in search of other things.
    """
    found = []
    waiting = [node]
    while waiting:
        first = waiting.pop()
        found.append((first.type, first))
        waiting.extend(reversed(first.children))
    return tuple(found)


def squeezed(text: str) -> str:
    """Return an expression without white space and casts, for comparison."""
    text = re.sub(r"static_cast\s*<[^<>]*>", "", text)
    text = re.sub(
        r"\(\s*(?:unsigned|int|long long|long|size_t|float|u?int(?:32|64)_t)\s*\)", "", text
    )
    return re.sub(r"\s+", "", text)


@dataclass(frozen=True)
class Statement:
    """One statement of a block, with the pragma before it."""

    node: Node
    pragma: str = ""

    @property
    def text(self) -> str:
        """The statement without its pragma, moved to the left margin."""
        return dedented(self.node)


def dedented(node: Node) -> str:
    """Return the text of a node with the indentation of its first line taken off all lines."""
    lines = text_of(node).split("\n")
    margin = node.start_point[1]
    return "\n".join(
        [lines[0], *(line[min(margin, len(line) - len(line.lstrip())) :] for line in lines[1:])]
    )


def statements(block: Node) -> list[Statement]:
    """Return the statements of a block (or the statement itself); comments are statements too."""
    nodes = block.named_children if block.type == "compound_statement" else [block]
    found: list[Statement] = []
    pragma = ""
    for node in nodes:
        if node.type == "preproc_call":
            pragma = text_of(node).strip()
            continue
        found.append(Statement(node, pragma))
        pragma = ""
    return found


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: its type as written, and its name."""

    type: str
    name: str
    is_pointer: bool


@dataclass(frozen=True)
class Kernel:
    """One `__global__` function that is no template."""

    node: Node
    name: str
    parameters: tuple[Parameter, ...]
    body: Node

    @property
    def head(self) -> str:
        """Text before the body: qualifiers, name and parameters."""
        whole = self.node.text or b""
        return whole[: self.body.start_byte - self.node.start_byte].decode().rstrip()

    def element_type(self, pointer: str) -> str | None:
        """Return the type that a pointer parameter points to, without const."""
        for parameter in self.parameters:
            if parameter.name == pointer and parameter.is_pointer:
                return parameter.type.replace("const", "").strip()
        return None


@dataclass(frozen=True)
class Launch:
    """One `kernel<<<grid, block, ...>>>(...)` in host code."""

    node: Node
    kernel: str
    configuration: tuple[Node, ...]
    function: Node
    others: tuple[Launch, ...] = ()
    """The kernel's further launches, where what is read of this one is true of them too."""


@dataclass
class Source:
    """A parsed source; `edit` collects changes, `result` applies them all."""

    text: str
    data: bytes = field(init=False)
    root: Node = field(init=False)
    taken: set[str] = field(default_factory=set, init=False)
    """Names that edits bring in."""
    _edits: dict[tuple[int, int, str], None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.data = self.text.encode()
        self.root = parse(self.data)

    def kernels(self, named: Kernels = ()) -> list[Kernel]:
        """Return the kernels in order; templates, and what could not be parsed, are left alone.

        Where some are named that the source defines, as a profiler names them or a person, those
        alone, in the order of the names.
        """
        found = _kernels_below(self.root)
        if len(found) > MOST_KERNELS:
            raise NotRecognised(f"the file has more than {MOST_KERNELS} kernels")
        known = {kernel.name: kernel for kernel in found}
        wanted = dict.fromkeys(map(bare_name, named))
        return [known[name] for name in wanted if name in known] or [*found]

    def launches(self, kernel: str) -> list[Launch]:
        """Return the launches of a kernel."""
        return [*_launches_below(self.root).get(kernel, ())]

    def launch_of(self, kernel: Kernel) -> Launch:
        """Return the launch of a kernel: of several that differ in pointers alone, the first.

        Raises:
            NotRecognised: it is launched never, or in several ways.
        """
        found = self.launches(kernel.name)
        if not found:
            raise NotRecognised(f"{kernel.name} is not launched")
        ways = {_way(kernel, launch) for launch in found}
        if len(ways) > 1:
            raise NotRecognised(f"{kernel.name} is launched in {len(ways)} ways, not in one")
        if len(found) > 1:
            _, *texts = next(iter(ways))
            named = {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}
            if moved := sorted(named & _assigned_in(found[0].function)):
                raise NotRecognised(f"{kernel.name} is launched more than once; {moved[0]} varies")
        return replace(found[0], others=tuple(found[1:]))

    def function(self, name: str) -> Node | None:
        """Return the definition of a device function by name."""
        return _functions_below(self.root).get(name)

    def replace(self, node: Node, text: str) -> None:
        """Replace a node's text."""
        self.cut(node.start_byte, node.end_byte, text)

    def insert_before(self, node: Node, text: str) -> None:
        """Insert text before a node."""
        self.cut(node.start_byte, node.start_byte, text)

    def cut(self, start: int, end: int, text: str = "") -> None:
        """Replace a byte range. The same edit twice is one.

        Raises:
            NotRecognised: another edit replaces a part of the range.
        """
        edit = (start, end, text)
        for first, past, other in self._edits:
            if first < past and start < end and first < end and start < past and (
                (first, past, other) != edit
            ):
                raise NotRecognised("two edits change one place")
        self._edits.setdefault(edit)

    @contextlib.contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Take back the edits of the block where it raises NotRecognised, which it hands on."""
        before = dict(self._edits), set(self.taken)
        try:
            yield
        except NotRecognised:
            self._edits, self.taken = before
            raise

    def result(self) -> str:
        """Return the text with all edits applied.

        What is inserted within a range that another edit replaces stands before that range.
        """
        replaced = [(start, end) for start, end, _ in self._edits if start < end]

        def place(edit: tuple[int, int, str]) -> tuple[int, bool]:
            start, end, _ = edit
            around = [first for first, past in replaced if start == end and first < start < past]
            return min(around, default=start), start < end

        data, parts, last = self.data, [], 0
        for edit in sorted(self._edits, key=place):
            (start, is_cut), (_, end, text) = place(edit), edit
            parts += [data[last:start], text.encode()]
            last = end if is_cut else start
        return b"".join([*parts, data[last:]]).decode()


def _way(kernel: Kernel, launch: Launch) -> tuple[str, ...]:
    """Return the block of statements that a launch stands in, and its text but for pointers."""
    arguments = launch.node.child_by_field_name("arguments")
    given = arguments.named_children if arguments is not None else []
    values = [
        squeezed(text_of(value))
        for parameter, value in zip(kernel.parameters, given, strict=False)
        if not parameter.is_pointer
    ]
    statement = launch.node.parent
    around = statement.parent if statement is not None else None
    configuration = [squeezed(text_of(node)) for node in launch.configuration]
    return (str(around.start_byte) if around is not None else "", *configuration, *values)


@functools.lru_cache(maxsize=TREES)
def _assigned_in(function: Node) -> frozenset[str]:
    """Return the variables that a function changes after it gave them a value, or may change."""
    found: set[str] = set()
    kinds = ("assignment_expression", "update_expression", "pointer_expression")
    for node in descendants(function, *kinds):
        target = node.child_by_field_name("left") or node.child_by_field_name("argument")
        if target is not None and (node.type != "pointer_expression" or operator(node) == "&"):
            found.update(text_of(each) for each in descendants(target, "identifier"))
    return frozenset(found)


# What a whole file holds is found once: each of its kernels asks for it, of every rewrite.


@functools.lru_cache(maxsize=TREES)
def _kernels_below(root: Node) -> tuple[Kernel, ...]:
    found = []
    for node in descendants(root, "function_definition"):
        head = text_of(node).split("{")[0]
        body = node.child_by_field_name("body")
        declarator = node.child_by_field_name("declarator")
        template = node.parent is not None and node.parent.type == "template_declaration"
        if "__global__" not in head or body is None or declarator is None or template:
            continue
        if node.has_error:
            continue
        name = declarator.child_by_field_name("declarator")
        listed = declarator.child_by_field_name("parameters")
        if name is None or listed is None:
            continue
        parameters = tuple(
            _parameter(child)
            for child in listed.named_children
            if child.type == "parameter_declaration"
        )
        found.append(Kernel(node, text_of(name), parameters, body))
    return tuple(found)


@functools.lru_cache(maxsize=TREES)
def _launches_below(root: Node) -> Mapping[str, Sequence[Launch]]:
    """Return the launches by kernel."""
    found: dict[str, list[Launch]] = {}
    for call in descendants(root, "call_expression"):
        function = call.child_by_field_name("function")
        configuration = [c for c in call.children if c.type == "kernel_call_syntax"]
        if function is None or not configuration:
            continue
        owner: Node | None = call
        while owner is not None and owner.type != "function_definition":
            owner = owner.parent
        if owner is not None:
            parts = tuple(configuration[0].named_children)
            kernel = text_of(function)
            found.setdefault(kernel, []).append(Launch(call, kernel, parts, owner))
    return found


@functools.lru_cache(maxsize=TREES)
def _functions_below(root: Node) -> Mapping[str, Node]:
    """Return the definitions of functions by name; of several the first."""
    found: dict[str, Node] = {}
    for function in descendants(root, "function_definition"):
        declarator = function.child_by_field_name("declarator")
        name = declarator.child_by_field_name("declarator") if declarator else None
        if name is not None:
            found.setdefault(text_of(name), function)
    return found


def _parameter(node: Node) -> Parameter:
    declarator = node.child_by_field_name("declarator")
    names = [text_of(found) for found in descendants(node, "identifier")]
    kind = re.sub(r"[*&].*", "", text_of(node), flags=re.S).strip()
    is_pointer = declarator is not None and declarator.type == "pointer_declarator"
    if not is_pointer and names:
        kind = kind[: kind.rfind(names[-1])].strip() or kind
    return Parameter(kind, names[-1] if names else "", is_pointer)


def fragment(text: str) -> Node:
    """Return the block that a piece of kernel code forms."""
    root = parse(f"void f() {{\n{text}\n}}".encode())
    block = next(descendants(root, "compound_statement"))
    if root.has_error:
        raise NotRecognised("a statement could not be parsed alone")
    return block


def renamed(text: str, names: dict[str, str]) -> str:
    """Return code with identifiers replaced, all at once; members after a dot are left alone."""
    if not names:
        return text
    pattern = "|".join(re.escape(name) for name in names)
    return re.sub(rf"(?<![\w.])(?:{pattern})\b", lambda found: names[found[0]], text)


def uses(text: str, name: str) -> bool:
    """Whether the code mentions an identifier."""
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", text) is not None


def terms(node: Node) -> list[Node]:
    """Return the summands of an expression; casts and parentheses round a sum are opened."""
    node = opened(node)
    if node.type == "binary_expression" and _operator(node) == "+":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        assert left is not None and right is not None
        return terms(left) + terms(right)
    return [node]


def factors(node: Node) -> list[str]:
    """Return the factors of a product as squeezed texts, sorted."""
    node = opened(node)
    if node.type == "binary_expression" and _operator(node) == "*":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        assert left is not None and right is not None
        return sorted(factors(left) + factors(right))
    return [squeezed(text_of(node))]


def canonical(node: Node) -> frozenset[tuple[str, ...]]:
    """Return a sum of products as a set of sorted factors: equal for equal index expressions."""
    return frozenset(tuple(factors(term)) for term in terms(node))


def opened(node: Node) -> Node:
    """Return the expression inside casts and parentheses."""
    while True:
        if node.type == "parenthesized_expression" and len(node.named_children) == 1:
            node = node.named_children[0]
        elif node.type == "cast_expression":
            value = node.child_by_field_name("value")
            assert value is not None
            node = value
        elif node.type == "call_expression" and text_of(node).startswith("static_cast"):
            arguments = node.child_by_field_name("arguments")
            assert arguments is not None
            node = arguments.named_children[0]
        else:
            return node


def _operator(node: Node) -> str:
    found = node.child_by_field_name("operator")
    return text_of(found) if found is not None else ""


def operator(node: Node) -> str:
    """Return the operator of a binary, unary, assignment or update expression."""
    return _operator(node)


def expression(text: str) -> Node:
    """Return the syntax tree of one expression."""
    # `a * b;` alone would be read as the declaration of a pointer
    return fragment(f"return {text};").named_children[0].named_children[0]


def indented(lines: Sequence[str], by: int = 1) -> list[str]:
    """Return lines (each may hold several) moved right by so many levels; pragmas too."""
    flat = [part for line in lines for part in line.split("\n")]
    return ["    " * by + line if line.strip() else line for line in flat]


@dataclass(frozen=True)
class Declared:
    """One declared variable: type as written, name, initial value."""

    type: str
    name: str
    value: Node | None
    is_pointer: bool


def declarations(node: Node) -> list[Declared]:
    """Return the variables that a declaration statement declares; arrays are left out."""
    if node.type != "declaration":
        return []
    found = []
    first = next((c for c in node.named_children if c.type.endswith("declarator") or
                  c.type == "identifier"), None)  # fmt: skip
    if first is None:
        return []
    kind = (node.text or b"")[: first.start_byte - node.start_byte].decode().strip()
    for child in node.children_by_field_name("declarator"):
        value = child.child_by_field_name("value") if child.type == "init_declarator" else None
        if child.type == "function_declarator":
            # `dim3 block(X, Y);` with names only reads as the declaration of a function
            value = child.child_by_field_name("parameters")
        target = child.child_by_field_name("declarator") if value is not None else child
        if target is None or target.type == "array_declarator":
            continue
        pointer = target.type == "pointer_declarator"
        names = [text_of(name) for name in descendants(target, "identifier")]
        if names:
            found.append(Declared(kind, names[-1], value, pointer))
    return found


def definition(node: Node, name: str) -> str:
    """Return the text of a function of the same file, with the warp reductions it calls."""
    root = node
    while root.parent is not None:
        root = root.parent
    functions = _functions_below(root)
    called, waiting = dict[str, str](), [name]
    while waiting:
        first = waiting.pop()
        if first in functions and first not in called:  # They may call each other.
            called[first] = text_of(functions[first])
            inner = re.findall(r"\b(\w+)\(", called[first])
            waiting += [other for other in reversed(inner) if "warp" in other]
    return "".join(called.values())
