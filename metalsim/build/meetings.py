"""Products of matrices, and words exchanged, that follow each other become one meeting of the SIMD-group (plain mode).

Each ``msim_multiply`` and ``msim_exchange`` makes all lanes wait for each other, which costs far more than what is
done there. In a basic block one can be put off until its result is needed for something that cannot be put off: the
lanes then leave the operands of many with the runtime, meet once and take all results. What other lanes could see
stays in order: nothing is put off past a store outside the function's own variables, nor past a load behind such a
store, nor past anything else at which lanes meet. Sums and their order are the same. A lane that is missing is told at
the line of the last of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from metalsim.build.containment import mathematical_functions
from metalsim.build.ir import MEMORY_CALL, Function, Instruction, Module, read_callee, read_module
from metalsim.build.values import PointerOrigins, first_name

_RESULT_TYPE = "<2 x float>"
_MULTIPLY = re.compile(r"\s*<2 x float> @msim_multiply\(")
_EXCHANGE = re.compile(
    r"\s*(?:noundef )?i32 @msim_exchange\(i32 (?:noundef )?(?P<bits>\S+), i32 (?:noundef )?(?P<mask>\d+), "
)
_CALLS = re.compile(r"call [^@\n]*@msim_(?:multiply|exchange)\(")
_OPERAND = re.compile(r"float (?:noundef )?(\S+)$")
_EXTRACT = re.compile(r"<2 x float> (%\S+), i(?:32|64) ([01])$")
_NUMBERED = re.compile(r"%(\d+)(?![\w.$-])")
_LABEL = re.compile(r'^(?:[-\w$.]+|"[^"]*"):')
_NUMBERED_LABEL = re.compile(r"^(\d+):")
_NUMBERED_TYPE = re.compile(r"^%\d+ = type ", re.MULTILINE)
_MOVABLE = frozenset((
    "extractelement", "insertelement", "shufflevector", "bitcast", "select", "fadd", "fsub", "fmul", "fdiv", "fneg",
    "fcmp", "icmp", "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "zext", "sext", "trunc",
))  # fmt: skip
_MEETINGS = frozenset(("msim_barrier", "msim_collective", "msim_vote", "msim_multiply", "msim_exchange"))
_HARMLESS = frozenset(("msim_buffer", "msim_attribute", "msim_threadgroup_length"))
_SIMD_WIDTH = 32
_MOVABLE_CALL = re.compile(r"llvm\.(?:fabs|copysign|minnum|maxnum|minimum|maximum|fma|fmuladd|smax|smin|umax|umin)\.")
MAX_SLOTS, MAX_EXCHANGES = 240, 64
"""Places for matrices and words that the runtime has (runtime/collectives.c)."""
_SLOT_BYTES, _WORDS_BYTES = 256, 128

_DECLARATIONS = (
    "declare ptr @msim_stage() nounwind",
    "declare ptr @msim_stage_words() nounwind",
    "declare void @msim_products(ptr, i32, ptr) convergent nounwind",
    "declare void @msim_exchanges(ptr, i32, ptr) convergent nounwind",
)

_Pair = tuple[str, str]


@dataclass(frozen=True)
class _Product:
    """A call of ``msim_multiply``: its elements of the three matrices."""

    call: Instruction
    a: _Pair
    b: _Pair
    c: _Pair


@dataclass(frozen=True)
class _Exchange:
    """A call of ``msim_exchange`` with a constant mask."""

    call: Instruction
    bits: str
    mask: int


_Item = _Product | _Exchange


@dataclass
class _Group:
    """Calls of one kind that wait, and what has to come after them.

    Attributes:
        items: in order.
        late: instructions that need their results, in order; calls of the same kind may be among them.
        results: names of values that are not there before the meeting.
        last: the last of all these instructions.
    """

    items: list[_Item]
    late: list[Instruction] = field(default_factory=list)
    results: set[str] = field(default_factory=set)
    last: Instruction | None = None

    def add(self, item: _Item) -> None:
        self.items.append(item)
        self.results.add(item.call.result)
        self.last = item.call

    def put_off(self, instruction: Instruction) -> None:
        self.late.append(instruction)
        self.results.add(instruction.result)
        self.last = instruction

    def depends(self, instruction: Instruction) -> bool:
        return any(name in self.results for name in instruction.value_names())

    @property
    def products(self) -> list[_Product]:
        return [item for item in self.items if isinstance(item, _Product)]

    @property
    def exchanges(self) -> list[_Exchange]:
        return [item for item in self.items if isinstance(item, _Exchange)]


@dataclass
class _Plan:
    """Where a group's matrices lie, and in which order they are multiplied.

    Attributes:
        slots: by the name of a result, or by what tells an operand from others.
        staged: operands that the lanes bring, with their slots.
        products: slots of a, b, c and the result of each.
        size: slots in all.
    """

    slots: dict[object, int] = field(default_factory=dict)
    staged: list[tuple[_Pair, int]] = field(default_factory=list)
    products: list[int] = field(default_factory=list)
    size: int = 0

    def new_slot(self, key: object) -> int:
        self.slots[key] = self.size
        self.size += 1
        return self.slots[key]


class _Gatherer:
    """Rewrites one module's lines."""

    def __init__(self, module: Module) -> None:
        self.lines = list(module.lines)
        self._original = module.lines
        self.plans: list[str] = []
        self._definitions: dict[str, Instruction] = {}
        self._origins = PointerOrigins(Function("", "", ()))
        self._users: dict[str, int] = {}
        self._names = 0

    def function(self, function: Function) -> None:
        """Gather what the lanes of one of its functions meet for."""
        self._definitions = function.definitions()
        self._origins = PointerOrigins(function)
        self._users = {}
        for block in function.blocks:
            for instruction in block.instructions:
                for name in instruction.value_names():
                    self._users[name] = self._users.get(name, 0) + 1
        for block in function.blocks:
            for part in list(self._parts(block.instructions, dirty=True)):
                if isinstance(part, _Group) and part.last and len(part.items) + len(part.late) > 1:
                    text = self._group_text(part)
                    for instruction in (*(item.call for item in part.items), *part.late):
                        self._blank(instruction)
                    self.lines[part.last.first_line] = "\n".join(text)

    def _parts(self, instructions: Sequence[Instruction], dirty: bool) -> Iterator[Instruction | _Group]:
        """The instructions in a new order; ``dirty`` while other lanes may have to see a store."""
        group: _Group | None = None
        for instruction in instructions:
            item, kind = self._item(instruction), self._kind(instruction)
            if group is not None:
                if item and self._fits(group, item):
                    group.add(item)
                    continue
                depends = group.depends(instruction)
                if depends and self._can_be_put_off(group, instruction, item):
                    group.put_off(instruction)
                    continue
                if depends or kind in ("meets", "stores") or (kind == "loads" and dirty):
                    yield group
                    group, dirty = None, False
            if item:
                group = _Group([])
                group.add(item)
                continue
            yield instruction
            dirty = kind == "stores" or (dirty and kind != "meets")
        if group is not None:
            yield group

    def _fits(self, group: _Group, item: _Item) -> bool:
        """Whether an item can wait with the others: its operands are known, or results of theirs as they are."""
        if isinstance(item, _Exchange):
            return len(group.exchanges) in range(1, MAX_EXCHANGES) and item.bits not in group.results
        products = group.products
        if not products or 5 * (len(products) + 1) > MAX_SLOTS:
            return False
        for pair in (item.a, item.b, item.c):
            whole = self._whole(pair)
            known = not any(name in group.results for name in pair)
            if not known and whole not in {each.call.result for each in products}:
                return False
        return True

    @staticmethod
    def _can_be_put_off(group: _Group, instruction: Instruction, item: _Item | None) -> bool:
        """Whether what needs a result may come after the meeting: arithmetic, and further exchanges."""
        if item:
            return isinstance(item, _Exchange) and bool(group.exchanges)
        if instruction.opcode == "call":
            return bool(_MOVABLE_CALL.match(read_callee(instruction.body)[0]))
        return instruction.opcode in _MOVABLE

    def _item(self, instruction: Instruction) -> _Item | None:
        if instruction.opcode != "call":
            return None
        exchange = _EXCHANGE.match(instruction.body)
        if exchange:
            mask = int(exchange["mask"])
            return _Exchange(instruction, exchange["bits"], mask) if mask < _SIMD_WIDTH else None
        if not _MULTIPLY.match(instruction.body):
            return None
        found = [_OPERAND.match(argument) for argument in read_callee(instruction.body)[1][:6]]
        values = [match[1] for match in found if match]
        if len(values) != 6:
            return None
        return _Product(instruction, (values[0], values[1]), (values[2], values[3]), (values[4], values[5]))

    def _kind(self, instruction: Instruction) -> str:
        """``meets``, ``stores``, ``loads``, or empty for what other lanes cannot see."""
        opcode, body = instruction.opcode, instruction.body
        if opcode == "call":
            callee, _ = read_callee(body)
            if callee in _MEETINGS:
                return "meets"
            pure = callee in _HARMLESS or callee in mathematical_functions() or callee.startswith("llvm.")
            return "" if pure and not MEMORY_CALL.match(callee) else "stores"
        if opcode in {"atomicrmw", "cmpxchg", "fence"}:
            return "stores"
        if opcode not in {"load", "store"}:
            return ""
        pointer = first_name(body.rsplit("ptr", 1)[-1])
        if pointer and self._origins.is_local(f"ptr {pointer}"):
            return ""
        return "loads" if opcode == "load" and "atomic" not in body else "stores"

    def _whole(self, pair: _Pair) -> str:
        """The vector whose two elements these are; empty without one."""
        sources = []
        for position, name in enumerate(pair):
            definition = self._definitions.get(name)
            match = _EXTRACT.match(definition.body) if definition and definition.opcode == "extractelement" else None
            if match is None or int(match[2]) != position:
                return ""
            sources.append(match[1])
        return sources[0] if sources[0] == sources[1] else ""

    def _plan(self, products: Sequence[_Product]) -> _Plan:
        """Where each operand and each result lies."""
        plan = _Plan()

        def slot_of(pair: _Pair, key: object) -> int:
            whole = self._whole(pair)
            if whole in plan.slots:
                return plan.slots[whole]
            if key not in plan.slots:
                plan.staged.append((pair, plan.new_slot(key)))
            return plan.slots[key]

        for number, product in enumerate(products):
            source, own = self._whole(product.c), (product.c, number)
            a, b, c = slot_of(product.a, product.a), slot_of(product.b, product.b), slot_of(product.c, own)
            # A sum that only the next product of its chain reads need not be kept.
            is_chain = (
                source in plan.slots
                and self._users.get(source) == 2
                and all(self._users.get(n) == 1 for n in product.c)
            )
            result = product.call.result
            if is_chain or own in plan.slots:
                plan.slots[result] = c
            else:
                plan.new_slot(result)
            plan.products += [a, b, c, plan.slots[result]]
        return plan

    def _group_text(self, group: _Group) -> list[str]:
        """Lines of a group and of what comes after it."""
        if len(group.items) == 1:
            text = self._own_text(group.items[0].call)
        else:
            made = self._products_text(group.products) if group.products else self._exchanges_text(group.exchanges)
            location = group.items[-1].call.location
            text = [f"  {line}{f', !dbg !{location}' if location >= 0 else ''}" for line in made]
        for part in self._parts(group.late, dirty=False):
            text += self._group_text(part) if isinstance(part, _Group) else self._own_text(part)
        return text

    def _own_text(self, instruction: Instruction) -> list[str]:
        return list(self._original[instruction.first_line : instruction.last_line + 1])

    def _products_text(self, products: Sequence[_Product]) -> list[str]:
        plan, base = self._plan(products), self._name()
        listed = ", ".join(f"i8 {value}" for value in plan.products)
        name = self._constant(f"i32 {plan.size}, i32 {len(products)}, [{len(plan.products)} x i8] [{listed}]")
        made = [f"{base} = call ptr @msim_stage()"]
        for pair, slot in plan.staged:
            made += self._store(base, slot, pair)
        made.append(f"call void @msim_products(ptr {name}, {self._place(products[-1])})")
        for product in products:
            result = product.call.result
            made += self._load(base, plan.slots[result] * _SLOT_BYTES, _RESULT_TYPE, result)
        return made

    def _exchanges_text(self, exchanges: Sequence[_Exchange]) -> list[str]:
        base = self._name()
        listed = ", ".join(f"i8 {exchange.mask}" for exchange in exchanges)
        name = self._constant(f"i32 {len(exchanges)}, [{len(exchanges)} x i8] [{listed}]")
        made = [f"{base} = call ptr @msim_stage_words()"]
        for number, exchange in enumerate(exchanges):
            address = self._name()
            made.append(f"{address} = getelementptr i8, ptr {base}, i64 {number * _WORDS_BYTES}")
            made.append(f"store i32 {exchange.bits}, ptr {address}, align 4")
        made.append(f"call void @msim_exchanges(ptr {name}, {self._place(exchanges[-1])})")
        for number, exchange in enumerate(exchanges):
            made += self._load(base, number * _WORDS_BYTES, "i32", exchange.call.result)
        return made

    def _constant(self, members: str) -> str:
        """Name of a constant structure of these typed members."""
        kinds = re.sub(r" (?:\d+|\[i8[^\]]*\])(?=,|$)", "", members)
        name = f"@msim.meeting.{len(self.plans)}"
        self.plans.append(f"{name} = private constant {{ {kinds} }} {{ {members} }}")
        return name

    @staticmethod
    def _place(item: _Item) -> str:
        """Line and place as typed arguments."""
        return ", ".join(read_callee(item.call.body)[1][-2:])

    def _load(self, base: str, offset: int, kind: str, result: str) -> list[str]:
        address = self._name()
        return [f"{address} = getelementptr i8, ptr {base}, i64 {offset}", f"{result} = load {kind}, ptr {address}"]

    def _store(self, base: str, slot: int, pair: _Pair) -> list[str]:
        address, whole = self._name(), self._whole(pair)
        made = [f"{address} = getelementptr i8, ptr {base}, i64 {slot * _SLOT_BYTES}"]
        if whole:
            return [*made, f"store {_RESULT_TYPE} {whole}, ptr {address}, align 8"]
        second = self._name()
        made.append(f"store float {pair[0]}, ptr {address}, align 8")
        made.append(f"{second} = getelementptr i8, ptr {address}, i64 4")
        made.append(f"store float {pair[1]}, ptr {second}, align 4")
        return made

    def _blank(self, instruction: Instruction) -> None:
        for line in range(instruction.first_line, instruction.last_line + 1):
            self.lines[line] = ""

    def _name(self) -> str:
        self._names += 1
        return f"%msim.p{self._names}"


