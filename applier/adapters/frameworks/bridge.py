"""What every bridge does: it finds the session of a request, keeps those of several conversations open, and prepares
foreign messages by their plain form.

Nothing here raises: what cannot be prepared goes out as it came.
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

__all__ = ["OPEN_SESSIONS", "Family", "Member", "OpenSessions", "SessionOf", "grouped", "opener", "through"]

logger = logging.getLogger("applier.session")

R = TypeVar("R")
T = TypeVar("T")
SessionOf = Callable[[R], "Session | None"]
"""Names the session of a request; None leaves it alone."""
OPEN_SESSIONS = 200
"""So many are kept in memory, each with its whole history."""

MAX_CHILDREN = 50
"""So many subagents of one run are remembered; one that was forgotten begins anew when it comes back."""


class OpenSessions:
    """Sessions by name, each opened when it is first asked for; may be asked by several threads.

    The longest unused is closed where there are too many, and opened again, from its store, when its name comes back.
    """

    def __init__(self, open_session: Callable[[str], Session | None], limit: int = OPEN_SESSIONS) -> None:
        """`open_session` opens the session of a name (None: there is to be none); `limit` bounds how many are open.

        Raises:
            SettingsError: `open_session` is no function.
        """
        if not callable(open_session):
            example = "lambda name: Session(session_id=name)"
            raise SettingsError(f"expected a function such as {example}, found {type(open_session).__name__}")
        self._open, self._limit, self._lock = open_session, limit, threading.Lock()
        self._named: dict[str, Session] = {}

    def named(self, name: str) -> Session | None:
        """The session of that name.

        Raises:
            SettingsError: what should open it gave something else.
            StoreError: it cannot be opened.
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
        """Close all; their histories are in the store then."""
        with self._lock:
            while self._named:
                self._named.popitem()[1].close()


@dataclass
class Member:
    """A conversation of a family, as far as its session has seen it."""

    session: Session
    messages: int = 0
    seen: str = ""
    """Digest of all of them."""
    calls: frozenset[str] = frozenset()
    """Ids of the calls in its newest answer."""


class Family:
    """The conversations of one run, an agent's and its subagents', told apart by what was said in them before.

    For hosts that say no more than the messages. The first is the session's own; a list that goes on from none of
    those known begins one more. May be asked by several threads.
    """

    def __init__(self, session: Session) -> None:
        """Of `session` and its children.

        Raises:
            SettingsError: it is no session.
        """
        if not isinstance(session, Session):
            raise SettingsError(f"session: expected a Session, found {type(session).__name__}")
        self._members, self._lock = [Member(session)], threading.Lock()

    def member(self, messages: Sequence[Message]) -> Member:
        """Whose conversation `messages` are; of several the one that has seen most of them."""
        digests = map(message_digest, messages)
        seen = ["", *accumulate(digests, lambda one, other: sha256(f"{one}{other}".encode()).hexdigest())]
        with self._lock:
            known = [one for one in self._members if one.messages < len(seen) and seen[one.messages] == one.seen]
            member = max(known, key=lambda one: one.messages, default=None) or self._new()
            member.messages, member.seen = len(messages), seen[-1]
            return member

    def caller(self, call_id: str) -> Session:
        """Who made that call; the first, if nobody did."""
        with self._lock:
            return next((one.session for one in self._members if call_id in one.calls), self._members[0].session)

    def _new(self) -> Member:
        first, *children = self._members
        member = Member(first.session.child(""))
        for old in children[: len(children) + 1 - MAX_CHILDREN]:
            self._members.remove(old)
            old.session.close()
        self._members.append(member)
        return member


def opener(session: Session | SessionOf[R]) -> SessionOf[R]:
    """What names the session of a request: always `session`, or what that says.

    Where none can be opened, because the store or the settings fail, that is None, and the log says so once; settings
    that no session could be opened with are said now.

    Raises:
        SettingsError: `session` is neither.
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
    """Return `foreign` messages after `act` on their `plain` form; those that it does not change are the same objects.

    `split` cuts a message into pieces that are compacted apart. None if `act` returns None, or whatever fails: a
    message that only its provider understands must reach it all the same.
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
    """Return `view` with each message whole again whose pieces are all in it, one behind the other."""
    whole = {id(group[0]): (group, message) for group, message in zip(pieces, foreign, strict=True)}
    joined, at = list[T](), 0
    while at < len(view):
        group, message = whole.get(id(view[at]), ((view[at],), view[at]))
        is_whole = list(map(id, view[at : at + len(group)])) == list(map(id, group))
        joined.append(message if is_whole else view[at])
        at += len(group) if is_whole else 1
    return joined


def _matched(
    view: Sequence[Message], forms: Sequence[Message], foreign: Sequence[T], built: Callable[[Message], T]
) -> list[T]:
    """Return the messages of `view`: the original ones where they did not change, equal ones in their order."""
    originals = defaultdict[str, list[T]](list)
    for form, original in zip(forms, foreign, strict=True):
        originals[message_digest(form)].append(original)
    matched = list[T]()
    for message in reversed(view):
        equal = originals.get(message_digest(message))
        matched.append(equal.pop() if equal else built(message))
    return matched[::-1]


def grouped(foreign: Sequence[T], kind: Callable[[T], object]) -> list[list[T]]:
    """`foreign` by message, where several are one: those of one `kind` that stand together.

    What has no kind, which is false, is a message of its own.
    """
    runs = groupby(foreign, kind)
    return [group for key, run in runs for group in ([list(run)] if key else ([one] for one in run))]
