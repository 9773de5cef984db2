"""The prefilter never rules out a text that the pattern matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.prefilter import may_match, required_words


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"\bwmma::fragment\b", {"wmma::fragment"}),
        (r"\b(?:ab|cd)+x?", {"ab", "cd"}),
        (r"alpha?betas", {"betas"}),
        (r"(?:alpha)?beta|gamma\s*\(", {"beta", "gamma"}),
        (r"(?:alpha)*", None),
        (r"alpha|\w+", None),
        (r"a[bc\]]de", {"de"}),
        (r"x(?=alpha)yz", {"yz"}),
        (r"(?i)alpha", {"alpha"}),
        (r"(?i:alpha)", None),
        (r"(?i:alpha)betas", {"betas"}),
        (r"al{2}pha", {"pha"}),
        (r"\.data\(\)", {".data()"}),
    ],
)
def test_required_words(pattern: str, words: set[str] | None) -> None:
    assert required_words(pattern) == words


PATTERN = st.recursive(
    st.sampled_from(["ab", "cd", "a", "b", r"\w", r"\s", "[ab]", "[^a]", "."]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "{0,2}", "{2}"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=8,
)


@given(PATTERN, st.text(alphabet="abcdABC ", max_size=12), st.sampled_from(["", "(?i)"]))
def test_a_match_is_never_ruled_out(pattern: str, text: str, flag: str) -> None:
    compiled = re.compile(flag + pattern)
    if compiled.search(text):
        assert may_match(compiled, text)
