"""Writes the text that replaces content which a plan removes. Decides nothing: the same decision gives the same text.

Each turn that is not kept has an *entry*, a text in its place: its id, its words and its calls. A call follows ``>``,
its outcome follows ``→``, and kept lines of its result are below. A failed call has ``✗ >``; ``t12 ✗`` is a failed
approach without one. ``…`` shows that something is left out. A *note* is a message with the entries of neighbouring
turns.

A *frame* is a pair of tags around such a text: ``<compacted>`` around a note, ``<user-words>`` around the unchanged
words of the user.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from operator import attrgetter
from types import MappingProxyType

from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import Call
from planner.evidence.effects import CallPlace, reported_later, worked_later
from planner.evidence.grounding import beginning
from planner.evidence.hosts import without_boilerplate
from planner.evidence.turns import call_head, shortened
from planner.evidence.words import without_root
from planner.plan import TurnDecision, whole_characters
from planner.reading.lazy import lazy_pattern
from planner.reading.lines import Line, join_lines, without_escapes, without_indentation
from planner.reading.media import image_size
from planner.reading.messages import Block, History, field_of, to_json

USER_FRAME = "user-words"
FRAMES = ("compacted", USER_FRAME, "restored", "carried")
"""Names of the tags around texts of this package. Text from a conversation is changed so that it contains none."""
KEY_DIGITS = 32
"""Number of hex digits of a digest in the key of a history: 128 bits, so that no other history has the same key."""
GAP = "\n…\n"
"""Text between two lines of a turn if lines between them are left out."""
OUTCOME_CHARACTERS = 120
"""Largest length of the outcome after ``→`` in the line about a call."""
REFUSED = "refused by the user, not done"
"""Outcome that is shown for a call that the user refused, instead of the sentences of the host program."""
DONE = "done"
"""Outcome that is shown for a change of a file, instead of the tool's sentence about the file."""
WORDS_CHARACTERS = 100
"""Largest length of the first words of a turn without calls, if they are all that replaces the turn."""
_MARK_WORDS = {"container_upload": "file", "input_file": "file"}
"""Words that replace a block in text (``[file …]``), by its type, if the type itself is no clear word."""
_STREAMS = ("audio", "video")
"""Parts of the types of blocks with sound or films, and the words that replace them in text."""

_NO_SIDES: Mapping[int, str] = MappingProxyType({})
"""Marks of lines, by line number, for lines that are no part of an edit: none."""

_FRAME = lazy_pattern(rf"<(?=[\s/]*(?:{'|'.join(FRAMES)})\b)", re.I)
"""Bracket before the name of one of `FRAMES`, in any spacing or case: ``<compacted``, ``</ Restored>``; not ``<b>``."""
_OPENING = lazy_pattern(r"[<＜﹤](?=([^<＜﹤>＞]{0,100}))")
"""Character that looks like ``<``, and up to 100 characters after it (the group), which may be the name of such a tag
with invisible characters in it."""
_UNSEEN = ("Cf", "Mn", "Me", "Cc")
"""Unicode categories of invisible characters: zero-width ones, combining marks, controls."""
_HEADING = lazy_pattern(r"(?:old|new)_str(?:ing)?:")
"""Line before the old or the new text of an edit: ``old_str:``. It is left out, as marks show which text is old."""
_CHANGED = lazy_pattern(
    r"(?:The )?[Ff]ile .{0,300}(?:has been |was )?(?:updated|created|written|edited|saved)(?: successfully)?\b"
    r"|(?:Updated|Created|Wrote|Edited|Successfully (?:wrote|edited|updated|created)) \S{0,300}|Success\. Updated"
)
"""Report of a tool on a changed file: ``The file a.py has been updated successfully.``; not ``File not found``."""


def history_key(digest: str) -> str:
    """Return the key by which the original messages are found in the store: ``h`` and the first `KEY_DIGITS` hex digits
    of the history's `digest`."""
    return "h" + digest.removeprefix("sha256:")[:KEY_DIGITS]


def clean(text: str) -> str:
    """Return `text`, which comes from a conversation, so that it cannot pass for text of this package: ``‹`` replaces
    each ``<`` before a name in `FRAMES`. Lone surrogates are replaced, too."""
    text = _FRAME.sub("‹", text) if "<" in text else text
    if not text.isascii() or "\x1b" in text:
        text = _OPENING.sub(lambda opening: "‹" if _looks_like_frame(*opening.group(0, 1)) else opening[0], text)
    return str(whole_characters(text))


