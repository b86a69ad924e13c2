"""Specifics: names that an agent cannot guess again."""

import pytest
from hypothesis import given

from planner.evidence.words import parts_of, specifics_of
from planner.programming.coding_tools import defines
from tests.strategies import texts


def test_what_a_dictionary_does_not_hold_is_found_and_plain_words_are_not():
    words = "Please run src/app/main.py:42 against https://ci.example.com/run/7 as user_id 1500, then stop."
    assert list(specifics_of(words)) == ["src/app/main.py", "https://ci.example.com/run/7", "user_id", "1500"]


@pytest.mark.parametrize("path", ["C:\\app", "d:/data", "C:\\app\\a.py", "/srv"])
def test_a_path_with_few_folders_is_a_name(path):
    assert list(specifics_of(f"It is in {path}, not on drive E: or B.")) == [path]


@pytest.mark.parametrize("around", ["write to {} today.", "<{}>, cc", "写信给{}的", "mail={};", "{}"])
def test_a_mail_address_is_one_name(around):
    addresses = ("ada.lovelace+x@mail.example.co.uk", "guest9@example.org", "jörg@bücher.example")
    assert [list(specifics_of(around.format(address))) for address in addresses] == [[one] for one in addresses]
    assert list(specifics_of("npm i react@18.2.0")) == ["@18.2.0"]


@given(texts())
def test_specifics_stand_in_the_text(words):
    assert all(name in words for name in specifics_of(words))


@given(texts())
def test_parts_stand_in_the_name_at_its_separators(words):
    for name in specifics_of(words):
        parts = parts_of(name)
        assert parts[0] == name
        for part in parts:
            before, _, after = name.partition(part)
            assert not (before and before[-1].isalnum() and part[0].isalnum()) or name.count(part) > 1
            assert not (after and after[0].isalnum() and part[-1].isalnum()) or name.count(part) > 1


def test_a_path_holds_its_file_and_its_folders():
    folders_and_files = {"src/app", "src/app/main", "app/main.py", "app/main", "main.py", "main"}
    assert set(parts_of("src/app/main.py")) == {"src/app/main.py", *folders_and_files}


DEFINITIONS = {
    "def drain(queue):": "drain",
    "12→func (s *Store) Save(path string) error {": "Save",
    "+    async def drain(": "drain",
    "export default class Foo extends Bar {": "Foo",
    "export const LIMIT = 3": "LIMIT",
    "const LIMIT = 3": "LIMIT",
    "    const item = items[0]": None,
    "return type(x)": None,
    "the function of this": None,
    "  // class of errors": None,
}


@pytest.mark.parametrize(("line", "name"), DEFINITIONS.items())
def test_a_line_defines_what_code_says_alone(line, name):
    assert defines(line) == (name is not None)
