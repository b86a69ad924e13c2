"""Shared by all frameworks: finds the session of a request, and converts messages to Anthropic's form and back.

No function that converts messages raises: a list that cannot be converted is sent unchanged, so the agent never fails.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import accumulate, chain, groupby
from typing import TypeVar

from applier.session import Session
from applier.settings import load_settings
from planner.api import check_argument
from planner.errors import SettingsError, StoreError
from planner.reading.messages import Message, message_digest

logger = logging.getLogger("applier.session")

R = TypeVar("R")
T = TypeVar("T")
SessionOf = Callable[[R], "Session | None"]
"""Function that takes a framework's request and returns the session that compacts its conversation, or None."""
OPEN_SESSIONS = 200
"""Largest number of sessions in memory, where each keeps its whole history."""

MAX_CHILDREN = 50
"""Largest number of subagents of one run that are remembered; one that was forgotten begins a new session."""


class OpenSessions:
    """Sessions (each compacts one conversation) by name, opened at their first use. Several threads may use it."""

    def __init__(self, open_session: Callable[[str], Session | None], limit: int = OPEN_SESSIONS) -> None:
        """Open sessions by `open_session`, which takes a name and may return None. At most `limit` are open: the one
        unused for longest is closed, and opened again from its store when it is needed.

        Raises:
            SettingsError: `open_session` is not a function.
        """
        if not callable(open_session):
            example = "lambda name: Session(session_id=name)"
            raise SettingsError(f"expected a function such as {example}, found {type(open_session).__name__}")
        self._open, self._limit, self._lock = open_session, limit, threading.Lock()
        self._by_name: dict[str, Session] = {}
        """Open sessions by name, the one unused for longest first."""

    def named(self, name: str) -> Session | None:
        """Return the session with this name, opened if need be; None if `open_session` returns None.

        Raises:
            StoreError: The session cannot be opened.
            SettingsError: `open_session` returned another object.
        """
        with self._lock:
            session = self._by_name.pop(name, None) or self._open(name)
            check_argument(f"session {name!r}", session, Session, "a Session, or None to leave it alone")
            if session is not None:
                self._by_name[name] = session
            while len(self._by_name) > self._limit:
                self._by_name.pop(next(iter(self._by_name))).close()
            return session

    def close(self) -> None:
        """Close all open sessions; their histories are in the store."""
        with self._lock:
            while self._by_name:
                self._by_name.popitem()[1].close()


@dataclass
class RunConversation:
    """Conversation of an agent or a subagent in a run, as of its newest request."""

    session: Session
    message_count: int = 0
    digest: str = ""
    """Digest of the request's messages, by which the next request is recognised as a continuation."""
    call_ids: frozenset[str] = frozenset()
    """Ids of the tool calls in the model's answer."""


class RunConversations:
    """Conversations of an agent and its subagents in one run, for frameworks that do not identify the agent.

    A conversation is recognised by its earlier messages. A list that continues no known conversation begins another
    one, with a session of its own. Several threads may use it.
    """

    def __init__(self, session: Session) -> None:
        """Use `session` for the first conversation, and a child of it for each further one."""
        if not isinstance(session, Session):
            raise SettingsError(f"session: expected a Session, found {type(session).__name__}")
        self._conversations, self._lock = [RunConversation(session)], threading.Lock()

    def find(self, messages: Sequence[Message]) -> RunConversation:
        """Return the conversation that `messages` continue (the longest, if several), or a new one."""
        digests = map(message_digest, messages)
        # item N is the digest of the first N messages
        prefixes = ["", *accumulate(digests, lambda before, new: sha256(f"{before}{new}".encode()).hexdigest())]
        with self._lock:
            shorter = (one for one in self._conversations if one.message_count < len(prefixes))
            continued = [one for one in shorter if prefixes[one.message_count] == one.digest]
            found = max(continued, key=lambda one: one.message_count, default=None)
            if found is None:  # it is of a new subagent
                first, *children = self._conversations
                found = RunConversation(first.session.child(""))
                for oldest in children[: max(0, len(children) + 1 - MAX_CHILDREN)]:
                    self._conversations.remove(oldest)
                    oldest.session.close()
                self._conversations.append(found)
            found.message_count, found.digest = len(messages), prefixes[-1]
            return found

    def session_of_call(self, call_id: str) -> Session:
        """Return the session of the agent that made the tool call `call_id`; the first session if none did."""
        with self._lock:
            callers = (one.session for one in self._conversations if call_id in one.call_ids)
            return next(callers, self._conversations[0].session)


