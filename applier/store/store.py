"""The store of original messages, plans, facts, events and session states, on any database (`Backend`).

All methods may be called from several threads and processes at once. Content is on disk when the method that stores it
returns; if it raises, nothing was stored.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

from propcache.api import cached_property

from applier.store import records
from applier.store.backend import Backend
from applier.store.excerpt import Restored, SearchResult, check_selection, find_matches, restored_part, with_other_turns
from applier.store.forgetting import orphaned_plans, remove_history
from applier.store.records import NewRecord, SavedChain, StoredHistory, encode, find_history, pack, read, read_chain
from applier.store.search import FactIndex
from planner.errors import PlanRejected, ReferenceNotFound, StoreDamaged, StoreError
from planner.placeholders import KEY_DIGITS, history_key
from planner.plan import CompactionPlan, ExtractedFact, Finding
from planner.reading.lines import Part
from planner.reading.messages import History, Message, message_digest, read_history, to_json, with_places
from planner.reading.secrets import NO_SECRETS, Secrets, redact

_PLAN_ID = re.compile(rf"p([0-9a-f]{{{KEY_DIGITS},64}})")
"""Id of a plan: ``p`` and at least 32 hex digits; not the key of a history."""
_FARTHEST_SECOND = 62_135_596_800
"""Number of seconds from the year 1 to 1970; an event's time must be nearer to 1970, or it may not exist as a date."""
_SUGGESTED = 3
"""Number of other turns that an error suggests if a search finds nothing in the named turn."""


@dataclass(frozen=True, slots=True)
class StoreSize:
    """Size of a store: its numbers of histories and messages, and its bytes on disk."""

    histories: int
    messages: int
    """Number of different messages; one that several histories share counts once."""
    file_bytes: int
    """Size of the store's files on disk, including free pages."""


class Origin(NamedTuple):
    """Working folder of a conversation (or empty), and the time of its last save in seconds since the epoch (or 0)."""

    folder: str
    time: float


EVENT_NAMES = ("session", "session_id", "history", "plan")
"""Fields of an event that contain ids of sessions, histories and plans, so that they are not redacted as secrets."""