def _with_names(ll_text: str) -> str:
    """The module with names for numbered values and blocks: numbers would have to ascend in the new order."""
    lines, inside = ll_text.split("\n"), False
    for index, line in enumerate(lines):
        if line.startswith("define "):
            inside = True
            arguments = _NUMBERED.findall(line)
            lines[index] = _NUMBERED.sub(r"%msim.n\1", line)
            if not _LABEL.match(lines[index + 1]):
                lines[index] += f"\nmsim.n{len(arguments)}:"
        elif line.startswith("}"):
            inside = False
        elif inside:
            lines[index] = _NUMBERED.sub(r"%msim.n\1", _NUMBERED_LABEL.sub(r"msim.n\1:", line))
    return "\n".join(lines)


def gather_meetings(ll_text: str) -> str:
    """The module with products, and exchanges, that follow each other performed at once.

    Args:
        ll_text: textual LLVM IR without hooks.
    """
    if len(_CALLS.findall(ll_text)) < 2 or _NUMBERED_TYPE.search(ll_text):
        return ll_text
    module = read_module(_with_names(ll_text))
    gatherer = _Gatherer(module)
    for function in module.functions:
        gatherer.function(function)
    return "\n".join([*gatherer.lines, *gatherer.plans, *_DECLARATIONS, ""])