def opener(session: Session | SessionOf[R]) -> SessionOf[R]:
    """Return a function that takes a request and returns the session of its conversation. `session`: the session of all
    requests, or such a function. If a session cannot be opened, the returned function logs it once and returns None.

    Raises:
        SettingsError: `session` is neither a Session nor a function.
    """
    if not callable(session):
        if not isinstance(session, Session):
            wanted = "a Session, or a function that names the session of a request"
            raise SettingsError(f"session: expected {wanted}, found {type(session).__name__}")
        return lambda _request: session
    try:
        load_settings()
    except SettingsError as error:
        logger.warning("sessions with the settings of this environment cannot be opened: %s", error)

    def session_or_none(request: R) -> Session | None:
        """Return the session of `request`; None if the function returns None, or the session cannot be opened."""
        try:
            return session(request)
        except (StoreError, SettingsError) as error:
            _warn_once(f"no session could be opened, requests go out as they came: {error}")
            return None

    return session_or_none


@cache
def _warn_once(problem: str) -> None:
    logger.warning(problem)


def apply_to_plain(
    act: Callable[[list[Message]], list[Message] | None],
    messages: Sequence[T],
    to_plain: Callable[[T], Message],
    from_plain: Callable[[Message], T],
    split: Callable[[T], Iterable[T]] = lambda message: (message,),
) -> list[T] | None:
    """Let `act`, a method of a session, work on a framework's `messages`: convert them to Anthropic's form and back.

    A message that `act` leaves unchanged stays the same object. `split` divides a message into pieces that are
    compacted independently. Return None if `act` returns None, and after any error, so that the caller sends
    `messages` unchanged: they may contain what only their provider understands.
    """
    try:
        pieces = [list(split(message)) for message in messages]
        flat = [piece for group in pieces for piece in group]
        plain = [to_plain(piece) for piece in flat]
        view = act(plain)
        if view is None:
            return None
        originals, made = defaultdict[str, list[T]](list), list[T]()
        for message, original in zip(plain, flat, strict=True):
            originals[message_digest(message)].append(original)
        for message in reversed(view):  # of several equal originals the newest comes first
            equal = originals.get(message_digest(message))
            made.append(equal.pop() if equal else from_plain(message))
        return _joined(made[::-1], messages, pieces)
    except Exception as error:  # noqa: BLE001 - its text may quote the conversation
        logger.warning("the messages go out as they came: %s", type(error).__name__)
        return None


def _joined(view: Sequence[T], messages: Sequence[T], pieces: Sequence[Sequence[T]]) -> list[T]:
    """Return `view` with messages that were split into `pieces` put together again: where all pieces of a message
    follow each other, the message itself replaces them."""
    # pieces and whole message, by the identity of the first piece
    by_first = {id(group[0]): (group, message) for group, message in zip(pieces, messages, strict=True)}
    joined, at = list[T](), 0
    while at < len(view):
        group, message = by_first.get(id(view[at]), ((view[at],), view[at]))  # a new message is its only piece
        is_whole = list(map(id, view[at : at + len(group)])) == list(map(id, group))
        joined.append(message if is_whole else view[at])
        at += len(group) if is_whole else 1
    return joined


def apply_to_groups(
    act: Callable[[list[Message]], list[Message] | None],
    messages: Sequence[T],
    lead: int,
    is_result: Callable[[T], bool],
    to_plain: Callable[[list[T]], Message],
    from_plain: Callable[[Message], list[T]],
) -> list[T] | None:
    """Do the same as `apply_to_plain` for a framework in which each result is a message of its own: neighbouring
    results are converted together, as the API demands them in one message. The first `lead` messages stay unchanged."""
    groups: list[list[T]] = []
    for are_results, run in groupby(messages[lead:], is_result):
        members = list(run)
        groups += [members] if are_results else [[message] for message in members]
    view = apply_to_plain(act, groups, to_plain, from_plain)
    return None if view is None else [*messages[:lead], *chain.from_iterable(view)]