class Store:
    """Store of originals, plans, facts, events and session states. Every method raises a `StoreError` if the store
    fails, and `StoreDamaged` if stored content does not match its digest."""

    def __init__(
        self, backend: Backend, *, redact_originals: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        """Use the database `backend`, and close it in `close`. With `redact_originals`, secrets are removed from all
        that is stored, also from messages. `clock` returns the time in seconds since the epoch."""
        self.backend, self.clock = backend, clock
        self._redacts = redact_originals
        self._open = True

    def save_history(self, history: History) -> str:
        """Store every message of `history` exactly, and return the key of the history. Only new messages are written.

        The key is made of the history's digest, which ignores cache marks and whether a text is a string or a block. If
        a history with this digest but other such details is stored already, the key is made of a digest of the exact
        form. So a key always restores the same content.
        """
        return self.save_longer(history, SavedChain()).key

    def save_longer(self, history: History, known: SavedChain) -> SavedChain:
        """Store `history` as `save_history` does. Return a value that makes the next call cheap, if it is passed to it
        as `known`. If `history` begins with the messages of `known`, these are not read again."""
        known = known if known.messages and known.begins(history) else SavedChain()
        known_count = len(known.messages)
        new_messages = enumerate(history.messages[known_count:], known_count)
        contents = [self.stored_form(message, f"messages[{index}]") for index, message in new_messages]
        # the last known message, then the new ones, as nodes: each with a link to the message before
        chain = [known.last, *records.chain_of(history, contents, known.last)]
        last_node, size = chain[-1], sum(map(len, contents)) + known.size_bytes
        groups = dict.fromkeys((*known.groups, *(node.group for node in chain[1:] or chain)))
        tip = last_node.digest if last_node.position else ""  # depends on the exact form of all messages
        with self.backend.transaction():
            saved = records.saved_history(self.backend, last_node.prefix, tip)
        if saved is None or self._is_due(saved):
            with self.backend.transaction(write=True):
                nodes = chain if known_count else chain[1:]  # without the node before the first message
                # nodes before a stored one are always stored, so a binary search finds the first missing one
                first = bisect_left(nodes, True, key=lambda node: not self.backend.get([node.key]))
                missing = nodes[first:]
                is_forgotten = known_count > 0 and missing[:1] == [known.last]  # deleted since the earlier call
                if not is_forgotten:
                    bodies = dict[str, bytes]()
                    for node in missing:
                        _check_unchanged(history, node.position - 1)
                        bodies[f"message/{node.message}"] = pack(contents[node.position - 1 - known_count])
                    self.backend.add({**bodies, **{node.key: b"" for node in missing}})
                    length, turns, used = last_node.position, last_node.turn, self.clock()
                    stored = StoredHistory("", "", last_node.prefix, tip, [*groups], length, turns, used, size)
                    saved = records.keep_history(self.backend, stored)
            if saved is None or is_forgotten:
                return self.save_longer(history, SavedChain())  # store all messages again
        return SavedChain(saved.key, history.messages, last_node, tuple(groups), size)

    def _is_due(self, history: StoredHistory) -> bool:
        """Return True if the last use of the history was noted over an hour ago, so that a new use is to be noted."""
        return self.clock() - history.used >= records.NOTED_SECONDS

    def note_use(self, history_key: str) -> None:
        """Record that a conversation continues, so that `collect_garbage` keeps it; write at most once an hour."""
        with self.backend.transaction():
            is_due = self._is_due(find_history(self.backend, history_key))
        if is_due:
            with self.backend.transaction(write=True):
                history = find_history(self.backend, history_key)
                records.keep_history(self.backend, replace(history, used=self.clock()))

    def stored_form(self, value: object, place: str) -> bytes:
        """Return `value` as JSON in bytes, without secrets if this store removes them; `place` names it in errors."""
        exact = encode(value, place)
        return encode(redact(json.loads(exact)), place) if self._redacts else exact

    def load_history(self, key: str) -> History:
        """Return the history saved under `key`: ``h`` and hex digits, or the full digest.

        Raises:
            ReferenceNotFound: no history, or more than one, has that key.
        """
        with self.backend.transaction():
            history = find_history(self.backend, key)
            messages = records.read_messages(self.backend, read_chain(self.backend, history), history.key)
        return read_history(messages)

    def load_turn(self, reference: str, within: Sequence[str] | None = None) -> tuple[str, list[Message]]:
        """Return the full name (``h1a2b3c4d:t12``) and the exact messages of a turn.

        `reference` is ``h1a2b3c4d:t12``, or ``t12`` in a store with one conversation. `within`: keys of the histories
        that the caller may see, with those that these extend; None means all.

        Raises:
            ReferenceNotFound: there is no such history or turn; the text lists existing ones.
        """
        digits, turn = records.parse_reference(reference)
        with self.backend.transaction():
            history = records.find_referenced(self.backend, digits, turn, within)
            key = f"h{digits}" if digits else history.key
            chain = read_chain(self.backend, history)
            nodes = [node for node in chain if node.turn == turn]
            if not nodes:
                there = f"its turns are t1 to t{chain[-1].turn}" if chain else "it is empty"
                raise ReferenceNotFound(f"no turn t{turn} in history {key}; {there}")
            messages = records.read_messages(self.backend, nodes, key)
        with suppress(StoreError):  # if the store cannot be written, the turn can still be read
            self.note_use(f"h{history.name}")
        return f"{key}:t{turn}", messages

    def histories(self) -> tuple[StoredHistory, ...]:
        """Return all saved histories, oldest first."""
        with self.backend.transaction():
            return tuple(records.read_histories(self.backend))

    def save_plan(self, plan: CompactionPlan) -> str:
        """Store `plan` without secrets, and return its id."""
        content = encode(plan.to_data(), "plan")
        digest, prefix = records.digest_of(content), records.parse_key(plan.history.digest).ljust(64, "0")
        with self.backend.transaction(write=True):
            if not self.backend.keys(f"plan/{digest}/"):
                self.backend.add({f"plan/{digest}/{prefix}/{records.next_order(self.backend)}": pack(content)})
        return _plan_id(digest)

    def load_plan(self, plan_id: str) -> CompactionPlan:
        """Return the plan with the id `plan_id`; raise `ReferenceNotFound` if there is none."""
        with self.backend.transaction():
            (content,) = read(self.backend, [self._plan_key(plan_id)]).values()
        try:
            return CompactionPlan.from_json(content, plan_id)
        except PlanRejected as error:
            raise StoreDamaged(f"plan {plan_id} is of another version of this program: {error}") from None

    def _plan_key(self, plan_id: str) -> str:
        """Return the record key of the plan with the id `plan_id`; raise `ReferenceNotFound` if there is none."""
        match = _PLAN_ID.fullmatch(plan_id.strip())
        keys = self.backend.keys(f"plan/{match[1]}") if match else []
        if not match or not keys:
            expected = f"expected 'p' and {KEY_DIGITS} hex digits"
            raise ReferenceNotFound(f"no plan {plan_id[:80]!r} in this store; {expected}")
        return keys[0]

    def plans(self, history_key: str) -> tuple[str, ...]:
        """Return the ids of the plans for a history or for a beginning of it, oldest first."""
        with self.backend.transaction():
            _, prefixes = self._with_prefixes(history_key)
            plans = records.plan_keys(self.backend)
        return tuple(_plan_id(plan.digest) for plan in plans if plan.prefix in prefixes)

    def save_facts(self, facts: Sequence[ExtractedFact], history_key: str, secrets: Secrets = NO_SECRETS) -> None:
        """Store the `facts` that were extracted from the saved history with this key, without those that are stored for
        it or a beginning of it already. Texts that look like secrets, and the known `secrets`, are removed first."""
        plain = redact([fact.model_dump(mode="json") for fact in facts], secrets)
        contents = {_without_time(fact): encode(fact, "fact") for fact in plain}
        with self.backend.transaction(write=True):
            history = find_history(self.backend, history_key)
            known = set[str]()
            with suppress(StoreDamaged):  # one damaged fact shall not prevent the compaction of the conversation
                known.update(_without_time(json.loads(content)) for content in self._fact_contents(history_key))
            place = f"fact/{history.groups[-1]}/{history.prefix}/"
            unknown = [NewRecord(place, content) for fact, content in contents.items() if fact not in known]
            new = records.add_new(self.backend, unknown)
            self.backend.add(records.marks_of_new_facts(new))
            are_many = len(self.backend.keys(records.RECENT)) > records.MOST_RECENT
        if are_many:
            with suppress(StoreError):  # if it fails now, the next search does it
                FactIndex(self.backend).refresh()  # stores the search table again, with all new facts

    def facts(self, history_key: str) -> tuple[ExtractedFact, ...]:
        """Return the facts (decisions, errors, …) extracted from a history or from a beginning of it, oldest first."""
        with self.backend.transaction():
            contents = self._fact_contents(history_key)
        return tuple(ExtractedFact.model_validate_json(content) for content in dict.fromkeys(contents))

    def _fact_contents(self, history_key: str) -> Collection[bytes]:
        """Return the stored facts of a history and of its beginnings as JSON, oldest first."""
        history, prefixes = self._with_prefixes(history_key)
        keys = [key for group in history.groups for key in self.backend.keys(f"fact/{group}/")]
        chosen = sorted((key for key in keys if records.prefix_of(key) in prefixes), key=records.order_of)
        return read(self.backend, chosen).values()

    def find_facts(
        self, words: str = "", *, kind: str | None = None, since: float = 0.0, histories: Collection[str] | None = None
    ) -> Iterator[tuple[str, ExtractedFact]]:
        """Yield key of the history, and fact, for each fact of this `kind` (None: any) that was extracted at the time
        `since` or later, newest first. `histories`: keys of the histories to search; None means all. With `words`, only
        facts that contain one of them are yielded, the best match first."""
        for record_keys in self._fact_index.keys(words, kind=kind, since=since, histories=histories):
            with self.backend.transaction():
                contents = read(self.backend, record_keys)
            for key, content in contents.items():
                yield history_key(records.prefix_of(key)), ExtractedFact.model_validate_json(content)

    @cached_property
    def _fact_index(self) -> FactIndex:
        """Search table for facts, made when it is first needed."""
        return FactIndex(self.backend)

    def _with_prefixes(self, history_key: str) -> tuple[StoredHistory, set[str]]:
        """Return the saved history with this key, and the digests of all its beginnings and of the whole."""
        history = find_history(self.backend, history_key)
        return history, {history.prefix, *(node.prefix for node in read_chain(self.backend, history))}

    def record_event(self, event: Mapping[str, Any]) -> None:
        """Store `event`; secrets are removed from all its fields except `EVENT_NAMES`. It must have a ``time`` (seconds
        since the epoch), and may have a ``session``, the id of the session to which it belongs."""
        names = {name: event[name] for name in EVENT_NAMES if name in event}
        place, content = event_place(event), encode({**redact(dict(event)), **names}, "event")
        with self.backend.transaction(write=True):
            self.backend.add({f"{place}{records.next_order(self.backend)}": pack(content)})

    def events(self, session: str | None = None, *, since: float = 0.0) -> tuple[dict[str, Any], ...]:
        """Return the events of the session with this id (None: of all), from the time `since` on, in the order in which
        they were stored."""
        with self.backend.transaction():
            keys = self.backend.keys("event/" if session is None else f"event/{to_json(session)}/")
            contents = read(self.backend, sorted(keys, key=records.order_of))
        events = [json.loads(content) for content in contents.values()]
        return tuple(event for event in events if event["time"] >= since)

    def set_state(self, name: str, value: Any) -> None:
        """Store any JSON value as the state `name`, in place of an old value; None deletes the state. A state that
        contains the key of a history is deleted with that history."""
        self.change_state(name, lambda _: value)

    def change_state(self, name: str, change: Callable[[Any], Any]) -> Any:
        """Replace the state `name` (a JSON value) by the value that `change` returns for it, and return the new value.
        `change` receives the present value, or None if there is none; if it returns None, the state is removed. Other
        writers wait until this is done."""
        key = f"state/{to_json(name)}"
        with self.backend.transaction(write=True):
            value = change(next(map(json.loads, read(self.backend, [key]).values()), None))
            content = self.stored_form(value, f"state {name}")
            self.backend.remove([key])
            if value is not None:
                self.backend.add({key: pack(content)})
        return value

    def get_state(self, name: str) -> Any:
        """Return the state (a JSON value) that is stored under `name`; None if there is none."""
        return next(iter(self.get_states([name]).values()), None)

    def get_states(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the states (JSON values) that are stored under these `names`, by name."""
        names_by_key = {f"state/{to_json(name)}": name for name in names}
        with self.backend.transaction():
            contents = read(self.backend, list(names_by_key))
        return {names_by_key[key]: json.loads(content) for key, content in contents.items()}

    def states(self, prefix: str) -> dict[str, Any]:
        """Return all states (named JSON values) with names that begin with `prefix`, by name."""
        with self.backend.transaction():
            # a key contains the name in quotes; the last quote is not part of the prefix
            contents = read(self.backend, self.backend.keys(f"state/{to_json(prefix)[:-1]}"))
        return {json.loads(key.partition("/")[2]): json.loads(content) for key, content in contents.items()}

    def note_origin(self, history_key: str, folder: str, time: float) -> None:
        """Record the working `folder` of a conversation, and the `time` when it was saved, in seconds since the epoch.
        If `folder` is empty, the folder that is recorded already stays."""
        known = folder or self.origin(history_key).folder
        self.set_state(f"origin:{history_key}", {"history": history_key, "folder": known, "time": time})

    def origin(self, history_key: str) -> Origin:
        """Return the folder and the time that `note_origin` recorded for a conversation."""
        noted = self.get_state(f"origin:{history_key}") or {}
        return Origin(str(noted.get("folder", "")), float(noted.get("time", 0.0)))

    def folders(self, history_keys: Collection[str]) -> dict[str, str]:
        """Return the working folder of each of these conversations, by key; empty if unknown."""
        noted = self.get_states([f"origin:{key}" for key in history_keys])
        return {key: str(noted.get(f"origin:{key}", {}).get("folder", "")) for key in history_keys}

    def forget(self, history_key: str) -> list[Finding]:
        """Delete a history and all histories that extend it or that it extends; or a plan, by an id like ``p1a2b3c4d``.
        Their plans, facts, states and events are deleted, too. Messages shared with another conversation stay. Return
        remarks on places where deleted content may remain."""
        with self.backend.transaction(write=True):
            if damages := self.backend.damages():  # a record that a damaged index does not list would stay
                raise StoreDamaged(
                    f"{self.backend.place}: the file is damaged ({damages[-1]}), and what is deleted from it "
                    "may stay in it: restore it from a backup first, or delete the file"
                )
            if history_key.startswith("p"):
                self.backend.remove([self._plan_key(history_key)])
            else:
                remove_history(self.backend, find_history(self.backend, history_key))
            orphans = [_plan_id(digest) for digest in orphaned_plans(self.backend)]
        remains = self.flush()
        if orphans:
            problem = f"plans of histories that were never saved may speak of it: {', '.join(orphans)}"
            remains.append(Finding(code="left", problem=problem, repair="forget them by their ids"))
        return remains

    def restore(
        self,
        reference: str,
        *,
        lines: tuple[int, int] | None = None,
        search: str | None = None,
        max_characters: int | None = None,
        within: Sequence[str] | None = None,
    ) -> Restored:
        """Return the original content of a turn: ``h1a2b3c4d:t12``, or ``t12`` in a store with one conversation.

        `lines`: numbers of the first and the last line to return. `search`: return only those of these lines that
        match, as in `Store.search`, with some lines around them; but search by words only if the text occurs in no turn
        of the history. `max_characters`: largest length of the text. It is cut after a line, but has at least one line;
        `Restored.next_line` is the line to continue with. `within`: keys of the histories that the caller may see, with
        those that these extend (None: all). With it, ``t12`` means a turn of the first of these that is stored.

        Raises:
            ReferenceNotFound: there is no such history, turn or lines, or nothing in them matches; the text lists
                existing ones, and turns that match.
            SettingsError: `lines`, `search` or `max_characters` of the wrong type.
        """
        check_selection(lines, search, max_characters)
        name, messages = self.load_turn(reference, within)
        part = partial(restored_part, name, messages, lines=lines, search=search, max_characters=max_characters)
        try:
            return part(by_words=False)
        except ReferenceNotFound as error:
            if not search:
                raise
            key = name.rpartition(":")[0]
            elsewhere = self.search(search, key, limit=_SUGGESTED)
            if elsewhere.by_words:  # no turn of the history contains the text
                with suppress(ReferenceNotFound):
                    return part(by_words=True)
            raise with_other_turns(error, key, elsewhere) from None

    def search(
        self,
        text: str,
        history_key: str,
        *,
        part: Part | None = None,
        tool: str | None = None,
        limit: int | None = None,
    ) -> SearchResult:
        """Return the turns of a history that match `text`, ignoring letter case: those that contain it; if there are
        none, those that match it as a pattern; if there are none, those that contain some of its words.

        Literal and pattern matches are ordered by time, the newest first, but turns that match only in tool results
        come last. Matches by words are ordered by BM25 of the whole turn. A phrase in quotes counts as one word. If the
        text occurs in the history, but not in the wanted `part` or `tool`, there is no search by words.

        `part` limits the search to words of the ``user`` or the ``assistant``, to calls (``call``) or to results
        (``result``). `tool` limits it to calls of this tool and their results. `limit`: largest number of turns to
        return; None means all.

        Raises:
            ReferenceNotFound: there is no such history.
            SettingsError: an unknown `part`, or a `limit` that is no number from 0 on.
        """
        return find_matches(self.load_history(history_key), text, part=part, tool=tool, limit=limit)

    def flush(self) -> list[Finding]:
        """Erase deleted content from all files and logs; return a remark on each place that may still have some."""
        return [Finding(code="left", problem=problem) for problem in self.backend.flush()]

    def verify(self) -> list[Finding]:
        """Recompute every digest in the store, and return a remark on each damaged record."""
        return records.audit(self.backend)

    def size(self) -> StoreSize:
        """Return the numbers of histories and messages in the store, and its size on disk."""
        with self.backend.transaction():
            histories, messages = (len(self.backend.keys(f"{kind}/")) for kind in ("history", "message"))
            return StoreSize(histories, messages, self.backend.file_bytes())

    def close(self) -> None:
        """Close the database; the store cannot be used afterwards."""
        if self._open:
            self._open = False
            self.backend.close()

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()


def _check_unchanged(history: History, index: int) -> None:
    """Raise an error if the message at `index` was changed since `history` was read and its digest computed."""
    message, place = history.messages[index], f"messages[{index}]"
    short = with_places(message, [])  # without long texts, which JSON never changes, to save time
    # JSON changes, for example, a tuple to a list, and keys that are no text
    is_plain = message_digest(json.loads(encode(short, place))) == message_digest(short)
    if not is_plain or message_digest(message) != history.digests[index]:
        raise StoreError(f"{place}: changed since the history was read, or not plain JSON; read the history again")


def _without_time(fact: Mapping[str, Any]) -> str:
    """Return `fact` as a text without the time of its extraction, which is the same if the fact is extracted again."""
    return to_json({**fact, "timestamp": 0})


def event_place(event: Mapping[str, Any]) -> str:
    """Return the record key of `event` without the order number at its end: ``event/"SESSION"/``. Raise a `StoreError`
    if the event's time is not valid."""
    time = event.get("time")
    if not isinstance(time, int | float) or not abs(time) < _FARTHEST_SECOND:
        raise StoreError(f"event: 'time' has to be seconds since the epoch, found {type(time).__name__}")
    return f"event/{to_json(event.get('session'))}/"


def _plan_id(digest: str) -> str:
    """Return the id of the plan with this digest: ``p1a2b3c4d…``."""
    return f"p{digest[:KEY_DIGITS]}"
