"""From a word of CUDA source, or of a user's question, to primitives of the graph."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

from kgraph.model import Mapping, Primitive
from kgraph.names import shortened
from kx.errors import UnknownName

T = TypeVar("T")

_ARGUMENTS = re.compile(r"\s*[(<\[].*$", re.DOTALL)
_INCLUDE = re.compile(r"^#\s*include\s*[<\"]\s*([^>\"]+)[>\"].*$", re.DOTALL)
_CHEVRONS = "<<<"
_RELATION_RANK = {"exact": 0, "close": 1, "narrower": 2, "broader": 3, "none": 4}
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_DRESSED = re.compile(r"[(<\[#`'\";: @]")
_MACRO = re.compile(r"__\w+__")
_PREDICATE = re.compile(r"^@!?%?[\w]+\s+(?=[a-z])")


@dataclass(frozen=True)
class TermAnswer:
    """What the graph says of a term.

    Attributes:
        query: as asked.
        mappings: best match first; a corrected claim after what corrects it.
        did_you_mean: near spellings, when nothing matched.
        role: what the term is: where mappings start (``origin``), where they lead (``target``), a ``concept``, or
            ``unknown``.
        subjects: the primitives that it names, best first.
        family: the glob of the library or group that it belongs to, where no entry of its own exists.
    """

    query: str
    mappings: tuple[Mapping, ...]
    did_you_mean: tuple[str, ...] = ()
    role: Literal["origin", "target", "concept", "unknown"] = "unknown"
    subjects: tuple[Primitive, ...] = ()
    family: str = ""


@dataclass(frozen=True)
class Spellings:
    """A primitive as a ``TokenIndex`` takes it.

    Attributes:
        tokens: those of its tokens that stand in source code.
        families: globs for the spellings of a whole library or group (``cublas*``).
    """

    primitive: Primitive
    tokens: tuple[str, ...] = ()
    families: tuple[str, ...] = ()


def normalized(term: str) -> str:
    """Lower case, no surrounding space or quotes, and without arguments, template arguments or subscript.

    ``__shfl_xor_sync(mask, v, 1)`` gives ``__shfl_xor_sync``; ``#include <mma.h>`` gives ``mma.h``;
    ``<<<grid, block>>>`` stays as it is, and the predicate of a PTX instruction goes (``@p bra``).
    """
    text = _INCLUDE.sub(r"\1", term.strip().strip("`'").lower()).strip('"').strip()
    text = _PREDICATE.sub("", text)
    bare = _ARGUMENTS.sub("", text).rstrip(" ;:")
    return bare or text


class TokenIndex:
    """Primitives by the spellings that show them."""

    def __init__(self, entries: Iterable[Spellings], targets: Iterable[str] = ()) -> None:
        """Index ``entries``; ``targets`` are the slugs of the platforms to which mappings lead."""
        self._targets = frozenset(targets)
        self._families: list[tuple[str, Primitive]] = []
        self._names: dict[str, list[Primitive]] = defaultdict(list)
        self._mnemonics: list[tuple[tuple[str, ...], Primitive]] = []
        self.spellings: dict[str, str] = {}
        for entry in entries:
            primitive = entry.primitive
            self._families += [(glob.lower(), primitive) for glob in entry.families]
            for name in (*primitive.tokens, primitive.label):
                plain = name.strip().lower()
                for form in (plain, normalized(name)) if _DRESSED.search(plain) else (plain,):
                    named = self._names[form]
                    if not named or (named[-1] is not primitive and primitive not in named):
                        named.append(primitive)
                    self.spellings.setdefault(form, name)
            for token in entry.tokens:
                if "." in token:
                    self._mnemonics.append((tuple(token.lower().split(".")), primitive))

    @cached_property
    def _words(self) -> dict[str, list[Primitive]]:
        """Primitives by the words of their spellings, whatever stands between; made when no spelling fits."""
        found: dict[str, list[Primitive]] = defaultdict(list)
        for name, primitives in self._names.items():
            if words := _words(name):
                found[words] += [primitive for primitive in primitives if primitive not in found[words]]
        return found

    def find(self, term: str) -> list[Primitive]:
        """Primitives that a term names, best first; empty when none does.

        In this order: a launch; the exact spelling; the spelling without arguments; a PTX mnemonic with
        further modifiers; a wildcard (``__shfl_*``); the same words with other punctuation or in the
        plural; a qualified name by what stands in the namespace (``nvcuda::wmma::mma_sync``); a line of code
        that begins with a known spelling (``extern __shared__ float s[]``). ``family`` and ``prefix`` say more of
        terms that none of this finds.
        """
        if _CHEVRONS in term:
            return list(self._names.get(_CHEVRONS, ()))
        exact = self._names.get(term.strip().lower()) or self._names.get(normalized(term))
        if exact:
            return list(exact)
        bare = normalized(term)
        return (
            self.mnemonic(bare)
            or self._wildcard(bare)
            or self._same_words(bare)
            or self._qualified(bare)
            or self._leading(bare)
        )

    def family(self, term: str) -> tuple[str, list[Primitive]]:
        """The narrowest glob that a term fits, with the primitives that stand for it; empty when none does."""
        bare = normalized(term)
        fitting = [glob for glob, _ in self._families if fnmatch.fnmatchcase(bare, glob)]
        if not fitting:
            return "", []
        narrowest = max(fitting, key=lambda glob: (len(glob.strip("*")), glob))
        return narrowest, [primitive for glob, primitive in self._families if glob == narrowest]

    def mnemonic(self, text: str) -> list[Primitive]:
        """The primitive whose dotted token is the closest generalization of a PTX mnemonic.

        ``ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16`` is an ``ldmatrix.trans``: every part of the
        token occurs in the mnemonic in the same order, and no token with more parts fits.
        """
        parts = text.lower().split(".")
        best: list[Primitive] = []
        best_length = 0
        for token, primitive in [*self._mnemonics, *self._first_words(parts[0], len(parts))]:
            if len(token) >= best_length and _is_subsequence(token, parts):
                best = [primitive] if len(token) > best_length else [*best, primitive]
                best_length = len(token)
        return best

    def near(self, term: str, count: int = 3) -> tuple[str, ...]:
        """Spellings close to a term, closest first."""
        bare = normalized(term)
        forms = difflib.get_close_matches(bare, list(self.spellings), n=count * 2, cutoff=0.7)
        found = dict.fromkeys(self.spellings[form] for form in forms)
        return tuple(found)[:count]

    def _first_words(self, word: str, length: int) -> list[tuple[tuple[str, ...], Primitive]]:
        if length < 2:
            return []
        return [((word,), primitive) for primitive in self._names.get(word, ())]

    def _wildcard(self, bare: str) -> list[Primitive]:
        if not set(bare) & set("*?"):
            return []
        return self._collect(name for name in self._names if fnmatch.fnmatchcase(name, bare))

    def _same_words(self, bare: str) -> list[Primitive]:
        words = _words(bare)
        return list(self._words.get(words) or self._words.get(_singular(words)) or ())

    def _qualified(self, bare: str) -> list[Primitive]:
        """By the name without its outer namespaces, or without those in the middle (``cuda::std::atomic``).

        A word of a target platform stands in no other platform's namespace: ``cutlass::gemm::device`` is no
        ``device`` of Metal.
        """
        parts = bare.split("::")
        inner = ["::".join(parts[start:]) for start in range(1, len(parts))]
        for name in [*inner[:1], f"{parts[0]}::{parts[-1]}", *inner[1:]] if inner else []:
            named = self._names.get(name, ())
            if found := [p for p in named if p.platform not in self._targets or p.platform == parts[0]]:
                return found
        return []

    def _leading(self, bare: str) -> list[Primitive]:
        starts = [name for name in self._names if bare.startswith(name + " ")]
        return list(self._names[max(starts, key=len)]) if starts else []

    def prefix(self, term: str) -> list[Primitive]:
        """Primitives with a spelling of which the term is the first words, if it has four letters or more."""
        bare = normalized(term)
        words = _words(bare)
        if len(words) < 4 or _MACRO.fullmatch(bare):
            return []
        # A namespace is no prefix of what stands in it: CUTLASS is not its half_t.
        names = (name for name in self._names if not name.startswith(f"{bare}::"))
        return self._collect(name for name in names if f"{_words(name)} ".startswith(f"{words} "))

    def _collect(self, names: Iterable[str]) -> list[Primitive]:
        found: dict[str, Primitive] = {}
        for name in sorted(names):
            for primitive in self._names[name]:
                found.setdefault(primitive.iri, primitive)
        return list(found.values())


def _words(text: str) -> str:
    return _SEPARATORS.sub(" ", text.lower()).strip()


def _singular(words: str) -> str:
    return " ".join(word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words.split())


def _is_subsequence(token: tuple[str, ...], parts: list[str]) -> bool:
    if token[0] != parts[0]:
        return False
    rest = iter(parts)
    return all(part in rest for part in token)


def ordered(mappings: Iterable[Mapping], rank: dict[str, int] | None = None) -> tuple[Mapping, ...]:
    """Best first: by match rank, then what stands before what was corrected, then strength and confidence."""
    found = list(mappings)
    ranks = rank or {}

    def key(mapping: Mapping) -> tuple[bool, int, int, float, str]:
        superseded = bool(mapping.corrected_by)
        return (
            superseded,
            ranks.get(mapping.origin.iri, len(ranks)),
            _RELATION_RANK[mapping.relation],
            -mapping.confidence,
            mapping.iri,
        )

    return tuple(sorted(found, key=key))


def named(known: dict[str, T], name: str, kind: str) -> T:
    """The value of that name.

    Raises:
        UnknownName: there is none; the hint lists near names, or all.
    """
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    listed = near or sorted(known)
    hint = ("did you mean " if near else "known: ") + ", ".join(listed)
    raise UnknownName(f"no {kind} named {name!r}", hint)


def near_nodes(iri: str, nodes: Iterable[str]) -> tuple[str, ...]:
    """Nodes with the same or a near local name, those of the same kind first; by their prefixes."""
    kind, _, local = iri.rpartition(":")
    known = {node.rpartition(":")[2]: node for node in nodes if ":" in node}
    kin = {name: node for name, node in known.items() if node.startswith(f"{kind}:")}
    alike = [known[local]] if local in known else []
    for names in (kin, known):
        alike += [names[name] for name in difflib.get_close_matches(local, list(names), n=3, cutoff=0.6)]
    return tuple(dict.fromkeys(map(shortened, alike)))[:4]
