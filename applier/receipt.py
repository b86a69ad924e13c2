"""Receipt of a compaction: a text of at most fifteen lines on what the agent no longer sees, what that saved, and how
to get it back.

An item (the user's demand, a failure, a decision, a name) is lost if the agent saw it before and the new list neither
contains nor paraphrases it. The most important lost items are listed, without secrets. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Literal, get_args

from applier.view import Preview, preview
from planner.analysis import Analysis, analyze, is_word
from planner.brief import covered_failures
from planner.evidence import Evidence
from planner.evidence.grounding import NameIndex
from planner.evidence.turns import call_head, shortened
from planner.placeholders import history_key
from planner.plan import CompactionPlan, ExtractedFact, Provenance, Usage
from planner.prices import switch_dollars, switch_money
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import one_line
from planner.reading.messages import History
from planner.reading.secrets import Secrets, redact
from planner.relevance import line_relevance
from planner.rules import decisions_in, demands_in

Kind = Literal["demand", "failure", "decision", "name"]
"""Kind of item that a receipt reports as lost: a user's demand, a failed attempt, a decision, a name used again."""
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of items, the most important first."""
MOST_LINES: Mapping[Kind, int] = {"demand": 3, "failure": 2, "decision": 2, "name": 1}
"""Largest number of lines in a receipt for each kind of lost item, so that a receipt has at most fifteen."""
LINE_CHARACTERS, TRIED_CHARACTERS = 116, 44
"""Largest length of a line in a receipt, and of the failed attempt named in such a line, in characters."""
PARAPHRASE_SHARE = 0.6
"""Share of a sentence's words that a sentence of the compacted list must contain to count as its paraphrase."""
LEAST_WORDS = 3
"""Fewest words of a sentence that can be recognized in a paraphrase."""

_WORD = lazy_pattern(r"[^\W_]{3,}")  # three or more letters and digits
_LETTERS = lazy_pattern(r"[^\W\d_]{3}")
"""Letters that a name must have to be listed: ``parse_all``; not ``200p`` or ``2026-03-01``."""
_SENTENCE_END = lazy_pattern(r"\n|(?<=[.;!?])\s")


@dataclass(frozen=True, slots=True)
class _Item:
    """Something in the conversation that the agent may need again: a demand, failure, decision or name."""

    kind: Kind
    turn_id: str
    """Id of the turn that contains it, such as ``t12``."""
    text: str
    """Text that a receipt shows for this item."""
    forms: tuple[str, ...]
    """Texts that show the item: the agent still sees it if the compacted list contains one of them."""


class _VisibleText:
    """Text that the agent still sees, with a check whether it contains or paraphrases another text."""

    def __init__(self, sent: Analysis, before: Evidence) -> None:
        """Index the text of the compacted list `sent`; `before`, read from the whole conversation, shortens paths."""
        texts = [before.shown(text.text) for turn in sent.evidence.turns.values() for text in turn.lines.texts]
        self.names = NameIndex(texts, parts=True)
        self._text = one_line("\n".join(texts))
        self._sentences: defaultdict[str, set[int]] = defaultdict(set)
        for number, sentence in enumerate(chain.from_iterable(map(_SENTENCE_END.split, texts))):
            for word in _words(sentence):
                self._sentences[word].add(number)

    def covers(self, text: str) -> bool:
        """Return True if the agent sees `text` literally, or for each sentence of it one with most of its words."""
        if one_line(text) in self._text:
            return True
        sentences = [words for words in map(_words, _SENTENCE_END.split(text)) if len(words) >= LEAST_WORDS]
        for words in sentences:
            counts = Counter(chain.from_iterable(self._sentences.get(word, ()) for word in words))
            if max(counts.values(), default=0) < PARAPHRASE_SHARE * len(words):
                return False
        return bool(sentences)


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


def receipt(
    plan: CompactionPlan,
    *,
    tokens: tuple[int, int] | None = None,
    dollars: Mapping[str, float] | None = None,
    command: str = "compactor",
) -> str:
    """Return the receipt of a compaction by `plan`: what the agent no longer sees, what that saves, how to get it back.

    `plan` must still have its messages in memory. In a session with an earlier compaction, `tokens` (before and after)
    and `dollars` (of `planner.prices.switch_dollars`) replace the plan's own numbers. `command`: the shell command for
    this program, with the store if it is not the default.
    """
    shown = preview(plan)
    before, after = tokens or (shown.tokens_before, shown.tokens_after)
    verdict = _first_line("Compacted", before, after, shown.dollars if dollars is None else dollars)
    return _receipt_text(verdict, _report_of(shown), command)


def in_sight(plan: CompactionPlan) -> str:
    """Return the lines of a receipt on what the agent still sees, and what not, after a compaction by `plan`."""
    return _printable(_item_lines(_report_of(preview(plan)), "Out of"))


