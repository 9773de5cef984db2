"""Mutated kernels through metalsim's compiler and its isolated runner: nothing may get out, hang or break the tool.

    nice python -m benchmarks.metalsim_fuzz --folder /tmp/fuzz --count 10000 --jobs 2

Each number gives one mutant, always the same one; what was done is kept in FOLDER/records.jsonl, and a second run
goes on from there. ``--only NUMBER`` prints one mutant and runs it. A mutant that does not compile or that has
findings is as it should be. A failure is: an exception, an answer that comes too late, a file outside the work
folder, a process that stays behind. The exit code is 1 when there was one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from metalsim import Argument, CompiledFile, CompileFailure, Fresh, LaunchOptions, MlxKernel
from metalsim.errors import InputError
from metalsim.execute.isolation import (
    Allowance,
    BodyLaunch,
    BodyProgram,
    FileLaunch,
    FileProgram,
    IsolatedRunner,
    Launch,
    Program,
)

KERNELS = Path(__file__).parent / "fuzz_kernels"
ALLOWANCE = Allowance(limit_s=0.3, memory_bytes=1 << 30, compile_limit_s=20.0)
# A worker may be late by this much more than its own limits before the tool counts as hanging.
_LATE_S = ALLOWANCE.compile_limit_s + ALLOWANCE.launch_wall_s + 20.0
_ELEMENTS = 512
_THREADGROUPS = ((64, 1, 1), (32, 1, 1), (8, 8, 1), (33, 1, 1), (128, 2, 1))
_TOKEN = re.compile(
    r"\"[^\"\n]*\"|[A-Za-z_]\w*|\.?[0-9](?:[eE][+-]|[\w.])*|::|->|<<=?|>>=?|&&|\|\||[-+*/%=!<>&|^]=|\s+|."
)
_TYPES = (
    "float", "half", "bfloat", "int", "uint", "short", "ushort", "char", "uchar", "long", "ulong", "bool",
    "float2", "float3", "float4", "half4", "int4", "uchar4", "double", "void", "size_t", "auto", "float3x3",
)  # fmt: skip
_SPACES = ("device", "constant", "threadgroup", "thread", "")
_NUMBERS = (
    "0", "1", "2", "-1", "3", "31", "32", "33", "64", "255", "256", "1000", "65536", "2147483647", "4294967295u",
    "0x7fffffffffffffff", "1e30f", "1e-45f", "0.0f", "99999999999999999999", "1u << 31",
)  # fmt: skip
_DTYPES: dict[str, str] = {
    "float": "float32", "half": "float16", "bfloat": "bfloat16", "int": "int32", "uint": "uint32", "short": "int16",
    "ushort": "uint16", "char": "int8", "uchar": "uint8", "long": "int64", "ulong": "uint64", "bool": "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One mutated kernel.

    Attributes:
        number: that it was made from.
        seed: name of the kernel's file.
        text: of the file, or of the body.
        entry: kernel of the file; empty for a body.
    """

    number: int
    seed: str
    text: str
    entry: str

    @property
    def program(self) -> Program:
        """What is compiled."""
        if self.entry:
            return FileProgram(self.text, self.entry)
        inputs = (Argument("x", "float32", (64,)), Argument("y", "float32", (64,)))
        return BodyProgram(MlxKernel("body", self.text, inputs, (Argument("out", "float32", (64,)),)))


def seeds() -> list[tuple[str, str, tuple[str, ...]]]:
    """Name, text and entries of each kernel that mutants are made from; a body has no entries."""
    found = []
    for path in sorted(KERNELS.iterdir()):
        text = path.read_text(encoding="utf-8")
        hosts = re.findall(r'host_name\("(\w+)"\)', text)
        names = hosts or re.findall(r"(?:kernel|\]\]) void (\w+)\(", text)
        found.append((path.name, text, tuple(names) if path.suffix == ".metal" else ()))
    return found


def make_mutant(number: int, seed: int) -> Mutant:
    """The mutant of a number; one to four mutations of one of the kernels."""
    rng = random.Random(f"{seed}:{number}")
    name, text, entries = rng.choice(seeds())
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if text.strip():
            text = rng.choice(_MUTATIONS)(text, rng)
    return Mutant(number, name, text, rng.choice(entries) if entries else "")


def _tokens(text: str) -> tuple[list[str], list[int]]:
    tokens = _TOKEN.findall(text)
    return tokens, [i for i, token in enumerate(tokens) if not token.isspace()]


