"""Writes the questions to the planner model: one, or for a large history one for each *piece*, a run of its turns.

A question shows the turns as *cards* (excerpts), with the latest request, the task, the user's words in other pieces,
and what rules found in the turns. Once there is a plan, only new turns are shown, and the model is to update the brief
(the page of memory). A question that would read more than the session allows is not asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from propcache.api import cached_property

from planner.brief import PageStatement, brief_text, citation, read_brief
from planner.evidence import TurnEvidence
from planner.evidence.effects import retried
from planner.evidence.hosts import is_host_text, without_boilerplate
from planner.later_plans import read_and_new, written_brief
from planner.model.answer import Scope
from planner.model.card_lines import is_sentence
from planner.model.cards import Card, earlier_choices, turn_cards, turn_lines
from planner.model.prompts import Prompts, safe_line, safe_text
from planner.plan import CompactionPlan, PlanRequest, earlier_plan
from planner.programming.repository import has_uncommitted_changes
from planner.reading.lines import Part, join_lines, statements
from planner.reading.secrets import NO_SECRETS, Secrets, redact
from planner.reading.tokens import TokenCounter
from planner.rules import rules_brief
from planner.selection import brief_limit, frame_tokens, least_tokens, recorded_turns

REQUEST_CHARACTERS = 600
"""Largest length of the user's latest request, and of the task, at the top of a question. The cards show more."""
NEIGHBOURS = 12
"""Number of turns before and after a piece of the history that its question lists, one line each, as context."""
WORDS_CHARACTERS, WORD_CHARACTERS = 6_000, 240
"""Largest length of the part of a question with the user's words in other pieces, and of each statement there."""
OUTCOMES_CHARACTERS = 6_000
"""Largest length of the part of a question with the outcomes and effects of tool calls, the newest ones if not all fit:
400 to 1,000 tokens on six sessions. A question that updates a plan has a third of it, as the brief has the others."""
CHOICES_TOKENS = 400
"""Largest number of tokens of the list of an earlier plan's choices, in a question that updates that plan."""
WORDS_NEED, SENTENCES_NEED, LINES_NEED = 0.12, 0.076, 0.027
"""Tokens that a brief gets for each token of speech, of prose in documents, and of other lines: together 3 to 5 % of
agent sessions. With three quarters of that, a brief for a tenth of the history was no longer than one for a twentieth,
and answered no more test questions."""
BRIEF_FLOOR_TOKENS, ENTRIES_FLOOR_TOKENS = 1_500, 300
"""Smallest limits in tokens for two parts of an answer, if the target leaves room: the brief, and the lines with
choices about turns."""
BRIEF_OUTPUT_SHARE = 0.6
"""Largest share of the model's output limit that the brief may take."""
LINE_TOKENS = 80
"""Tokens of one line of the brief: 160 characters in English, 80 in Chinese. The model gets its limit also in lines, as
it can count lines and imitate a length that it sees, but cannot count words."""
LEAST_NOTE_TOKENS = 0.45
"""Smallest number of tokens that one character of a brief is taken to have: 0.40 to 0.56 in answers about nine English
sessions, as dense notes have many names and figures. In scripts with more tokens a character, notes and prose have
about as many: 1.0 and 0.9 in Chinese, 1.3 and 1.4 in Japanese."""
SAMPLE_LINES = 400
"""Number of lines of the conversation's prose on which the tokens of a character are measured."""
ENTRIES_RATIO, TOKENS_AN_ENTRY = 0.004, 22
"""Size of the lines with choices in an answer: tokens of all of them for each token of the turns in question, and
tokens of one, in eight answers. With page and JSON marks, an answer has 3 % of the tokens of its turns."""
MOST_FAILURES = 30
"""Largest number of failed turns that a question lists for the brief, the newest ones."""
CHOICE_SHARE = 0.5
"""Share for turns and lines that a model chooses, of the space in the target beside the brief and what stays in any
case; rules fill the rest. In eleven plans for a tenth of the history, the lines chosen by rules answered as many test
questions as those of models."""
LEAST_CHOICE_TOKENS = 300
"""Smallest space in tokens for which the model is asked to choose turns, as explaining that to it takes 900 tokens."""
CHOSEN_ENTRY_TOKENS = 40
"""Smallest number of tokens that one line with a choice selects; a short text in place of a turn alone takes 30."""
LATER_CARDS_TOKENS = 2_000
"""Smallest token budget for the cards in a question that updates a plan."""
LEAST_CARDS_SHARE, LEAST_NEW_RATIO = 0.08, 3.0
"""Smallest sizes for which a plan is updated by a model: of the cards, as a share of the new turns' tokens; and of the
new turns, as a multiple of the question's other text, which every question costs again. With these, a question is due
after the content of three or four calls."""
CARD_TRIES = 3
"""Number of attempts to make cards that fit, each with a smaller budget, as headers may exceed the first one."""


