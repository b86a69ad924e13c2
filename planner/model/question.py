"""Questions to the planner model with cards: one, or for a large history several in parallel.

Every question contains the latest request, the task, the user's words of the whole history, and known facts about the
neighbouring turns. A later plan asks for an update of the last brief: it shows the new turns as cards and the earlier
choices. A question over the session's reading limit is not asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from planner.brief import PageStatement, brief_text, read_brief
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.hosts import is_host_text, without_boilerplate
from planner.model.answer import Scope
from planner.model.card_lines import is_sentence
from planner.model.cards import Card, earlier_choices, turn_cards, turn_lines
from planner.model.prompts import Prompts, one_line, safe_text
from planner.plan import CompactionPlan
from planner.programming.coding_tools import commands_in
from planner.programming.file_changes import changed_files
from planner.proposal import PlanRequest, earlier_plan, read_and_new, written_brief
from planner.reading.lazy_property import lazy_property
from planner.reading.lines import Line, join_lines, statements
from planner.reading.secrets import NO_SECRETS, Secrets, redact
from planner.reading.tokens import TokenCounter
from planner.rules import rules_brief
from planner.selection import brief_limit, least_tokens, recorded_turns

__all__ = ["Question", "QuestionBasis", "brief_tokens", "choice_tokens", "notes_tokens", "plan_questions", "sizes_text"]

REQUEST_CHARACTERS = 600
"""Largest length of the latest request and of the task in a question; the rest is on cards."""
NEIGHBOURS = 12
"""Number of turns on either side of a piece that are listed in its question."""
WORDS_CHARACTERS, WORD_CHARACTERS = 6_000, 240
"""Largest length of the user's words of other pieces in a question, and of each statement in them."""
WORDS_NEED, SENTENCES_NEED, LINES_NEED = 0.12, 0.076, 0.027
"""Tokens of the brief for each token of speech, of prose in documents, and of other lines: together 3 to 5 % of agent
sessions. With three quarters of that, briefs were no longer at a tenth than at a twentieth, and answered no more
questions."""
ENTRIES_RATIO = 0.004
"""Tokens of an answer, without its brief, for each token of the turns that it is about; with the brief and the marks of
JSON it is 3 %."""
BRIEF_FLOOR_TOKENS, ENTRIES_FLOOR_TOKENS = 1_500, 300
"""Smallest limits in tokens for the brief and for the entries of an answer, if the target leaves room."""
BRIEF_OUTPUT_SHARE = 0.6
"""Largest share of the output limit for the brief."""
LINE_TOKENS = 80
"""Tokens of one line of the page: 160 characters in English, 80 in Chinese. A model can count lines and imitate a
length that it sees, but cannot count words."""
NOTE_TOKENS, DENSE_PROSE = 0.5, 1.25
"""Tokens of one character of a brief, whichever is more: a fixed number (eight answers about sessions without code have
.39 to .63), or a multiple of that of the conversation's prose (there 1.23 to 1.34)."""
SAMPLE_LINES = 400
"""Number of lines of prose by which the tokens of a character are measured."""
TOKENS_AN_ENTRY = 22
"""Tokens of one entry or fact in the eight answers above."""
CHOICE_SHARE = 0.5
"""Share of the space beside the brief for turns and lines that the planner chooses; the rules fill the rest. In eleven
answers at a tenth of the history the rules' lines answered as many questions as all choices of models."""
OUTCOMES_CHARACTERS = 6_000
"""Largest length of the effects and outcomes in a question, of which the newest stay: 400 to 1,000 tokens on six
sessions. A later plan's question has a third of it, as the brief has the rest."""
FRAME_TOKENS, LEAST_CHOICE_TOKENS = 240, 300
"""Tokens of the text around the brief in the view; and the smallest space for which the model is asked for choices, as
explaining them takes 900 tokens."""
CHOSEN_ENTRY_TOKENS = 40
"""Smallest number of tokens that one entry of an answer selects; a reference alone takes 30."""
CHOICES_TOKENS = 400
"""Largest number of tokens for the list of earlier choices in a later plan's question."""
LATER_CARDS_TOKENS = 2_000
"""Smallest budget in tokens for the cards of a later plan."""
LEAST_CARDS_SHARE = 0.08
"""Smallest size of a later question's cards, as a share of the new turns' tokens; with less room the question waits."""
LEAST_NEW_RATIO = 3.0
"""Smallest ratio of the new turns' tokens to those of the rest of a question, which every question costs again. With
the share above, a question is due after the content of three or four calls."""
CARD_TRIES = 3
"""Number of attempts to make cards, each with a smaller budget, as headers and required lines may exceed it."""