def forecast(
    plan: CompactionPlan,
    review: str,
    *,
    tokens: tuple[int, int] | None = None,
    dollars: Mapping[str, float] | None = None,
) -> str:
    """Return the receipt of a compaction by `plan` before it is made: what the agent would no longer see, and what that
    saves. `tokens` and `dollars`: as for `receipt`. `review`: shell command that shows the whole plan; may be empty."""
    shown = preview(plan)
    (before, after), report = tokens or (shown.tokens_before, shown.tokens_after), _report_of(shown)
    if shown.first_changed_message is None:
        return f"A compaction now would change nothing: all {before:,} tokens stay"
    verdict = _first_line("A compaction now", before, after, shown.dollars if dollars is None else dollars)
    review_line = [f"All of it, for review: {review}"] if review else []
    return _printable((verdict, *_item_lines(report, "Would leave"), *review_line))


def receipt_of_foreign(
    before: Sequence[object],
    after: Sequence[object],
    *,
    sent_before: Sequence[object] | None = None,
    model: str = "",
    usage: Usage | None = None,
    by: str = "Claude Code",
    command: str = "compactor",
) -> str:
    """Return the receipt (what the agent no longer sees, and what that saves) of another program's compaction.

    It changed the list `before` to `after`. `sent_before`: the list that was sent instead of `before`, if that was
    compacted already. `by`: name of the program. `model` and `usage`: the model that compacted, and what it used, if
    known. `command`: as for `receipt`.
    """
    analysis = analyze(before, model)
    sent = analyze(after, known=analysis)
    tokens = analysis.tokens if sent_before is None else analyze(sent_before, known=analysis).tokens
    provenance = Provenance(planner=by, model=model, usage=usage or Usage())
    cost = switch_dollars(model, tokens, sent.tokens, 0, provenance)  # 0 tokens stay cached
    return _receipt_text(
        _first_line(f"{by} compacted", tokens, sent.tokens, cost), _ItemReport.of(analysis, sent), command
    )


@dataclass(frozen=True)
class _ItemReport:
    """Things in a conversation that the agent may need (`items`), and those that it no longer sees (`lost`)."""

    history: History
    items: Sequence[_Item]
    lost: Sequence[_Item]
    secrets: Secrets  # to be hidden in a receipt

    @classmethod
    def of(
        cls,
        before: Analysis,
        sent: Analysis,
        facts: Sequence[ExtractedFact] = (),
        stated_failures: Collection[str] = (),
    ) -> _ItemReport:
        """Return what the agent may need of `before`, and what of it the compacted list `sent` lacks. `facts`:
        extracted facts, from which decisions are added. `stated_failures`: ids of turns with a failure that the brief
        (the page of memory at the top of the list) states."""
        sight, items = _VisibleText(sent, before.evidence), [*_important_items(before, facts)]

        def is_visible(item: _Item) -> bool:
            if item.kind == "name":  # a single word has no paraphrase
                return any(map(sight.names.holds, item.forms))
            is_stated = item.kind == "failure" and item.turn_id in stated_failures
            return is_stated or any(map(sight.covers, item.forms))

        return cls(before.history, items, [item for item in items if not is_visible(item)], before.secrets)


def _report_of(shown: Preview) -> _ItemReport:
    """Return what the agent may need of the conversation that `shown` compacts, and what of it the new list lacks."""
    plan, analysis = shown.plan, shown.plan.bound_analysis
    assert analysis is not None
    stated = covered_failures(plan.brief, analysis.evidence)
    return _ItemReport.of(analysis, analyze(shown.messages, known=analysis), plan.extracted_facts, stated)


def _first_line(who: str, before: int, after: int, cost: Mapping[str, float]) -> str:
    """Return the first line of a receipt: who compacted, tokens before and after, and the dollars of `cost`."""
    share = f" ({after / before:.0%})" if before else ""
    return "; ".join(filter(None, (f"{who}: {before:,} tokens → {after:,}{share}", switch_money(cost))))


def _receipt_text(verdict: str, report: _ItemReport, command: str) -> str:
    """Return a whole receipt: the first line `verdict`, the lost items, and the `command` that restores a turn."""
    first = report.lost[0].turn_id if report.lost else "t1"
    stored = f"t1 to t{len(report.history.turns)} are stored whole"
    back = f"Any of it back: {command} restore {history_key(report.history.digest)}:{first} ({stored})"
    return _printable((verdict, *_item_lines(report, "Out of"), back))


def _printable(lines: Iterable[str]) -> str:
    """Return `lines` as one text, with a dot for each character that could control a terminal."""
    return "\n".join("".join(character if character.isprintable() else "·" for character in line) for line in lines)


