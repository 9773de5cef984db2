"""Turns what the runtime noticed into findings in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from metalsim.build.abi import ARRAY_INDEX_BASE, NO_INDEX, Event, EventKind
from metalsim.build.births import Arrival
from metalsim.build.instrument import Site
from metalsim.model import Finding, FindingKind, Limits

_STACK = 2
"""Event.access of a fault for lack of thread memory."""
_DEED = ("read", "written", "updated atomically")
_ACT = ("reads", "writes", "updates")
_KINDS: dict[EventKind, FindingKind] = {
    EventKind.THREADGROUP_RACE: "race",
    EventKind.DEVICE_RACE: "race",
    EventKind.OUT_OF_RANGE: "out-of-range",
    EventKind.WILD_ACCESS: "out-of-range",
    EventKind.ARRAY_INDEX: "out-of-range",
    EventKind.UNINITIALIZED_READ: "uninitialized",
    EventKind.READONLY_WRITE: "read-only",
    EventKind.BARRIER_MISMATCH: "divergence",
    EventKind.ENDED_BEFORE_BARRIER: "divergence",
    EventKind.SIMD_BARRIER_MISMATCH: "divergence",
    EventKind.INACTIVE_LANE: "divergence",
    EventKind.UNWRITTEN_OUTPUT: "not-written",
    EventKind.FAULT: "crash",
    EventKind.TOO_MANY_ARRAYS: "limit",
    EventKind.NAN_BORN: "nan",
    EventKind.HANG: "hang",
    EventKind.UNINITIALIZED_VALUE: "uninitialized",
}


_PATTERN_CAUSES = frozenset({
    EventKind.OUT_OF_RANGE, EventKind.WILD_ACCESS, EventKind.ARRAY_INDEX, EventKind.UNINITIALIZED_READ,
    EventKind.INACTIVE_LANE,
})  # fmt: skip


@dataclass(frozen=True)
class BufferName:
    """What a buffer is called.

    Attributes:
        name: as in the kernel's text.
        element_bytes: bytes of an element.
        bytes: of the whole buffer.
        vector_bytes: bytes of an element as the kernel indexes it, when that is a vector; else 0.
    """

    name: str
    element_bytes: int
    bytes: int
    vector_bytes: int = 0


@dataclass(frozen=True)
class Geometry:
    """Extents of the launch.

    Attributes:
        groups: threadgroups per axis.
        threadgroup: threads of a full threadgroup per axis.
    """

    groups: tuple[int, int, int]
    threadgroup: tuple[int, int, int]

    def group(self, linear: int) -> str:
        """A threadgroup by its position; only as many coordinates as the grid has."""
        return f"threadgroup {_position(linear, self.groups)}"

    def thread(self, linear: int) -> str:
        """A thread by its position in a full threadgroup."""
        return f"thread {_position(linear, self.threadgroup)}"


def _formula(operation: str, operands: Sequence[float]) -> str:
    """``inf - inf`` or ``log(-1)``."""
    shown = [f"{operand:.6g}" for operand in operands]
    if operation in ("+", "-", "*", "/"):
        return f" {operation} ".join(shown)
    return f"{operation}({', '.join(shown)})"


def _together(earlier: Finding, later: Finding) -> Finding:
    also = {*earlier.also_lines, *later.also_lines} - {earlier.line}
    return replace(earlier, count=earlier.count + later.count, also_lines=tuple(sorted(also)))


def _position(linear: int, extents: tuple[int, int, int]) -> str:
    x, y, z = extents
    if y == z == 1:
        return str(linear)
    position = (linear % x, linear // x % y, linear // x // y)
    return f"({', '.join(map(str, position if z > 1 else position[:2]))})"


def _fairly(findings: list[Finding], most: int) -> tuple[Finding, ...]:
    """At most that many, in their order, so that many of one kind do not hide the others."""
    seen: Counter[str] = Counter()
    ranks = []
    for finding in findings:
        ranks.append(seen[finding.kind])
        seen[finding.kind] += 1
    kept = sorted(sorted(range(len(findings)), key=ranks.__getitem__)[:most])
    # A race often causes uninitialized reads: the cause comes first.
    return tuple(sorted((findings[i] for i in kept), key=lambda finding: finding.kind == "uninitialized"))


class Reporter:
    """Words for the events of one launch.

    Args:
        sites: of the compiled kernel.
        buffers: by buffer index.
        geometry: of the launch.
        arrivals: where the NaNs of a traced launch ended, by the number of the place that made them.
    """

    def __init__(
        self,
        sites: Sequence[Site],
        buffers: Sequence[BufferName],
        geometry: Geometry,
        arrivals: Mapping[int, Arrival] | None = None,
    ) -> None:
        self._sites = sites
        self._arrivals = arrivals or {}
        self._buffers = buffers
        self._geometry = geometry

    def findings(self, events: Iterable[Event], max_findings: int) -> tuple[Finding, ...]:
        """One finding per kind, place and message; at most ``max_findings``.

        The optimizer may split one access of the text into several sites: those are counted together.
        """
        events = list(events)
        other_causes = any(event.kind in _PATTERN_CAUSES for event in events)
        merged: dict[tuple[str, str, int, str], Finding] = {}
        for event in events:
            if event.kind == EventKind.NAN_BORN and event.offset not in self._arrivals:
                continue  # it was selected away
            if event.kind == EventKind.UNINITIALIZED_VALUE and other_causes:
                continue  # memory that was never written holds the same pattern
            finding = self._finding(event)
            region = str(event.region)
            key = (finding.kind, finding.place, finding.line, "" if finding.line else region + finding.message)
            if finding.line and finding.kind in ("race", "uninitialized"):
                key = (*key[:3], region)
            earlier = merged.get(key)
            merged[key] = _together(earlier, finding) if earlier else finding
        return _fairly(list(merged.values()), max_findings)

    def _finding(self, event: Event) -> Finding:
        kind = EventKind(event.kind)
        line, place = event.line, event.place.decode(errors="replace")
        if event.site != NO_INDEX and event.site < len(self._sites):
            site = self._sites[event.site]
            if site.line or not line:
                line, place = site.line, site.place
        if kind is EventKind.FAULT and event.access == _STACK and not line:
            line, place = self._largest_frame()
        others = {self._other_line(kind, event, place)} - {0, line}
        return Finding(_KINDS[kind], self._message(kind, event), line, place or "body", event.count, tuple(others))

    def _largest_frame(self) -> tuple[int, str]:
        """Line and place of the function with the largest arrays; 0 when none is large."""
        frames = [site for site in self._sites if site.kind == "frame"]
        largest = max(frames, key=lambda site: site.bytes, default=None)
        return (largest.line, largest.place) if largest else (0, "")

    def _other_line(self, kind: EventKind, event: Event, place: str) -> int:
        """Line of the other access of a race, or of the other barrier; 0 when it lies in another file."""
        if kind is EventKind.BARRIER_MISMATCH:
            return int(event.offset)
        if kind not in (EventKind.THREADGROUP_RACE, EventKind.DEVICE_RACE) or event.other_site >= len(self._sites):
            return 0
        other = self._sites[event.other_site]
        return other.line if other.place == place else 0

    def _message(self, kind: EventKind, event: Event) -> str:
        who = f"{self._geometry.thread(event.thread)} of {self._geometry.group(event.group)}"
        if kind in (EventKind.THREADGROUP_RACE, EventKind.DEVICE_RACE):
            return self._race(kind, event)
        if kind is EventKind.OUT_OF_RANGE:
            return f"{who} {_ACT[event.access]} {self._element(event)}, outside {self._extent(event)}"
        if kind is EventKind.WILD_ACCESS:
            return f"{who} {_ACT[event.access]} memory that belongs to no buffer; the launch was stopped"
        if kind is EventKind.ARRAY_INDEX:
            return f"{who} {self._array_index(event)}"
        if kind is EventKind.UNINITIALIZED_VALUE:
            return f"{who} writes into {self._element(event)} what comes from a variable that was never written"
        if kind is EventKind.UNINITIALIZED_READ:
            never = "in this threadgroup" if event.region >= ARRAY_INDEX_BASE else "in this launch"
            return f"{who} reads {self._element(event)}, which was not written before {never}"
        if kind is EventKind.READONLY_WRITE:
            return f"{who} writes {self._element(event)}, which is an input and read-only"
        if kind is EventKind.UNWRITTEN_OUTPUT:
            return f"{event.count} elements of the output were never written, the first is {self._element(event)}"
        if kind is EventKind.NAN_BORN:
            return self._birth(event, who)
        return self._sync_message(kind, event, who)

    def _array_index(self, event: Event) -> str:
        array = event.text.decode(errors="replace").strip("'").replace("__local ", "threadgroup ")
        if not array:
            site = self._sites[event.site]
            index = event.offset // site.element_bytes
            return f"{_ACT[event.access]} element {index} of an array of type {site.operation}"
        if event.place.endswith(b"/vec.h"):
            return f"uses component {event.offset} of a vector of type {array.replace('[', '').removesuffix(']')}"
        return f"uses index {event.offset} of an array of type {array}"

    def _birth(self, event: Event, who: str) -> str:
        operation = event.text.decode(errors="replace")
        if event.site < len(self._sites):
            operation = self._sites[event.site].operation
        end = self._arrivals[event.offset]
        more = f" and {end.count - 1} more elements" if end.count > 1 else ""
        formula = _formula(operation, event.operands[: event.operand_count])
        return f"{who} computes {formula}, which is NaN and ends in {end.buffer}[{end.index}]{more}"

    def _sync_message(self, kind: EventKind, event: Event, who: str) -> str:
        other = self._geometry.thread(event.other_thread) if event.other_thread != NO_INDEX else ""
        if kind is EventKind.BARRIER_MISMATCH:
            return f"{who} waits here while {other} waits at another barrier, at line {event.offset}"
        if kind is EventKind.ENDED_BEFORE_BARRIER:
            return (
                f"{who} waits here although {other} has already ended: Apple silicon lets ended threads "
                "pass (MSL 4.1, 6.10.1), CUDA and other GPUs do not"
            )
        if kind is EventKind.SIMD_BARRIER_MISMATCH:
            return f"{who} reaches this simdgroup_barrier while {other} of its SIMD-group is elsewhere"
        if kind is EventKind.INACTIVE_LANE:
            why = (
                "there is no such lane",
                "the SIMD-group has fewer threads",
                "that thread has ended",
                "that thread does not take part (it is in another branch)",
            )[event.access]
            if event.bytes:
                return f"a SIMD-group matrix operation of {who} needs all lanes, lane {event.offset} is missing: {why}"
            return f"{who} takes a value from lane {event.offset}, which is undefined: {why}"
        if kind is EventKind.TOO_MANY_ARRAYS:
            return "more than 64 threadgroup arrays"
        if kind is EventKind.HANG:
            which = f", number {event.offset} of {event.other_group} to run" if event.other_group > 1 else ""
            return f"the launch did not end in time; it was stopped in {who}{which}"
        return (
            f"{who} made the processor fault (a null or invalid address); the launch was stopped",
            f"{who} divides an integer by zero (or the smallest one by -1); the launch was stopped",
            f"{who} needs more thread memory than the simulation gives; the launch was stopped",
            f"{who} goes where no code is (a function that ends without its return value?); the launch was stopped",
        )[event.access]

    def _race(self, kind: EventKind, event: Event) -> str:
        site = self._sites[event.other_site] if event.other_site < len(self._sites) else None
        where = f" at line {site.line}" if site is not None and site.line else ""
        if where and site is not None and site.place != self._place(event):
            where = f" at {site.place or 'body'} line {site.line}"
        deeds = f"{_DEED[event.access]} here by {self._geometry.thread(event.thread)}"
        other = f"{_DEED[event.other_access]}{where} by {self._geometry.thread(event.other_thread)}"
        if event.group != event.other_group:
            deeds += f" of {self._geometry.group(event.group)}"
            other += f" of {self._geometry.group(event.other_group)}"
            return f"{self._element(event)} is {deeds} and {other}: nothing orders threadgroups within a launch"
        flag = "mem_threadgroup" if kind is EventKind.THREADGROUP_RACE else "mem_device"
        return (
            f"{self._element(event)} is {deeds} and {other} in {self._geometry.group(event.group)}, "
            f"with no threadgroup_barrier(mem_flags::{flag}) in between"
        )

    def _place(self, event: Event) -> str:
        """File of the event's own access."""
        site = self._sites[event.site] if event.site < len(self._sites) else None
        return site.place if site is not None else str(event.place, errors="replace")

    def _element(self, event: Event) -> str:
        """What was touched, as the kernel writes it: ``x[3]``, or ``x[3][1]`` for a part of a vector."""
        name = self._region(event)
        if not name.vector_bytes or event.kind == EventKind.UNWRITTEN_OUTPUT:
            return f"{name.name}[{event.offset // name.element_bytes}]"
        index, rest = divmod(event.offset, name.vector_bytes)
        part = f"[{rest // name.element_bytes}]" if event.bytes < name.vector_bytes else ""
        return f"{name.name}[{index}]{part}"

    def _extent(self, event: Event) -> str:
        name = self._region(event)
        return f"its {name.bytes // (name.vector_bytes or name.element_bytes)} elements"

    def _region(self, event: Event) -> BufferName:
        region = int(event.region)
        if region < len(self._buffers):
            return self._buffers[region]
        name = event.text.decode(errors="replace") or "memory"
        return BufferName(name, max(int(event.region_element_bytes), 1), int(event.region_bytes))


