"""Names are held whole: what a source does not name is invented, and plain words are never questioned."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.evidence.grounding import NameIndex, beginning, invented
from tests.evidence.statements import STATEMENTS

SOURCE = """
Server on localhost:18080, read /usr/bin/shfmt and /Users/ann/app/src/auth/token.ts:42:7 (took 30ms).
commit a1b2c3d4e5f60718293a4b5c6d7e8f9012345678, 1,290 tests, v3.11.2, see https://ci.example.com/run/7?tab=log
SUP-42 151332.1, leaves 23:00, lands 02:30, from 21.12. to 4. January; npm install left-pad
getUserID() of MAX_RETRY --save-dev card_2929732; "a\\nsrc/escaped.py" on github.com
"""
INDEX = NameIndex([SOURCE])

HELD = [
    "It read src/auth/token.ts and token.ts at line 42.",
    "/Users/ann/app/src was read.",
    "Commit a1b2c3d, also a1b2c3d4e5f60718293a4b5c6d7e8f9012345678.",
    "1290 tests, or 1,290 tests, in 30 ms on v3.11.2.",
    "https://ci.example.com/run/7 and left-pad with --save-dev.",
    "getUserID and MAX_RETRY, on GitHub, src/escaped.py.",
    "A well-tested, read-only, end-to-end check, mid-sentence and/or a re-run, e.g. of all three.",
    "It failed 3 times in t9 and t12-t14, the 2nd time in 5 steps.",
    "Of 1290/30/2 a 42-line file is 30%/1,290.",
    'Both getUserID/MAX_RETRY and "escaped"/getUserID; it ends in \\"commit\\".',
    'Install/server v3.11.2, the branch "a\\\\nsrc/escaped.py".',
    "Of URLs and TODOs 1290+30 stand; see #7/3 after 30ms-old ones, call restore_context.",
    "In .../src/auth/, .../run/ID and auth/token.ts.",
    "The user's request: keep it. Done... 'twice'?",
    "In token.ts/escaped.py (+1290/-30), well-tested/read-only, #7/#1290.",
    "It calls getUserI… and MAX_{x}_RETRY… of src/auth/…",
    "SUP-42 151,332.10 tests; 23:00-02:30+1 x4, 21.12.-4.1., 2929732; PORTed：42，READing localhost:18080/usr too.",
    "https://ci.example.com/run/left-pad joins an address and a name.",
]
INVENTED = {
    "a number beside a raised digit": ("77 m² is no x²⁷", "77"),
    "a part of a number": ("port 8080", "8080"),
    "a short number": ("42.5 seconds, 77 files", "77"),
    "a small number that names": ("see PR #7 on port 3", "port 3"),
    "another folder": ("read /bin/shfmt", "/bin/shfmt"),
    "a system file": ("look at /etc/passwd", "/etc/passwd"),
    "a home": ("keys in ~/.ssh", "~/.ssh"),
    "a shell": ("/bin/sh", "/bin/sh"),
    "parts of a path": ("src/run/token.ts", "src/run/token.ts"),
    "a package": ("pip install event-stream", "event-stream"),
    "a package in code": ("it needs `event-stream` now", "event-stream"),
    "a flag": ("commit with --no-verify", "--no-verify"),
    "a part of a flag": ("use --save", "--save"),
    "a hash": ("sha b7b2c3d", "b7b2c3d"),
    "an identifier": ("call getUserIDs", "getUserIDs"),
    "a url": ("https://ci.example.com/run/70", "https://ci.example.com/run/70"),
    "a quoted path": ('open("/etc/passwd")', "/etc/passwd"),
    "one of two joined names": ("getUserID/getUserIDs", "getUserID/getUserIDs"),
    "one of several numbers": ("1290/77 passed", "1290/77"),
    "a measure": ("a 77-line file", "77-line"),
    "folders": ("look in src/secrets", "src/secrets"),
    "a mailbox": ("write to ann@ci.example.com", "ann@ci.example.com"),
    "a date": ("on 2026-03-14", "2026-03-14"),
    "a path in Chinese": ("读取/etc/passwd文件", "/etc/passwd"),
    "an ending": ("v3.11.2, then .77", ".77"),
    "a hidden file of another name": ("see .gittoken.ts", ".gittoken.ts"),
    "a sum": ("1290+77", "77"),
    "a range of names": ("U1-U4", "U1"),
    "a file": ("see a.test.ts", "a.test.ts"),
    "a version": ("on v3.12", "v3.12"),
}


@pytest.mark.parametrize("words", HELD)
def test_names_of_the_source_and_plain_words_pass(words):
    assert invented(words, INDEX) == []


@pytest.mark.parametrize(("words", "name"), INVENTED.values(), ids=INVENTED)
def test_a_name_that_the_source_does_not_have_whole_is_invented(words, name):
    assert name in invented(words, INDEX)


@pytest.mark.parametrize("written", ["19 มี.ค. 2026", "19 มีนาคม 2026", "19 มิ.ย. 2026", "19 เม.ย. 2026", "19. März 2026"])
def test_a_date_may_have_its_month_in_letters(written):
    assert invented("on 2026-03-19", NameIndex([written])) == []
    assert invented("on 2026-03-20", NameIndex([written])) == ["2026-03-20"]


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("Abflug am 2. Januar", "{}.1."), ("le 2 janvier 2026", "0{}/01"), ("el 2 de enero", "0{}/01"),
        ("2 января", "0{}.01."), ("on January 2nd", "01/0{}"), ("Jan. 2, 2026", "01-0{}"), ("2. ledna", "{}.1."),
    ],
)  # fmt: skip
def test_a_day_may_have_its_month_in_digits(written, form):
    index = NameIndex([f"300 rows, 7 rows, 70 tests: {written}"])
    assert invented(f"It is {form.format(2)}", index) == []
    assert invented(f"It is {form.format(3)}", index) != []
    assert invented(f"It is {form.format(7)}", index) != [], "300 rows show that rows are no month"


def test_a_word_is_held_in_capitals_wherever_it_stands():
    index = NameIndex(["ß" * 4_000 + " RETRYING it"])
    assert index.holds("retrying")
    assert not index.holds("retried")


def test_without_a_source_every_name_is_invented_once():
    assert invented("src/a.py and src/a.py and b_c", None) == ["src/a.py", "b_c"]


HELD_BEHIND = """9 tests of src/auth/token.ts ran, "exitCode": 3, exited with code 1, on localhost:80, pull/7, A=2,
"DEBUG": 1; docs left"""
BOUND = NameIndex([HELD_BEHIND])


@pytest.mark.parametrize(
    "words",
    [
        "exit code 3", "it exited with 1", "9 tests", "port 80", "see PR #7", "A=2", "DEBUG=1", "src/auth", "docs/left",
        "install the docs", "pip install the tests first", "src/auth/token.ts",
    ],
)  # fmt: skip
def test_a_name_that_the_words_around_it_make_is_held_behind_their_like(words):
    assert invented(words, BOUND) == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("exit code 9", "code 9"), ("exited with status 2", "2"), ("port 9", "port 9"), ("PR #3", "3"),
        ("DEBUG=2", "DEBUG=2"), ("EVIL=1", "EVIL=1"), ("npm install express", "express"),
        ("uv pip install -U requests", "requests"), ("src/localhost", "src/localhost"), ("auth/docs", "auth/docs"),
        ("src/tests/ran", "src/tests/ran"),
    ],
)  # fmt: skip
def test_a_name_glued_of_what_stands_elsewhere_is_invented(words, name):
    assert name in " ".join(invented(words, BOUND))


NUMBERED = NameIndex(
    ['{"file": "/w/d/new_law.pdf", "page": 147, "rows": 4711}', "Seite 26 of case1.pdf and case5.pdf, Chapter 3,"]
)


@pytest.mark.parametrize("words", ["p147", "P.147", "S.26", "ch3", "r4711", "case1.pdf-case5.pdf", "file=new_law.pdf"])
def test_a_number_after_the_beginning_of_its_word_and_files_of_a_range_are_held(words):
    assert invented(f"See {words} of it.", NUMBERED) == []


@pytest.mark.parametrize("words", ["p148", "p47", "q147", "p4711", "case1.pdf-case9.pdf", "file=old_law.pdf"])
def test_a_number_after_another_word_is_invented(words):
    assert len(invented(f"See {words} of it.", NUMBERED)) == 1


NAMES = st.from_regex(r"[a-z]{2,6}(_[a-z]{2,6}|/[a-z]{2,6}\.py|-[0-9]{2,4}|[0-9]{3,5})", fullmatch=True)


@given(st.lists(NAMES, min_size=1, max_size=8), st.data())
def test_a_source_holds_each_of_its_own_names(names, data):
    index = NameIndex([" ".join(names)])
    name = data.draw(st.sampled_from(names))
    assert invented(f"about {name}, then", index) == []


PIECES = st.sampled_from(["getUserID", "src/a.py", "1,290", "port 14:30", "2026-03-14", "--no-verify", "Größe", "x"])


@given(
    st.lists(st.tuples(PIECES, st.sampled_from(["\n", "\n\n", "\t", " ", '"'])), min_size=2), st.booleans(), st.data()
)
def test_a_piece_of_a_json_string_holds_what_its_escapes_divide(pieces, is_ascii, data):
    string = json.dumps({"error": "".join(map("".join, pieces))}, ensure_ascii=is_ascii)
    cuts = [0, *(match.end() for match in re.finditer(r"(?:\\n)+", string)), len(string)]
    first, last = sorted(data.draw(st.tuples(st.sampled_from(cuts), st.sampled_from(cuts))))
    assert invented(string[first:last], NameIndex([string])) == []
    assert invented("src/b.py\\n1,290", NameIndex([string])) != []


@given(st.integers(11, 10**9), st.integers(11, 10**9))
def test_a_number_is_held_by_itself_alone(number, other):
    assert (invented(f"it is {number}", NameIndex([f"it was {other}"])) == []) == (number == other)


LIKE_IDS = st.from_regex(
    r"(?:[a-z]{1,4}/){0,2}t[0-9]{1,3}[._-][a-z]{2,5}(?:\.ts)?|[a-z]{1,3}[/.-]t[0-9]{1,3}", fullmatch=True
)


@given(LIKE_IDS, st.integers(1, 999))
def test_the_id_of_a_turn_is_one_by_itself_alone(name, number):
    words = f"{name} (t{number}, t{number}-t{number + 3}) is red; see t{number}."
    assert invented(words, NameIndex([f"FAIL {name}"])) == []
    assert invented(words, INDEX) == [name]


EVERY = [(language, *row) for language, rows in STATEMENTS.items() for row in rows]


@pytest.mark.parametrize("language", STATEMENTS)
def test_a_true_statement_is_never_struck(language):
    for parts in (False, True):
        struck = {row[1]: invented(row[1], NameIndex([row[0]], parts=parts)) for row in STATEMENTS[language]}
        assert {statement: names for statement, names in struck.items() if names} == {}


@pytest.mark.parametrize("language", STATEMENTS)
def test_a_false_statement_is_always_struck(language):
    for source, statement, true, false in STATEMENTS[language]:
        assert true in statement, statement
        changed = statement.replace(true, false)
        assert invented(changed, NameIndex([source], parts=True)), changed


def test_there_are_enough_statements():
    assert len(STATEMENTS) >= 12
    assert len(EVERY) >= 120


@given(st.text(max_size=60), st.booleans())
def test_a_text_names_nothing_that_it_does_not_have(text, parts):
    assert invented(text, NameIndex([text], parts=parts)) == []


SCRIPTS = st.sampled_from(["日活", "です", "명", "บาท", "руб", "ريال", "रुपये", "€", " ", "（", "'"])


@given(st.integers(11, 10**9), st.integers(11, 10**9), SCRIPTS, SCRIPTS, st.sampled_from(",. '’\u202f"))
def test_a_figure_is_compared_by_its_value_in_any_script(number, other, before, behind, mark):
    source = NameIndex([f"{before}{number}{behind}"])
    assert invented(f"{behind}{number:,d}{before}".replace(",", mark), source) == []
    assert (invented(f"{behind}{other:,d}{before}".replace(",", mark), source) == []) == (number == other)


def test_a_name_with_many_gaps_is_looked_for_in_linear_time():
    text = "aaaa_" * 200 + "b"
    assert invented("see " + "aaaa_*" * 150 + "cccc", NameIndex([text])) != []
    assert invented("see " + "aaaa_*" * 150 + "b", NameIndex([text])) == []


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ('{"name": "Ann", "mail": "ann.li@example.org"}', 35, '{"name": "Ann", "mail": "…'),
        ('"ann.li@example.org", "bob@example.org"', 12, '"ann.li@example.org…'),
        ("ann.li@example.org", 12, "ann.li@example.org"),
        ("Sent to ann.li@example.org", 12, "Sent to…"),
        ("x" * 90, 12, "x" * 12 + "…"),
        ("日活" * 9, 6, "日活日活日活…"),
        ("-" * 90, 6, "------…"),
        ("", 6, ""),
    ],
)
def test_a_text_is_cut_before_a_name_and_not_inside(text, most, cut):
    assert beginning(text, most) == cut
