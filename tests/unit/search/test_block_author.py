"""The block author: which choices it composes, which changes it offers, and that order means nothing to it."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

import kgraph
from kx.errors import DataMalformed
from search.authors import Edit
from search.authors.block_author import BlockAuthor, Rejected
from search.authors.block_space import BlockSpace, Choices, load_space
from search.evaluation.preflight import threadgroup_bytes
from search.program import Program, program_from_json
from search.task import load_task

TASK = load_task("mamba_scan")
BLOCKS = TASK.folder / "blocks" / "blocks.toml"


@pytest.fixture(scope="module")
def author() -> BlockAuthor:
    return BlockAuthor(TASK)


def walk(author: BlockAuthor, seed: int, steps: int) -> list[Choices]:
    """Choices along a random path of edits from the seed."""
    rng = random.Random(seed)
    path = [author.space.defaults]
    for _ in range(steps):
        edits = author.capabilities(path[-1])
        if not edits:
            break
        path.append({**path[-1], **rng.choice(edits).changes})
    return path


def test_defaults_compose_the_seed_to_the_letter(author: BlockAuthor) -> None:
    program = author.compose({})
    assert isinstance(program, Program)
    assert program.digest == TASK.seed.digest
    assert program.concepts == ()


def test_every_edit_on_random_paths_composes(author: BlockAuthor) -> None:
    for seed in range(12):
        for choices in walk(author, seed, 12):
            for edit in author.capabilities(choices):
                program = author.compose({**choices, **edit.changes})
                assert isinstance(program, Program), program
                assert set(edit.concepts) <= set(program.concepts)


def test_paths_from_the_seed_reach_every_option_that_has_a_concept(author: BlockAuthor) -> None:
    seen = {
        (name, value) for seed in range(60) for choices in walk(author, seed, 10) for name, value in choices.items()
    }
    for axis in author.space.axes.values():
        wanted = [option for option in axis.options.values() if option.concepts]
        if axis.is_size and wanted:
            assert any((axis.name, option.value) in seen for option in wanted), axis.name
        else:
            for option in wanted:
                assert (axis.name, option.value) in seen, f"{axis.name} = {option.value}"


def test_an_edit_is_one_change_of_words(author: BlockAuthor) -> None:
    for seed in range(6):
        for choices in walk(author, seed, 8):
            for edit in author.capabilities(choices):
                words = [
                    name
                    for name, value in edit.changes.items()
                    if isinstance(value, str) and value != author.space.axes[name].default
                ]
                assert len(words) <= 1, edit
                assert edit.concepts


def test_concepts_are_those_of_the_graph(author: BlockAuthor) -> None:
    folder = Path(kgraph.__file__).parent / "knowledge"
    known = {
        slug
        for path in folder.glob("concepts-*.ttl")
        for slug in re.findall(r'skos:notation "([^"]+)"', path.read_text(encoding="utf-8"))
    }
    used = {slug for axis in author.space.axes.values() for option in axis.options.values() for slug in option.concepts}
    assert used <= known


def reversed_order(text: str) -> str:
    """blocks.toml with its axes, their options and the numbers in them in reverse order."""
    text, rules = text.split("\n# Whole teams", maxsplit=1)
    head, *axes = re.split(r"(?m)^(?=\[\[axis\]\]$)", text)
    turned = []
    for axis in axes:
        first, *options = re.split(r"(?m)^(?=\[\[axis\.option\]\]$)", axis)
        first = re.sub(
            r"values = \[(.*?)\]", lambda found: f"values = [{', '.join(found[1].split(', ')[::-1])}]", first
        )
        turned.append(first.rstrip() + "\n" + "".join(option.rstrip() + "\n" for option in options[::-1]))
    return head + "\n".join(turned[::-1]) + "\n# Whole teams" + rules


def test_order_in_the_file_means_nothing(author: BlockAuthor, tmp_path: Path) -> None:
    path = tmp_path / "blocks.toml"
    path.write_text(reversed_order(BLOCKS.read_text(encoding="utf-8")), encoding="utf-8")
    other = BlockAuthor(TASK)
    other.space = load_space(path)
    assert list(other.space.axes) == list(author.space.axes)[::-1]
    for seed in range(4):
        for choices in walk(author, seed, 8):
            assert other.capabilities(choices) == author.capabilities(choices)
            one, two = (item.resize(choices, 4, random.Random(seed)) for item in (author, other))
            assert [program.digest for program in one] == [program.digest for program in two]


def test_choices_that_do_not_fit_are_a_value(author: BlockAuthor) -> None:
    for choices, word in [
        ({"carry": "lanes"}, "mapping sequence-lanes"),
        ({"mapping": "sequence-lanes", "simdgroups": 4, "threads": 64}, "threads"),
        ({"access": "vector"}, "items"),
        ({"items": 3}, "items"),
    ]:
        outcome = author.compose(choices)
        assert isinstance(outcome, Rejected)
        assert word in outcome.reason


def test_an_unknown_axis_is_an_error(author: BlockAuthor) -> None:
    with pytest.raises(DataMalformed, match="vectors"):
        author.compose({"vectors": 4})


def test_a_mapping_that_leaves_options_without_ground_sends_them_back(author: BlockAuthor) -> None:
    scan: Choices = {**author.space.defaults, "mapping": "sequence-lanes", "simdgroups": 4, "threads": 128,
                     "prefetch": "next-chunk", "exponential": "exp2"}  # fmt: skip
    edit = next(edit for edit in author.capabilities(scan) if edit.changes.get("mapping") == "state-lanes")
    after = {**scan, **edit.changes}
    assert (after["simdgroups"], after["prefetch"], after["exponential"]) == (1, "none", "exp2")
    assert author.space.flaw(after) is None


def test_variations_differ_in_sizes_only_and_follow_the_seed(author: BlockAuthor) -> None:
    edit = next(edit for edit in author.edits(TASK.seed) if "associative-scan-operator" in edit.concepts)
    first = author.write(TASK.seed, edit)
    more = author.variations(TASK.seed, edit, 5, random.Random(1))
    again = author.variations(TASK.seed, edit, 5, random.Random(1))
    assert [program.digest for program in more] == [program.digest for program in again]
    assert len({program.digest for program in more} | {first.digest}) == 6
    for program in more:
        words = {name: value for name, value in program.choices.items() if isinstance(value, str)}
        assert words == {name: value for name, value in first.choices.items() if isinstance(value, str)}
        assert program.concepts == first.concepts


def test_a_text_of_others_is_left_alone(author: BlockAuthor) -> None:
    stage = replace(TASK.seed.stages[0], body="y[0] = T(0.0f);")
    free = replace(TASK.seed, stages=(stage,), author="person")
    assert author.edits(free) == []
    assert author.variations(free, Edit((), {}, ""), 3, random.Random(0)) == []
    with pytest.raises(DataMalformed, match="not composed from blocks"):
        author.write(free, Edit((), {"math": "fast"}, "fast"))


def test_a_composed_program_survives_json_and_stays_editable(author: BlockAuthor) -> None:
    program = author.compose({"mapping": "sequence-lanes", "items": 4, "access": "vector"})
    assert isinstance(program, Program)
    read = program_from_json(program.to_json())
    assert author.edits(read) == author.edits(program)


def test_preflight_can_tell_the_threadgroup_memory_of_every_composition(author: BlockAuthor) -> None:
    for seed in range(8):
        for choices in walk(author, seed, 10):
            program = author.compose(choices)
            assert isinstance(program, Program)
            size = threadgroup_bytes(program.stages[0], TASK.workloads[0])
            assert size is not None
            assert (size > 0) == ("threadgroup float2" in program.stages[0].body or choices["staging"] != "none")


def test_a_template_without_its_variable_names_file_and_variable(author: BlockAuthor, tmp_path: Path) -> None:
    folder = tmp_path / "blocks"
    folder.mkdir()
    for path in BLOCKS.parent.iterdir():
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "single.metal.j2").write_text("{{ no_such_choice }}", encoding="utf-8")
    broken = BlockAuthor(replace(TASK, folder=tmp_path))
    with pytest.raises(DataMalformed, match=r"single\.metal\.j2.*no_such_choice"):
        broken.compose({})


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('needs = [{ mapping = ["state-lanes"] }]', 'needs = [{ maping = ["state-lanes"] }]', "maping"),
        ('mapping = ["sequence-lanes"], width = [32]', 'mapping = ["sequence-lane"], width = [32]', "sequence-lane"),
        ('default = "scalar"', 'default = "scalars"', "scalars"),
        ('adjust = "threads"', 'adjust = "math"', "math"),
        ('zero = "tile', 'zeros = "tile', "zero"),
    ],
)  # fmt: skip
def test_mistakes_in_the_file_are_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    text = BLOCKS.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "blocks.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataMalformed, match=complaint):
        load_space(path)


def test_every_valid_choice_has_exactly_one_template(author: BlockAuthor) -> None:
    space: BlockSpace = author.space
    rng = random.Random(3)
    checked = 0
    while checked < 300:
        choices = {name: rng.choice(sorted(axis.options, key=str)) for name, axis in space.axes.items()}
        for name, axis in space.axes.items():
            if rng.random() < 0.6:
                choices[name] = axis.default
        if space.flaw(choices) is None:
            space.template_for(choices)
            checked += 1
