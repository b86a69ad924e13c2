"""Names as numbers: what each line of a turn names is what its text names, and equal names have one number."""

from hypothesis import given
from hypothesis import strategies as st

from planner.analysis import analyze
from planner.evidence.line_names import form_of, line_names
from planner.evidence.names import specifics_of
from planner.relevance.numbering import Numbering
from tests.strategies import histories


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=700), max_size=4))
def test_each_identity_has_one_number_in_the_order_it_came(rounds):
    numbering = Numbering()
    numbers = {}
    for identities in rounds:
        for identity, number in zip(identities, numbering.add(identities), strict=True):
            assert numbers.setdefault(identity, number) == number
    assert list(numbering.identities) == list(numbers)
    assert list(numbers.values()) == list(range(len(numbering)))
    strangers = [identity for identity in (0, 1, -1, 2**62, 77) if identity not in numbers]
    assert numbering.known([*strangers, *numbers]) == list(numbers.values())


@given(histories(max_turns=8))
def test_lines_name_what_their_texts_name(messages):
    turns = analyze(messages).evidence.turns.values()
    named = {}
    for turn in turns:
        if any(line.continues for line in turn.lines):
            continue  # a long line may be cut within a name, which then belongs to the line where it begins
        for line, identities in zip(turn.lines, line_names(turn.lines).lines, strict=True):
            names = specifics_of(line.text)
            assert len(identities) == len(names)
            for name, identity in zip(names, identities, strict=True):
                assert named.setdefault(name, identity) == identity
                assert (form_of(identity) == "digits") == name.isdigit()
    assert len(set(named.values())) == len(named)
