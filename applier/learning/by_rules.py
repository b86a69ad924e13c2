"""Finds lessons (things that later conversations can use) in a finished conversation by rules, without a model.

The user's words give wishes, decisions and answers to questions, verbatim. The agent's calls give commands that check
the project (tests, lint), errors of such checks and what made the check succeed later, and reasons in commits and
comments. If a file was changed between error and success, the cause counts as unknown. Text about a single file or test
is no lesson.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise, product, takewhile

from applier.learning.lesson import Kind, Lesson, error_subject, sentence_key, sentences
from planner.evidence import Evidence, TurnEvidence
from planner.evidence.calls import Call
from planner.evidence.hosts import typed_lines
from planner.evidence.turns import shortened
from planner.evidence.words import specifics_of
from planner.programming.coding_tools import Command, commands_in, documents, without_paging
from planner.programming.command_failures import RAN_NOTHING, check_kind, check_kinds, recoveries
from planner.programming.repository import changed_paths
from planner.reading.lines import Statement, one_line, statements

SHORT_MESSAGE = 1_500
"""Largest length in characters of a user's message in which single sentences are searched for lessons."""
WORDS_CHARACTERS = 320
"""Largest length in characters of a sentence that may be a lesson."""
LEAST_WORDS = 4
"""Smallest number of words of a lesson, as a shorter one is not understood without its context: ``always both``."""
_LASTING = re.compile(
    r"\b(?:from now on|going forward|as a rule)\b"
    r"|^(?:please )?(?:in (?:the )?future|next time|remember (?:to|that))\b"
    r"|^(?:every time|whenever|each time) (?:you|we)\b"
    r"|(?:^|[.;,:!]\s*|\b(?:please|must|should|shall|we|you|to|and|but|also) )"
    r"(?:always|never) (?!(?:been|was|were|is|are|had|has|did|got|seen)\b)(?!\w+ed\b|\w{2,}[^\Ws]s\b|happen\b)\w+"
    r"|\bwe (?:really )?(?:don'?t|do not) (?:want|use|do|allow|support|ship|write|accept|merge|mock)\b"
    r"|\bwe (?:want|prefer|have|need|try) to avoid\b"
    r"|\bwe (?:always |strongly )?prefer\b|\bwe only (?:use|support|ship)\b"
    r"|(?:^|[.;!]\s*|\bwe )no longer (?:need|use|want|support|ship)\b"
    r"|(?:^|[.;,:!]\s*|\band )no (?!idea|clue|problem)[\w ,-]{3,60}\b(?:at all|anywhere)\b"
    r"|\bthe (?:\w+ )?(?:directive|rule|principle|policy|convention) is\b"
    r"|\bwe(?:['’]re| are) (?:going to |now )?(?:adopt\w*|archiv\w*|deprecat\w*|standardi[sz]\w*|switch\w* to) "
    r"|\bmust (?:stay|remain)\b",
    re.I,
)
"""Words of a rule that holds beyond the present task: ``from now on``, ``never push``, ``we don't want``, ``no eval
anywhere``. Not ``it never returns``, ``this always failed``, ``I don't want that one``."""
_QUESTION = re.compile(
    r"^\W*(?:what|why|h?y|how|where|when|which|who|is|are|was|do|does|did|can|could|should|would|will|shall|have|has|"
    r"isn'?t|aren'?t|don'?t (?:we|you)|didn'?t)\b(?!.*[.!;]\s+\S)|\?\W*$",
    re.I | re.S,
)
"""Question, which is no lesson, as it decides nothing: ``why is it never called``, ``we never do that, right?``."""
_AFTERTHOUGHT = re.compile(r",? but (?:i think|i guess|not sure|maybe|perhaps)\b.*$", re.I | re.S)
"""Doubt at the end of a sentence, which is left out: ``never block the user, but I think we should warn``."""
_ASSENT = re.compile(r"^(?:yes|ok|okay|yeah|sure)[.,!]? +", re.I)
"""Word of assent at the beginning of a sentence, which is left out: ``ok, never push``."""
_REASON = re.compile(r"\b(?:because|otherwise|so that|so no need|the risk|we (?:don['’]?t|do not) have an?)\b", re.I)
"""Words that introduce a reason: ``because``, ``otherwise``."""
_DECIDES = re.compile(
    r"\b(?:let'?s|we should|should(?:n'?t| not)|must|don'?t|do not|no need|instead of|rather than|avoid|we want"
    r"|we'?ll|keep|replace|drop)\b",
    re.I,
)
"""Words of a decision: ``let's``, ``instead of``, ``don't``."""
_POINTING = re.compile(
    r"^\W*(?:(?:ok|okay|yes|no|yeah|and|but|so|also|then|just|please|can you|let'?s|don'?t|do not)[\s,]+)*"
    r"(?:\w+ )?(?:this|that|it|these|those|them|here|there|the (?:two|three|others?|new|old|same|last|first|second))\b",
    re.I,
)
"""Beginning of a sentence that needs its context: ``no, remove this again …``; not ``keep the queue, since …``."""
_ASKS = re.compile(
    r"\W*(?:please|can|could|would|will|let|then|also|now|next|go|add|make|fix|submit|after|see|refer|though)\b", re.I
)
"""Beginning of a sentence that asks for something to be done now: ``please fix …``, ``then submit …``."""
_TAKEN_BACK = re.compile(
    r"\b(?:wrong (?:chat|window|session)|never ?mind|scratch that|disregard|ignore (?:my|the|that|this) (?:last|prev))",
    re.I,
)
"""Words that take back the user's last words: ``wrong chat``, ``never mind``."""
_COURSE = re.compile(
    r"\b(?:next(?: steps?)?|proceed|continue|commit|push|pull request|go ahead|ready|approve|start|run|review"
    r"|would you like to (?:do|work))\b",
    re.I,
)
"""Words of a question about the next step: ``what would you like to do next?``. The answer is no lasting decision."""
COURSE_WORDS = 20
"""Largest number of words in a question about the next step; a longer one may ask for a lasting decision."""
_CONVENTIONS = re.compile(r"\b(?:constraints|conventions|ground rules|house rules|principles|guidelines)\b", re.I)
"""Words in a heading above the user's list of rules: ``Conventions``, ``Ground rules``."""
_ITEM = re.compile(r"^(?:[-*•]|\d{1,2}[.)]) +")
"""Mark at the beginning of a list item."""
_OF_THIS_TASK = re.compile(
    r"\bthis (?:is|task|PR|change|branch|issue|session)\b|\bthe (?:proposed|new|PR|task)\b|#\d", re.I
)
"""Words that refer to the present task alone: ``this PR``, ``#12``."""
_FORBIDS = re.compile(
    r"(?:^|[.;,:!]\s*|\b(?:please|and|but|so) )(?:do not|don'?t|never|no|avoid|always|must|only)\b"
    r"|\b(?:must|has to|have to)\b",
    re.I,
)
"""Words of a rule that holds at least in this task: ``don't mock it``, ``must run on 3.11``; not ``I do not know``."""