def _item_lines(report: _ItemReport, start: str) -> Iterator[str]:
    """Yield a line with the number of visible items of each kind (``Still in sight: 3 of 4 demands``), and a heading
    and lines on the lost items. `start`: beginning of that heading: ``Out of`` (the agent's sight)."""
    totals, lost = (Counter(item.kind for item in items) for items in (report.items, report.lost))
    parts = [f"{totals[kind] - lost[kind]} of {totals[kind]} {kind}s" for kind in KINDS if totals[kind]]
    if parts:
        yield f"Still in sight: {', '.join(parts)}{' used again' if totals['name'] else ''}"
    if report.lost:
        yield f"{start} the agent's sight, what weighs most first:"
    for kind, group in groupby(report.lost, lambda item: item.kind):
        if kind == "name":
            yield f"  names {_joined([f'{redact(item.text, report.secrets)} ({item.turn_id})' for item in group])}"
            continue
        items = [*group]
        texts = [f"{kind} ({item.turn_id}) {redact(item.text, report.secrets)}" for item in items[: MOST_LINES[kind]]]
        yield from (f"  {shortened(text, LINE_CHARACTERS)}" for text in texts)
        if len(items) > MOST_LINES[kind]:
            yield f"  and {len(items) - MOST_LINES[kind]} {kind}s more"


def _joined(names: Sequence[str]) -> str:
    """Return as many of `names` as fit in a line of a receipt, separated by commas, and the number of the others."""
    line = ""
    for number, name in enumerate(names):
        if line and len(line) + len(name) > LINE_CHARACTERS - 25:
            return f"{line} and {len(names) - number} more"
        line = f"{line}, {name}" if line else name
    return line


def _important_items(analysis: Analysis, facts: Sequence[ExtractedFact]) -> Iterator[_Item]:
    """Yield all that a conversation's agent may need: the most important kind first, in a kind the newest first."""
    evidence = analysis.evidence
    demands = {text: turn_id for turn_id, turn in evidence.turns.items() for text in demands_in(turn)}  # oldest first
    yield from reversed([_item(evidence, "demand", turn_id, text) for text, turn_id in demands.items()])
    yield from reversed([*_failures(evidence)])
    yield from reversed({item.text: item for item in _decisions(evidence, facts)}.values())
    yield from _names(analysis)


def _failures(evidence: Evidence) -> Iterator[_Item]:
    """Yield each failure as an item: what was tried, and the line that explains it best (with the most words)."""
    for turn_id, turn in evidence.turns.items():
        numbers = [number for number in turn.decisive_lines if number not in turn.boilerplate_lines]
        decisive = [statement.text for statement in turn.statements_of(numbers)]
        if decisive:
            calls = "; ".join(call_head(call, evidence.root) for call in turn.failed_calls)
            tried = shortened(calls, TRIED_CHARACTERS)
            informative = max(decisive, key=lambda line: len(_words(line))).strip()
            text = f"{tried}: {informative}" if tried else informative
            yield _item(evidence, "failure", turn_id, text, *decisive)


def _decisions(evidence: Evidence, facts: Sequence[ExtractedFact]) -> Iterator[_Item]:
    """Yield each decision as an item: the user's choices, other decisions in the turns, and those among `facts`."""
    for turn_id, turn in evidence.turns.items():
        if turn.choice is not None:
            yield _item(evidence, "decision", turn_id, turn.choice.text, *turn.choice.text.splitlines())
        for text in decisions_in(turn):
            yield _item(evidence, "decision", turn_id, text)
    for fact in facts:
        if fact.type == "decision":
            yield _item(evidence, "decision", fact.source, fact.content)


def _item(evidence: Evidence, kind: Kind, turn_id: str, text: str, *forms: str) -> _Item:
    """Return an `_Item` on one line and with short paths; without `forms`, `text` is its only form."""
    return _Item(kind, turn_id, evidence.shown(one_line(text)), tuple(map(evidence.shown, forms or (text,))))


def _names(analysis: Analysis) -> Iterator[_Item]:
    """Yield as items the names (files, functions, ids) that the agent used in a later turn than the one where they
    first occur, the likeliest needed first. Names of its calls' arguments are left out."""
    evidence, relevance = analysis.evidence, analysis.once(line_relevance)
    first, again = dict[str, str](), dict[str, str]()  # turn of each name's first occurrence, and of its newest use
    for turn_id, turn in evidence.turns.items():
        for text in turn.lines.texts:
            for name in set(relevance.names_in(turn_id, text.first, text.stop)):
                if (
                    not is_word(name)
                    and first.setdefault(name, turn_id) != turn_id
                    and text.part in ("assistant", "call")  # by the agent
                ):
                    again[name] = turn_id
    keys = {key for _, call, _ in evidence.ended_calls() for key in call.input}
    weights = dict(zip(relevance.names, relevance.weights, strict=True))
    likely = sorted(again.keys() - keys, key=lambda name: (-weights[name], name))
    for name in filter(_LETTERS.search, likely):
        yield _Item("name", again[name], evidence.shown(name), (name, evidence.shown(name)))
