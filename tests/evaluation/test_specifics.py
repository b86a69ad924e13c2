"""What counts as a specific, and when it stands in a text."""

import pytest
from hypothesis import given

from applier.eval.survival import contains, path_splits, specifics
from tests.strategies import texts


@given(texts(surrogates=True))
def test_specifics_stand_in_the_text_they_come_from(text):
    assert all(contains(found, text) for found in specifics(text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see src/auth.ts:12 now", ["src/auth.ts"]),
        ("open /srv/app/config/prod.yaml.", ["/srv/app/config/prod.yaml"]),
        ("GET https://example.org/api/v2?id=7 (again)", ["https://example.org/api/v2?id=7"]),
        ("call getUserById or HttpClient or MAX_RETRIES", ["getUserById", "HttpClient", "MAX_RETRIES"]),
        ("os.path and strings.Split", ["os.path", "strings.Split"]),
        ("at a1b2c3d4, flight HAT136, ticket-4711", ["a1b2c3d4", "HAT136", "ticket-4711"]),
        ("took 1500 ms in 12 runs of 3", ["1500"]),
        (r"rg '\bfind_me\b'", ["find_me"]),
        ("a 40-line file, re-read by the agent, e.g. twice", []),
        ("1/2 of it and 3.14", ["3.14"]),
    ],
)
def test_paths_urls_names_ids_and_long_numbers_are_specifics(text, found):
    assert specifics(text) == found


@pytest.mark.parametrize(
    ("specific", "text", "expected"),
    [
        ("src/auth.ts", "/home/me/src/auth.ts:3", True),
        ("run_job", "run_jobs", False),
        ("150", "1500 rows", False),
        ("150", "150 rows", True),
    ],
)
def test_a_specific_stands_only_as_a_whole_word(specific, text, expected):
    assert contains(specific, text) is expected


def test_a_path_splits_where_two_components_are_left():
    assert path_splits("/srv/app/lib/x.py") == [("/srv", "app/lib/x.py"), ("/srv/app", "lib/x.py")]
    assert path_splits("https://example.org/a/b") == []
    assert path_splits("name") == []