def wishes(evidence: Evidence) -> Iterator[Lesson]:
    """Yield the user's wishes, and decisions with a reason, verbatim; `Lesson.lasting` if they hold beyond a task."""
    yield from _conventions(evidence)
    for turn in _turns_not_taken_back(evidence):
        # in the result of a call that asks the user, the host adds words of its own to the user's
        is_answer = any(call.kind == "ask" for call in turn.calls)
        typed = [line for line in turn.user_lines if line.part == "user" or not is_answer]
        if sum(len(line.text) for line in typed) > SHORT_MESSAGE:
            continue  # a long message describes one task, and its demands end with that task
        for statement in statements(typed_lines(typed)):
            words = _binding_words(statement)
            decides, lasts = _is_reasoned_decision(words), is_lasting(words)
            if lasts or decides or _FORBIDS.search(words):
                kind: Kind = "wish" if lasts or not decides else "decision"
                yield Lesson(kind, f"“{words}”", words, turn.turn.id, sentence_key(words), lasting=lasts or decides)


def _conventions(evidence: Evidence) -> Iterator[Lesson]:
    """Yield as lessons the list items in the user's messages below a heading like ``# Conventions``."""
    for turn in evidence.turns.values():
        is_below_heading = False
        for statement in statements(line for line in turn.user_lines if line.part == "user"):
            text = one_line(statement.text)
            if text.startswith("#"):
                is_below_heading = bool(_CONVENTIONS.search(text))
            item = _ITEM.sub("", text)
            is_item = item != text
            if is_below_heading and is_item and _is_clear(item) and not _OF_THIS_TASK.search(item):
                lasts, key = is_lasting(item), sentence_key(item)
                yield Lesson("wish", f"“{item}”", item, turn.turn.id, key, lasting=lasts, is_long=True)


