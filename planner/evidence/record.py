"""The record of any conversation, as lines with their turns: requests, offers that were answered, tasks, pages.

Each function reads evidence and returns its lines in the order of the history. None judges what is worth showing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from planner.evidence.hosts import without_boilerplate
from planner.evidence.tasks import task_lists
from planner.evidence.turns import Evidence, RecordLine, TurnEvidence, shortened
from planner.evidence.user_words import Choice
from planner.reading.lines import statements
from planner.reading.patterns import lazy_pattern

__all__ = ["choices", "latest_request", "open_items", "urls"]

WORDS_CHARACTERS = 80
"""Length of quoted words of the user."""
LEFT_TURNS = 10
"""A list of tasks is left if the request that it was written for was answered so many turns ago."""


def latest_request(evidence: Evidence) -> RecordLine | None:
    """Return the latest words that the user typed, a short reply with its offer; None if the user typed nothing."""
    for turn in reversed(evidence.turns.values()):
        if turn.choice is not None:
            return _chosen(turn, turn.choice)
        if words := _last_typed(turn):
            answered = f", answered at {turn.answered_at}" * bool(turn.answered_at)
            return RecordLine(f"“{shortened(words, WORDS_CHARACTERS)}”{answered}", (turn.turn.id,))
    return None


def choices(evidence: Evidence) -> list[RecordLine]:
    """Return the offers that short replies of the user answer, each with the reply."""
    return [_chosen(turn, turn.choice) for turn in evidence.turns.values() if turn.choice is not None]


def _chosen(turn: TurnEvidence, choice: Choice) -> RecordLine:
    words = _plain_lines(one.text for one in statements(turn.user_lines))
    text = f"“{shortened(words, WORDS_CHARACTERS)}” to: {shortened(choice.text)}"
    return RecordLine(text, (choice.turn_id, turn.turn.id))


def _last_typed(turn: TurnEvidence) -> str:
    """Return the last block of words that the user typed in `turn`."""
    typed = [line for line in turn.user_lines if line.part == "user"]
    return _plain_lines(one.text for one in statements(line for line in typed if line.block == typed[-1].block))


def _plain_lines(texts: Iterable[str]) -> str:
    return "\n".join(filter(None, map(without_boilerplate, texts))).strip()


_URL = lazy_pattern(r"https?://[^\s\"'<>`|\\^{}\[\]()]{4,300}")
_IN_FILE = lazy_pattern(r":\d+:\d+$")
"""Where a browser's trace says line and column of a program: ``http://localhost:3000/app.js:30815:13``."""
_BADGE = lazy_pattern(r"\bshields\.io/|/badges?[/.]|\.(?:png|jpe?g|gif|svg|webp|ico|css|js|woff2?)(?:\?|$)", re.I)
"""A picture that says how something stands, beside its link: ``https://img.shields.io/badge/…``, ``…/badge.svg``."""
_REVIEW = lazy_pattern(
    r"https?://[^\s\"'<>`()\[\]]{4,200}/(?:pull|pulls|issues|merge_requests|-/merge_requests)/\d{1,9}"
)
"""A pull request or an issue: ``https://host/a/b/pull/7``."""


def urls(evidence: Evidence) -> list[RecordLine]:
    """Return the pages that the user, the agent or a short result mentions, each with its turns: the newest first,
    behind reviews and issues; none that only programs read.
    """
    naming: dict[str, list[str]] = {}
    for turn in evidence.turns.values():
        for url in turn.once(_urls):
            naming.setdefault(url, []).append(turn.turn.id)
    pages = [RecordLine(url, tuple(ids)) for url, ids in reversed(naming.items()) if "//api." not in url]
    return sorted(pages, key=lambda page: _REVIEW.fullmatch(page.text) is None)


def _urls(turn: TurnEvidence) -> tuple[str, ...]:
    numbers = {number for outcome in turn.outcomes for number in outcome.lines}
    own = {*turn.lines.of_sources("user", "agent", "planner"), *(turn.lines[number - 1] for number in numbers)}
    matches = (url.rstrip(".,:;!?*") for line in sorted(own) for url in _URL.findall(line.text))
    pages = (url for url in matches if "#" not in url and not (_IN_FILE.search(url) or _BADGE.search(url)))
    return tuple(dict.fromkeys(review[0] if (review := _REVIEW.match(url)) else url for url in pages))


def open_items(evidence: Evidence) -> list[RecordLine]:
    """Return the open tasks of the agent's lists, each with its state; none of a list that was left long ago."""
    tasks = (one for standing in task_lists(evidence) for one in standing if one.is_open)
    turns = list(evidence.turns.values())
    return [
        RecordLine(f"{f'Task #{one.number}: ' * bool(one.number)}{shortened(one.text)} ({one.status})", (one.turn_id,))
        for one in tasks
        if not _is_left(turns, evidence.turns[one.turn_id].turn.number)
    ]


def _is_left(turns: Sequence[TurnEvidence], at: int) -> bool:
    """Return True if the request of the turn with this number was answered long ago."""
    asked = next((turns[before] for before in range(at - 2, -1, -1) if turns[before].user_lines), None)
    if asked is None or not asked.answered_at:
        return False
    answered = next(turn.turn.number for turn in turns[asked.turn.number :] if turn.turn.id == asked.answered_at)
    return at <= answered <= len(turns) - LEFT_TURNS