def _drop(text: str, rng: random.Random) -> str:
    tokens, places = _tokens(text)
    start = rng.choice(places)
    count = rng.choice((1, 1, 1, 2, 5, 20))
    return "".join(tokens[:start] + tokens[start + count :])


def _swap(text: str, rng: random.Random) -> str:
    tokens, places = _tokens(text)
    first = rng.randrange(len(places))
    second = min(len(places) - 1, first + rng.choice((1, 1, 2, 3, 40)))
    i, j = places[first], places[second]
    tokens[i], tokens[j] = tokens[j], tokens[i]
    return "".join(tokens)


def _duplicate(text: str, rng: random.Random) -> str:
    tokens, places = _tokens(text)
    start = rng.choice(places)
    piece = tokens[start : start + rng.choice((1, 1, 3, 10, 60))]
    return "".join(tokens[:start] + piece * rng.choice((2, 2, 2, 3, 50)) + tokens[start:])


def _exchange(text: str, rng: random.Random, fits: str, others: tuple[str, ...]) -> str:
    matches = list(re.finditer(fits, text))
    if not matches:
        return _drop(text, rng)
    chosen = rng.choice(matches)
    return text[: chosen.start()] + rng.choice(others) + text[chosen.end() :]


def _change_number(text: str, rng: random.Random) -> str:
    return _exchange(text, rng, r"\b[0-9][\w.]*", _NUMBERS)


def _change_type(text: str, rng: random.Random) -> str:
    return _exchange(text, rng, rf"\b(?:{'|'.join(_TYPES)})\b", _TYPES)


def _change_space(text: str, rng: random.Random) -> str:
    return _exchange(text, rng, r"\b(?:device|constant|threadgroup|thread)\b", _SPACES)


def _change_operator(text: str, rng: random.Random) -> str:
    operators = ("+", "-", "*", "/", "%", "<", ">", "<=", "==", "!=", "<<", ">>", "&", "|", "^", "=", "+=", "&&")
    return _exchange(text, rng, r"(?<=\s)(?:[-+*/%<>&|^=]|<=|==|<<|>>|\+=|&&)(?=\s)", operators)


def _change_name(text: str, rng: random.Random) -> str:
    names = tuple(set(re.findall(r"\b[A-Za-z_]\w*\b", text)))
    return _exchange(text, rng, r"\b[A-Za-z_]\w*\b", names)


def _delete_barrier(text: str, rng: random.Random) -> str:
    return _exchange(text, rng, r"\w+_barrier\([^)]*\);", ("", "simdgroup_barrier(mem_flags::mem_none);", "return;"))