_MENTIONS_COMMIT = re.compile(r"\bcommitted\b|\bcommits? \W{0,3}[0-9a-f]{7}", re.IGNORECASE)
"""Report of a commit: ``Committed and pushed``, ``commit `a1b2c3d` ``; not ``commit this when it passes``."""


@dataclass(frozen=True)
class QuestionBasis:
    """Facts about a request that all its questions share, computed once."""

    request: PlanRequest
    earlier: CompactionPlan | None
    """Plan to update; None for the first."""
    read: Sequence[TurnEvidence]
    """Turns that a planner has read for the earlier plan."""
    new: Sequence[TurnEvidence]
    """Turns to read."""
    least_tokens: int
    """Tokens of the live tail and pinned parts, which stay whatever a planner decides."""

    @classmethod
    def of(cls, request: PlanRequest) -> QuestionBasis:
        """Return the basis of a request."""
        earlier = earlier_plan(request)
        return cls(request, earlier, *read_and_new(request, earlier), least_tokens(request))

    @property
    def turns(self) -> Sequence[TurnEvidence]:
        """Turns of the whole history, in order."""
        return list(self.request.evidence.turns.values())

    @property
    def focus(self) -> str:
        """Caller's focus in the form for prompts."""
        return safe_text(self.request.focus).strip() or "(nothing in particular)"

    @lazy_property
    def line_characters(self) -> int:
        """Number of characters in a line of `LINE_TOKENS` in the language of the conversation, rounded to tens."""
        spoken = (
            line.text for turn in self.turns for part in ("user", "assistant") for line in turn.lines.of_part(part)
        )
        prose = "".join(islice(spoken, SAMPLE_LINES))
        dense = DENSE_PROSE * self.request.counter.text(prose) / max(1, len(prose))
        return round(LINE_TOKENS / max(NOTE_TOKENS, dense) / 10) * 10

    @lazy_property
    def record(self) -> Sequence[PageStatement]:
        """Statements by rules: outcomes and effects of calls, and waiting or running calls.

        If files were changed and nothing mentions a commit, a statement that cites the last turn reports that.
        """
        evidence = self.request.evidence
        done = [one for one in read_brief(rules_brief(evidence)) if one.heading not in ("REQUEST", "NOTES")]
        none = PageStatement("STATE", "no commit shows", (next(reversed(evidence.turns)),))
        return [*done, none] if changed_files(evidence) and not _mentions_commits(evidence) else done


@dataclass(frozen=True)
class Question:
    """One request to the planner model."""

    scope: Scope
    """Turns that the answer may rank."""
    values: Mapping[str, str]
    """Texts for the ``{{places}}`` of its prompt, by name."""
    name: Literal["plan", "update", "learn", "review"] = "plan"
    """Name of that prompt."""
    entries: bool = True
    """True if the question asks for entries on turns, not only for the brief."""
    secrets: Secrets = NO_SECRETS
    """Secrets of the history, which are removed from all texts, also if only a piece of one is in a card."""

    def system(self, prompts: Prompts) -> str:
        """Return the system prompt."""
        name = "system" if self.name in ("plan", "update") else f"{self.name}_system"
        return prompts.render(name, self.entries)

    def text(self, prompts: Prompts, notes: str = "") -> str:
        """Return the user message; `notes`: the briefs that were written for other pieces of the history."""
        brief = "\n".join(part for part in (self.shown["brief"], redact(safe_text(notes), self.secrets)) if part)
        return prompts.render(self.name, self.entries, **{**self.shown, "brief": brief or "(none yet)"})

    @lazy_property
    def shown(self) -> Mapping[str, str]:
        """Return the values without secrets, as the planner's provider may differ from the agent's."""
        shown: Mapping[str, str] = redact(self.values, self.secrets)
        return shown

    def tokens(self, prompts: Prompts, counter: TokenCounter, notes: str = "") -> int:
        """Return the tokens that the model reads."""
        return counter.text(self.system(prompts)) + counter.text(self.text(prompts, notes))