def _turns_not_taken_back(evidence: Evidence) -> list[TurnEvidence]:
    """Return the turns with words of the user, except those that their next message takes back (``wrong chat``)."""
    spoken = [turn for turn in evidence.turns.values() if turn.user_lines]
    taken_back = {
        before.turn.id
        for before, after in pairwise(spoken)
        if any(_TAKEN_BACK.search(line.text) for line in after.user_lines)
    }
    return [turn for turn in spoken if turn.turn.id not in taken_back]


def _binding_words(statement: Statement) -> str:
    """Return a line of the user without a list mark, a word of assent (``ok,``), a doubt at its end, and requests after
    its last rule or decision. Return an empty text if the rest is a question or not clear without its context."""
    parts = sentences(_ITEM.sub("", one_line(statement.text)))
    binding = [at for at, part in enumerate(parts) if _LASTING.search(part) or _is_reasoned_decision(part)]
    later = parts[binding[-1] + 1 :] if binding else []  # sentences after the last rule or decision
    up_to_last_rule = parts[: len(parts) - len(later)]
    text = " ".join([*up_to_last_rule, *takewhile(lambda part: not _ASKS.match(part), later)])
    text = _ASSENT.sub("", _AFTERTHOUGHT.sub("", text))
    return text if _is_clear(text) else ""


def _is_clear(text: str) -> bool:
    """Return True for a text that can be understood without its context, is no question, and is neither shorter than
    `LEAST_WORDS` nor longer than `WORDS_CHARACTERS`."""
    has_fit_length = len(text.split()) >= LEAST_WORDS and len(text) <= WORDS_CHARACTERS
    return has_fit_length and not _POINTING.match(text) and not is_question(text)


def is_question(text: str) -> bool:
    """Return True for a question."""
    return bool(_QUESTION.search(text))


def is_lasting(text: str) -> bool:
    """Return True for English text with words of a rule that holds beyond the present task (``never push``)."""
    return bool(_LASTING.search(text))


def _is_reasoned_decision(text: str) -> bool:
    """Return True for text with words of a decision and of a reason: ``keep the queue, because …``."""
    return bool(_REASON.search(text) and _DECIDES.search(text))


def choices(evidence: Evidence) -> Iterator[Lesson]:
    """Yield as lessons the user's answers to the agent's questions, except questions about the next step."""
    for turn in _turns_not_taken_back(evidence):
        asking_calls = [call for call in turn.calls if call.kind == "ask"] if turn.turn.kind != "user" else []
        for question, answer in chain.from_iterable(map(_answers, asking_calls)):
            is_about_next_step = _COURSE.search(question) and len(question.split()) <= COURSE_WORDS
            if not is_about_next_step and len(question.split()) >= LEAST_WORDS:
                text = f"{shortened(question, WORDS_CHARACTERS)} → “{answer}”"
                yield Lesson("decision", text, answer, turn.turn.id, sentence_key(question))


