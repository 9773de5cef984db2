"""The graph's content as typed, frozen Python values; what other packages see instead of triples."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from typing import Literal

Relation = Literal["exact", "close", "broader", "narrower", "none"]
Status = Literal["claimed", "confirmed", "corrected"]
Comparison = Literal["<=", "<", "=", ">=", ">", "multiple-of"]


@dataclass(frozen=True)
class Source:
    """Where a fact comes from: a document or code reference, in words, with its address if any."""

    iri: str
    title: str


@dataclass(frozen=True)
class Impacts:
    """Expected effect of a concept, 0 to 10 each (K-Search's three axes)."""

    memory_bandwidth: int
    register_pressure: int
    compute_hw_fit: int


@dataclass(frozen=True)
class Constraint:
    """A limit that code can check: ``quantity comparison value unit`` within a scope.

    Attributes:
        iri: identity.
        label: one line in words.
        quantity: the checked quantity's slug (``threadgroup-memory-bytes``, ``threads-per-threadgroup``,
            ``simd-width``, ``buffer-arguments``, ``matrix-tile`` ...).
        comparison: how the observed value must stand to ``value``.
        value: number.
        unit: unit of ``value`` (``B``, ``threads``, ``lanes``, ``entries``, ``elements``, ``1``).
        scope: slug of the platform, GPU family or chip it holds for (``metal``, ``apple9``, ``m1-max``).
        sources: at least one.
        concepts: slugs of the concepts whose kernels alone it concerns; empty for every kernel.
        basis: what the trust in it rests on.
    """

    iri: str
    label: str
    quantity: str
    comparison: Comparison
    value: float
    unit: str
    scope: str
    sources: tuple[Source, ...]
    concepts: tuple[str, ...] = ()
    basis: str = ""

    def holds(self, observed: float) -> bool:
        """Whether ``observed`` (in ``unit``) satisfies the constraint."""
        if self.comparison == "multiple-of":
            return observed % self.value == 0
        return {
            "<=": observed <= self.value,
            "<": observed < self.value,
            "=": observed == self.value,
            ">=": observed >= self.value,
            ">": observed > self.value,
        }[self.comparison]


@dataclass(frozen=True)
class Primitive:
    """A language or library primitive of one platform.

    Attributes:
        iri: identity.
        label: how one would name it in a table.
        platform: ``cuda``, ``metal`` or ``mlx``.
        tokens: spellings by which source code (or a user's question) shows it.
        concepts: slugs of the concepts it realizes.
        definition: one sentence.
        families: GPU families that have the hardware for it; empty for all of the platform's.
    """

    iri: str
    label: str
    platform: str
    tokens: tuple[str, ...]
    concepts: tuple[str, ...]
    definition: str = ""
    families: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mapping:
    """What a CUDA primitive becomes on Metal or MLX.

    Attributes:
        iri: identity.
        origin, target: primitives; ``target`` is None when the relation is ``none`` and nothing replaces it.
        relation: strength of the match; ``none`` says that there is no equivalent, ``advice`` what to do.
        advice: what to write instead, for any relation; may be empty.
        rationale, pitfall: one or two sentences each.
        constraints: limits that bind the target.
        sources: at least one.
        confidence: 0 to 1.
        status: ``claimed``, ``confirmed`` or ``corrected``.
        corrected_by: IRI of the mapping that corrects this one, or empty.
        beside: slugs of further concepts beside which alone it is of use.
        kernel_classes: slugs of the only classes in which it is of use; empty for all.
    """

    iri: str
    origin: Primitive
    target: Primitive | None
    relation: Relation
    advice: str
    rationale: str
    pitfall: str
    constraints: tuple[Constraint, ...]
    sources: tuple[Source, ...]
    confidence: float
    status: Status
    corrected_by: str = ""
    beside: tuple[str, ...] = ()
    kernel_classes: tuple[str, ...] = ()

    @property
    def platform(self) -> str:
        """Slug of the platform that it speaks of; without a target it says what Metal lacks."""
        return self.target.platform if self.target else "metal"


@dataclass(frozen=True)
class Concept:
    """An optimization concept of the vocabulary.

    Attributes:
        slug: identity everywhere (``skos:notation``).
        family: memory, compute, reduction, algorithm or schedule.
        definition: what counts as present.
        kernel_classes: slugs of the kernel classes that it serves (``scan``, ``attention`` ...).
        bottlenecks: any of bandwidth, latency, compute, synchronization.
        requires, conflicts, enables: slugs of concepts.
        difficulty: 1 to 5.
    """

    slug: str
    iri: str
    label: str
    family: str
    definition: str
    kernel_classes: tuple[str, ...]
    bottlenecks: tuple[str, ...]
    requires: tuple[str, ...]
    conflicts: tuple[str, ...]
    enables: tuple[str, ...]
    difficulty: int
    impacts: Impacts


@dataclass(frozen=True)
class Quantity:
    """One figure of a chip with its unit and source."""

    name: str
    value: float
    unit: str
    source: Source
    confidence: str


@dataclass(frozen=True)
class ChipProfile:
    """An Apple (or NVIDIA) GPU.

    Attributes:
        slug: ``m1-max`` ...
        family: slug of the GPU family (``apple7``).
        quantities: by name; ``metalsim.estimate.cost.CHIP_QUANTITIES`` lists those that an estimate needs.
    """

    slug: str
    iri: str
    label: str
    family: str
    quantities: Dict[str, Quantity]


@dataclass(frozen=True)
class KernelTask:
    """A kernel that people ask for by name, within a kernel class.

    Attributes:
        slug: its name, such as ``mamba_scan``.
        definition: what it computes.
        kernel_class: slug of the class it belongs to.
        concepts: slugs of the concepts of which fast kernels for it are made.
    """

    slug: str
    iri: str
    label: str
    definition: str
    kernel_class: str
    concepts: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """How experts do it: problem, solution and a sketch in Metal.

    Attributes:
        problem: what goes wrong or costs too much without it; ``text`` is the solution.
        sketch: Metal text at file scope that compiles: functions, or a small kernel.
        concepts: slugs of the concepts it carries out.
        kernel_classes: slugs of the classes it applies to; ``tasks``: the only tasks, where not the whole class.
        families: GPU families on which it applies; empty for all of Apple's.
        requirement: what must be so for it to apply, in words; may be empty.
        constraints: limits that bind it.
        conflicts: IRIs of patterns that solve the same problem in another way.
        instead_of: slugs of concepts whose place it takes.
        shown_by: IRIs of the assertions that show whether it was done right.
        basis: what the trust in it rests on; ``confidence``: 0 to 1.
    """

    iri: str
    label: str
    problem: str
    text: str
    sketch: str
    concepts: tuple[str, ...]
    kernel_classes: tuple[str, ...]
    tasks: tuple[str, ...]
    families: tuple[str, ...]
    requirement: str
    constraints: tuple[Constraint, ...]
    conflicts: tuple[str, ...]
    instead_of: tuple[str, ...]
    shown_by: tuple[str, ...]
    sources: tuple[Source, ...]
    basis: str
    confidence: float


@dataclass(frozen=True)
class Assertion:
    """A property that a correct or expert-grade kernel keeps.

    Attributes:
        text: what holds; ``failure``: what is wrong in a kernel that breaks it.
        strictness: ``exact``, ``rounding`` or ``performance``.
        kernel_classes: slugs; ``tasks``: the only tasks, where it does not hold for the whole class.
        concepts: slugs of the concepts whose mistakes it shows.
        check: id of the check; ``checked_by``: who runs it (``task:mamba_scan``, ``gate:check_case``,
            ``metalsim:race``), or ``not executable yet``.
        basis: what the trust in it rests on; ``confidence``: 0 to 1.
    """

    iri: str
    label: str
    text: str
    failure: str
    strictness: str
    kernel_classes: tuple[str, ...]
    tasks: tuple[str, ...]
    concepts: tuple[str, ...]
    check: str
    checked_by: tuple[str, ...]
    sources: tuple[Source, ...]
    basis: str
    confidence: float


@dataclass(frozen=True)
class Evidence:
    """A concept seen in a source file.

    Attributes:
        concept: slug.
        kernel: name of the kernel or device function, empty for file scope.
        file: path as ingested.
        first_line, last_line: 1-based, inclusive.
        detector: ``name@version``.
        confidence: 0 to 1.
        why: what convinced the detector.
    """

    concept: str
    kernel: str
    file: str
    first_line: int
    last_line: int
    detector: str
    confidence: float
    why: str


@dataclass(frozen=True)
class Observation:
    """A concept tried in a search: what it gained, or how it failed.

    Attributes:
        run: run id; ``node``: world-model node.
        concept, task, chip, backend: slugs.
        timing: ``estimated`` or ``measured``.
        outcome: the outcome's kind (``Scored``, ``CompileFailed`` ...).
        ratio: time of the parent program over time of this one (>1 is a gain); 0 when not scored.
        ratio_low, ratio_high: interval; equal to ``ratio`` where the timing is deterministic.
    """

    run: str
    node: str
    concept: str
    task: str
    chip: str
    backend: str
    timing: Literal["estimated", "measured"]
    outcome: str
    ratio: float = 0.0
    ratio_low: float = 0.0
    ratio_high: float = 0.0
    extra: Dict[str, str] = field(default_factory=dict)