@dataclass(frozen=True)
class QuestionBasis:
    """Values that all questions for one plan share: what the model has read before, and what stays in any case."""

    request: PlanRequest
    earlier: CompactionPlan | None
    """Plan to update; None for the first plan of a conversation."""
    read: Sequence[TurnEvidence]
    """Turns that a planner model has read for the earlier plan."""
    new: Sequence[TurnEvidence]
    """All other turns, which the questions show."""
    least_tokens: int
    """Tokens that stay whatever the model decides: those of unanswered turns (the newest) and of the user's words."""

    @classmethod
    def of(cls, request: PlanRequest) -> QuestionBasis:
        """Collect the values for the questions about `request`."""
        earlier = earlier_plan(request)
        return cls(request, earlier, *read_and_new(request, earlier), least_tokens(request))

    @property
    def turns(self) -> Sequence[TurnEvidence]:
        """Turns of the whole history, in order."""
        return list(self.request.evidence.turns.values())

    @property
    def focus(self) -> str:
        """Caller's wish what to keep in particular, as text that is safe in a prompt."""
        return safe_text(self.request.focus).strip() or "(nothing in particular)"

    @cached_property
    def line_characters(self) -> int:
        """Number of characters that a line of the brief has in the language of the conversation, to the nearest ten, so
        that it takes `LINE_TOKENS`."""
        densest = max(self._tokens_a_character("assistant"), self._tokens_a_character("user"))
        return round(LINE_TOKENS / max(LEAST_NOTE_TOKENS, densest) / 10) * 10

    def _tokens_a_character(self, part: Part) -> float:
        """Return the tokens of a character in the first lines of this `part` of the turns."""
        spoken = (line.text for turn in self.turns for line in turn.lines.of_part(part))
        prose = "".join(islice(spoken, SAMPLE_LINES))
        return self.request.counter.text(prose) / max(1, len(prose))

    @cached_property
    def statements_by_rules(self) -> Sequence[PageStatement]:
        """Statements that rules make from the history, to show the model facts it can rely on: outcomes and effects of
        tool calls, calls that wait or run, open tasks, and addresses. If files were changed and nothing mentions a
        commit, one statement is about that."""
        evidence, left_out = self.request.evidence, ("REQUEST", "NOTES")
        by_rules = [statement for statement in read_brief(rules_brief(evidence)) if statement.heading not in left_out]
        if has_uncommitted_changes(evidence):
            by_rules.append(PageStatement("STATE", "no commit shows", (next(reversed(evidence.turns)),)))
        return by_rules


