"""Checks a list of messages against those rules of the Messages API that cutting and merging can break.

`check_messages` reports what the API would refuse and repairs nothing. `answer_calls` gives tool calls whose result was
lost a note as their result, which the model can see. It invents and removes nothing.

The rules are numbered. Rules 1 to 13, 15, 17, 19 and 23 to 25 are checked: calls and their results, thinking, and the
shape of a list. Rule 14 is left out, as it compares two lists. Rules 16, 18 and 20 to 22 (limits of a request, its
cache marks and its characters) are left out, as a smaller list never breaks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby, pairwise, takewhile
from operator import attrgetter
from typing import NamedTuple

from propcache.api import cached_property

from planner.reading.lazy import lazy_pattern
from planner.reading.messages import (
    ROLES,
    THINKING,
    Block,
    Message,
    blocks,
    has_user_words,
    plain_message,
    readable_text,
)
from planner.reading.tokens import ModelFamily, model_family

__all__ = ["LOST_RESULT", "Violation", "answer_calls", "check_messages", "lost_call", "lost_result"]

MENDED_BY_THE_API = frozenset({"alternation", "result_order", "split_results"})
"""Codes of violations that only stricter providers refuse. The Messages API accepts them: it merges neighbouring
messages of one role, and finds the result of a call by its id."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Violation of one of the API's rules at one place of a list of messages."""

    rule: int
    """Number of the rule. The function that checks it describes it."""
    place: str
    """Place in the list: ``messages[3].content[1]``, ``messages[3]`` or ``messages``."""
    problem: str
    cure: str
    """Words that tell the caller what to change."""
    code: str
    """Short name of the problem: ``alternation``, ``split_results``, …"""

    @property
    def message(self) -> int:
        """Index of the message with the violation. There is none if the place is ``messages``, the whole list."""
        return int(self.place.removeprefix("messages[").partition("]")[0])

    @property
    def refused(self) -> bool:
        """True if the Messages API refuses the list (status 400); False if only stricter providers do."""
        return self.code not in MENDED_BY_THE_API

    def __str__(self) -> str:
        """Return the violation as one line: place, problem, remedy and rule."""
        return f"{self.place}: {self.problem}; {self.cure} (rule {self.rule})"


_PlacedCall = tuple[int, int, str]
"""Place of a tool call or result: index of the message, index of the block in it, and the id of the call."""


class CallRound(NamedTuple):
    """Tool calls in neighbouring assistant messages, which the API counts as one message, and their results."""

    calls: list[_PlacedCall]
    results: list[_PlacedCall]
    """Results in the user's messages right after the calls, whether or not they belong to these calls."""
    next_index: int
    """Index of the message after the last one with calls."""


def place_of(message: int, block: int | None = None) -> str:
    """Return the name of a place for errors: ``messages[3]``, or ``messages[3].content[1]`` with a `block`."""
    return f"messages[{message}]" if block is None else f"messages[{message}].content[{block}]"


@dataclass(frozen=True)
class CheckedRequest:
    """List of messages that is checked, with what the rules need to know about the request."""

    messages: Sequence[Message]
    family: ModelFamily
    thinking_enabled: bool | None = None
    """True if the request asks for thinking. With None, rules 12 and 13 are skipped, as they depend on it."""

    @cached_property
    def blocks(self) -> list[tuple[int, int, Block]]:
        """Content blocks of all messages, in order: index of the message, index of the block in it, and the block.
        Blocks inside results are left out."""
        contents = enumerate(map(blocks, self.messages))
        return [(at, index, block) for at, content in contents for index, block in enumerate(content)]

    @cached_property
    def rounds(self) -> list[CallRound]:
        """Tool calls with their results, for each run of neighbouring assistant messages."""
        by_role = groupby(enumerate(self.messages), lambda indexed: str(indexed[1]["role"]))
        runs = [(role, [at for at, _ in run]) for role, run in by_role]
        rounds = list[CallRound]()
        for (role, run), (next_role, next_run) in pairwise([*runs, ("", [])]):
            if role == "assistant":
                results = self._placed(next_run if next_role == "user" else [], "tool_result")
                rounds.append(CallRound(self._placed(run, "tool_use"), results, run[-1] + 1))
        return rounds

    def _placed(self, messages: Sequence[int], kind: str) -> list[_PlacedCall]:
        """Return the places of the blocks of the type `kind` (calls or results) in the messages with these indexes."""
        places = [(at, index, block) for at in messages for index, block in enumerate(blocks(self.messages[at]))]
        return [(at, index, str(block.get(_ID_KEYS[kind]))) for at, index, block in places if block["type"] == kind]

    @property
    def last_answer(self) -> int:
        """Index of the last assistant message; -1 without one."""
        indexes = reversed(range(len(self.messages)))
        return next((at for at in indexes if self.messages[at]["role"] == "assistant"), -1)

    @property
    def last_answer_content(self) -> Sequence[Block]:
        """Content blocks of the last assistant message, for which the API has special rules; empty without one."""
        return blocks(self.messages[self.last_answer]) if self.last_answer >= 0 else ()


