"""Patterns: each of both packages takes linear steps, whatever it reads, and the matcher that counts them is right."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.linear_patterns import ALPHABET, count_growth
from tests.bench.pattern_sites import PatternSite, pattern_sites
from tests.bench.patterns import superlinear
from tests.bench.steps import StepLimitError, Steps

SHORT, LONG = 3_000, 100_000
"""Steps of attacks on one pattern, fewer than ``python -m tests.bench patterns --linear`` takes."""
FORMS = (
    r"(a|b)*?c|\w+",
    r"(?<![\w/])(?:ab|a)+(?!b)",
    r"(?i)x(?P<n>\d{1,3})?(?(n)-|:)",
    r"([\"'])[^\"']*\1",
    r"^\s*+\S.*?$",
    r"(?>a+)b|[^\W\d_]{2,}",
    r"\ba|b*|(?s:.)$",
    r"(?:(?=a)a|[^a])++",
)
SUPERLINEAR = (
    r"\s+x",
    pytest.param(r"(\w+)*!", marks=pytest.mark.slow),
    pytest.param(r"<a>.*?</a>", marks=pytest.mark.slow),
    r"[A-Z]{2,}[a-z]",
    r"a\d*\d*b",
    pytest.param(r"\d+-?[a-z]+", marks=pytest.mark.slow),
)
LINEAR = (
    r"(?<!\s)\s++x",
    r"\b\w+!|\d",
    r"<a>[^<]*+</a>",
    r"[A-Z]{2}[a-z]",
    r"a\d*b",
    r"\d{1,100}x",
    pytest.param(r"[^a]{8,300}a", marks=pytest.mark.slow),
)


@pytest.fixture(scope="module")
def sites():
    """Return every pattern of both packages."""
    return list(pattern_sites())


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60)
@given(text=st.text(st.sampled_from("ab_x12-:\"'\n éA"), max_size=24))
def test_steps_are_counted_of_the_matches_that_re_finds(form, text):
    flags = re.M if "^" in form else 0
    expected = [match.span() for match in re.finditer(form, text, flags)]
    assert list(Steps(form, flags).spans(text, 1_000_000)) == expected


@pytest.mark.real
def test_every_pattern_of_the_packages_is_read_by_the_counter(sites):
    assert len(sites) > 100
    for site in sites:
        text = ALPHABET * 2
        expected = [match.span() for match in re.finditer(site.text, text, site.flags)]
        assert list(Steps(site.text, site.flags).spans(text, 10_000_000)) == expected, site.where


@pytest.mark.parametrize("form", SUPERLINEAR)
def test_attacks_find_what_takes_more_than_linear_steps(form):
    assert not count_growth(PatternSite("here", form, 0, False), LONG).is_linear


@pytest.mark.parametrize("form", LINEAR)
def test_attacks_leave_linear_patterns_alone(form):
    growth = count_growth(PatternSite("here", form, 0, False), LONG)
    assert growth.is_linear, (growth.attack, growth.work)


@pytest.mark.real
@pytest.mark.parametrize("steps", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def test_no_pattern_of_the_packages_takes_more_than_linear_steps(sites, steps):
    assert {growth.site.where: growth.attack for growth in superlinear(sites, steps)} == {}


def test_a_match_that_takes_too_many_steps_is_stopped():
    with pytest.raises(StepLimitError):
        Steps(r"(?:a+)+!", 0).everywhere("a" * 40, 10_000)
