"""Bridge between frameworks and sessions: finds the session of a request, and prepares a framework's messages.

All frameworks use it. No function that prepares messages raises: a list that cannot be prepared is sent unchanged.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import accumulate, groupby
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
"""Function that returns the session of a request; None if the request is to be sent unchanged."""
OPEN_SESSIONS = 200
"""Largest number of sessions in memory, where each keeps its whole history."""

MAX_CHILDREN = 50
"""Largest number of remembered subagents of one run; a forgotten one begins a new session."""


class OpenSessions:
    """Sessions by name, each opened at its first use. Several threads may use it."""

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
        self._named: dict[str, Session] = {}
        """Open sessions by name, the one unused for longest first."""

    def named(self, name: str) -> Session | None:
        """Return the session with this name; None if `open_session` returns None.

        Raises:
            StoreError: The session cannot be opened.
            SettingsError: `open_session` returned another object.
        """
        with self._lock:
            session = self._named.pop(name, None) or self._open(name)
            check_argument(f"session {name!r}", session, Session, "a Session, or None to leave it alone")
            if session is not None:
                self._named[name] = session
            while len(self._named) > self._limit:
                self._named.pop(next(iter(self._named))).close()
            return session

    def close(self) -> None:
        """Close all; their histories are in the store."""
        with self._lock:
            while self._named:
                self._named.popitem()[1].close()


@dataclass
class Member:
    """One conversation of a family."""

    session: Session
    messages: int = 0
    """Number of messages in its newest request."""
    seen: str = ""
    """Digest of these messages."""
    calls: frozenset[str] = frozenset()
    """Ids of the calls in its newest answer."""


class Family:
    """The conversations of an agent and its subagents in one run, for frameworks that pass only messages.

    A conversation is recognised by its earlier messages. A list that continues no known conversation begins another
    one, with a session of its own. Several threads may use it.
    """

    def __init__(self, session: Session) -> None:
        """Use `session` for the first conversation, and a child of it for each further one. Raise SettingsError if it
        is not a Session."""
        if not isinstance(session, Session):
            raise SettingsError(f"session: expected a Session, found {type(session).__name__}")
        self._members, self._lock = [Member(session)], threading.Lock()

    def member(self, messages: Sequence[Message]) -> Member:
        """Return the conversation that `messages` continue. If they continue several, return the longest of these; if
        none, a new one."""
        digests = map(message_digest, messages)
        # the digest of the first N messages, by N
        seen = ["", *accumulate(digests, lambda one, other: sha256(f"{one}{other}".encode()).hexdigest())]
        with self._lock:
            known = [one for one in self._members if one.messages < len(seen) and seen[one.messages] == one.seen]
            member = max(known, key=lambda one: one.messages, default=None) or self._new()
            member.messages, member.seen = len(messages), seen[-1]
            return member

    def caller(self, call_id: str) -> Session:
        """Return the session of the agent that made the call `call_id`; the first session if none did."""
        with self._lock:
            return next((one.session for one in self._members if call_id in one.calls), self._members[0].session)

    def _new(self) -> Member:
        """Return a new conversation with a child of the first session. Over the limit, close the oldest children."""
        first, *children = self._members
        member = Member(first.session.child(""))
        for old in children[: len(children) + 1 - MAX_CHILDREN]:
            self._members.remove(old)
            old.session.close()
        self._members.append(member)
        return member


def opener(session: Session | SessionOf[R]) -> SessionOf[R]:
    """Return a function from a request to its session. `session`: the session of all requests, or such a function
    itself. If a session cannot be opened, the returned function logs this once and returns None.

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

    def opened(request: R) -> Session | None:
        try:
            return session(request)
        except (StoreError, SettingsError) as error:
            _say_once(f"no session could be opened, requests go out as they came: {error}")
            return None

    return opened


@cache
def _say_once(problem: str) -> None:
    logger.warning(problem)


def through(
    act: Callable[[list[Message]], list[Message] | None],
    foreign: Sequence[T],
    plain: Callable[[T], Message],
    built: Callable[[Message], T],
    split: Callable[[T], Iterable[T]] = lambda message: (message,),
) -> list[T] | None:
    """Return the messages that `act` makes of `foreign`, the messages of a framework, in the framework's form.

    `plain` converts a message of the framework to Anthropic's form, and `built` converts one back. A message that `act`
    leaves unchanged stays the same object. `split` divides a message into pieces that are compacted independently.
    Return None if `act` returns None. Also return None after any error, because a message that only its provider
    understands must still reach it.
    """
    try:
        pieces = [list(split(message)) for message in foreign]
        flat = [piece for group in pieces for piece in group]
        forms = [plain(message) for message in flat]
        view = act(forms)
        return None if view is None else _joined(_matched(view, forms, flat, built), foreign, pieces)
    except Exception as error:  # noqa: BLE001 - its text may quote the conversation
        logger.warning("the messages go out as they came: %s", type(error).__name__)
        return None


def _joined(view: Sequence[T], foreign: Sequence[T], pieces: Sequence[Sequence[T]]) -> list[T]:
    """Return `view` in which the pieces of a message are replaced by the whole message, where all of them follow each
    other. `pieces`: those of each message in `foreign`."""
    by_first = {id(group[0]): (group, message) for group, message in zip(pieces, foreign, strict=True)}
    joined, at = list[T](), 0
    while at < len(view):
        group, message = by_first.get(id(view[at]), ((view[at],), view[at]))
        is_whole = list(map(id, view[at : at + len(group)])) == list(map(id, group))
        joined.append(message if is_whole else view[at])
        at += len(group) if is_whole else 1
    return joined


def _matched(
    view: Sequence[Message], forms: Sequence[Message], foreign: Sequence[T], built: Callable[[Message], T]
) -> list[T]:
    """Return the messages of `view` in the framework's form. `forms`: the plain form of each message in `foreign`. A
    message of `view` that equals one of these becomes the original; others are made by `built`. If several are equal,
    the newest are used first, in their order."""
    originals = defaultdict[str, list[T]](list)
    for form, original in zip(forms, foreign, strict=True):
        originals[message_digest(form)].append(original)
    matched = list[T]()
    for message in reversed(view):
        equal = originals.get(message_digest(message))
        matched.append(equal.pop() if equal else built(message))
    return matched[::-1]


def grouped(foreign: Sequence[T], kind: Callable[[T], object]) -> list[list[T]]:
    """Return `foreign` in groups, each of which makes one message. Neighbours for which `kind` returns the same true
    value form a group; a message for which it returns a false one is alone."""
    runs = groupby(foreign, kind)
    return [group for key, run in runs for group in ([list(run)] if key else ([one] for one in run))]
