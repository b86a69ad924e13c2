"""Tokens and daily quotas of the people who use a team's proxies, in the store shared by them.

The store has only digests of tokens. Each process writes a record of each person's spending of a day, and the sum of
all records counts. While the store cannot be reached, the last known tokens and spending apply, and new spending is
written later.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

from applier.adapters.proxy.configuration import LimitTable
from applier.session.persistence import SessionStore
from applier.store import Store
from planner.errors import SettingsError, StoreError

TOKEN_START = "cpt_"
"""Beginning of every token; no provider's key begins like this."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""``ada``, ``ci-1``; not ``a b``, ``../x``, nor a text that breaks a line of a log or a metric."""
_TOKENS, _SPENT = "proxy-token:", "proxy-spent:"
"""Beginnings of the names under which the store has a token, and the spending of a person in a process."""
_READ_SECONDS = 1.0
"""Age at which tokens and spending are read again: a revoked token may work until then."""
_REST_SECONDS = 5.0
"""Pause in writing after the store failed, because each attempt may wait for the database's time-out."""
_logger = logging.getLogger("applier.proxy")


@dataclass(frozen=True)
class Token:
    """Record of a person's token. It does not contain the token itself."""

    name: str
    digest: str
    created: float
    revoked: float | None = None
    """Time of its revocation; both times are seconds since the epoch."""


def create_token(store: Store, name: str, now: float) -> str:
    """Return a new token for the person `name`; it cannot be shown again later. `now`: seconds since the epoch.

    Raises:
        SettingsError: The person has a token already, or the name is not allowed.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{name[:80]!r}: a person's name has letters, digits, '.', '_' and '-', at most 64")
    if any(token.name == name and token.revoked is None for token in list_tokens(store)):
        raise SettingsError(f"{name} has a token: revoke it first (`compactor proxy token revoke {name}`)")
    token = TOKEN_START + secrets.token_urlsafe(32)
    store.set_state(_TOKENS + name, {"name": name, "digest": _digest(token), "created": now, "revoked": None})
    return token


def revoke_token(store: Store, name: str, now: float) -> None:
    """Refuse the token of the person `name` from `now` on, in seconds since the epoch. Raise SettingsError if there is
    none."""
    token = next((one for one in list_tokens(store) if one.name == name and one.revoked is None), None)
    if token is None:
        raise SettingsError(f"{name[:80]!r} has no token: `compactor proxy token list` shows who has")
    store.set_state(_TOKENS + name, {**vars(token), "revoked": now})


def list_tokens(store: Store) -> list[Token]:
    """Return all tokens by name, revoked ones included."""
    return [Token(**record) for _, record in sorted(store.states(_TOKENS).items())]


def _digest(token: str) -> str:
    """Return the digest of a `token`, which is random and needs no salt. It has blanks, because a store may redact a
    text that looks like a key."""
    digits = sha256(token.encode()).hexdigest()
    return " ".join(digits[at : at + 8] for at in range(0, len(digits), 8))


class _SpentKey(NamedTuple):
    """Key of an amount that was spent."""

    day: str
    person: str
    unit: str
    """``tokens`` or ``dollars``."""


class People:
    """People with tokens and quotas; may be used from several threads."""

    def __init__(
        self, store: SessionStore, limit_of: Callable[[str], LimitTable], now: Callable[[], float] = time.time
    ) -> None:
        """Read tokens and spending from the store; raise StoreError if that fails. `limit_of` returns the quota of a
        person; `now` returns seconds since the epoch."""
        self._store, self._limit_of, self._now = store, limit_of, now
        self._own = secrets.token_hex(8)
        """Name of this process in its records."""
        self._spent: Counter[_SpentKey] = Counter()
        """Amounts spent in this process."""
        self._others: Counter[_SpentKey] = Counter()
        """Amounts spent today in other processes, as of the last reading."""
        self._digests: dict[str, str] = {}
        """Digests of valid tokens by person."""
        self._read_at, self._failed_at, self._day = now(), 0.0, ""
        self._lock = threading.Lock()
        store.use(self._read)

    def person(self, token: str) -> str:
        """Return the owner of `token`; empty if it is not valid."""
        self._refresh()
        shown, name = _digest(token), ""
        for person, digest in self._digests.items():  # always all of them, so that the time it takes reveals nothing
            name = person if hmac.compare_digest(digest, shown) else name
        return name

    def wait_seconds(self, person: str) -> int:
        """Return the seconds until `person` gets a new quota; 0 if the present one is not spent."""
        limit, spent = self._limit_of(person), self.spent(person)
        bounds = ((limit.tokens_a_day, spent["tokens"]), (limit.dollars_a_day, spent["dollars"]))
        if all(bound is None or amount < bound for bound, amount in bounds):
            return 0
        now = datetime.fromtimestamp(self._now(), UTC)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        return max(1, round((midnight - now).total_seconds()))

    def spent(self, person: str) -> dict[str, float]:
        """Return the ``tokens`` and ``dollars`` spent by `person` today in all processes."""
        keys = {unit: _SpentKey(self._today(), person, unit) for unit in ("tokens", "dollars")}
        return {unit: self._spent[key] + self._others[key] for unit, key in keys.items()}

    def spend(self, person: str, tokens: int, dollars: float) -> None:
        """Add `tokens` and `dollars` to what `person` spent today. Write the sum to the store unless that failed less
        than five seconds ago."""
        day = self._today()
        with self._lock:
            for unit, amount in (("tokens", tokens), ("dollars", dollars)):
                self._spent[_SpentKey(day, person, unit)] += amount  # type: ignore[assignment]
            record = {unit: self._spent[_SpentKey(day, person, unit)] for unit in ("tokens", "dollars")}
            if not 0 <= self._now() - self._failed_at < _REST_SECONDS:
                self._try(lambda store: store.set_state(f"{_SPENT}{day}:{person}:{self._own}", record))

    def close(self) -> None:
        """Write the spending that could not be written yet."""
        self._failed_at = 0.0
        for day, person in {(key.day, key.person) for key in self._spent}:
            if day == self._today():
                self.spend(person, 0, 0.0)

    def _today(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%d")

    def _refresh(self) -> None:
        """Read tokens and spending again once they are old."""
        if not 0 <= self._now() - self._read_at < _READ_SECONDS:
            self._read_at = self._now()  # set first, so that other threads do not read at the same time
            self._try(self._read)

    def _try(self, act: Callable[[Store], object]) -> None:
        """Call `act` with the store. If the store fails, log this and note the time."""
        try:
            self._store.use(act)
        except StoreError as error:
            self._failed_at = self._now()
            _logger.warning("the last known tokens and quotas apply: %s", error)

    def _read(self, store: Store) -> None:
        """Read the tokens, and today's spending in other processes; delete the records of earlier days."""
        day = self._today()
        tokens, records = list_tokens(store), store.states(f"{_SPENT}{day}:")
        others: Counter[_SpentKey] = Counter()
        for key, record in records.items():
            _, _, person, process = key.split(":")
            for unit in ("tokens", "dollars") if process != self._own else ():
                others[_SpentKey(day, person, unit)] += record[unit]
        self._digests = {one.name: one.digest for one in tokens if one.revoked is None}
        self._others = others
        if day != self._day:
            for key in store.states(_SPENT):
                if key.split(":")[1] < day:
                    store.set_state(key, None)
            self._day = day
