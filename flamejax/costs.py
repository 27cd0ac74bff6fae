"""What compiled programs cost: operations and bytes of every kernel, and memory.

All of it is read from the program as XLA has optimised it. A kernel is an instruction that runs on
its own: a fusion counts once, with everything in it. How often a kernel runs is not in the program;
`profiling.py` takes that from a trace.
"""

from __future__ import annotations

import re
from math import prod
from typing import NamedTuple

from flamejax.engine import Engine

# of a path such as .../client/while/body/gradient/jvp(Dense)/dot_general, the name furthest to the
# right decides; see `stage_of`
STAGES = {
    "select": "selection",
    "states": "clients' states",
    "read": "reading samples",
    "forward": "forward, loss",
    "gradient": "backward",
    "update": "optimiser step",
    "client": "method's updates",
    "message": "messages",
    "mean": "server",
    "copies": "copies",
    "other": "bookkeeping",
}
SMALL = 64  # bytes: a kernel that touches fewer counts steps, compares, points to something

ARITHMETIC = re.compile(  # one operation for each number of the result
    "add|subtract|multiply|divide|remainder|maximum|minimum|power|negate|abs|sign|floor|ceil|"
    "exponential|exponential-minus-one|log|log-plus-one|logistic|tanh|tan|sine|cosine|atan2|erf|"
    "sqrt|rsqrt|cbrt|clamp|round-nearest-even|round-nearest-afz|all-reduce"
)
LOOPS = {"while", "conditional", "call"}  # they run other instructions
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
PARTS = {"slice", "dynamic-slice", "gather"}  # they read a part of their first operand


class Shape(NamedTuple):
    dtype: str
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.dims)

    @property
    def nbytes(self) -> int:
        bits = re.search(r"\d+", self.dtype)
        return self.size * (int(bits[0]) + 7 >> 3 if bits else self.dtype == "pred")

    @property
    def floats(self) -> int:
        """Numbers in it that are floating-point."""
        return self.size if self.dtype[0] in "fbc" else 0


class Instruction(NamedTuple):
    name: str
    opcode: str
    shapes: tuple[Shape, ...]  # one, or those of a tuple
    operands: tuple[str, ...]
    attributes: str

    @property
    def path(self) -> str:
        """Where in the source it comes from; empty for what the compiler added."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found[1] if found else ""

    @property
    def nbytes(self) -> int:
        return sum(shape.nbytes for shape in self.shapes)

    def called(self) -> list[str]:
        """Computations that it runs."""
        keys = r"\b(?:calls|body|condition|to_apply|true_computation|false_computation)=%?([\w.-]+)"
        several = re.search(r"branch_computations=\{([^}]*)\}", self.attributes)
        names = re.findall(r"[\w.-]+", several[1]) if several else []
        return [*re.findall(keys, self.attributes), *names]


Computation = dict[str, Instruction]


class Program(NamedTuple):
    """A compiled program, parsed."""

    name: str
    computations: dict[str, Computation]
    home: dict[str, str]  # instruction -> its computation


class Cost(NamedTuple):
    """Of one run of a kernel."""

    stage: str
    path: str
    flops: int
    matmul_flops: int  # those of matrix products and convolutions
    nbytes: int


def parse(text: str) -> Program:
    """The text of an optimised program, as `compiled.as_text()` gives it."""
    head = re.match(r"HloModule ([\w.-]+)", text)
    computations: dict[str, Computation] = {}
    inside: Computation = {}
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        if opening := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$", line):
            inside = computations[opening[1]] = {}
        elif instruction := _instruction(line):
            inside[instruction.name] = instruction
    home = {name: place for place, names in computations.items() for name in names}
    return Program(head[1] if head else "", computations, home)


def _instruction(line: str) -> Instruction | None:
    found = re.match(r"\s+(?:ROOT )?%?([\w.-]+) = (.*?) ([a-z][a-z0-9-]*)\(([^()]*)(.*)$", line)
    if not found:
        return None
    name, shapes, opcode, inputs, attributes = found.groups()
    parsed = tuple(
        Shape(dtype, tuple(int(d) for d in dims.split(",") if d))
        for dtype, dims in re.findall(r"([a-z]\w*)\[([\d,]*)\]", shapes)
    )
    if opcode == "parameter":  # its number instead
        return Instruction(name, opcode, parsed, (inputs,), attributes)
    return Instruction(name, opcode, parsed, tuple(re.findall(r"%([\w.-]+)", inputs)), attributes)


def cost(program: Program, name: str) -> Cost:
    """Of one run of an instruction with all that it calls."""
    inside = program.computations[program.home[name]]
    instruction = inside[name]
    reads = sum(_read(program, inside, instruction, i) for i in range(len(instruction.operands)))
    nbytes = 0 if instruction.opcode in FREE else reads + _written(program, inside, instruction)
    flops, products = _flops(program, inside, instruction)
    stage = _stage(inside, instruction)
    if nbytes < SMALL and not instruction.opcode.startswith("all-"):  # those wait for others
        stage = "other"
    return Cost(stage, instruction.path, flops, products, nbytes)


def _stage(inside: Computation, instruction: Instruction) -> str:
    """Its own stage, or its first reader's where the compiler added it."""
    if instruction.path or instruction.opcode == "copy":
        return stage_of(instruction.path or "copies")
    readers = (i.path for i in inside.values() if instruction.name in i.operands)
    return stage_of(next(filter(None, readers), ""))


