"""Which requests belong together: a session for each conversation that passes the proxy.

A conversation is known by what was said up to its newest answer, so a client need say nothing. Requests without an
answer in them (titles, one-shot questions, the very first one) have no session: there is nothing to compact yet.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from applier.session import Session
from applier.session.planning import Planned
from planner.proposal import Account
from planner.reading.messages import blocks, message_digest

__all__ = ["NAME_HEADER", "Conversations", "client_account", "client_name", "client_scope"]

NAME_HEADER = "x-compactor-session"
"""By which a client may name its conversations; not forwarded."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""``run-7``; not ``a b``, nor a path."""
_CREDENTIALS = "x-api-key", "authorization", "api-key"
"""Headers by which providers know who asks."""
_LOGIN_BETA = "oauth-"
"""How the beta begins without which a login's token is refused; others are of the agent's own model and request."""
_INVISIBLE = ("thinking", "redacted_thinking")
"""Blocks that a client may leave out later without having another conversation."""


def client_name(headers: Mapping[str, str]) -> str:
    """What the client calls its sessions: their ids begin with it. Empty if it says nothing."""
    name = headers.get(NAME_HEADER, "")
    return name if _NAME.fullmatch(name) else ""


def client_scope(body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """What tells clients apart that say the same: their keys, a name, a user or session id.

    Names and ids are chosen by the client, and may be another's; what it shows the provider is its own. Of that only a
    digest goes in here, and of the scope only a digest into a session's id.
    """
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    shown = json.dumps([headers.get(name, "") for name in _CREDENTIALS])
    return f"{_short(shown)}/{client_name(headers)}/{user or body.get('user') or ''}"


def client_account(base_url: str, headers: Mapping[str, str]) -> Account:
    """As whom a client asks `base_url`: a planner that asks there shows the same, and nothing else."""
    shown = {name: headers[name] for name in _CREDENTIALS if name in headers}
    betas = [name.strip() for name in headers.get("anthropic-beta", "").split(",")]
    login = ",".join(name for name in betas if name.startswith(_LOGIN_BETA))
    return Account(base_url, {**shown, "anthropic-beta": login} if login else shown)


@dataclass
class _Conversation:
    session: Session
    places: tuple[tuple[str, str], ...] = ()
    """Scope and digests of its newest answer, by which the next request finds it."""


class Conversations:
    """Open sessions by conversation, the longest unused one closed first; may be used from several threads."""

    def __init__(self, open_session: Callable[[str, str, Account | None], Session], limit: int = 200) -> None:
        """`open_session` takes a session id, a model and whom to ask for plans; `limit` bounds how many are open.

        A closed one continues from the store, by its id, when its conversation comes back.
        """
        self._open, self._limit = open_session, limit
        self._known: OrderedDict[str, _Conversation] = OrderedDict()
        self._lock = threading.Lock()
        self._planned: list[Planned] = []
        """In sessions that are closed."""

    def __len__(self) -> int:
        """How many are open."""
        return len(self._known)

    def session(
        self, messages: Sequence[Any], model: str, name: str, scope: str, account: Account | None
    ) -> Session | None:
        """The session of the conversation that `messages` continues; None if nothing in it was answered yet.

        Its planner asks as `account`, which belongs to `scope`; None: nobody can be asked where its requests go.
        """
        answers = list(_answers(messages))
        if not answers:
            return None
        with self._lock:
            key = self._find(scope, answers) or self._add(scope, answers, model, name, account)
            conversation = self._known[key]
            conversation.places = tuple((scope, digest) for digest in answers[-1] if digest)
            self._known.move_to_end(key)
            while len(self._known) > self._limit:
                self._close(next(iter(self._known)))
            return conversation.session

    def sessions(self) -> list[Session]:
        """All that are open."""
        with self._lock:
            return [conversation.session for conversation in self._known.values()]

    def planned(self) -> list[Planned]:
        """Who was asked for plans in all of them, closed ones included."""
        with self._lock:
            opened = [conversation.session.state.planned for conversation in self._known.values()]
            return [*self._planned, *chain.from_iterable(opened)]

    def close(self) -> None:
        """Close all; their histories are in the store then."""
        with self._lock:
            for key in list(self._known):
                self._close(key)

    def _find(self, scope: str, answers: list[tuple[str, str]]) -> str | None:
        """The conversation whose newest answer stands in the list: with all before it as it was, else by itself."""
        places = {place: key for key, conversation in self._known.items() for place in conversation.places}
        wholes, alones = zip(*reversed(answers), strict=True)
        keys = (places.get((scope, digest)) for digest in (*wholes, *alones))
        return next(filter(None, keys), None)

    def _add(self, scope: str, answers: list[tuple[str, str]], model: str, name: str, account: Account | None) -> str:
        """A new one, called by its first answer, so that a later process gives it the same id.

        One that goes another way from there (rewound, or another client's) is called by its newest answer. Those of
        clients without a name have nothing in common by which one could be asked for all.
        """
        of = f"{name}." if name else "proxy-"
        first, newest = (f"{of}{_short(scope + whole)}" for whole, _ in (answers[0], answers[-1]))
        key = newest if first in self._known else first
        if key not in self._known:
            self._known[key] = _Conversation(self._open(key, model, account))
        return key

    def _close(self, key: str) -> None:
        session = self._known.pop(key).session
        self._planned += session.state.planned
        session.close()


def _answers(messages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """The places behind each answer in `messages`: a digest of everything up to it, and one of the answers alone.

    The latter survives edits of older results; it is empty while nothing in the answers is unique.
    """
    whole, alone, is_unique = hashlib.sha256(), hashlib.sha256(), False
    for message in messages:
        shown = [block for block in blocks(message) if block.get("type") not in _INVISIBLE]
        digest = message_digest({"role": message["role"], "content": shown}).encode()
        whole.update(digest)
        if message["role"] == "assistant":
            alone.update(digest)
            is_unique = is_unique or any(block.get("type") == "tool_use" for block in shown)
            yield whole.hexdigest(), alone.hexdigest() if is_unique else ""


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