@dataclass(frozen=True)
class Question:
    """One question to the planner model: a prompt, and the texts that fill its variables."""

    scope: Scope
    """Turns that the answer may be about."""
    values: Mapping[str, str]
    """Texts for the variables of the prompt, such as ``{{cards}}``, by name."""
    name: Literal["plan", "update", "learn", "review"] = "plan"
    """Name of the prompt."""
    entries: bool = True
    """True if the model is to choose turns; False if it is to write only the brief."""
    secrets: Secrets = NO_SECRETS
    """Secrets in the conversation. They are removed from all texts, even where only a part of one is shown."""

    def system(self, prompts: Prompts) -> str:
        """Return the system prompt of the question."""
        name = "system" if self.name in ("plan", "update") else f"{self.name}_system"
        return prompts.render(name, self.entries)

    def text(self, prompts: Prompts, notes: str = "") -> str:
        """Return the user message of the question. `notes`: briefs that the model wrote for other turns."""
        brief = "\n".join(part for part in (self.shown.get("brief"), redact(safe_text(notes), self.secrets)) if part)
        return prompts.render(self.name, self.entries, **{**self.shown, "brief": brief or "(none yet)"})

    @cached_property
    def shown(self) -> Mapping[str, str]:
        """Texts for the variables of the prompt, without secrets, as they may go to another provider."""
        shown: Mapping[str, str] = redact(self.values, self.secrets)
        return shown

    def tokens(self, prompts: Prompts, counter: TokenCounter, notes: str = "") -> int:
        """Return the tokens that the model reads for the question; `notes` as in `text`."""
        return counter.text(self.system(prompts)) + counter.text(self.text(prompts, notes))


