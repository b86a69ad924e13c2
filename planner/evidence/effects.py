"""Effects on the world outside of the conversation: actions with their receipts, failed actions with their later
success, running calls, unanswered questions.

An action is recognised by features of every agent: a tool that is declared to act or may act, its arguments, and a
receipt with a new name. Nothing here depends on a language, a product or a trade.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.evidence.calls import Call
from planner.evidence.hosts import is_running, running_id
from planner.evidence.names import specifics_of
from planner.evidence.outcomes import Outcome
from planner.evidence.turns import Evidence, TurnEvidence, call_head, shortened
from planner.evidence.user_words import is_question
from planner.evidence.words import figures_of
from planner.reading.messages import parsed_result

__all__ = ["Effect", "effects", "open_calls", "retried", "unanswered_questions"]

ACTION_CHARACTERS, RECEIPT_CHARACTERS = 240, 160
"""Largest lengths of an action and of a receipt."""
MOST_LATER = 32
"""Number of later successes of the same tool with which a failed action is compared at most."""
KNOWN_SHARE = 2 / 3
"""Share of fields known from arguments or earlier results from which a long record is the receipt of an action, not the
answer to a question."""
ARGUMENT_CHARACTERS = 80
"""Length of one argument as it is shown."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One completed action."""

    turn_id: str
    action: str
    """Tool and arguments."""
    receipt: str
    """New part of the result."""

    def text(self, share: float = 1.0) -> str:
        """Return the action with its receipt in one line, each cut to this share of its longest form."""
        action = shortened(self.action, round(share * ACTION_CHARACTERS))
        receipt = shortened(self.receipt, round(share * RECEIPT_CHARACTERS))
        return f"{action} → {receipt}" if receipt else action


def effects(evidence: Evidence) -> list[Effect]:
    """Return the actions that succeeded, in order, without those that contain no new name; of equal texts only the
    last. A receipt shows the fields that no earlier result and no argument contains."""
    names_by_tool: dict[str, set[str]] = {}
    shown: set[tuple[str, str]] = set()
    effect_by_text: dict[str, Effect] = {}
    acting_calls = evidence.once(_acting)
    for turn, call, outcome in evidence.ended_calls():
        fields = _fields(call.text)
        if (turn.turn.id, call.number) in acting_calls and outcome.status != "failed" and not outcome.refused:
            names = turn.once(_names_of_acts)[call.number]
            is_news = not names <= names_by_tool.setdefault(call.name, set())
            names_by_tool[call.name] |= names
            if is_news or call.use is not None:
                effect = Effect(turn.turn.id, _action(call), _receipt(call, fields, shown))
                effect_by_text.pop(effect.text(), None)
                effect_by_text[effect.text()] = effect
        shown.update(fields)
    return list(effect_by_text.values())


def _names_of_acts(turn: TurnEvidence) -> dict[int, frozenset[str]]:
    """Return the names and figures in the arguments and result of each call that may have acted, by call number."""
    may_act = (call for call in turn.calls if call.acts or call.may_act)
    return {
        call.number: frozenset((*specifics_of(call.text), *figures_of(call.text), *_argument_names(call)))
        for call in may_act
    }


def _calls_that_act(turn: TurnEvidence) -> frozenset[int]:
    """Return the numbers of the calls that act by themselves, whatever other turns show."""
    return frozenset(call.number for call in turn.calls if call.acts)


def retried(evidence: Evidence) -> dict[str, tuple[str, int]]:
    """Return the later success of each failed action: by the id of the failed turn, the id of the later turn and the
    number of the call in it.

    Of the next `MOST_LATER` successes of the same tool it is the one with the most arguments in common, the earliest
    among equals.
    """
    successes: dict[str, list[tuple[TurnEvidence, Call]]] = {}
    later: dict[str, tuple[str, int]] = {}
    for turn, call, outcome in reversed(list(_acts(evidence))):
        of_tool = successes.setdefault(call.name, [])
        if outcome.status in ("done", "passed"):
            of_tool.append((turn, call))
        elif outcome.status == "failed" and not outcome.refused and of_tool:
            best = max(of_tool[: -MOST_LATER - 1 : -1], key=lambda one: _shared_arguments(call, one[1]))
            later[turn.turn.id] = best[0].turn.id, best[1].number
    return later


def _acts(evidence: Evidence) -> Iterator[tuple[TurnEvidence, Call, Outcome]]:
    """Yield the calls that changed the world or failed to, with their turns and outcomes, in order."""
    acting = evidence.once(_acting)
    for turn, call, outcome in evidence.ended_calls():
        if (turn.turn.id, call.number) in acting or (call.may_act and outcome.status == "failed"):
            yield turn, call, outcome


def _acting(evidence: Evidence) -> frozenset[tuple[str, int]]:
    """Return the calls that changed the world, each as the id of its turn and its number in it.

    Many services answer an action with the whole record that it changed or created. Such a result is long, but most of
    it is known from the arguments, or from different earlier results.
    """
    shown: set[tuple[str, str]] = set()
    texts: set[str] = set()
    acting: set[tuple[str, int]] = set()
    for turn, call, _ in evidence.ended_calls():
        fields = _fields(call.text)
        is_new_record = call.may_act and call.text.lstrip()[:1] == "{" and call.text not in texts
        if call.number in turn.once(_calls_that_act) or (is_new_record and _restates(call, fields, shown)):
            acting.add((turn.turn.id, call.number))
        shown.update(fields)
        texts.add(call.text)
    return frozenset(acting)