def plan_questions(basis: QuestionBasis, prompts: Prompts) -> tuple[tuple[Question, ...], str]:
    """Return the questions about a history, in its order, each with cards of about ``settings.piece_tokens`` at most;
    or no questions and the reason: little is new, or the session's planners have reached their reading limit."""
    request, turns = basis.request, basis.new
    if all(turn.turn.live for turn in turns):
        return (), "not asked: nothing is new but what is not answered yet"
    tokens_around = _question(basis, turns).tokens(prompts, request.counter)
    budget, why_not = _cards_budget(basis, tokens_around)
    if why_not:
        return (), why_not
    for _ in range(CARD_TRIES):
        pieces = _split(turn_cards(request, turns, budget), request.settings.piece_tokens)
        questions = [_question(basis, [turn for card in cards for turn in card.turns], cards) for cards in pieces]
        read = sum(question.tokens(prompts, request.counter) for question in questions)
        excess = read + notes_tokens(basis, len(questions)) - request.input_left_tokens
        if excess <= 0:
            return tuple(one for one in questions if not all(turn.turn.live for turn in one.scope.turns)), ""
        budget = max(1, budget - math.ceil(excess))
    return (
        (),
        f"not asked: so many small turns are new that their cards take {read} tokens, more than may be read now",
    )


def notes_tokens(basis: QuestionBasis, questions: int) -> int:
    """Return the tokens to reserve in the last of several questions for the others' briefs; 0 for one."""
    return (questions - 1) * brief_tokens(basis, basis.turns) if questions > 1 else 0