def _answers(call: Call) -> Iterator[tuple[str, str]]:
    """Yield each question that the agent asks by `call` with the user's answer, if the answer is one of the offered
    options, or contains words of a rule or decision."""
    questions = call.input.get("questions")
    for item in questions if isinstance(questions, list) else [call.input]:
        question = item.get("question") if isinstance(item, Mapping) else None
        if not isinstance(question, str):
            continue
        # hosts report answers as ``"Which queue?"="Redis"`` or ``User selected: Redis``
        answer_pattern = re.escape(f'"{question}"="') + '([^"]+)"|^User (?:selected|responded): (.+)'
        match = re.search(answer_pattern, call.text, re.S)
        answer = one_line(match[1] or match[2]) if match else ""
        offered = item.get("options") or item.get("choices") or ()
        labels = {
            one_line(str(option.get("label", "") if isinstance(option, Mapping) else option)) for option in offered
        }
        is_binding = any(words.search(answer) for words in (_DECIDES, _LASTING, _FORBIDS))
        if answer and (answer in labels or (is_binding and _is_clear(answer))):
            yield one_line(question), answer.removesuffix(" (Recommended)")


# The agent's calls.

MOST_WORDS, WHY_CHARACTERS = 5, 280
"""Limits of a lesson about a command: number of words in the command, and of characters in the reason for it."""
_WHY = re.compile(
    r"\b(?:since|because|has no|doesn['’]t have|so (?:that )?(?:the|build|tests?|it)\b.{0,200}?\b(?:use|see|find))",
    re.I,
)
"""Words by which an agent gives the reason for a command: ``because``, ``the workspace has no``."""
_ONE_FILE_OR_TEST = re.compile(
    r"\A(?:-run|-k|-t|--grep)\Z|::|\.\w{1,5}(?::\d{1,9})?\Z|\A(?!\./\.\.\.\Z)[^/]*+/|[$`\"'*\\]"
)
"""Word of a command that names a file, folder or test: ``-run``, ``a.test.ts``, ``packages/core``; not ``./...``."""
_EVERYBODYS = re.compile(
    r"go (?:build|test|vet) \./\.\.\.|cargo (?:build|check|clippy|test)|make"
    r"|(?:npm|pnpm|yarn|bun)(?: run)? (?:build|check|lint|test|typecheck)"
    r"|(?:python3? -m )?(?:pytest|unittest)"
)
"""Commands that every agent tries first in such a project, so that they need not be learned: ``npm test``."""

COMMAND_CHARACTERS = 80
"""Largest length of the failed command in a lesson about an error."""
_PROVIDES = frozenset(("install", "add", "sync", "setup", "trust", "bootstrap", "link", "restore", "ci"))
"""Words of commands that install something missing: ``bun install``, ``npm ci``."""

LEAST_REASON_WORDS, MOST_CHARACTERS = 8, 320
"""Limits of a sentence with a reason in a commit or comment: smallest number of words, largest of characters."""
ALIKE = 0.6
"""Share of the shorter sentence's words from which two sentences in commits or comments count as the same."""
_QUOTED = re.compile(r"(?:-m|--message|--body|\bbody=)[ =]?\"((?:[^\"\\]|\\.)*)\"|(?:-m|--body) '([^']*)'", re.S)
"""Message in quotes in a command: ``git commit -m "…"``."""
_ESCAPED = re.compile(r"\\([`\"$\\])|\*\*")
"""Escapes of a shell and marks of bold text, which are removed from a message."""
_GROUNDS = re.compile(
    r"\b(?:because|since|so that|otherwise|rather than|instead of|intentionally|by design|now that|to avoid|, so)\b"
    r"|\bso (?:we|it|the|this|a)\b|, not [\w-]+",
    re.I,
)
"""Words that give a reason: ``…, so we log and continue rather than …``; not ``Add a test``."""
_PASSING = re.compile(
    r"\b(?:this (?:PR|branch|commit)|follow-up|interim|for now|TODO|just (?:been )?(?:merged|added)|today|superseded"
    r"|fixed in|added in|already|stale|(?:good|valid) catch|(?:good|fair) point|was|were|caused|produced|passed|failed"
    r"|didn't|(?:we|it|this|they|which) now)\b|#\d+|merge conflict",
    re.I,
)
"""Words about present or past work, in a sentence that is no lasting decision: ``this PR``, ``for now``, ``was``."""