def loops(program: Program) -> set[str]:
    """Names of its loops, branches and calls."""
    inside = (i for computation in program.computations.values() for i in computation.values())
    return {instruction.name for instruction in inside if instruction.opcode in LOOPS}


def within(program: Program, name: str) -> set[str]:
    """Instructions of the computations that an instruction calls."""
    called = program.computations[program.home[name]][name].called()
    return {inner for computation in called for inner in program.computations[computation]}


def stage_of(path: str) -> str:
    """The stage of an operation with this path; a key of STAGES.

    >>> stage_of("jit(many)/message/while/body/client/while/body/gradient/jvp(Dense)/dot_general")
    'forward'
    >>> stage_of("jit(many)/message/while/body/vmap(client)/while/body/read/gather")
    'read'
    """
    names = re.split(r"[/()]", path)  # a name may be wrapped, as in vmap(client)
    if "transpose(" in path:
        return "gradient"
    if "jvp(" in path or "forward" in names:
        return "forward"
    return next((name for name in reversed(names) if name in STAGES), "other")


def _flops(program: Program, inside: Computation, i: Instruction) -> tuple[int, int]:
    """Floating-point operations of one run: all, and those of matrix products among them."""
    if i.opcode == "fusion" or i.opcode in LOOPS:
        trips = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', i.attributes)
        bodies = [program.computations[name] for name in i.called()]
        each = [_flops(program, body, inner) for body in bodies for inner in body.values()]
        times = int(trips[1]) if trips else 1
        return times * sum(flops for flops, _ in each), times * sum(p for _, p in each)
    product = _product(inside, i)
    return product or _arithmetic(inside, i), product


def _product(inside: Computation, i: Instruction) -> int:
    if i.opcode == "dot":
        left = inside[i.operands[0]].shapes[0]
        contracted = _numbers(r"lhs_contracting_dims=\{([\d,]*)\}", i.attributes)
        return 2 * i.shapes[0].size * prod(left.dims[d] for d in contracted)
    if i.opcode == "convolution":
        kernel = inside[i.operands[1]].shapes[0]
        labels = re.search(r"dim_labels=\w+_(\w+)->", i.attributes)
        outputs = kernel.dims[labels[1].index("o")] if labels else 1
        return 2 * i.shapes[0].size * kernel.size // outputs
    return 0


def _arithmetic(inside: Computation, i: Instruction) -> int:
    if i.opcode == "reduce":
        return inside[i.operands[0]].shapes[0].floats
    if i.opcode == "reduce-window":
        return i.shapes[0].floats * prod(_numbers(r"window=\{size=([\dx]*)", i.attributes))
    if i.opcode == "scatter":
        return inside[i.operands[-1]].shapes[0].floats
    return sum(shape.floats for shape in i.shapes) if ARITHMETIC.fullmatch(i.opcode) else 0


def _numbers(pattern: str, text: str) -> list[int]:
    found = re.search(pattern, text)
    return [int(n) for n in re.findall(r"\d+", found[1])] if found else []


def _read(program: Program, inside: Computation, i: Instruction, which: int) -> int:
    """Bytes read of one operand: a part of it, where only a part is asked for."""
    operand = inside.get(i.operands[which])
    if operand is None:  # a parameter's number
        return 0
    if i.opcode in PARTS and which == 0:
        return min(i.nbytes, operand.nbytes)
    if i.opcode in ("dynamic-update-slice", "scatter") and which == 0:  # in place
        return 0
    if i.opcode == "fusion":
        body = program.computations[i.called()[0]]
        (name,) = (p.name for p in body.values() if _is_parameter(p, which))
        return min(operand.nbytes, _used(program, body, name))
    return operand.nbytes


def _is_parameter(i: Instruction, number: int) -> bool:
    return i.opcode == "parameter" and i.operands == (str(number),)


def _used(program: Program, body: Computation, name: str) -> int:
    """Bytes of a value that the instructions of a fusion read."""
    total = 0
    for user in body.values():
        for which, operand in enumerate(user.operands):
            if operand == name and user.opcode == "bitcast":
                total += _used(program, body, user.name)
            elif operand == name and user.opcode != "parameter":
                total += _read(program, body, user, which)
    return total


def _written(program: Program, inside: Computation, i: Instruction) -> int:
    """Bytes written: those of the update, where the rest stays in place."""
    if i.opcode == "dynamic-update-slice":
        return inside[i.operands[1]].nbytes
    if i.opcode == "scatter":
        return inside[i.operands[-1]].nbytes
    if i.opcode == "fusion":
        body = program.computations[i.called()[0]]
        return _result(program, body, next(reversed(body.values())))
    return i.nbytes


def _result(program: Program, body: Computation, root: Instruction) -> int:
    if root.opcode == "tuple":
        return sum(_result(program, body, body[name]) for name in root.operands)
    if root.opcode == "bitcast":
        return _result(program, body, body[root.operands[0]])
    return _written(program, body, root)


def memory(engine: Engine) -> dict[str, dict[str, int] | None]:
    """Bytes that each compiled program takes on one device; None where JAX cannot tell.

    "donated" is the part of the arguments that results are written over; "temporary" is held only
    while the program runs.
    """
    names = {
        "arguments": "argument_size_in_bytes",
        "results": "output_size_in_bytes",
        "donated": "alias_size_in_bytes",
        "temporary": "temp_size_in_bytes",
        "code": "generated_code_size_in_bytes",
    }
    found = {name: program.memory_analysis() for name, program in engine.programs.items()}
    return {
        name: stats and {key: int(getattr(stats, field)) for key, field in names.items()}
        for name, stats in found.items()
    }