def _restates(call: Call, fields: Sequence[tuple[str, str]], shown: set[tuple[str, str]]) -> bool:
    """Return True if most fields of a record are arguments of `call` or were shown before."""
    inputs = {value for _, value in _leaves("", call.input)}
    return sum(1 for one in fields if one in shown or one[1] in inputs) >= KNOWN_SHARE * max(1, len(fields))


def _shared_arguments(call: Call, other: Call) -> int:
    """Return the number of arguments with the same value in both calls."""
    return sum(1 for key, value in call.input.items() if other.input.get(key) == value)


def _argument_names(call: Call) -> set[str]:
    text = json.dumps(call.input, ensure_ascii=False, default=str)
    return {*specifics_of(text), *figures_of(text)}


def _action(call: Call) -> str:
    """Return a call in one line, without the marks of JSON."""
    arguments = _listed((key, _plain(value, ARGUMENT_CHARACTERS)) for key, value in call.input.items())
    return f"{call.name} {arguments}".strip()


def _receipt(call: Call, fields: Sequence[tuple[str, str]], shown: set[tuple[str, str]]) -> str:
    """Return the new part of a result in one line, without the marks of JSON: fields not in `shown` (by earlier
    results) nor among the arguments, and those that the tool's declaration keeps, which come first."""
    inputs = {_plain(value, ARGUMENT_CHARACTERS) for value in call.input.values()}
    kept = call.use.keep_fields if call.use is not None else ()
    news = [one for one in fields if one[0] in kept or one[1] == "true" or not (one in shown or one[1] in inputs)]
    news = news or list(fields[:1])
    news.sort(key=lambda one: one[0] not in kept)
    text = _listed(news) if fields else call.text
    return " ".join(text.split())


def _fields(text: str) -> list[tuple[str, str]]:
    """Return the fields of a JSON result with their values, nested ones too; an empty list for other results."""
    parsed = parsed_result(text)
    return list(_leaves("", parsed)) if parsed is not None else []


def _leaves(key: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the innermost values of a JSON value with their keys; `key` is that of `value` itself."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(str(name), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(key, inner)
    else:
        yield key, _plain(value, ARGUMENT_CHARACTERS)


def _plain(value: object, most: int) -> str:
    """Return a value of JSON as words: ``Vienna, nights: 2``."""
    if isinstance(value, Mapping):
        text = _listed((key, _plain(own, most)) for key, own in value.items())
    elif isinstance(value, str):
        text = " ".join(value.split())
    elif isinstance(value, Sequence):
        text = ", ".join(_plain(own, most) for own in value)
    else:
        text = json.dumps(value)
    return shortened(text, most)


def _listed(fields: Iterable[tuple[str, str]]) -> str:
    """Return fields in one line: ``NORDL26, nights: 2, 3``. Values with letters need no key."""
    listed, before = [], ""
    for key, value in fields:
        is_clear = key == before or (value not in ("true", "false", "null") and any(map(str.isalpha, value)))
        listed.append(value if is_clear or not key else f"{key}: {value}")
        before = key
    return ", ".join(listed)


def open_calls(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield the turn id and a description of each call before the live tail that still runs or has no result.

    A running call has ended if a later call has the host's id of it as an argument, or a notice of the host contains
    that id, and neither reports that it still runs.
    """
    running: dict[str, tuple[str, str]] = {}  # turn id and description, by the call's head
    head_of_id: dict[str, str] = {}  # heads of running calls, by the ids that the host assigned
    for turn in evidence.turns.values():
        for call, outcome in turn.ended_calls:
            mentioned_ids = head_of_id.keys() & set(map(str, call.input.values()))
            if outcome.status in ("running", "unanswered"):
                if not mentioned_ids and not turn.turn.live:
                    head = call_head(call, evidence.root)
                    running[head] = turn.turn.id, f"{head}: {outcome.status}"
                    head_of_id[running_id(call.text) or head] = head
            elif not outcome.refused:
                _forget(mentioned_ids, head_of_id, running)
        if head_of_id and (notices := _notices(turn)):
            _forget(
                {name for name in head_of_id if any(name in text for text in notices)},
                head_of_id,
                running,
            )
    yield from running.values()


def _forget(ended: Iterable[str], head_of_id: dict[str, str], running: dict[str, tuple[str, str]]) -> None:
    """Remove the calls with the ids in `ended` from both mappings of `open_calls`."""
    for call_id in ended:
        running.pop(head_of_id.pop(call_id), None)


def _notices(turn: TurnEvidence) -> list[str]:
    """Return the texts of a host's blocks in `turn` that are no results of calls and report no running command."""
    results = {call.result_block for call in turn.calls}
    blocks: dict[int, list[str]] = {}
    for line in turn.lines.of_sources("host", "tool"):
        if line.block not in results and line.part != "call":
            blocks.setdefault(line.block, []).append(line.text)
    return ["\n".join(texts) for texts in blocks.values() if not any(map(is_running, texts))]


def unanswered_questions(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield the turn id and text of the question with which the agent ended, if the user has not written since."""
    for turn in reversed(evidence.turns.values()):
        if turn.user_lines:
            return
        asked = [line.text.strip() for line in turn.lines.of_part("assistant") if is_question(line.text)]
        if turn.turn.kind == "assistant" and asked and not turn.turn.live:
            yield turn.turn.id, asked[-1]
            return
