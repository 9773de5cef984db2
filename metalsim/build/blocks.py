"""Static profile of each basic block: operations, longest dependent chain, registers alive.

The GPU issues a SIMD-group's instructions in order and a load does not block until its result is
used, so inside a block independent loads overlap, and a load whose result is first used in another
block is awaited there. That is what the chain models; docs/estimate.md has the argument.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from metalsim.build.ir import Block, Function, Instruction, Module, read_callee, split_arguments, vector_shape
from metalsim.build.operations import ATOMIC, BARRIER, FREE, LOAD, STORE, THREAD_MEMORY, Classifier
from metalsim.build.threadarrays import ThreadArrays
from metalsim.build.values import Addresses, PointerOrigins, first_name, result_type

# Weights that only decide which of a block's paths is the critical one; prices come from the chip.
ORDERING_CYCLES = {
    LOAD: 400, ATOMIC: 400, BARRIER: 30, "divide": 40, "reciprocal": 27, "sqrt": 36, "transcendental": 60,
    "int-divide": 60, "simd-reduction": 28, "simd-prefix": 24, "matrix-multiply": 36, "sine": 25,
    "int64-multiply": 15, "int64": 10, "address": 10, "fast-divide": 8, "exp": 8, "rsqrt": 9,
    "float32-fma": 6, "int-shift": 6,
}  # fmt: skip
_ORDERING_DEFAULT = 4
_ORDERING_THREADGROUP_LOAD = 30
_WIDEST_ACCESS_BYTES = 16
_LINE_BYTES = 128
_REGISTER_HALVES = {"float": 2, "half": 1, "bfloat": 1, "i64": 4, "ptr": 4, "i16": 1, "i8": 1, "i1": 0}


@dataclass(frozen=True)
class BlockProfile:
    """What one execution of a basic block does, per lane.

    Attributes:
        index: number passed to ``msim_block``.
        function: name of its function.
        line: first line of the user's source it belongs to, 0 without one.
        place: ``body``, ``header`` or empty.
        operations: scalar instructions by operation class (``metalsim.build.operations``); free ones left out.
        chain: operations on the longest dependent path through the block by class, loads left out.
        chain_sites: sites of the loads and atomics on that path.
        awaited_sites: sites of loads in other blocks whose results are first used here.
        sites: every site of the block.
        neighbours: the same sites, grouped; those of a group lie within one cache line of each other
            (they differ by a constant), so that they fetch the same lines.
        registers: 32-bit registers alive at once, an estimate from the IR's own order.
        thread_accesses: accesses of thread arrays that no register can hold (``metalsim.build.threadarrays``).
        thread_bytes_read, thread_bytes_written: bytes of those accesses.
        thread_array_bytes: bytes of those arrays in the whole function, per thread.
    """

    index: int
    function: str
    line: int
    place: str
    operations: Mapping[str, int] = field(default_factory=dict)
    chain: Mapping[str, int] = field(default_factory=dict)
    chain_sites: tuple[int, ...] = ()
    awaited_sites: tuple[int, ...] = ()
    sites: tuple[int, ...] = ()
    neighbours: tuple[tuple[int, ...], ...] = ()
    registers: int = 0
    thread_accesses: int = 0
    thread_bytes_read: int = 0
    thread_bytes_written: int = 0
    thread_array_bytes: int = 0


@dataclass(frozen=True)
class _Step:
    """An operation on a path: when it finishes, what it waited for."""

    finish: int
    operation: str
    sites: tuple[int, ...]
    previous: _Step | None


def _later(*steps: _Step | None) -> _Step | None:
    known = [step for step in steps if step is not None]
    return max(known, key=lambda step: step.finish) if known else None


def profile_function(
    module: Module,
    function: Function,
    sites_of_line: Mapping[int, tuple[int, ...]],
    first_index: int,
    place_of: Callable[[int], tuple[str, int]],
    origins: PointerOrigins,
) -> list[BlockProfile]:
    """Profiles the blocks of ``function`` in their order.

    Args:
        module: the function's module.
        function: what to profile.
        sites_of_line: hooked sites by the line of their instruction.
        first_index: index of the first block.
        place_of: ``(place, line)`` of a debug location.
        origins: of ``function``.
    """
    classifier = Classifier(function, origins)
    loads = _AwaitedLoads(function, classifier, sites_of_line)
    registers = _registers_alive(function, classifier)
    addresses = Addresses(module, classifier.definitions)
    arrays = ThreadArrays(module, function, classifier)
    profiles = []
    for number, block in enumerate(function.blocks):
        walk = _BlockWalk(classifier, sites_of_line, loads.consumed_in_own_block)
        for instruction in block.instructions:
            walk.visit(instruction)
        place, line = next((found for item in block.instructions if (found := place_of(item.location))[1]), ("", 0))
        chain, chain_sites = walk.longest_chain()
        traffic = arrays.traffic(block)
        sites = [site for item in block.instructions for site in sites_of_line.get(item.first_line, ())]
        profiles.append(
            BlockProfile(
                index=first_index + number,
                function=function.name,
                line=line,
                place=place,
                operations=dict(walk.operations),
                chain=chain,
                chain_sites=chain_sites,
                awaited_sites=tuple(sorted(loads.awaited[number])),
                sites=tuple(sites),
                neighbours=_neighbours(block, sites_of_line, addresses),
                registers=registers[number],
                thread_accesses=traffic.accesses,
                thread_bytes_read=traffic.bytes_read,
                thread_bytes_written=traffic.bytes_written,
                thread_array_bytes=arrays.bytes,
            )
        )
    return profiles


def _neighbours(
    block: Block, sites_of_line: Mapping[int, tuple[int, ...]], addresses: Addresses
) -> tuple[tuple[int, ...], ...]:
    """The block's sites in groups of at most one cache line's span."""
    known: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for instruction in block.instructions:
        for site in sites_of_line.get(instruction.first_line, ()):
            if instruction.opcode not in {"load", "store"}:
                known[(f"site {site}",)].append((0, site))
                continue
            parts = split_arguments(instruction.body)
            address = addresses.of(first_name(parts[1]))
            known[address.terms].append((address.offset, site))
    groups: list[list[int]] = []
    for members in known.values():
        start = None
        for offset, site in sorted(members):
            if start is None or offset - start >= _LINE_BYTES:
                start = offset
                groups.append([])
            groups[-1].append(site)
    return tuple(tuple(group) for group in groups)


class _BlockWalk:
    """Walks one block in order, counting operations and timing dependences."""

    def __init__(
        self,
        classifier: Classifier,
        sites_of_line: Mapping[int, tuple[int, ...]],
        consumed: frozenset[str],
    ) -> None:
        self.operations: Counter[str] = Counter()
        self._classifier = classifier
        self._sites_of_line = sites_of_line
        self._consumed = consumed
        self._steps: dict[str, _Step | None] = {}
        self._memory: dict[str, _Step | None] = {}
        self._pointed: dict[str, set[str]] = defaultdict(set)
        self._fence: _Step | None = None
        self._last: _Step | None = None

    def visit(self, instruction: Instruction) -> None:
        if instruction.opcode == "phi":
            return  # an input of the block, ready at its start
        operation = self._classifier.classify(instruction)
        sites = self._sites_of_line.get(instruction.first_line, ())
        if operation.name == "copied-bytes":
            self._count_copy(operation.count, instruction, sites)
        elif operation.name != FREE:
            self.operations[operation.name] += operation.count
        start = self._start(instruction, operation.name)
        if operation.name == FREE:
            step = start
        else:
            name = LOAD if operation.name == "copied-bytes" else operation.name
            step = _Step((start.finish if start else 0) + self._weight(name, instruction), name, sites, start)
            if name != LOAD or instruction.result in self._consumed or not instruction.result:
                self._last = _later(self._last, step)
        if instruction.result:
            self._steps[instruction.result] = step
        if operation.name == BARRIER:
            self._fence = step
        self._record_memory(instruction, step)

    def longest_chain(self) -> tuple[dict[str, int], tuple[int, ...]]:
        """Operations by class and sites of memory accesses on the longest path."""
        chain: Counter[str] = Counter()
        sites: list[int] = []
        step = self._last
        while step is not None:
            if step.operation in {LOAD, ATOMIC} and step.sites:
                sites.extend(step.sites[:1])
            else:
                chain[step.operation] += 1
            step = step.previous
        return dict(chain), tuple(reversed(sites))

    def _start(self, instruction: Instruction, name: str) -> _Step | None:
        """What the instruction waits for."""
        waits = [self._steps.get(value) for value in instruction.value_names()]
        if name == BARRIER:
            return _later(*waits, self._last, self._fence)
        if name in {LOAD, STORE, ATOMIC, "copied-bytes"}:
            waits.append(self._fence)
        waits.extend(self._memory.get(root) for root in self._read_roots(instruction))
        return _later(*waits)

    def _read_roots(self, instruction: Instruction) -> set[str]:
        """Local variables whose content the instruction reads."""
        if instruction.opcode == "load":
            return self._locals(split_arguments(instruction.body)[1])
        if instruction.opcode == "call":
            roots: set[str] = set()
            for argument in read_callee(instruction.body)[1]:
                if argument.startswith("ptr"):
                    roots |= self._locals(argument)
            return roots.union(*(self._pointed[root] for root in roots)) if roots else roots
        return set()

    def _record_memory(self, instruction: Instruction, step: _Step | None) -> None:
        """Remembers what local variables hold now, so that later reads depend on it."""
        if instruction.opcode == "store":
            value, pointer = split_arguments(instruction.body)[:2]
            stored = self._steps.get(first_name(value)) if "%" in value else None
            for root in self._locals(pointer):
                self._memory[root] = _later(self._memory.get(root), stored)
                if value.startswith("ptr"):
                    self._pointed[root] |= self._locals(value)
        elif instruction.opcode == "call":
            for root in self._read_roots(instruction):
                self._memory[root] = _later(self._memory.get(root), step)

    def _locals(self, pointer: str) -> set[str]:
        name = first_name(pointer)
        return {root for root in self._classifier.origins.roots(name) if root.startswith("%")} if name else set()

    def _weight(self, name: str, instruction: Instruction) -> int:
        if name == LOAD:
            if instruction.opcode == "call":
                pointer = read_callee(instruction.body)[1][1]
            else:
                pointer = split_arguments(instruction.body)[1]
            roots = self._classifier.origins.roots(first_name(pointer)) if first_name(pointer) else frozenset()
            if roots and all(root.startswith("@") for root in roots):
                return _ORDERING_THREADGROUP_LOAD
        return ORDERING_CYCLES.get(name, 1 if name in {STORE, THREAD_MEMORY} else _ORDERING_DEFAULT)

    def _count_copy(self, length: int, instruction: Instruction, sites: tuple[int, ...]) -> None:
        accesses = max(1, math.ceil(length / _WIDEST_ACCESS_BYTES))
        if not sites:
            self.operations[THREAD_MEMORY] += accesses
            return
        callee, arguments = read_callee(instruction.body)
        if not self._locals(arguments[0]):
            self.operations[STORE] += accesses
        if "memset" not in callee and not self._locals(arguments[1]):
            self.operations[LOAD] += accesses


class _AwaitedLoads:
    """For each load the block that first uses its result."""

    def __init__(
        self, function: Function, classifier: Classifier, sites_of_line: Mapping[int, tuple[int, ...]]
    ) -> None:
        self._classifier = classifier
        self._sources: dict[str, frozenset[str]] = {}
        uses: dict[str, set[int]] = defaultdict(set)
        for number, block in enumerate(function.blocks):
            for instruction in block.instructions:
                if instruction.opcode == "phi" or self._forwards(instruction):
                    continue
                for name in instruction.value_names():
                    for load in self._loads_behind(name):
                        uses[load].add(number)
        order = {number: position for position, number in enumerate(_reverse_postorder(function))}
        self.awaited: dict[int, set[int]] = defaultdict(set)
        consumed = set()
        for load, blocks in uses.items():
            definition = classifier.definitions[load]
            home = classifier.block_of[definition.first_line]
            if home in blocks:
                consumed.add(load)
                continue
            after = [number for number in blocks if order.get(number, 0) > order.get(home, 0)]
            first = min(after or blocks, key=lambda number: order.get(number, 0))
            self.awaited[first].update(sites_of_line.get(definition.first_line, ()))
        self.consumed_in_own_block = frozenset(consumed)

    def _forwards(self, instruction: Instruction) -> bool:
        """Whether it only hands a value on (a cast, a vector element) at no cost."""
        return bool(instruction.result) and self._classifier.classify(instruction).name == FREE

    def _loads_behind(self, name: str) -> frozenset[str]:
        """Loads whose result reaches ``name`` through phis and free instructions only."""
        if name not in self._sources:
            pending, seen, loads = [name], set[str](), set[str]()
            while pending:
                current = pending.pop()
                definition = self._classifier.definitions.get(current)
                if current in seen or definition is None:
                    continue
                seen.add(current)
                if definition.opcode == "load":
                    loads.add(current)
                elif definition.opcode == "phi" or self._forwards(definition):
                    pending.extend(definition.value_names())
            self._sources[name] = frozenset(loads)
        return self._sources[name]


def _successors(function: Function) -> list[list[int]]:
    numbers = {block.label: number for number, block in enumerate(function.blocks)}
    result = []
    for block in function.blocks:
        terminator = block.instructions[-1]
        labels = [name[1:].strip('"') for name in terminator.label_names()]
        result.append([numbers[label] for label in labels if label in numbers])
    return result


def _reverse_postorder(function: Function) -> list[int]:
    successors = _successors(function)
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(successors[0]))] if function.blocks else []
    while stack:
        number, rest = stack[-1]
        following = next((item for item in rest if item not in seen), None)
        if following is None:
            order.append(number)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(successors[following])))
    return order[::-1]


def _registers_alive(function: Function, classifier: Classifier) -> list[int]:
    """Most 32-bit registers alive at once in each block."""
    halves = _register_halves(function, classifier)
    successors = _successors(function)
    reads, writes = [], []
    for block in function.blocks:
        upward: set[str] = set()
        defined: set[str] = set()
        for instruction in block.instructions:
            if instruction.opcode != "phi":
                upward.update(name for name in instruction.value_names() if name not in defined)
            if instruction.result:
                defined.add(instruction.result)
        reads.append(upward)
        writes.append(defined)
    from_phis = _phi_reads(function, successors)
    live_out: list[set[str]] = [set() for _ in function.blocks]
    changed = True
    while changed:
        changed = False
        for number in range(len(function.blocks) - 1, -1, -1):
            out = set(from_phis[number])
            for successor in successors[number]:
                out |= reads[successor] | (live_out[successor] - writes[successor])
            if out != live_out[number]:
                live_out[number], changed = out, True
    return [_peak(block, live, halves) for block, live in zip(function.blocks, live_out, strict=True)]


def _phi_reads(function: Function, successors: Sequence[Sequence[int]]) -> list[set[str]]:
    """Values that each block hands to the phis of its successors."""
    reads: list[set[str]] = [set() for _ in function.blocks]
    numbers = {block.label: number for number, block in enumerate(function.blocks)}
    for successor in {number for following in successors for number in following}:
        for instruction in function.blocks[successor].instructions:
            if instruction.opcode != "phi":
                break
            for value, name in instruction.incoming():
                if value.startswith("%"):  # an unlabelled entry block has an implicit number
                    reads[numbers.get(name[1:].strip('"'), 0)].add(value)
    return reads


def _register_halves(function: Function, classifier: Classifier) -> dict[str, int]:
    """16-bit register halves that each value occupies; values folded into their users take none."""
    halves = {}
    for name, definition in function.definitions().items():
        lanes, element = vector_shape(result_type(definition))
        folded = definition.opcode in {"alloca", "icmp", "fcmp"} or (
            definition.opcode in {"getelementptr", "extractelement", "shufflevector", "zext", "sext"}
            and classifier.classify(definition).name == FREE
        )
        uniform = definition.opcode == "call" and read_callee(definition.body)[0] == "msim_buffer"
        used = classifier.lanes.get(name)
        count = used.bit_count() if used is not None else lanes
        halves[name] = 0 if folded or uniform else count * _REGISTER_HALVES.get(element, 2)
    return halves


def _peak(block: Block, live_out: set[str], halves: Mapping[str, int]) -> int:
    live = set(live_out)
    total = sum(halves.get(name, 0) for name in live)
    peak = total
    for instruction in reversed(block.instructions):
        if instruction.result in live:
            live.discard(instruction.result)
            total -= halves.get(instruction.result, 0)
        if instruction.opcode == "phi":
            continue
        for name in instruction.value_names():
            if name not in live:
                live.add(name)
                total += halves.get(name, 0)
        peak = max(peak, total)
    return math.ceil(peak / 2)
