"""``kx spec``: true, relevant, within its budget, and quick."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest

from kgraph.graph import KnowledgeGraph
from kx.errors import DataMalformed
from kx.paths import Home
from retrieval import spec as module
from retrieval.rendering import estimate_tokens, template_environment
from retrieval.spec import DOCUMENT, ITEMS, select_spec
from tests.cli.conftest import Kx, parse_one_object

ROOT = Path(__file__).parents[2]
MAMBA = ("spec", "--kernel", "mamba_scan", "--chip", "m1-max")
ATTENTION = ("spec", "--kernel", "attention", "--chip", "m3-max")


def section(text: str, heading: str) -> str:
    return text.split(f"## {heading}\n")[1].split("\n## ", maxsplit=1)[0]


def test_a_specification_tells_limits_mappings_patterns_and_assertions(kx: Kx) -> None:
    result = kx(*MAMBA)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("# selective scan (Mamba) on M1 Max")
    assert "threadgroup-memory-bytes <= 32768 B [metal]" in section(result.stdout, "Limits that bind")
    assert "__shfl_up_sync → simd_shuffle_up" in section(result.stdout, "From CUDA to Metal")
    assert "### Scan of a linear recurrence" in section(result.stdout, "How experts do it")
    assert "Split and carry (rounding)" in section(result.stdout, "What must hold")
    assert "Left out" not in result.stdout


@pytest.mark.parametrize("options", [MAMBA, ATTENTION], ids=lambda options: options[2])
def test_every_limit_and_figure_has_unit_and_scope(kx: Kx, options: tuple[str, ...]) -> None:
    text = kx(*options).stdout
    limits = section(text, "Limits that bind").strip().splitlines()
    figures = section(text, "The chip").strip().splitlines()
    assert len(limits) > 20
    assert len(figures) > 5
    for line in limits:
        comparison = r"- [a-z0-9-]+ (<=|<|=|>=|>|multiple-of) [-\d.e+]+ (\(no unit\)|\S.*)"
        assert re.match(comparison + r" \[[\w.-]+(; [\w ,]+)?\]: .+\.$", line)
    for line in figures:
        assert re.match(r"- [a-z0-9-]+: [-\d.e+]+ (\(no unit\)|\S.*) \[\S+; .+\]$", line)


@pytest.mark.parametrize("budget", [1, 1500, 2000, 3000, 6000])
@pytest.mark.parametrize("options", [MAMBA, ATTENTION], ids=lambda options: options[2])
def test_a_budget_is_kept_and_limits_never_go(kx: Kx, options: tuple[str, ...], budget: int) -> None:
    whole, bare = kx(*options).stdout, kx(*options, "--budget", "1").stdout
    text = kx(*options, "--budget", str(budget)).stdout
    assert estimate_tokens(text) <= max(budget, estimate_tokens(bare))
    assert section(text, "Limits that bind").strip() == section(whole, "Limits that bind").strip()
    assert "Left out to keep the budget: " in text.splitlines()[-1]
    assert text == kx(*options, "--budget", str(budget)).stdout


def test_a_larger_budget_never_tells_less(kx: Kx) -> None:
    told: set[str] = set()
    for budget in range(1500, 9000, 1500):
        answer = parse_one_object(kx(*ATTENTION, "--budget", str(budget), "--json"))
        assert answer["tokens"] <= budget
        now = {item["id"] for name in ("mappings", "patterns", "assertions") for item in answer[name]}
        assert told <= now
        told = now


def test_each_section_gets_its_share(kx: Kx) -> None:
    answer = parse_one_object(kx(*ATTENTION, "--budget", "6000", "--json"))
    assert len(answer["mappings"]) >= 10
    assert len(answer["patterns"]) >= 6
    assert len(answer["assertions"]) >= 10
    assert set(answer["left_out"]) == {"mappings", "patterns", "assertions"}


def test_a_scan_hears_nothing_of_matrices_or_attention(kx: Kx) -> None:
    text = kx(*MAMBA).stdout
    for foreign in (
        "simdgroup_matrix",
        "simdgroup_multiply",
        "matmul2d",
        "ldmatrix",
        "wgmma",
        "softmax",
        "K/V",
        "erff",
    ):
        assert foreign not in text, foreign


def test_what_a_chip_lacks_is_not_advised(kx: Kx) -> None:
    ids = [item["id"] for item in parse_one_object(kx(*ATTENTION, "--json"))["patterns"]]
    assert "urn:kx:pattern:no-staging" in ids
    assert not {"urn:kx:pattern:matmul2d-in-a-kernel", "urn:kx:pattern:bfloat-by-shift"} & set(ids)
    on_m1 = parse_one_object(kx("spec", "--kernel", "attention", "--chip", "m1-max", "--json"))
    assert "urn:kx:pattern:no-staging" not in [item["id"] for item in on_m1["patterns"]]
    assert not [m for m in on_m1["mappings"] if "matmul2d" in m["to"]]
    on_m5 = parse_one_object(kx("spec", "--kernel", "gemm", "--chip", "m5-max", "--json"))
    assert [m for m in on_m5["mappings"] if "matmul2d" in m["to"]]


def test_a_refuted_claim_is_left_to_its_correction(kx: Kx, home) -> None:
    refuted = {mapping.iri for mapping in KnowledgeGraph.open(Home(home)).mappings() if mapping.corrected_by}
    told = {item["id"] for item in parse_one_object(kx(*ATTENTION, "--json"))["mappings"]}
    assert refuted
    assert not refuted & told


def test_variants_of_a_class_come_last_and_say_so(kx: Kx) -> None:
    held = section(kx(*ATTENTION).stdout, "What must hold")
    assert held.index("Weights sum to one") < held.index("[causal_attention] The first row is the first value")
    causal = kx("spec", "--kernel", "causal_attention", "--chip", "m3-max").stdout
    assert "\n- The first row is the first value" in causal
    assert "paged" not in section(causal, "What must hold").lower()


def test_the_text_follows_from_json(kx: Kx) -> None:
    answer = parse_one_object(kx(*MAMBA, "--json"))
    text = kx(*MAMBA).stdout
    assert (answer["kernel"], answer["kernel_class"], answer["chip"]) == ("mamba_scan", "scan", "m1-max")
    assert answer["tokens"] == estimate_tokens(text)
    assert all(limit["label"] in text and limit["unit"] and limit["scope"] for limit in answer["limits"])
    assert all(item["sketch"] in text and item["source"] for item in answer["patterns"])


@pytest.mark.parametrize(
    ("kernel", "chip", "words"),
    [
        ("mamba_scn", "m1-max", "did you mean mamba_scan"),
        ("atention", "m1-max", "attention"),
        ("zzz", "m1-max", "known: "),
        ("attention", "m3max", "did you mean m3-max"),
        ("attention", "h100-sxm", "is no target of mappings"),
    ],
)
def test_unknown_names_are_told_with_near_ones(kx: Kx, kernel: str, chip: str, words: str) -> None:
    result = kx("spec", "--kernel", kernel, "--chip", chip)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_hyphens_and_case_do_not_matter(kx: Kx) -> None:
    assert kx("spec", "--kernel", "Mamba-Scan", "--chip", "m1-max").stdout == kx(*MAMBA).stdout


def test_a_task_and_a_class_that_differ_by_a_hyphen_are_told_apart(home) -> None:
    graph = KnowledgeGraph.open(Home(home))
    assert graph.target("quantized_gemv").iri == "urn:kx:task:quantized_gemv"
    assert graph.target("quantized-gemv").iri == "urn:kx:kernel-class:quantized-gemv"


def test_without_a_chip_it_says_what_to_name(kx: Kx, monkeypatch: pytest.MonkeyPatch) -> None:
    result = kx("spec", "--kernel", "attention")
    assert result.exit_code == 2
    assert "no chip is named" in result.stderr
    monkeypatch.setenv("KX_CHIP", "m3-max")
    assert kx("spec", "--kernel", "attention").stdout == kx(*ATTENTION).stdout


def test_every_kernel_of_the_graph_has_a_specification(home) -> None:
    graph = KnowledgeGraph.open(Home(home))
    for kernel in (*(task.slug for task in graph.tasks()), *graph.kernel_classes()):
        told = select_spec(graph, kernel, "m4-max")
        assert told.limits and told.mappings and told.patterns and told.assertions, kernel


def test_a_broken_template_names_its_file(home, monkeypatch: pytest.MonkeyPatch) -> None:
    told = select_spec(KnowledgeGraph.open(Home(home)), "softmax", "m1")
    environment = template_environment()
    broken = {DOCUMENT: "{{ spec.no_such_field }}", ITEMS: environment.loader.get_source(environment, ITEMS)[0]}
    monkeypatch.setattr(module, "template_environment", lambda: environment.overlay(loader=jinja2.DictLoader(broken)))
    with pytest.raises(DataMalformed, match=r"spec\.md\.j2.*no_such_field"):
        module.render_spec(told)
    del broken[ITEMS]
    broken[ITEMS] = "{% macro figures(item, spec) %}x{% endmacro %}"
    with pytest.raises(DataMalformed, match=r"spec-items\.md\.j2, limits"):
        module.render_spec(told)


def test_no_model_and_no_rdf_library_is_imported(home) -> None:
    code = (
        "import sys; from kx.cli import main\n"
        "try: main(['spec', '--kernel', 'attention', '--chip', 'm3-max'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'chromadb', 'sentence_transformers', 'rdflib', 'mlx') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=ROOT
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_budget_below_the_limits_is_told_to_be_exceeded(kx: Kx) -> None:
    told = parse_one_object(kx(*ATTENTION, "--budget", "500", "--json"))
    assert told["tokens"] > 500
    assert 0 < told["unfit_tokens"] <= told["tokens"]
    assert "more than the budget" in kx(*ATTENTION, "--budget", "500").stdout
    assert parse_one_object(kx(*ATTENTION, "--budget", "6000", "--json"))["unfit_tokens"] == 0


def test_a_specification_speaks_of_cuda_not_of_triton(kx: Kx) -> None:
    mappings = parse_one_object(kx(*ATTENTION, "--json"))["mappings"]
    assert not [mapping["from"] for mapping in mappings if mapping["from"].startswith(("tl.", "Triton", "triton"))]


def test_a_limit_without_a_document_says_what_it_rests_on(kx: Kx) -> None:
    limits = section(kx(*ATTENTION).stdout, "Limits that bind")
    assert "accumulator-fragments <= 16 fragments [apple9; measured by a third party]" in limits
    assert "threadgroup-memory-bytes <= 32768 B [metal]:" in limits


def test_an_unknown_chip_is_answered_by_chips_that_do(kx: Kx) -> None:
    """kx spec --chip nope offered an NVIDIA GPU, which it then refused."""
    refused = kx("spec", "--kernel", "attention", "--chip", "h10-sxm")
    assert refused.exit_code == 2
    assert "h100" not in refused.stderr
    assert "m3-max" in refused.stderr