def plan_questions(basis: QuestionBasis, prompts: Prompts) -> tuple[Sequence[Question], str]:
    """Return the questions for a plan, of about ``settings.piece_tokens`` each, in the order of the history; or none
    and the reason. None is asked if only unanswered messages are new, or if the session's token limit for planning does
    not allow enough."""
    request, turns = basis.request, basis.new
    if all(turn.turn.live for turn in turns):
        return (), "not asked: nothing is new but what is not answered yet"
    budget = _cards_budget(basis, _question(basis, turns).tokens(prompts, request.counter))
    if isinstance(budget, str):
        return (), f"not asked: {budget}"
    for _ in range(CARD_TRIES):
        pieces = _split(turn_cards(request, turns, budget), request.settings.piece_tokens)
        questions = [_question(basis, [turn for card in cards for turn in card.turns], cards) for cards in pieces]
        read = sum(question.tokens(prompts, request.counter) for question in questions)
        excess = read + notes_tokens(basis, len(questions)) - request.input_left_tokens
        if excess <= 0:
            useful = [question for question in questions if not all(turn.turn.live for turn in question.scope.turns)]
            return useful, ""
        budget = max(1, budget - max(math.ceil(excess), budget // 100))  # a smaller step may change no card
    why_not = f"so many small turns are new that their cards take {read} tokens, more than may be read now"
    return (), f"not asked: {why_not}"


def notes_tokens(basis: QuestionBasis, questions: int) -> int:
    """Return the tokens that the last of so many `questions` needs for the briefs in the answers to the others."""
    return (questions - 1) * brief_tokens(basis, basis.turns) if questions > 1 else 0


def _cards_budget(basis: QuestionBasis, around_tokens: int) -> int | str:
    """Return how many tokens the cards (excerpts) of all new turns may take, or a text why the model is not asked.
    `around_tokens`: size of a question without its cards, which every piece of the history costs again."""
    settings, left_tokens = basis.request.settings, basis.request.input_left_tokens
    new_tokens = _tokens(basis.new)
    if basis.earlier is not None:
        budget = max(LATER_CARDS_TOKENS, int(new_tokens * settings.planner_input_ratio))
    else:
        first_tokens = settings.first_input_tokens(new_tokens)
        budget = max(first_tokens // 3, first_tokens - (1 + first_tokens // settings.piece_tokens) * around_tokens)
    ratio = settings.session_input_ratio
    if ratio is None or math.isinf(left_tokens):
        return budget
    pieces = 1 + budget // settings.piece_tokens
    room_tokens = int(left_tokens) - pieces * around_tokens - notes_tokens(basis, pieces)
    least_share = min(LEAST_CARDS_SHARE, ratio / 2)
    # tokens by which the conversation must grow until new turns and cards are large enough; `ratio` of them may be read
    missing_tokens = max(
        LEAST_NEW_RATIO * around_tokens - new_tokens, (least_share * new_tokens - room_tokens) / (ratio - least_share)
    )
    if missing_tokens > 0:
        allowed = f"what may be read, {ratio:.0%} of the session, allows for the next question"
        return f"{allowed} when there are {math.ceil(missing_tokens)} tokens more"
    return min(budget, room_tokens)


def _tokens(turns: Sequence[TurnEvidence]) -> int:
    return sum(turn.tokens for turn in turns)


def _split(cards: Sequence[Card], most_tokens: int) -> Iterator[Sequence[Card]]:
    """Split `cards` into groups of about equal size, of at most `most_tokens` unless a single card has more."""
    all_tokens = sum(card.tokens for card in cards)
    largest_card = max((card.tokens for card in cards), default=0)
    most_tokens = min(most_tokens, all_tokens // max(1, math.ceil(all_tokens / most_tokens)) + largest_card // 2)
    group: list[Card] = []
    tokens = 0
    for card in cards:
        if group and tokens + card.tokens > most_tokens:
            yield group
            group, tokens = [], 0
        group.append(card)
        tokens += card.tokens
    if group:
        yield group


def _question(basis: QuestionBasis, turns: Sequence[TurnEvidence], cards: Sequence[Card] = ()) -> Question:
    """Return the question about `turns`, which `cards` show. Without cards, it serves to measure the text around them.
    In a first plan it also has the user's words in other parts of the history, and lists neighbouring turns. If it has
    the last turns, it asks for the brief of the whole history."""
    request, earlier, all_turns = basis.request, basis.earlier, basis.turns
    scope = Scope(turns, basis.read)
    start, stop = turns[0].turn.number - 1, turns[-1].turn.number
    is_last = stop == len(all_turns)
    entries = choice_tokens(basis, all_turns if is_last else turns) > 0
    latest, task, secrets = _latest_request(all_turns), _task(request), request.analysis.secrets
    brief = safe_text(brief_text(written_brief(earlier))) if earlier is not None and is_last else ""
    outcomes_characters = OUTCOMES_CHARACTERS // (3 if earlier else 1)
    values = {
        "latest": latest,
        "task": "(those words)" if task.rstrip("…") in latest else task,
        "focus": basis.focus,
        "sizes": _piece_sizes(basis, scope, brief, is_last=is_last),
        "outcomes": _newest_about(scope, basis.statements_by_rules, outcomes_characters) or "(none)",
        "brief": brief,
        "cards": "\n".join(card.text for card in cards),
    }
    if earlier is not None:
        values["before"] = earlier_choices(request, earlier, CHOICES_TOKENS) or "(none)"
        return Question(scope, values, "update", entries, secrets)
    values |= {
        "user_words": _typed_words([*all_turns[:start], *all_turns[stop:]]) or "(none)",
        "before": turn_lines(request, all_turns[max(0, start - NEIGHBOURS) : start]) or "(none)",
        "after": turn_lines(request, all_turns[stop : stop + NEIGHBOURS]) or "(none)",
    }
    return Question(scope, values, "plan", entries, secrets)


def _piece_sizes(basis: QuestionBasis, scope: Scope, brief: str, *, is_last: bool) -> str:
    """Return `sizes_text`, with the part of the history on the cards, the folder of relative paths, and the length of
    the present `brief`."""
    evidence, piece_tokens = basis.request.evidence, _tokens(scope.turns)
    text = sizes_text(basis, basis.turns if is_last else scope.turns)
    if piece_tokens < evidence.tokens:
        part = "write the brief of the whole" if is_last else "the brief you write is of these turns alone"
        text += f"\nThe cards below are {scope.name}, {piece_tokens} tokens of it; {part}."
    if evidence.root:
        text += f"\nRelative paths on the cards are in {safe_text(evidence.root)}."
    return f"{text}\nThe page below has {len(read_brief(brief))} lines now." if brief else text


def sizes_text(basis: QuestionBasis, turns: Sequence[TurnEvidence]) -> str:
    """Return sentences that state for the model how large the conversation is, how much of it may stay, and how long
    its answer about `turns` may be: in characters, lines and entries (choices), as a model can count the last two."""
    request, least_tokens, page_tokens = basis.request, basis.least_tokens, brief_tokens(basis, turns)
    all_tokens = request.evidence.tokens
    kept_tokens, page_lines = min(all_tokens, request.target_tokens), max(1, round(page_tokens / LINE_TOKENS))
    page_characters = page_tokens * basis.line_characters // LINE_TOKENS // 10 * 10
    warning = ", more than that: nothing but the brief can be added" if least_tokens > kept_tokens else ""
    choosable_tokens, entries_limit = choice_tokens(basis, turns), "."
    if choosable_tokens:
        most_tokens = min(max(ENTRIES_FLOOR_TOKENS, int(_tokens(turns) * ENTRIES_RATIO)), _most_brief(request) // 2)
        most_entries = min(most_tokens // TOKENS_AN_ENTRY, choosable_tokens // CHOSEN_ENTRY_TOKENS)
        entries_limit = (
            f"; at most {most_entries} entries, which choose at most {choosable_tokens} tokens of turns and lines: the "
            f"space beside them is filled."
        )
    return (
        f"The conversation has {len(basis.turns)} turns and {all_tokens} tokens, of which at most {kept_tokens} may "
        f"stay; LIVE turns and kept lines take {least_tokens} of them{warning}.\nYour answer: a brief of at most "
        f"{page_characters:,} characters in all, headings not counted (about {page_lines} lines of "
        f"{basis.line_characters}; a line may be longer){entries_limit}\n"
        f"{_effects_sentence(basis)}{_failures_sentence(basis, turns)}"
    )


def _effects_sentence(basis: QuestionBasis) -> str:
    """Return a sentence on the effects that rules add to the model's brief, so that it does not write them again."""
    turn_ids = recorded_turns(basis.request, basis.least_tokens)
    if not turn_ids:
        return "No effect is added by itself: write those that matter."
    return f"Added by themselves, outside of that limit: the effects of {citation(turn_ids)}."


def _failures_sentence(basis: QuestionBasis, turns: Sequence[TurnEvidence]) -> str:
    """Return sentences with the failed turns that the brief is to mention, and the turns where a failed action
    succeeded later; empty without failures. A turn with calls is not listed if the user refused all that failed."""
    failed = [
        turn.turn.id
        for turn in turns
        if turn.decisive_lines and not turn.turn.live and (turn.failed_calls or not turn.calls)
    ]
    if not failed:
        return ""
    succeeded = {place.turn_id for place in basis.request.evidence.once(retried).values()}
    listed = ", ".join(failed[-MOST_FAILURES:])
    later = ", ".join([turn.turn.id for turn in turns if turn.turn.id in succeeded][-MOST_FAILURES:])
    successes = f"; and with its result or id what succeeded in its place, if it did: {later}" if later else ""
    return (
        f"\nState under FAILED, each with its turn and the words of its error: {listed}{successes}. Lines of one that "
        f"you leave out are added, and the brief is cut by as much."
    )


def choice_tokens(basis: QuestionBasis, turns: Sequence[TurnEvidence]) -> int:
    """Return how many tokens of turns and lines the model may choose to keep, in an answer about `turns`. It is 0 if
    there is less space than `LEAST_CHOICE_TOKENS`: then the model only writes the brief (the page of memory)."""
    request = basis.request
    stay = min(request.evidence.tokens, request.target_tokens)
    free = stay - basis.least_tokens - brief_tokens(basis, turns) - frame_tokens(request)
    choice = int(free * CHOICE_SHARE)
    return choice if choice >= LEAST_CHOICE_TOKENS else 0


def brief_tokens(basis: QuestionBasis, turns: Sequence[TurnEvidence]) -> int:
    """Return the limit in tokens for the brief (page of memory) in an answer about `turns`: as much as their content
    needs, within the model's output limit and their share of the space for a brief in the compacted messages."""
    request = basis.request
    room = brief_limit(request, basis.least_tokens) * _tokens(turns) / max(1, request.evidence.tokens)
    need = sum(turn.once(_need) for turn in turns if not turn.superseded_by) * request.counter.scale
    return int(min(max(need, BRIEF_FLOOR_TOKENS), room, _most_brief(request)))


def _need(turn: TurnEvidence) -> float:
    """Return how many raw tokens (before the counter's `scale`) the brief needs for `turn`, by kind of line."""
    tokens = 0.0
    for line in turn.lines.to_read():
        if line.number not in turn.boilerplate_lines:
            need = SENTENCES_NEED if is_sentence(line.text) else LINES_NEED
            if line.part in ("user", "assistant"):
                need = WORDS_NEED
            tokens += need * turn.line_tokens[line.number - 1]
    return tokens


def _most_brief(request: PlanRequest) -> int:
    """Return the tokens of the model's output limit that the brief may take."""
    return int(request.settings.max_output_tokens * BRIEF_OUTPUT_SHARE)


def _latest_request(turns: Sequence[TurnEvidence]) -> str:
    """Return the user's last message, with its turn id, the number of turns since, and, of a reply, what it answers."""
    turn = next((turn for turn in reversed(turns) if turn.user_lines), None)
    if turn is None:
        return "(none)"
    words = "\n".join(statement.text for statement in statements(turn.user_lines))
    text = f"{turn.turn.id}: {safe_line(without_boilerplate(words), REQUEST_CHARACTERS)}"
    if since := turns[-1].turn.number - turn.turn.number:
        text += f"\n(turns since: {since})"
    if turn.choice is None:
        return text
    return f"{text}\n(which answers {turn.choice.turn_id}: {safe_line(turn.choice.text, REQUEST_CHARACTERS)})"


def _task(request: PlanRequest) -> str:
    """Return the caller's task on one line, or the user's first message if the host program wrote the task."""
    task = request.task
    if is_host_text(task):
        turn = next((turn for turn in request.evidence.turns.values() if turn.user_lines), None)
        task = join_lines(turn.user_lines) if turn else ""
    return safe_line(task, REQUEST_CHARACTERS) or "(not stated)"


def _typed_words(turns: Sequence[TurnEvidence]) -> str:
    """Return what the user typed in `turns`, one statement a line, each with its turn id: the newest turns that fit in
    `WORDS_CHARACTERS`, of which one turn takes at most a quarter."""
    lines_by_turn: list[list[str]] = []
    room = WORDS_CHARACTERS
    for turn in reversed(turns):
        lines = []
        turn_room = min(room, WORDS_CHARACTERS // 4)
        for statement in statements(turn.typed_lines):
            text = f"{turn.turn.id}: {safe_line(statement.text, WORD_CHARACTERS)}"
            if len(text) < turn_room:
                turn_room -= len(text) + 1
                room -= len(text) + 1
                lines.append(text)
        lines_by_turn.append(lines)
    return "\n".join(line for lines in reversed(lines_by_turn) for line in lines)


def _newest_about(scope: Scope, page: Sequence[PageStatement], characters: int) -> str:
    """Return the newest statements of `page` about turns of `scope` that fit in `characters`, in `page`'s order."""
    number = {turn.turn.id: turn.turn.number for turn in scope.turns}
    last_cited = [max((number.get(turn_id, 0) for turn_id in statement.turns), default=0) for statement in page]
    lines: dict[int, str] = {}
    for at in sorted(range(len(page)), key=lambda at: -last_cited[at]):
        line = safe_line(page[at].line.removeprefix("- "), characters)
        characters -= len(line) + 1
        if not last_cited[at] or characters < 0:
            break
        lines[at] = line
    return "\n".join(lines[at] for at in sorted(lines))
