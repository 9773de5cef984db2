"""Arrays of a thread that no register can hold: those whose index is only known when the kernel runs.

A GPU's registers have no addresses, so such an array lies in device memory, behind the caches. An array that
the optimizer could split into values, after unrolling loops of constant length, is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from metalsim.build.ir import MEMORY_CALL, Block, Function, Instruction, Module, read_callee, read_type, split_arguments
from metalsim.build.operations import Classifier
from metalsim.build.values import first_name


@dataclass(frozen=True)
class ThreadTraffic:
    """What one execution of a block moves, per lane.

    Attributes:
        bytes_read, bytes_written: from and to indexed thread arrays.
        accesses: loads and stores of them.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    accesses: int = 0


class ThreadArrays:
    """The thread arrays of one function that are indexed dynamically."""

    def __init__(self, module: Module, function: Function, classifier: Classifier) -> None:
        self._module = module
        self._classifier = classifier
        self._indexed: set[str] = set()
        for block in function.blocks:
            for instruction in block.instructions:
                if instruction.opcode == "getelementptr" and _is_variable(instruction):
                    self._indexed |= self._locals(first_name(split_arguments(instruction.body)[1]))

    @property
    def bytes(self) -> int:
        """Of all these arrays, per thread."""
        return sum(self._allocated(self._classifier.definitions[name]) for name in self._indexed)

    def traffic(self, block: Block) -> ThreadTraffic:
        """What ``block`` moves from and to them."""
        read = written = accesses = 0
        for instruction in block.instructions if self._indexed else ():
            loaded, stored = self._moved(instruction)
            read, written = read + loaded, written + stored
            accesses += bool(loaded) + bool(stored)
        return ThreadTraffic(read, written, accesses)

    def _moved(self, instruction: Instruction) -> tuple[int, int]:
        """Bytes that the instruction reads from and writes to indexed arrays."""
        if instruction.opcode in {"load", "store"}:
            value, pointer = split_arguments(instruction.body)[:2]
            if not self._is_indexed(pointer):
                return 0, 0
            size = self._module.byte_size(read_type(value.removeprefix("volatile "))[0])
            return (size, 0) if instruction.opcode == "load" else (0, size)
        callee, arguments = read_callee(instruction.body) if instruction.opcode == "call" else ("", [])
        if not MEMORY_CALL.match(callee):
            return 0, 0
        length = arguments[2].split()[-1]
        size = int(length) if length.isdigit() else 0
        reads = "memset" not in callee and self._is_indexed(arguments[1])
        return size * reads, size * self._is_indexed(arguments[0])

    def _is_indexed(self, pointer: str) -> bool:
        return bool(self._locals(first_name(pointer)) & self._indexed)

    def _locals(self, name: str) -> set[str]:
        """Local variables that the pointer may lead to, without those that carry arguments of runtime calls."""
        if not name or self._classifier.is_interface(name):
            return set()
        return {root for root in self._classifier.origins.roots(name) if root.startswith("%")}

    def _allocated(self, alloca: Instruction) -> int:
        parts = split_arguments(alloca.body)
        count = parts[1].split()[-1] if len(parts) > 1 and not parts[1].startswith("align") else "1"
        return self._module.byte_size(read_type(parts[0])[0]) * (int(count) if count.isdigit() else 1)


def _is_variable(address: Instruction) -> bool:
    """Whether an index of a ``getelementptr`` is no constant."""
    return any(part.rsplit(None, 1)[-1].startswith("%") for part in split_arguments(address.body)[2:])
