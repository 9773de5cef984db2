"""Programs in replies: what is taken, and that every flaw is named so that one more round can mend it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from search.authors.block_author import BlockAuthor
from search.authors.program_reply import ReplyFlawed, json_from_reply, program_from_reply
from search.program import Program, Stage, TensorSpec
from search.task import load_task
from tests.unit.search.replies import reply_of, with_speed

TASK = load_task("mamba_scan")
GOOD = reply_of(TASK.seed, TASK)


def edited(**stage: object) -> str:
    data = json.loads(GOOD.split("```json\n")[1].split("\n```")[0])
    data["stages"][0].update(stage)
    return GOOD.replace(GOOD.split("```json\n")[1].split("\n```")[0], json.dumps(data))


def test_seed_survives_the_way_through_a_reply() -> None:
    program = program_from_reply(GOOD, TASK, "llm:x")
    assert program.author == "llm:x"
    assert replace(program.stages[0], body="") == replace(TASK.seed.stages[0], body="")
    assert program.stages[0].body.strip() == TASK.seed.stages[0].body.strip()


def test_composed_program_with_a_header_survives() -> None:
    author = BlockAuthor(TASK)
    for edit in author.edits(TASK.seed):
        program = author.write(TASK.seed, edit)
        read = program_from_reply(reply_of(program, TASK), TASK, "person")
        assert read.stages[0].header.strip() == program.stages[0].header.strip()
        assert read.stages[0].grid == program.stages[0].grid
        assert read.concepts == program.concepts


def test_two_stages_with_an_intermediate_between_them() -> None:
    seed = TASK.seed.stages[0]
    middle = TensorSpec("decay", "float32", ("B", "D", "ceildiv(L, 256)"))
    first = Stage("chunks", "decay[0] = 1;", ("delta", "A"), (middle,), ("L", "D", "B"), ("64", "1", "1"))
    program = Program(TASK.name, (first, replace(seed, inputs=(*seed.inputs, "decay"))))
    read = program_from_reply(reply_of(program, TASK), TASK, "person")
    assert read.stages[0].outputs == (middle,)
    assert read.stages[1].inputs[-1] == "decay"


def test_windows_line_ends_unnamed_blocks_and_other_languages_are_taken() -> None:
    text = GOOD.replace("```metal mamba_scan\n", "```cpp\n") + "\n```python\nprint('usage')\n```\n"
    assert (
        program_from_reply(text.replace("\n", "\r\n"), TASK, "x").digest == program_from_reply(GOOD, TASK, "x").digest
    )


def test_concepts_of_the_action_count_when_the_reply_names_none() -> None:
    assert program_from_reply(GOOD, TASK, "x", ("exp2-trick",)).concepts == ("exp2-trick",)
    named = reply_of(with_speed(TASK.seed, 2, ("double-buffering",)), TASK)
    assert program_from_reply(named, TASK, "x", ("exp2-trick",)).concepts == ("double-buffering",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I would use a parallel scan here.", "no ```json block"),
        (GOOD.replace("```json", "```yaml"), "no ```json block"),
        (GOOD.rsplit("```", 1)[0], "not closed"),
        (GOOD.replace('"stages": [', '"stages": [,'), "JSON does not parse"),
        (GOOD.replace("```metal mamba_scan", "```text"), "stage mamba_scan has no ```metal mamba_scan block"),
        (edited(inputs=["u", "x_proj"]), "reads x_proj: neither an input"),
        (edited(outputs=["y"]), "no stage writes the output h_last"),
        (edited(outputs=["y", "h_last", "scratch"]), "scratch is none of the task's outputs"),
        (edited(outputs=["y", {"name": "h_last", "dtype": "float16", "shape": ["B"]}]), "h_last must be float32"),
        (edited(grid=["D", "B"]), "stages.0.grid"),
        (edited(grid=["D", "B", "Q"]), "grid.z"),
        (edited(grid=["D", "B", "L // 32"]), "grid.z is 0"),
        (edited(threadgroup=["__import__('os')", "1", "1"]), "threadgroup.x"),
        (edited(name="my scan"), "no C identifier"),
        (edited(speed="fast"), "stages.0.speed"),
        (edited(template={"N": "M"}), "template N"),
    ],
)  # fmt: skip
def test_each_flaw_is_named(text: str, said: str) -> None:
    with pytest.raises(ReplyFlawed) as caught:
        program_from_reply(text, TASK, "x")
    assert any(said in flaw for flaw in caught.value.flaws), caught.value.flaws


def test_several_flaws_are_told_at_once() -> None:
    with pytest.raises(ReplyFlawed) as caught:
        program_from_reply(edited(inputs=["nope"], grid=["Z", "1", "1"], outputs=["y"]), TASK, "x")
    assert len(caught.value.flaws) >= 3


def test_json_is_found_without_a_fence() -> None:
    assert json_from_reply('Sure: {"insert": []} there') == {"insert": []}
    with pytest.raises(ReplyFlawed):
        json_from_reply("no braces")