# Checks of the project.


def check_commands(evidence: Evidence) -> Iterator[Lesson]:
    """Yield a lesson for each short command that checks the project (tests, lint) and succeeded, except those that
    everybody tries first. Also yield one for each build command for which the agent gave a reason."""
    known: set[str] = set()
    for turn, call, outcome in evidence.ended_calls():
        if not outcome.has_passed or any(RAN_NOTHING.search(line.text) for line in turn.statements_of(outcome.lines)):
            continue
        for command in commands_in(call) if call.kind == "run" else ():
            words, kind = " ".join(command.words), check_kind(command)
            if kind and _is_general(command) and not _EVERYBODYS.fullmatch(words) and words not in known:
                known.add(words)
                yield Lesson("command", f"{kind}: `{words}`", words, turn.turn.id, words, lasting=False)
            key = f"why {words}"
            if kind == "build" and key not in known and (why := _reason_for_command(turn)):
                known.add(key)
                yield Lesson("command", f"`{words}`: “{why}”", why, turn.turn.id, key)


def _reason_for_command(turn: TurnEvidence) -> str:
    """Return the first short sentence of the agent in `turn` that gives a reason; empty without one."""
    spoken = " ".join(one_line(statement.text) for statement in statements(turn.lines.of_part("assistant")))
    return next(
        (sentence for sentence in sentences(spoken) if len(sentence) <= WHY_CHARACTERS and _WHY.search(sentence)), ""
    )


def _is_general(command: Command) -> bool:
    """Return True for a short command that names no single file, folder or test. It must not be a later part of a pipe,
    nor run only if another command fails."""
    is_short = command.before in (";", "&&") and len(command.words) <= MOST_WORDS
    return is_short and not any(_ONE_FILE_OR_TEST.search(word) for word in command.words)


# Errors of checks.


def failures(evidence: Evidence) -> Iterator[Lesson]:
    """Yield as lessons the error lines of failed checks, with the commands that helped if the check succeeded later."""
    # ids of the turns in which a check succeeded, by those in which it failed before: in `turn_ids`, success comes last
    succeeded_at = {failed: line.turn_ids[-1] for line in recoveries(evidence) for failed in line.turn_ids[:-1]}
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status != "failed" or outcome.refused or call.kind != "run" or not check_kinds(call):
            continue
        success = succeeded_at.get(turn.turn.id, "")
        remedy = _remedy(evidence, turn, success) if success else ""
        ending = f"; passed after {remedy} at {success}" if remedy else ""
        for line in turn.statements_of(turn.decisive_lines):
            if line.block == call.result_block and (subject := error_subject(line.text)):
                words = one_line(line.text)
                # without parts that only shorten the command's output (``| head``)
                command = shortened(evidence.shown(without_paging(call.subject)), COMMAND_CHARACTERS)
                text = f"`{words.replace('`', '')}` of `{command.replace('`', '')}`{ending}"
                yield Lesson("error", text, words, turn.turn.id, subject, success if remedy else "", lasting=False)


def passes_again(failed: TurnEvidence, later: TurnEvidence) -> bool:
    """Return True if a check that failed in the turn `failed` (such as tests) succeeds in the turn `later`, or if a
    program or tool that is no check fails and later succeeds."""
    ended = [call for _, call, outcome in later.ended_calls if outcome.status in ("passed", "done")]
    return later.turn.number > failed.turn.number and any(map(_are_alike, product(failed.failed_calls, ended)))


def _are_alike(pair: tuple[Call, Call]) -> bool:
    """Return True if both calls of the `pair` run checks of the same kind (such as tests). If the first call runs no
    check, return True if both run the same program or use the same tool."""
    first_kinds, second_kinds = map(set, map(check_kinds, pair))
    first_programs, second_programs = ({run.words[0] for run in commands_in(call)} or {call.name} for call in pair)
    return bool(first_kinds & second_kinds or (not first_kinds and first_programs & second_programs))