def is_unwritten_read(event: Event) -> bool:
    """A read of threadgroup memory that nothing was written to before."""
    return bool(event.kind == EventKind.UNINITIALIZED_READ and NO_INDEX != event.region >= ARRAY_INDEX_BASE)


def limit_findings(limits: Limits, *, threads: int, threadgroup_bytes: int, buffers: int) -> tuple[Finding, ...]:
    """What the launch needs beyond what the chip allows.

    Args:
        limits: of the chip.
        threads: of a threadgroup as requested.
        threadgroup_bytes: bytes of all threadgroup arrays.
        buffers: entries of the buffer table.
    """
    findings = []
    if threads > limits.max_threads_per_threadgroup:
        findings.append(
            Finding(
                "limit",
                f"a threadgroup of {threads} threads; the limit is {limits.max_threads_per_threadgroup}",
            )
        )
    if threadgroup_bytes > limits.max_threadgroup_bytes:
        findings.append(
            Finding(
                "limit",
                f"{threadgroup_bytes} bytes of threadgroup memory; the limit is {limits.max_threadgroup_bytes}",
            )
        )
    if buffers > limits.max_buffers:
        findings.append(Finding("limit", f"{buffers} buffer arguments; the limit is {limits.max_buffers}"))
    return tuple(findings)