def _move_lines(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    start = rng.randrange(len(lines))
    piece = lines[start : start + rng.choice((1, 1, 2, 5))]
    del lines[start : start + len(piece)]
    rng.shuffle(piece)
    target = rng.randrange(len(lines) + 1)
    return "".join(lines[:target] + piece + lines[target:])


def _loosen_loop(text: str, rng: random.Random) -> str:
    return _exchange(text, rng, r"(?:\+\+|--)?\b\w+(?:\+\+|--| [*/+]= \w+| <<= 1)?(?=\) \{?)", ("", "0", "true"))


def _flip_bytes(text: str, rng: random.Random) -> str:
    content = bytearray(text.encode())
    for _ in range(rng.choice((1, 1, 2, 8))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content.decode("utf-8", errors="replace")


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


def _splice(text: str, rng: random.Random) -> str:
    other = rng.choice(seeds())[1].splitlines(keepends=True)
    lines = text.splitlines(keepends=True)
    start, target = rng.randrange(len(other)), rng.randrange(len(lines) + 1)
    return "".join(lines[:target] + other[start : start + rng.choice((1, 2, 6))] + lines[target:])


_MUTATIONS = (
    _drop, _drop, _swap, _duplicate, _change_number, _change_number, _change_number, _change_type, _change_space,
    _change_operator, _change_operator, _change_name, _change_name, _delete_barrier, _move_lines, _loosen_loop,
    _flip_bytes, _cut, _splice,
)  # fmt: skip


def make_launch(mutant: Mutant, compiled: object, seed: int) -> Launch:
    """Random arrays for whatever buffers the mutant has, and a random shape of threadgroup."""
    rng = random.Random(f"launch:{seed}:{mutant.number}")
    random_numbers = np.random.default_rng(mutant.number)
    threadgroup = rng.choice(_THREADGROUPS)
    grid = (rng.choice((64, 128, 100)), 1 if threadgroup[1] == 1 else 8, 1)
    if not isinstance(compiled, CompiledFile):
        x, y = random_numbers.normal(size=(2, 64)).astype(np.float32)
        return BodyLaunch({"x": x, "y": y}, (64, 1, 1), threadgroup)
    buffers: dict[int | str, Any] = {}
    for parameter in compiled.parameters:
        if parameter.role == "buffer" and rng.random() < 0.97:
            buffers[parameter.index] = _buffer(
                parameter.kind, parameter.writable and rng.random() < 0.4, random_numbers
            )
    lengths = {p.index: rng.choice((16, 256, 4096)) for p in compiled.parameters if p.role == "threadgroup"}
    return FileLaunch(buffers, grid, threadgroup, LaunchOptions(threadgroup_lengths=lengths))


def _buffer(kind: str, fresh: bool, random_numbers: np.random.Generator) -> Any:
    element = re.sub(r"(?:const|volatile|atomic|[<>*&_ ]|\d$)+", "", kind)
    dtype = _DTYPES.get(element, "uint8")
    if kind.endswith("&"):
        return np.array(16).astype(dtype) if dtype != "uint8" else random_numbers.integers(0, 9, 64, np.uint8)
    if fresh:
        return Fresh(dtype, (_ELEMENTS,))  # type: ignore[arg-type]
    if dtype in ("float32", "float16", "bfloat16"):
        values = random_numbers.normal(size=_ELEMENTS)
        return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return random_numbers.integers(0, 100, _ELEMENTS).astype(dtype)


class Fuzzer:
    """Runs mutants and keeps what came of them.

    Args:
        folder: work folder.
        seed: of all mutants.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder.resolve()
        self.seed = seed
        self.cache, self.temporary, self.empty = (self.folder / name for name in ("cache", "temporary", "empty"))
        for path in (self.cache, self.temporary, self.empty):
            path.mkdir(parents=True, exist_ok=True)
        self.records = self.folder / "records.jsonl"
        self._lock = threading.Lock()

    def done(self) -> dict[int, dict[str, Any]]:
        """Records by number, from all runs."""
        if not self.records.exists():
            return {}
        lines = self.records.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return {record["number"]: record for record in found}

    def run(self, mutant: Mutant, runner: IsolatedRunner) -> dict[str, Any]:
        """Compile and run one mutant; the record of it."""
        started = time.monotonic()
        failure = ""
        try:
            kind = self._outcome(mutant, runner)
        except InputError as exc:
            kind = "refused launch"
            failure = "" if exc.message else "an error without a message"
        except Exception:  # noqa: BLE001 - any exception is what this program looks for
            kind, failure = "exception", traceback.format_exc()
        took_s = time.monotonic() - started
        if took_s > _LATE_S:
            kind, failure = "late", f"the answer came after {took_s:.1f} s"
        return {
            "number": mutant.number,
            "seed": mutant.seed,
            "kind": kind,
            "seconds": round(took_s, 3),
            "failure": failure,
        }

    def _outcome(self, mutant: Mutant, runner: IsolatedRunner) -> str:
        compiled = runner.compile(mutant.program, mode="checked", cache=self.cache)
        if isinstance(compiled, CompileFailure):
            if not compiled.messages or not all(message.strip() for message in compiled.messages):
                raise AssertionError(f"a failure without a message: {compiled}")
            return "does not compile"
        result = runner.run(compiled, make_launch(mutant, compiled, self.seed))
        kinds = sorted({finding.kind for finding in result.findings})
        return "+".join(kinds) or "clean"

    def keep(self, record: Mapping[str, Any]) -> None:
        """Append a record."""
        with self._lock, self.records.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")

    def tidy(self) -> None:
        """Drop compiled kernels; the runtime and the compiler's own files stay."""
        for pattern in ("*.so", "*.json"):
            for path in (self.cache / "metalsim").glob(pattern):
                path.unlink(missing_ok=True)

    def trespasses(self) -> list[str]:
        """Files where none belong, and processes that were left behind; called when no runner is open."""
        found = [f"a file outside: {path}" for path in self.empty.rglob("*")]
        found += [f"left in the temporary folder: {path}" for path in self.temporary.iterdir()]
        found += [f"left in the cache: {path}" for path in (self.cache / "metalsim").glob("build-*")]
        return found + [f"a process was left behind: {words}" for words in _processes_in(self.folder)]


def _processes_in(folder: Path) -> Iterator[str]:
    """Processes of this user that work in a folder; Linux only."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            inside = (path / "cwd").resolve().is_relative_to(folder)
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if inside and int(path.name) != os.getpid():
            yield f"{path.name} {command[:100]}"


def _watched() -> dict[Path, float]:
    """Folders in which a stray file would land, with the time of their last change."""
    places = (Path.home(), KERNELS, KERNELS.parents[1] / "metalsim" / "include", Path("/"))
    return {place: place.stat().st_mtime for place in places}


def fuzz(fuzzer: Fuzzer, numbers: list[int], jobs: int, batch: int) -> list[dict[str, Any]]:
    """Run mutants in batches, checking after each that nothing was left; the records of failures."""
    failures: list[dict[str, Any]] = []
    for start in range(0, len(numbers), batch):
        pending = iter(numbers[start : start + batch])
        lock = threading.Lock()
        before = _watched()

        def work(pending: Iterator[int] = pending, lock: threading.Lock = lock) -> None:
            with IsolatedRunner(ALLOWANCE) as runner:
                while True:
                    with lock:
                        number = next(pending, None)
                    if number is None:
                        return
                    record = fuzzer.run(make_mutant(number, fuzzer.seed), runner)
                    fuzzer.keep(record)
                    if record["failure"]:
                        failures.append(record)

        with ThreadPoolExecutor(jobs) as pool:
            for worker in [pool.submit(work) for _ in range(jobs)]:
                worker.result()
        left = fuzzer.trespasses() + [f"changed: {path}" for path, when in _watched().items() if before[path] != when]
        if left:
            piece = numbers[start : start + batch]
            failures.append(
                {"number": piece[0], "kind": "trespass", "failure": f"among {piece[0]}-{piece[-1]}: {left}"}
            )
            fuzzer.keep(failures[-1] | {"number": -piece[0] - 1, "seed": "", "seconds": 0.0})
        fuzzer.tidy()
    return failures


def summary(records: Mapping[int, Mapping[str, Any]], wall_s: float, ran: int) -> str:
    """Outcomes by kind, most frequent first."""
    kinds = Counter(record["kind"] for record in records.values() if record["number"] >= 0)
    lines = [f"{count:6d}  {kind}" for kind, count in kinds.most_common()]
    failed = [record for record in records.values() if record["failure"]]
    slowest = max((record["seconds"] for record in records.values()), default=0.0)
    lines.append(f"{sum(kinds.values())} mutants, {len(failed)} failures, slowest {slowest:.1f} s")
    if ran:
        lines.append(f"this run: {ran} mutants in {wall_s:.0f} s, {ran / wall_s:.2f} a second")
    return "\n".join(lines)


def main() -> int:
    """Fuzz as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, required=True, help="work folder; a second run goes on in it")
    parser.add_argument("--count", type=int, default=10000, help="mutants in all")
    parser.add_argument("--seed", type=int, default=0, help="of all mutants")
    parser.add_argument("--jobs", type=int, default=1, help="workers at once")
    parser.add_argument("--batch", type=int, default=200, help="mutants between two looks at what was left behind")
    parser.add_argument("--only", type=int, help="print and run this one")
    parser.add_argument("--again", action="store_true", help="run those that failed once more")
    given = parser.parse_args()
    fuzzer = Fuzzer(given.folder, given.seed)
    tempfile.tempdir = str(fuzzer.temporary)
    os.chdir(fuzzer.empty)
    if given.only is not None:
        mutant = make_mutant(given.only, given.seed)
        with IsolatedRunner(ALLOWANCE) as runner:
            print(mutant.text)
            print(fuzzer.run(mutant, runner))
        return 0
    done = fuzzer.done()
    numbers = [n for n in range(given.count) if n not in done or (given.again and done[n]["failure"])]
    started = time.monotonic()
    shutil.rmtree(fuzzer.temporary, ignore_errors=True)
    fuzzer.temporary.mkdir()
    failures = fuzz(fuzzer, numbers, given.jobs, given.batch)
    for record in failures:
        print(f"FAILURE {record['kind']}: reproduce with --seed {given.seed} --only {record['number']}")
        print(record["failure"])
    print(summary(fuzzer.done(), time.monotonic() - started, len(numbers)))
    return 1 if any(record["failure"] for record in fuzzer.done().values()) else 0


if __name__ == "__main__":
    sys.exit(main())