def _cards_budget(basis: QuestionBasis, around_tokens: int) -> tuple[int, str]:
    """Return the budget in tokens for all cards of new turns, and an empty text; or 0 and the reason why nothing is
    asked. `around_tokens`: size of the other text of each question."""
    settings, left = basis.request.settings, basis.request.input_left_tokens
    new_tokens = _tokens(basis.new)
    budget = int(new_tokens * settings.planner_input_ratio)
    if basis.earlier is not None:
        budget = max(LATER_CARDS_TOKENS, budget)
    else:
        whole = settings.first_input_tokens(new_tokens)
        budget = max(whole // 3, whole - (1 + whole // settings.piece_tokens) * around_tokens)
    ratio = settings.session_input_ratio
    if ratio is None or math.isinf(left):
        return budget, ""
    pieces = 1 + budget // settings.piece_tokens
    room = int(left) - pieces * around_tokens - notes_tokens(basis, pieces)
    least = min(LEAST_CARDS_SHARE, ratio / 2)
    missing_tokens = max(LEAST_NEW_RATIO * around_tokens - new_tokens, (least * new_tokens - room) / (ratio - least))
    if missing_tokens > 0:
        why = f"what may be read, {ratio:.0%} of the session, allows for the next question"
        return 0, f"not asked: {why} when there are {math.ceil(missing_tokens)} tokens more"
    return min(budget, room), ""


def _tokens(turns: Sequence[TurnEvidence]) -> int:
    return sum(turn.tokens for turn in turns)


def _split(cards: Sequence[Card], most_tokens: int) -> Iterator[Sequence[Card]]:
    """Yield the cards in runs of about the same size, each within `most_tokens` unless a single card is larger."""
    whole = sum(card.tokens for card in cards)
    largest = max((card.tokens for card in cards), default=0)
    most_tokens = min(most_tokens, whole // max(1, math.ceil(whole / most_tokens)) + largest // 2)
    piece: list[Card] = []
    tokens = 0
    for card in cards:
        if piece and tokens + card.tokens > most_tokens:
            yield piece
            piece, tokens = [], 0
        piece.append(card)
        tokens += card.tokens
    if piece:
        yield piece


def _question(basis: QuestionBasis, turns: Sequence[TurnEvidence], cards: Sequence[Card] | None = None) -> Question:
    """Return the question about `turns`, shown by `cards`; without cards only the text around them, to measure it.

    A first plan's question also has the user's words of other pieces, and lists neighbouring turns. The question with
    the last turns asks for the brief of the whole history.
    """
    request, earlier, all_turns = basis.request, basis.earlier, basis.turns
    scope = Scope(turns, basis.read)
    start, stop = turns[0].turn.number - 1, turns[-1].turn.number
    is_last = stop == len(all_turns)
    entries = choice_tokens(basis, all_turns if is_last else turns) > 0
    latest, task, secrets = _latest_request(all_turns), _task(request), request.analysis.secrets
    brief = safe_text(brief_text(written_brief(earlier))) if earlier is not None and is_last else ""
    values = {
        "latest": latest,
        "task": "(those words)" if task.rstrip("…") in latest else task,
        "focus": basis.focus,
        "sizes": _piece_sizes(basis, scope, brief, is_last=is_last),
        "outcomes": _outcomes(basis.record, scope, OUTCOMES_CHARACTERS // (3 if earlier else 1)) or "(none)",
        "brief": brief,
        "cards": "\n".join(card.text for card in cards or ()),
    }
    if earlier is not None:
        chosen = earlier_choices(request, earlier, CHOICES_TOKENS) or "(none)"
        return Question(scope, {**values, "before": chosen}, "update", entries, secrets)
    around = {
        "user_words": _words([*all_turns[:start], *all_turns[stop:]]) or "(none)",
        "before": turn_lines(request, all_turns[max(0, start - NEIGHBOURS) : start]) or "(none)",
        "after": turn_lines(request, all_turns[stop : stop + NEIGHBOURS]) or "(none)",
    }
    return Question(scope, values | around, entries=entries, secrets=secrets)


def _piece_sizes(basis: QuestionBasis, scope: Scope, brief: str, *, is_last: bool) -> str:
    """Return `sizes_text` for a question about `scope`, with the part of the history that its cards cover, the root of
    relative paths, and the length of the present `brief`."""
    evidence, here = basis.request.evidence, _tokens(scope.turns)
    text = sizes_text(basis, basis.turns if is_last else scope.turns)
    if here < evidence.tokens:
        part = "write the brief of the whole" if is_last else "the brief you write is of these turns alone"
        text += f"\nThe cards below are {scope.name}, {here} tokens of it; {part}."
    if evidence.root:
        text += f"\nRelative paths on the cards are in {safe_text(evidence.root)}."
    written = len(read_brief(brief))
    return f"{text}\nThe page below has {written} lines now." if brief else text


def sizes_text(basis: QuestionBasis, turns: Sequence[TurnEvidence]) -> str:
    """Return sentences for a model on the size of the conversation, how much of it may stay, and how long an answer
    about `turns` may be, in lines and entries, which a model can count."""
    request, least, brief = basis.request, basis.least_tokens, brief_tokens(basis, turns)
    whole = request.evidence.tokens
    stay, lines = min(whole, request.target_tokens), max(1, brief // LINE_TOKENS)
    over = ", more than that: nothing but the brief can be added" if least > stay else ""
    text = (
        f"The conversation has {len(basis.turns)} turns and {whole} tokens, of which at most {stay} may stay; LIVE "
        f"turns and kept lines take {least} of them{over}.\nYour answer: a brief of at most "
        f"{lines * basis.line_characters:,} characters in all, headings not counted (about {lines} lines of "
        f"{basis.line_characters}; a line may be longer), and beside it {_recorded(basis)}"
    )
    choice = choice_tokens(basis, turns)
    if not choice:
        return f"{text}."
    entries = min(max(ENTRIES_FLOOR_TOKENS, int(_tokens(turns) * ENTRIES_RATIO)), _most_brief(request) // 2)
    most = min(entries // TOKENS_AN_ENTRY, choice // CHOSEN_ENTRY_TOKENS)
    return (
        f"{text}; at most {most} entries, which choose at most {choice} tokens of turns and lines: the space beside "
        f"them is filled."
    )


def _recorded(basis: QuestionBasis) -> str:
    """Return a phrase for the model on the effects that are added to any brief."""
    turns = recorded_turns(basis.request, basis.least_tokens)
    if not turns:
        return "no effects of the list below"
    since = f" (since {turns[-1]})" if len(turns) > 1 else ""
    return f"the newest {len(turns)} effects of the list below{since}"


def choice_tokens(basis: QuestionBasis, turns: Sequence[TurnEvidence]) -> int:
    """Return how many tokens of turns and lines an answer about `turns` may choose; 0 for the brief alone."""
    request = basis.request
    stay = min(request.evidence.tokens, request.target_tokens)
    free = stay - basis.least_tokens - brief_tokens(basis, turns) - FRAME_TOKENS
    choice = int(free * CHOICE_SHARE)
    return choice if choice >= LEAST_CHOICE_TOKENS else 0


def brief_tokens(basis: QuestionBasis, turns: Sequence[TurnEvidence]) -> int:
    """Return the longest brief, in tokens, that an answer about `turns` may have: by the content of the turns, within
    the target and the output limit."""
    request, here = basis.request, _tokens(turns)
    whole = max(1, request.evidence.tokens)
    room = brief_limit(request, basis.least_tokens) * here / whole
    need = sum(turn.once(_need) for turn in turns if not turn.superseded_by) * request.counter.scale
    return int(min(max(need, BRIEF_FLOOR_TOKENS), room, _most_brief(request)))


def _need(turn: TurnEvidence) -> float:
    """Return the raw tokens that a brief needs for the content of `turn`."""
    read_lines = (line for line in turn.lines.to_read() if line.number not in turn.boilerplate_lines)
    return sum(_need_share(line) * turn.line_tokens[line.number - 1] for line in read_lines)


def _need_share(line: Line) -> float:
    """Return the tokens of a brief for each token of `line`."""
    if line.part in ("user", "assistant"):
        return WORDS_NEED
    return SENTENCES_NEED if is_sentence(line.text) else LINES_NEED


def _most_brief(request: PlanRequest) -> int:
    return int(request.settings.max_output_tokens * BRIEF_OUTPUT_SHARE)


def _mentions_commits(evidence: Evidence) -> bool:
    """Return True if a call may have made a commit, or the user, the agent or an earlier summary mentions one."""
    return any(
        any(
            call.name.endswith("commit") or any(one.starts("git", "commit") for one in commands_in(call))
            for call in turn.calls
        )
        or any(_MENTIONS_COMMIT.search(line.text) for line in turn.lines.of_sources("user", "agent", "planner"))
        for turn in evidence.turns.values()
    )


def _latest_request(turns: Sequence[TurnEvidence]) -> str:
    """Return the user's last message with its turn id and the number of turns since; for a short reply also the option
    or question that it answers."""
    turn = next((turn for turn in reversed(turns) if turn.user_lines), None)
    if turn is None:
        return "(none)"
    words = "\n".join(statement.text for statement in statements(turn.user_lines))
    text = f"{turn.turn.id}: {one_line(without_boilerplate(words), REQUEST_CHARACTERS)}"
    if since := turns[-1].turn.number - turn.turn.number:
        text += f"\n(turns since: {since})"
    if turn.choice is None:
        return text
    return f"{text}\n(which answers {turn.choice.turn_id}: {one_line(turn.choice.text, REQUEST_CHARACTERS)})"


def _task(request: PlanRequest) -> str:
    """Return the caller's task on one line; if it is a host's text, the user's first message."""
    task = request.task
    if is_host_text(task):
        turn = next((turn for turn in request.evidence.turns.values() if turn.user_lines), None)
        task = join_lines(turn.user_lines) if turn else ""
    return one_line(task, REQUEST_CHARACTERS) or "(not stated)"


def _words(turns: Sequence[TurnEvidence]) -> str:
    """Return the user's typed words in `turns`, one statement a line, in the order of the turns. The newest are kept if
    not all fit, and one message takes at most a quarter."""
    lines: list[str] = []
    room = WORDS_CHARACTERS
    for turn in reversed(turns):
        left = min(room, WORDS_CHARACTERS // 4)
        for words in statements(turn.typed_lines):
            text = f"{turn.turn.id}: {one_line(words.text, WORD_CHARACTERS)}"
            if len(text) < left:
                left -= len(text) + 1
                room -= len(text) + 1
                lines.append(text)
    number = {turn.turn.id: turn.turn.number for turn in turns}
    return "\n".join(sorted(lines, key=lambda text: number[text.partition(":")[0]]))


def _outcomes(record: Sequence[PageStatement], scope: Scope, characters: int) -> str:
    """Return the statements of `record` that cite turns of `scope`, one a line, the newest within `characters`."""
    number = {turn.turn.id: turn.turn.number for turn in scope.turns}
    last_cited = [max((number.get(turn_id, 0) for turn_id in one.turns), default=0) for one in record]
    lines: dict[int, str] = {}
    for at in sorted(range(len(record)), key=lambda at: -last_cited[at]):
        line = one_line(record[at].line.removeprefix("- "), characters)
        characters -= len(line) + 1
        if not last_cited[at] or characters < 0:
            break
        lines[at] = line
    return "\n".join(lines[at] for at in sorted(lines))