def _remedy(evidence: Evidence, failed: TurnEvidence, passed: str) -> str:
    """Return the commands that installed something between the turn `failed` and the turn with the id `passed`. Empty
    if a file was changed between them, as that may be the cause of the success."""
    first_turn, last_turn = failed.turn.number, evidence.turns[passed].turn.number
    commands: dict[str, None] = {}
    for turn, call, outcome in evidence.ended_calls():
        if first_turn <= turn.turn.number <= last_turn and outcome.status not in ("failed", "unanswered"):
            if any(changed_paths(turn, call, outcome)):
                return ""
            commands |= {
                f"`{' '.join(command.words)}`": None
                for command in commands_in(call)
                if _PROVIDES.intersection(command.words[:3])
            }
    return ", ".join(commands)


# Published reasons.


def reasons(evidence: Evidence) -> Iterator[Lesson]:
    """Yield as lessons the reasons in messages that the agent published (commits, comments, reviews): of each message
    the first sentence with a reason, below the title of a commit, unless it is much like an earlier one."""
    known: list[frozenset[str]] = []
    for turn, call, outcome in evidence.ended_calls():
        if outcome.status in ("failed", "unanswered", "running") or outcome.refused:
            continue
        for title, sentence in filter(None, map(_title_and_reason, _published_messages(call))):
            words = frozenset(sentence_key(sentence).split())
            if not any(len(words & known_words) >= ALIKE * min(len(words), len(known_words)) for known_words in known):
                known.append(words)
                text = _ESCAPED.sub(r"\1", f"{title}: “{sentence}”" if title else f"“{sentence}”")
                yield Lesson("decision", text, sentence, turn.turn.id, sentence_key(title or sentence))


def _published_messages(call: Call) -> Iterator[tuple[str, str]]:
    """Yield title and body of each message that `call` publishes as a commit or comment; a comment's title is empty."""
    is_commit = any(command.starts("git", "commit") for command in commands_in(call))
    if call.kind == "run" and (is_commit or any(map(_publishes_comment, commands_in(call)))):
        here_documents = [document.text for document in documents(call.command)]
        for text in here_documents or [match[1] or match[2] or "" for match in _QUOTED.finditer(call.command)]:
            title, _, body = text.partition("\n") if is_commit else ("", "", text)
            yield one_line(title), body


def _publishes_comment(command: Command) -> bool:
    """Return True for a command that publishes a comment: ``gh pr comment 7 --body …``, ``gh api …/replies``."""
    is_api_call = command.starts("gh", "api")
    is_reply = is_api_call and any(word.endswith(("/replies", "/comments")) for word in command.words)
    return is_reply or (command.words[0] in ("gh", "glab") and command.words[2:3] == ("comment",))


def _title_and_reason(message: tuple[str, str]) -> tuple[str, str] | None:
    """Return the title of a `message` (title and body), and the first sentence of the body with a reason; None without
    one. If the title is empty, the sentence must contain a name, or nobody knows what it is about."""
    title, body = message
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*] |#)", body):  # at empty lines, list items and headings
        for sentence in filter(_is_lasting_reason, sentences(one_line(paragraph))):
            if title or specifics_of(sentence):
                return title, sentence.removeprefix("- ")
    return None


def _is_lasting_reason(sentence: str) -> bool:
    """Return True for a sentence of fit length that gives a reason, and not for the present work only."""
    has_fit_length = len(sentence.split()) >= LEAST_REASON_WORDS and len(sentence) <= MOST_CHARACTERS
    return has_fit_length and bool(_GROUNDS.search(sentence)) and not _PASSING.search(sentence)


READERS = (wishes, choices, reasons, check_commands, failures)
"""Functions that find lessons in a conversation, in the order in which their lessons are listed."""