def _looks_like_frame(opening: str, after: str) -> bool:
    """Return True if `after`, the text after a bracket `opening`, looks to a reader like the name of one of `FRAMES`:
    ``／ｃｏｍｐａｃｔｅｄ``."""
    if opening == "<" and after.isascii() and "\x1b" not in after:
        return False  # plain text has no hidden characters: `_FRAME` decides
    shown = unicodedata.normalize("NFKD", without_escapes(after))
    category = unicodedata.category
    plain = "".join("-" if kind == "Pd" else char for char in shown if (kind := category(char)) not in _UNSEEN)
    return _FRAME.match(f"<{plain}") is not None


def line_numbers(ranges: Iterable[tuple[int, int]], most: int) -> set[int]:
    """Return the line numbers in `ranges`, such as ``(3, 7)``, whose ends are included; without numbers above `most`,
    the number of lines of the turn."""
    return {number for first, last in ranges if first <= most for number in range(first, min(last, most) + 1)}


def ranges_of(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return `numbers` as ranges, in order, with both ends included: ``((3, 7), (9, 9))``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return tuple((run[0], run[-1]) for run in runs)


def call_line(call: Call, text: str, root: str) -> str:
    """Shorten `text`, the line with the arguments of `call`, by what a reader does not need. It loses the name of the
    main argument (what the call reads, searches or runs), numbers and switches. A command also loses its description,
    and the remark that it runs in the folder `root`."""
    text, main_value = f" {text}", call.sought or call.path or call.command
    for key, value in call.input.items() if main_value else ():
        argument = f" {key}={value if isinstance(value, str) else to_json(value)}"
        # numbers and switches, but not those that select a part of a file: ``offset 10``
        is_detail = not isinstance(value, str | list | dict) and f"{key} " not in call.part
        if value == main_value:
            text = text.replace(f" {key}=", " ", 1)
        elif is_detail or (call.command and (key == "description" or value == root)):
            before, separator, rest = text.rpartition(argument)
            text = before + rest if separator and rest[:1] in ("", " ") else text
    return text.replace(f" cd {root} && ", " ", 1)[1:]


def argument_lines(turn: TurnEvidence) -> Mapping[int, Call]:
    """Return by line number the call whose short arguments are in the line: the first line of each call of `turn`, and
    the lines that continue it."""
    calls: dict[int, Call] = {}
    for call in turn.calls:
        first, *others = turn.lines.of_block(call.block)
        calls.update((line.number, call) for line in (first, *takewhile(attrgetter("continues"), others)))
    return calls


def line_text(turn: TurnEvidence, line: Line, root: str) -> str:
    """Return `line` as it is shown in place of `turn`: with paths relative to `root`, and arguments without details."""
    call = turn.once(argument_lines).get(line.number)
    return without_root(call_line(call, line.text, root) if call is not None else line.text, root)


def media_marks(turn: TurnEvidence, history: History) -> tuple[str, ...]:
    """Return the words that replace each image, document and other medium of `turn` in text, also those in its results:
    ``[image 640x480]``."""
    content = [block for _, block in history.blocks_of(turn.turn)]
    lists = (block["content"] for block in content if isinstance(block.get("content"), list))
    inside = (item for items in lists for item in items if isinstance(item, dict))
    return tuple(mark for block in (*content, *inside) if (mark := media_mark(block)))


def media_mark(block: Block) -> str:
    """Return the words that replace a block in text if it is a medium; empty for other blocks: ``[image 640x480]``,
    ``[document report.pdf]``, ``[audio]`` and, for an uploaded file, ``[file file_1]``."""
    kind, name = str(block.get("type")), block.get("title")
    stream = next((word for word in _STREAMS if word in kind), "")
    if kind == "image":
        size = image_size(block)
        name = f"{size[0]}x{size[1]}" if size else ""
    elif kind in ("container_upload", "file", "input_file"):
        file = block.get("file") if isinstance(block.get("file"), dict) else block
        name = field_of(file, "filename") or field_of(file, "file_id")
    elif not stream and kind != "document":
        return ""
    short = " ".join(name.split())[:60] if isinstance(name, str) else ""
    word = stream or _MARK_WORDS.get(kind, kind)
    return f"[{word} {short}]" if short else f"[{word}]"


def _failed_calls(turn: TurnEvidence) -> frozenset[int]:
    """Return the indexes of the calls of `turn` that surely failed."""
    return frozenset(call.number for _, call, outcome in turn.ended_calls if outcome.has_failed)


def _is_doubtful(turn: TurnEvidence) -> bool:
    """Return True if something in `turn` may have failed, but neither a certain outcome nor words of the agent show it.
    Such a turn gets no mark of failure."""
    agent_reports_it = any(turn.lines[number - 1].part == "assistant" for number in turn.decisive_lines)
    has_doubtful = any(outcome.is_doubtful for outcome in turn.outcomes)
    return has_doubtful and not (agent_reports_it or turn.once(_failed_calls))


def entry_text(evidence: Evidence, decision: TurnDecision, history: History) -> str:
    """Return the text that replaces one turn of `history` by `decision`; empty for a dropped turn. The text is cached
    as long as the decision, and what was read from the turn, are the same."""
    if decision.strategy == "drop":
        return ""
    turn = evidence.turns[decision.turn_id]
    worked_at = evidence.once(worked_later).get(decision.turn_id)
    reports = [evidence.once(reported_later).get(CallPlace(decision.turn_id, call.number)) for call in turn.calls]
    evidence_parts = (
        turn.turn.digest,
        evidence.root,
        turn.answered_at,
        turn.choice,
        turn.decisive_lines,
        turn.outcomes,
        worked_at,
        reports,
    )
    basis = decision.strategy, decision.summary, decision.excerpts, decision.failed_approach, evidence_parts
    known_basis, text = evidence.entries.get(decision.turn_id, (None, ""))
    if known_basis != basis:
        text = _new_entry(evidence, decision, turn.once(media_marks, history))
        evidence.entries[decision.turn_id] = basis, text
    return text


def _new_entry(evidence: Evidence, decision: TurnDecision, media: Sequence[str]) -> str:
    """Write the text that replaces a turn: id and remarks, then its calls (``reference``) or the chosen lines
    (``summarize``), and `media`, the words for its images. ``✗`` follows the id of a failed approach without a failed
    call; but not of an earlier summary, which names its failures."""
    entry = _Entry(evidence, evidence.turns[decision.turn_id], decision)
    is_summary = any(entry.turn.lines.of_sources("planner"))
    has_failed = decision.failed_approach and not (entry.failed_calls or is_summary or entry.turn.once(_is_doubtful))
    replied_to = f"to: {clean(shortened(entry.turn.choice.text))}" if entry.turn.choice else ""
    answered = f"replied at {entry.turn.answered_at}" if entry.turn.answered_at else ""
    about_words = ", ".join(filter(None, (replied_to, answered)))
    remarks = ("✗", has_failed), ("(earlier summary)", is_summary), (f"({about_words})", about_words)
    parts = [*(entry.reference() if decision.strategy == "reference" else entry.body()), clean(" ".join(media))]
    beginning = [decision.turn_id, *(remark for remark, applies in remarks if applies)]
    return " ".join([*beginning, "\n".join(filter(None, parts))]).rstrip()


@dataclass(frozen=True)
class _Entry:
    """Text in place of one turn (its entry) while it is written, from the turn and the decision on it."""

    evidence: Evidence
    turn: TurnEvidence
    decision: TurnDecision

    @property
    def failed_calls(self) -> frozenset[int]:
        """Indexes of the failed calls, which get a mark."""
        return self.turn.once(_failed_calls) if self.decision.failed_approach else frozenset()

    def reference(self) -> Iterator[str]:
        """Yield a line about each call of the turn, with its outcome; without calls, its kind and first words."""
        for call in self.turn.calls:
            yield self.call_line_with_outcome(call)
        if not self.turn.calls:
            words = next((line.text.strip() for line in self.turn.lines if line.text.strip()), "")
            yield self.shown(f"{self.turn.turn.kind}: {beginning(words, WORDS_CHARACTERS)}")

    def call_line_with_outcome(self, call: Call, argument_line: Line | None = None, result: Sequence[Line] = ()) -> str:
        """Return one line for a call: ``> name arguments → outcome``, with ``✗`` in front if it failed, and with
        ``(worked at t33)`` if the same call succeeded later, or ``(see t33)`` if a later result may report on it.
        `argument_line`: the line of its arguments to show; without it, a few words describe the call. `result`: lines
        of its result that the entry shows below."""
        root = self.evidence.root
        line = call_line(call, argument_line.text, root) if argument_line is not None else call.name
        if argument_line is None or line.strip() == call.name:  # all arguments have several lines
            text = call_head(call, root, failed=self.decision.failed_approach)
        else:
            text = self.ended([argument_line], self.evidence.shown(line))
        outcome = self.evidence.shown(self.shown_outcome(call, result))
        mark = "✗ > " if call.number in self.failed_calls else "> "
        worked_at = self.evidence.once(worked_later).get(self.turn.turn.id, {}).get(call.number, "")
        report = self.evidence.once(reported_later).get(CallPlace(self.turn.turn.id, call.number))
        remark = f" (see {report.turn_id})" if report else ""
        remark = f" (worked at {worked_at})" if worked_at else remark
        return clean(f"{mark}{text} → {outcome}{remark}" if outcome else f"{mark}{text}{remark}")

    def shown_outcome(self, call: Call, result: Sequence[Line]) -> str:
        """Return the outcome for the line about a call, shortened. It is empty if `result`, the lines that are shown
        below that line, already has it."""
        outcome = self.turn.outcome_of(call)
        if self.turn.is_refused(call):
            return REFUSED
        if call.kind == "ask" and any(line.source == "user" for line in result):
            return ""  # the user's answer is shown below
        if call.kind == "write" and _CHANGED.match(outcome):
            return DONE
        if len(outcome) <= OUTCOME_CHARACTERS:
            return outcome
        result_texts = (" ".join(line.text.split()) for line in result)
        is_below = any(len(text) > OUTCOME_CHARACTERS and outcome.startswith(text) for text in result_texts)
        return "" if is_below else beginning(outcome, OUTCOME_CHARACTERS)

    def body(self) -> Iterator[str]:
        """Yield the parts of the text in place of a summarized turn, with the lines that the decision chooses. In
        order: the summary with the agent's words, each call with its lines, other lines such as those of documents, the
        user's words, and what they pasted."""
        chosen = line_numbers(self.decision.excerpts, len(self.turn.lines))
        in_calls = {block for call in self.turn.calls for block in (call.block, call.result_block)}
        outside = [line for line in self.turn.lines.outside(in_calls) if line.number in chosen]
        runs = _runs([line for line in outside if line.part == "assistant"])
        agent_words = "\n… ".join(self.ended(run, self.shown(join_lines(run))) for run in runs)
        # cleaned as one text, as half a tag at the end of the summary and half in the words would make a tag
        yield clean("\n".join(part for part in (self.decision.summary, agent_words) if part))
        for call in self.turn.calls:
            yield from self.call_with_lines(call, chosen)
        yield self.tool_lines([line for line in outside if line.part != "assistant" and line.source != "user"])
        typed = {line.number for line in self.turn.typed_lines}
        yield self.user_words([line for line in outside if line.source == "user" and line.number in typed])
        pasted = [line for line in outside if line.source == "user" and line.number not in typed]
        yield self.tool_lines([line for line in pasted if line.text.strip()])

    def call_with_lines(self, call: Call, chosen: set[int]) -> Iterator[str]:
        """Yield the line about a call, then its other lines that are `chosen`: arguments, result, and the user's words
        in the result. A call without a chosen line is left out, unless `has_to_be_shown`."""
        turn_lines, boilerplate = self.turn.lines, self.turn.boilerplate_lines
        arguments = [line for line in turn_lines.chosen(chosen, call.block) if not _HEADING.fullmatch(line.text)]
        chosen_result = turn_lines.chosen(chosen, call.result_block)
        result = self.with_flat_outcome(call, [line for line in chosen_result if line.number not in boilerplate])
        if not (arguments or chosen_result or self.has_to_be_shown(chosen)):
            return
        first_number = turn_lines.of_block(call.block)[0].number
        argument_line = next((line for line in arguments[:1] if line.number == first_number), None)
        yield self.call_line_with_outcome(call, argument_line, result)
        others = arguments if argument_line is None else arguments[1:]
        lines = list[Line]()
        for line in others:
            if text := line_text(self.turn, line, self.evidence.root):
                lines.append(line._replace(text=text))
        yield self.tool_lines(lines, self.turn.sides(call))
        outcome = self.turn.outcome_of(call)
        line_above = outcome if len(outcome) <= OUTCOME_CHARACTERS else None
        lines = [line for line in result if line.source != "user" and " ".join(line.text.split()) != line_above]
        yield self.tool_lines(lines, viewed=not call.command)
        answers = [line for line in result if line.source == "user"]
        yield self.user_words(answers, without_boilerplate if call.kind == "ask" else str)

    def with_flat_outcome(self, call: Call, result: Sequence[Line]) -> list[Line]:
        """Return `result`, lines of the result of `call` that are shown. If one of them is from an outcome in indented
        JSON, the whole outcome is on one line in its place: ``{"status": "booked"}``."""
        flat: dict[int, Line] = {}
        for outcome in self.turn.statements_of(self.turn.outcomes[call.number].lines):
            if not any(line.continues for line in outcome.lines):  # then the joined lines are indented JSON
                whole = outcome.lines[-1]._replace(text=outcome.text)  # its number is next to that of the line after
                flat |= dict.fromkeys(outcome.numbers, whole)
        return [*dict.fromkeys(flat.get(line.number, line) for line in result)]

    def has_to_be_shown(self, chosen: set[int]) -> bool:
        """Return True if the call of a turn is shown even without chosen lines: it is the only one, and either it
        failed, or no words of the agent are `chosen`, so that the text would show nothing of the turn."""
        has_words = any(line.number in chosen for line in self.turn.lines.of_part("assistant"))
        return len(self.turn.calls) == 1 and (self.decision.failed_approach or not has_words)

    def user_words(self, lines: Sequence[Line], text_of: Callable[[str], str] = str) -> str:
        """Return `lines` of the user, unchanged, between tags that mark them as the user's. `text_of`: function that
        removes text of the host program from them."""
        if not lines:
            return ""
        runs = [*_runs(lines)]
        gaps = ["", *(self._gap(before[-1].number, after[0].number) for before, after in pairwise(runs))]
        words = "".join(f"{gap}{clean(text_of(join_lines(run)))}" for gap, run in zip(gaps, runs, strict=True))
        start = "…" if lines[0].continues else ""
        end = "…" if self.turn.lines.goes_on(lines[-1].number) else ""
        return f"<{USER_FRAME}>{start}{words}{end}</{USER_FRAME}>"

    def _gap(self, before: int, after: int) -> str:
        """Return the text between the lines with the numbers `before` and `after`: ``…`` if lines with text are left
        out between them, else an empty line."""
        between = (self.turn.lines.text(number) for number in range(before + 1, after))
        return GAP if any(text.strip() for text in between) else "\n\n"

    def tool_lines(self, lines: Sequence[Line], sides: Mapping[int, str] = _NO_SIDES, *, viewed: bool = True) -> str:
        """Return `lines` of a tool with their marks: of neighbouring lines the first one follows ``|``, and the others
        are indented.

        `sides`: for the lines of an edit, the mark ``-``, ``+`` or ``=`` by line number, which they follow instead, and
        ``…`` if lines before them are left out. `viewed`: False for the output of a command, in which a number at the
        beginning of a line is data and not the number of the line.
        """
        parts: list[str] = []
        last = 0
        for run in _runs(lines, sides):
            texts = without_indentation(self.shown(join_lines(run)).split("\n"), viewed=viewed)
            texts[-1] = self.ended(run, texts[-1])
            side = sides.get(run[0].number, "")
            has_gap = bool(sides) and last > 0 and any(number in sides for number in range(last + 1, run[0].number))
            first_mark = f"{'… ' if has_gap else ''}{'…' if run[0].continues else ''}"
            last = run[-1].number
            parts.append(f"\n{side or ' '} ".join([f"{side or '|'} {first_mark}{texts[0]}", *texts[1:]]))
        return "\n".join(parts)

    def ended(self, run: Sequence[Line], text: str) -> str:
        """Return `text`, which shows the lines `run`; ``…`` ends it if the next piece of the last line is left out."""
        return f"{text.rstrip()}…" if self.turn.lines.goes_on(run[-1].number) else text

    def shown(self, text: str) -> str:
        """Return `text` with paths relative to the main folder, and safe from being taken for text of this package."""
        return clean(self.evidence.shown(text))


def _runs(lines: Sequence[Line], sides: Mapping[int, str] = _NO_SIDES) -> Iterator[list[Line]]:
    """Divide `lines` into runs that are shown without a gap: with consecutive numbers, in one block, and with the same
    mark in `sides`."""
    run: list[Line] = []
    for line in lines:
        follows = bool(run) and line.number == run[-1].number + 1 and line.block == run[-1].block
        if run and not (follows and sides.get(line.number) == sides.get(run[-1].number)):
            yield run
            run = []
        run.append(line)
    if run:
        yield run


def with_gaps(lines: Sequence[Line]) -> str:
    """Return `lines` as text, with ``…`` on a line of its own wherever lines between them are left out."""
    return GAP.join(map(join_lines, _runs(lines)))


def preview_text(turn: TurnEvidence, block: int | None, chosen: set[int], restore_tool: str) -> str:
    """Return a preview that replaces a block which is not answered yet but too large: its `chosen` lines, the number of
    the others, and how to get them. `restore_tool`: the agent's tool for that; empty without one."""
    lines = turn.lines.of_block(block)
    shown = turn.lines.chosen(chosen, block)
    text = clean(with_gaps(shown))
    cure = f'; {restore_tool}("{turn.turn.id}") returns all' if restore_tool else f"; stored whole as {turn.turn.id}"
    note = f"[{len(lines) - len(shown)} lines left out here{cure}]"
    return f"{text}\n{note}" if text.strip() else note