_ID = lazy_pattern(r"[a-zA-Z0-9_-]+")
"""Id of a tool call: ``toolu_01A-b``."""
_ID_KEYS = {"tool_use": "id", "tool_result": "tool_use_id"}
"""Name of the field with the id of the call, by the type of a block."""


def calls_have_results(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 1: every ``tool_use`` is in an assistant message, its ``tool_result`` in the next user message."""
    for call_round in request.rounds:
        answered = {call for _, _, call in call_round.results}
        for at, index, call in call_round.calls:
            if call not in answered:
                problem = f"call {call} has no result in the next message"
                cure = "put its tool_result first in the next message, which is the user's, or remove the call"
                yield Violation(1, place_of(at, index), problem, cure, "unanswered_call")
    for at, index, block in request.blocks:
        if block["type"] == "tool_use" and request.messages[at]["role"] in ("user", "system"):
            cure = "move it into an assistant message, or remove it"
            yield Violation(1, place_of(at, index), "a call outside assistant messages", cure, "call_role")


def results_have_calls(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 2: every ``tool_result`` has its ``tool_use`` in the message before."""
    paired: set[tuple[int, int]] = set()  # indexes of message and block
    for call_round in request.rounds:
        called = {call for _, _, call in call_round.calls}
        paired |= {(at, index) for at, index, call in call_round.results if call in called}
    for at, index, block in request.blocks:
        if block["type"] == "tool_result" and (at, index) not in paired:
            problem = f"a result for {block.get('tool_use_id')}, which the message before does not call"
            cure = "put it directly after its call, or remove it"
            yield Violation(2, place_of(at, index), problem, cure, "uncalled_result")


def results_come_first(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 3: ``tool_result`` blocks come before all other content of a user's message. Neighbouring messages of
    the user are one message. Of results in a row only the first is a violation."""
    only_results_before = True
    for at, index, block in request.blocks:
        role = request.messages[at]["role"]
        if index == 0 and (at == 0 or request.messages[at - 1]["role"] != role):
            only_results_before = True
        if block["type"] != "tool_result":
            only_results_before = False
        elif role == "user" and not only_results_before:
            cure = "move the results to the front of the message"
            yield Violation(3, place_of(at, index), "a result after other content", cure, "late_result")
            only_results_before = True  # no violation for the results right after it


def results_are_in_the_order_of_calls(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 4, for strict providers: results of parallel calls are in one user message, in the calls' order."""
    for call_round in request.rounds:
        first_message = place_of(call_round.next_index)
        order: dict[str, int] = {}
        for number, (_, _, call) in enumerate(call_round.calls):
            order.setdefault(call, number)  # of equal ids the first call counts
        results = [(at, call) for at, _, call in call_round.results if call in order]
        for apart in sorted({at for at, _ in results} - {call_round.next_index}):
            split = min(call for at, call in results if at == apart)
            problem = f"the result for {split} is separate from those of the parallel calls"
            yield Violation(4, place_of(apart), problem, f"move it into {first_message}", "split_results")
        if results != sorted(results, key=lambda result: order[result[1]]):
            cure = "sort the results as the calls are"
            yield Violation(4, first_message, "results in another order than their calls", cure, "result_order")


def roles_alternate(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 4, for strict providers: no two neighbours have one role. System messages do not count."""
    previous_role = ""
    for at, message in enumerate(request.messages):
        role = message["role"]
        if role == previous_role and role != "system":
            problem, cure = f"two {role} messages in a row", "merge it into the one before"
            yield Violation(4, place_of(at), problem, cure, "alternation")
        previous_role = previous_role if role == "system" else role


def ids_are_plain_and_unique(request: CheckedRequest) -> Iterator[Violation]:
    """Check rules 5 to 7: one result per id, one call per id in the list, and ids match ``^[a-zA-Z0-9_-]+$``."""
    seen: set[tuple[str, str]] = set()
    for at, index, block in request.blocks:
        kind, place = block["type"], place_of(at, index)
        key = _ID_KEYS.get(kind)
        if key is None:
            continue
        call_id = str(block.get(key))
        if (kind, call_id) in seen and kind == "tool_result":
            yield Violation(5, place, f"a second result for {call_id}", "keep one", "repeated_result")
        elif (kind, call_id) in seen:
            yield Violation(6, place, f"a second call with the id {call_id}", "give each its own", "repeated_call")
        seen.add((kind, call_id))
        if not (isinstance(block.get(key), str) and _ID.fullmatch(call_id)):
            problem = f"{key} {block.get(key)!r} is not made of letters, digits, _ and -"
            yield Violation(7, place, problem, "rename it in the call and its result", "bad_id")


def inputs_are_objects(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 8: the ``input`` of a tool call is an object."""
    for at, index, block in request.blocks:
        if block["type"].endswith("tool_use") and not isinstance(block.get("input"), dict):
            problem = f"input is {type(block.get('input')).__name__}, not an object"
            yield Violation(8, place_of(at, index), problem, "parse it, or send {}", "bad_input")


def server_calls_and_results_pair(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 9: calls of tools that the provider runs ("server tools") and their results are in one turn of the
    assistant, each call before its result.

    Results of the client's tools do not end such a turn, as code at the provider may call these tools. The user's words
    end it, and then each server call needs its result. At the end of the list it may have none yet (``pause_turn``).
    """
    called: dict[str, str] = {}  # places of the calls without a result so far, by id
    for at, index, block in request.blocks:
        kind = block["type"]
        if request.messages[at]["role"] == "user" and kind != "tool_result":
            for call, place in called.items():
                problem, cure = f"server call {call} has no result", "remove the call"
                yield Violation(9, place, problem, cure, "unanswered_server_call")
            called = {}
        elif kind in ("server_tool_use", "mcp_tool_use"):
            called[str(block.get("id"))] = place_of(at, index)
        elif kind.endswith("_tool_result") and called.pop(str(block.get("tool_use_id")), None) is None:
            problem = f"a server result for {block.get('tool_use_id')} without its call"
            yield Violation(9, place_of(at, index), problem, "keep both or remove both", "uncalled_server_result")


CALL_RULES = (
    calls_have_results,
    results_have_calls,
    results_come_first,
    results_are_in_the_order_of_calls,
    roles_alternate,
    server_calls_and_results_pair,
)


def thinking_is_whole(request: CheckedRequest) -> Iterator[Violation]:
    """Check rules 10 and 11: a thinking block has its text or data and a signature, and is in an assistant message.
    Whether a signature is right, only the API can check."""
    for at, index, block in request.blocks:
        if block["type"] not in THINKING:
            continue
        key = "thinking" if block["type"] == "thinking" else "data"
        cure = "send the block back as it came, or remove it"
        if request.messages[at]["role"] != "assistant":
            elsewhere = "remove it, or put it back into its assistant message"
            yield Violation(10, place_of(at, index), "thinking outside assistant messages", elsewhere, "thinking_role")
        elif not isinstance(block.get(key), str):
            yield Violation(10, place_of(at, index), f"thinking without its '{key}'", cure, "broken_thinking")
        elif key == "thinking" and not (isinstance(block.get("signature"), str) and block["signature"]):
            yield Violation(11, place_of(at, index), "thinking without a signature", cure, "unsigned_thinking")


def thinking_is_in_order(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 10: thinking is never last in the list, and with manual thinking begins its message. "The final block
    in an assistant message cannot be `thinking`"; "If an assistant message contains any thinking blocks, the first
    block must be `thinking`" (Claude up to 4.5)."""
    last = len(request.messages) - 1
    for at, message in enumerate(request.messages):
        is_thinking = [block["type"] in THINKING for block in blocks(message)]
        if message["role"] != "assistant" or not any(is_thinking):
            continue
        if at == last and is_thinking[-1]:
            cure = "remove the message, or what makes it last"
            yield Violation(10, place_of(at), "the list ends with thinking", cure, "last_thinking")
        if request.family.thinks_manually and request.thinking_enabled is not False and not is_thinking[0]:
            cure = "put the thinking first, or remove all of this message's"
            yield Violation(10, place_of(at, 0), "thinking comes after other content", cure, "late_thinking")


def manual_thinking_leads_calls(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 12: with manual thinking, the last assistant message with tool calls starts with thinking. It is
    enough if the run of calls and results that it belongs to starts with thinking, as the API counts it as one turn."""
    last, content = request.last_answer, request.last_answer_content
    has_calls = any(block["type"] == "tool_use" for block in content)
    if not (request.thinking_enabled and request.family.thinks_manually and has_calls):
        return
    run = takewhile(lambda message: not has_user_words(message), reversed(request.messages[: last + 1]))
    answers = [blocks(message) for message in run if message["role"] == "assistant"]
    last_and_first = answers[0], answers[-1]
    if not any(answer and answer[0]["type"] in THINKING for answer in last_and_first):
        cure = "keep the thinking of this run of calls, or send the request without thinking"
        yield Violation(12, place_of(last, 0), "thinking is on, but the calls lost theirs", cure, "lost_thinking")


def no_thinking_when_off(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 13: if the request does not ask for thinking, the last assistant message contains none."""
    thinking = [index for index, block in enumerate(request.last_answer_content) if block["type"] in THINKING]
    if request.thinking_enabled is False and thinking:
        place, cure = place_of(request.last_answer, thinking[0]), "remove it, or switch thinking on"
        yield Violation(13, place, "thinking is off", cure, "thinking_off")


def prefill_is_allowed(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 15: for Claude 4.6 and later, the list does not end with an assistant message for the model to
    continue (a prefill). One on which the provider still works (``pause_turn``) may be at the end."""
    last = request.last_answer
    is_at_the_end = 0 <= last == len(request.messages) - 1
    if is_at_the_end and not request.family.accepts_prefill and not _is_paused(request.messages[last]):
        cure = "end with a user message"
        yield Violation(15, place_of(last), "the list ends with an assistant message", cure, "prefill")


def nothing_is_blank(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 17: no text block is empty or blank, also inside results, and no message has empty content. Only a
    system message that sets the form of answers may be empty (``BetaSystemMessageParam`` in the SDK)."""
    for at, message in enumerate(request.messages):
        if message["content"] == [] and not (message["role"] == "system" and message.get("output_config")):
            yield Violation(17, place_of(at), "no content", "leave the message out", "empty_content")
    for at, index, block in request.blocks:
        place, inner = place_of(at, index), block.get("content")
        inner_blocks = enumerate(inner if isinstance(inner, list) else ())
        parts = {place: block, **{f"{place}.content[{number}]": item for number, item in inner_blocks}}
        for part_place, part in parts.items():
            if isinstance(part, dict) and part.get("type") == "text" and not str(part.get("text") or "").strip():
                yield Violation(17, part_place, "a blank text block", "leave it out", "blank_text")


def roles_are_known(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 19: roles are ``user`` and ``assistant``, and ``system`` for models that accept it inside the list. A
    system message follows a user's message, or an assistant's on which the provider still works. It is the last message
    or right before an assistant's (Anthropic, "Mid-conversation system messages")."""
    for at, message in enumerate(request.messages):
        role, place = message["role"], place_of(at)
        if role not in ROLES:
            cure = "convert the list to Anthropic messages first"
            yield Violation(19, place, f"role {role!r}", cure, "unknown_role")
        elif role == "system" and not request.family.takes_system_messages:
            cure = "move it into the system prompt, or into a user message"
            yield Violation(19, place, "a system message inside the list", cure, "system_message")
        elif role == "system" and request.family.is_claude:
            before, after = request.messages[max(0, at - 1)], request.messages[at + 1 : at + 2]
            follows = before["role"] == "user" or _is_paused(before)
            if not follows or any(next_message["role"] != "assistant" for next_message in after):
                cure = "put it directly after a user message and before the assistant's"
                yield Violation(19, place, "a system message out of place", cure, "system_place")


def compaction_blocks_lead(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 23: ``compaction`` blocks, the provider's own summaries, are not empty, and each is the first block of
    its message. A signed one (made on demand) is the first block of the list, and the only signed one. See
    ``CompactionBlockMisplacedError`` and similar errors in the SDK."""
    signed = 0
    for at, index, block in request.blocks:
        if block["type"] != "compaction":
            continue
        place = place_of(at, index)
        message_may_have_it = at == 0 or not block.get("signature")
        if index or not message_may_have_it or request.messages[at]["role"] == "system":
            cure = "put the block first, in an assistant's or the user's message, and leave out what it replaces"
            yield Violation(23, place, "a compaction block out of place", cure, "compaction_place")
        if block.get("content") == "":
            yield Violation(23, place, "an empty compaction block", "remove it", "compaction_empty")
        signed += bool(block.get("signature"))
        if signed > 1 and block.get("signature"):
            yield Violation(23, place, "a second compaction block", "keep only the latest", "compaction_repeated")


def roles_have_their_blocks(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 25: an assistant's message contains no document, and no text in a user's message has citations. Texts
    in a user's search results count, too. Source: Anthropic, "Migrating to API version 2026-10-21"."""
    for at, index, block in request.blocks:
        role, place = request.messages[at]["role"], place_of(at, index)
        if role == "assistant" and block["type"] == "document":
            cure = "move it into a user message"
            yield Violation(25, place, "a document in an assistant message", cure, "assistant_document")
        content = block.get("content") if block["type"] == "search_result" else None
        inner_blocks = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        parts = (block, *inner_blocks)
        if role == "user" and any(part.get("type") == "text" and part.get("citations") for part in parts):
            yield Violation(25, place, "citations on text in a user message", "leave them out", "user_citations")


def list_starts_with_the_user(request: CheckedRequest) -> Iterator[Violation]:
    """Check rule 24: there is at least one message, and the first is the user's, or the assistant's if it begins with a
    ``compaction`` block, the provider's own summary."""
    if not request.messages:
        yield Violation(24, "messages", "no messages", "send at least one user message", "no_messages")
        return
    first = request.messages[0]
    compacted = any(block["type"] == "compaction" for block in blocks(first)[:1])
    if first["role"] == "assistant" and not compacted:
        cure = "start with a user message"
        yield Violation(24, place_of(0), "the list starts with an assistant message", cure, "first_role")


def _is_paused(message: Message) -> bool:
    """Return True if the provider still works on this assistant's message (``pause_turn``), so that it is sent back to
    be continued: it ends with the call or result of a tool that the provider runs."""
    content = blocks(message)
    kind = content[-1]["type"] if message["role"] == "assistant" and content else ""
    return kind in ("server_tool_use", "mcp_tool_use") or kind.endswith("_tool_result")


CONTENT_RULES = (
    ids_are_plain_and_unique,
    inputs_are_objects,
    thinking_is_whole,
    thinking_is_in_order,
    manual_thinking_leads_calls,
    no_thinking_when_off,
    prefill_is_allowed,
    nothing_is_blank,
    roles_are_known,
    compaction_blocks_lead,
    list_starts_with_the_user,
    roles_have_their_blocks,
)


_Rule = Callable[[CheckedRequest], Iterator[Violation]]
_RULES: tuple[_Rule, ...] = (*CALL_RULES, *CONTENT_RULES)


def check_messages(
    messages: Sequence[object],
    *,
    model: str = "",
    thinking_enabled: bool | None = None,
    rules: Iterable[_Rule] = _RULES,
) -> list[Violation]:
    """Return the violations of the API's rules in `messages` (dicts or objects of the SDK), sorted by rule.

    Only rules that a change of the list can break are checked. The Messages API refuses a list for violations with
    `refused`; stricter providers refuse it for the others, too.

    `model`: model that reads the messages; empty for a current Claude. `thinking_enabled`: True if the request asks for
    thinking; with None, rules 12 and 13 are skipped, as they depend on it. `rules`: functions that check the rules.

    Raises:
        TranscriptError: an item is no message at all.
    """
    plain = [plain_message(message, place_of(at)) for at, message in enumerate(messages)]
    request = CheckedRequest(plain, model_family(model), thinking_enabled)
    violations: list[Violation] = []
    for rule in rules:
        violations += rule(request)
    return sorted(violations, key=attrgetter("rule"))


LOST_RESULT = "[The result of this call was lost before it was saved: whether the call took effect is not known.]"
"""Text that is put in place of the lost result of a tool call."""


def answer_calls(messages: Sequence[Message]) -> list[Message]:
    """Repair tool calls and results that have lost each other, as the API would refuse the list.

    A call without a result gets a note as its result, and a result without a call becomes text. Results in an
    assistant's message move into a user's message after it, and a call with the id of an earlier one gets another id.
    Messages that need no repair stay the same objects.
    """
    repaired, known_ids, new_ids = list[Message](), set[str](), dict[str, str]()
    open_calls: list[str] = []  # ids of the calls in the run before
    for role, group in groupby(_with_results_by_users(messages), lambda message: str(message["role"])):
        run = list(group)
        if role == "user":
            repaired += _answered([_renamed(message, new_ids) for message in run], open_calls)
            open_calls = []
            continue
        repaired += _notes(open_calls)
        open_calls = []
        if role == "assistant":
            new_ids = {}
            run = [_with_unique_ids(message, known_ids, new_ids) for message in run]
            called = (block for message in run for block in blocks(message) if block["type"] == "tool_use")
            open_calls = [str(block.get("id")) for block in called]
        repaired += run
    return [*repaired, *_notes(open_calls)]


def _with_results_by_users(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield `messages`, with results that are in an assistant's message moved into a user's message after it."""
    for message in messages:
        content = blocks(message) if message["role"] == "assistant" else []
        results = [block for block in content if block["type"] == "tool_result"]
        others = [block for block in content if block["type"] != "tool_result"]
        if others or not results:
            yield {**message, "content": others} if results else message
        if results:
            yield {"role": "user", "content": results}


def _with_unique_ids(message: Message, known_ids: set[str], new_ids: dict[str, str]) -> Message:
    """Return `message` with another id for each call that has one of `known_ids`, as an id may occur once. The ids of
    its calls are added to `known_ids`, and to `new_ids`, by the old ids, which their results still have. Of several
    calls in this run of messages with the same old id, the first gets the result."""
    content = list[Block]()
    for block in blocks(message):
        if block["type"] == "tool_use":
            old_id = new_id = str(block.get("id"))
            if old_id in known_ids:
                new_id = next(name for number in count(2) if (name := f"{old_id}_{number}") not in known_ids)
                block = {**block, "id": new_id}
            known_ids.add(new_id)
            new_ids.setdefault(old_id, new_id)
        content.append(block)
    is_same = all(block is old for block, old in zip(content, blocks(message), strict=True))
    return message if is_same else {**message, "content": content}


def _renamed(message: Message, new_ids: Mapping[str, str]) -> Message:
    """Return `message` with the ids in its results replaced by the `new_ids` of their calls."""
    ids = {id(block): str(block.get("tool_use_id")) for block in blocks(message) if block["type"] == "tool_result"}
    if all(new_ids.get(call, call) == call for call in ids.values()):
        return message
    content = [
        {**block, "tool_use_id": new_ids.get(ids[id(block)], ids[id(block)])} if id(block) in ids else block
        for block in blocks(message)
    ]
    return {**message, "content": content}


def _notes(calls: Sequence[str]) -> list[Message]:
    """Return a user's message with a note as the result of each call with these ids; none without calls."""
    return [{"role": "user", "content": list(map(lost_result, dict.fromkeys(calls)))}] if calls else []


def _answered(run: list[Message], calls: Sequence[str]) -> list[Message]:
    """Return `run`, neighbouring messages of the user, changed so that they begin with one result for each of `calls`,
    the ids of the calls before them. A call without a result gets a note as its result. Other results become text. If
    nothing is wrong, `run` itself is returned."""
    placed = {(at, index): block for at, message in enumerate(run) for index, block in enumerate(blocks(message))}
    results = [place for place, block in placed.items() if block["type"] == "tool_result"]
    first_results = {str(placed[place].get("tool_use_id")): place for place in reversed(results)}
    used = {first_results[call] for call in calls if call in first_results}
    is_used = [place in used for place in placed]
    used_come_first = is_used == sorted(is_used, reverse=True)  # True sorts before False
    if len(used) == len(set(calls)) == len(results) and used_come_first:
        return run
    answers = [
        placed[first_results[call]] if call in first_results else lost_result(call) for call in dict.fromkeys(calls)
    ]
    others = list[Message]()
    for at, message in enumerate(run):
        if content := [block for index, block in enumerate(blocks(message)) if (at, index) not in used]:
            content = [lost_call(block) if block["type"] == "tool_result" else block for block in content]
            others.append({**message, "content": content})
    if not answers:
        return others
    return [{"role": "user", "content": [*answers, *(others[0]["content"] if others else [])]}, *others[1:]]


def lost_result(call: str) -> Block:
    """Return a result block with a note, in place of the lost result of the call with the id `call`."""
    return {"type": "tool_result", "tool_use_id": call, "content": LOST_RESULT}


def lost_call(result: Block) -> Block:
    """Return the text block that replaces a `result` without a call. A tag marks it as words of the host program, so
    that they are not taken for the user's."""
    text = f"[A result whose call was lost:]\n{readable_text(result.get('content'))}"
    return {"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}
