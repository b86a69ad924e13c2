"""Takes secrets out of text that is kept for reading: facts, plans and events; originals where that is asked for.

What a credential of each provider looks like is known by detect-secrets; the names in front of a value, and forms
it does not know, stand here. A name alone, a placeholder or a piece of code is left as it is. Time is linear in
the text, whatever stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from planner.reading.patterns import lazy_pattern

__all__ = ["MARK", "redact", "redact_data"]

MARK = "[secret]"
"""What stands in the place of a secret."""

_WINDOW, _OVERLAP = 2_048, 512
"""Foreign patterns see so many characters at a time: some take the square of what they see. Of a longer secret they
need see the beginning only, see `_REST`; the longest beginning that one needs is 170 characters (PyPI)."""
_LEFT_OUT = frozenset(
    (
        "BasePlugin",
        "IPPublicDetector",  # an address is a fact to remember
        "IbmCloudIamDetector",  # takes ``PASS: Test…`` with a name of 44 characters for a key
        "KeywordDetector",  # names: below, for values without quotes, more than one a line, and in linear time
        "PrivateKeyDetector",  # knows the first line of a key only: below
        "Base64HighEntropyString",  # digests, commits and ids have as much entropy as keys
        "HexHighEntropyString",
    )
)
"""Plugins that are not asked."""
_REST = lazy_pattern(r"[\w+/=-]*(?:\.[\w+/=-]+)*")
"""What goes on behind the part of a secret that a pattern found: ``.c2ln`` of ``eyJh.eyJz.c2ln``; no full stop."""

_FORMS = (
    ("sk-", r"\bsk-ant-[\w-]{16,}"),  # Anthropic
    ("sk-", r"\bsk-(?=[\w-]{0,99}[0-9])(?=[\w-]{0,99}[A-Z])[\w-]{20,}"),  # OpenAI, and those who copied its form
    ("_live_", r"\b[srp]k_live_\w{16,}"),  # Stripe
    ("_test_", r"\b[srp]k_test_\w{16,}"),
    ("whsec_", r"\bwhsec_\w{16,}"),
    ("gh", r"\bgh[pousr]_\w{20,}"),  # GitHub, cut ones and fine-grained ones
    ("github_pat_", r"\bgithub_pat_\w{20,}"),
    ("AIza", r"\bAIza[\w-]{35}"),  # Google
    ("ya29.", r"\bya29\.[\w-]{20,}"),
    ("GOCSPX-", r"\bGOCSPX-[\w-]{20,}"),
    ("xox", r"\bxox[abeoprs]-[\w-]{10,}"),  # Slack
    ("xapp-", r"\bxapp-[\w-]{20,}"),
    ("npm_", r"\bnpm_[A-Za-z0-9]{36}"),  # registries, outside their own files
    ("pypi-", r"\bpypi-[\w-]{50,}"),
    ("dckr_pat_", r"\bdckr_pat_[\w-]{20,}"),
    ("hf_", r"\bhf_(?=[a-z]{0,40}[A-Z0-9])[A-Za-z0-9]{30,}"),  # Hugging Face
    ("_v1_", r"\bdo[opr]_v1_[0-9a-f]{40,}"),  # DigitalOcean
    ("hv", r"\bhv[sbr]\.[\w-]{24,}"),  # Vault
    ("s.", r"(?<![\w.])s\.(?=[A-Za-z]{0,23}[0-9])(?=[a-z0-9]{0,23}[A-Z])[A-Za-z0-9]{24}(?![\w.(])"),
    ("dapi", r"\bdapi[0-9a-f]{32}"),  # Databricks
    ("lin_", r"\blin_(?:api|oauth)_\w{32,}"),  # Linear
    ("secret_", r"\bsecret_(?=[A-Za-z]{0,42}[0-9])[A-Za-z0-9]{43}\b"),  # Notion
    ("ntn_", r"\bntn_[A-Za-z0-9]{40,}"),
    ("shp", r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),  # Shopify
    ("figd_", r"\bfigd_[\w-]{30,}"),  # Figma
    ("sntry", r"\bsntry[su]_[\w=+/]{40,}"),  # Sentry
    ("glsa_", r"\bglsa_\w{32,}"),  # Grafana
    ("gsk_", r"\bgsk_\w{40,}"),  # Groq
    ("xai-", r"\bxai-\w{60,}"),
    ("pplx-", r"\bpplx-\w{40,}"),  # Perplexity
    ("AGE-SECRET-KEY-", r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    ("PMAK-", r"\bPMAK-[0-9a-f]{24}-[0-9a-f]{34}"),  # Postman
    ("sbp_", r"\bsbp_[0-9a-f]{40}"),  # Supabase
    ("pscale_", r"\bpscale_(?:pw|tkn|oauth)_[\w.-]{32,}"),  # PlanetScale
    ("key-", r"\bkey-[0-9a-f]{32}\b"),  # Mailgun
    ("/webhooks/", r"(?<=/webhooks/)\d{5,30}/[\w-]{40,}"),  # Discord
)
"""Forms that detect-secrets does not know, or knows only in some places, each with what stands in all of them (asking
for this is quick): ``sk-ant-api03-…``; not ``sk-icon-large-button-x``. Each vendor's own documentation shows them."""
_KEY_BEGINS = lazy_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = lazy_pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINES = lazy_pattern(r"(?:[A-Za-z0-9+/=\s]|\\[rn])*+")
"""The body of a key that was cut off: base64, with line breaks or escaped ones."""

_PLACEHOLDER = r"(?![$<{%\[*]|(?i:xxx|your[_-]|example|changeme|redacted|process\.|os\.|env[.:(\[]|(?:bearer|basic)\b))"
"""What a value does not begin with: a variable, a blank to fill in, or a piece of code that looks it up."""
_URL = lazy_pattern(
    rf"(\b[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}://[^\s/:@'\"]{{0,100}}:){_PLACEHOLDER}[^\s/@'\"]{{1,200}}(?=@)"
)
"""``postgres://bob:s3@db``; not ``http://localhost:3000/a@b``."""
_HEADER = lazy_pattern(
    r"((?i:authorization|x-api-key)[\"']?\s?[:=]\s?[\"']?(?i:(?:bearer|basic|token|apikey)\s{1,9})?"
    rf"|\b[Bb]earer\s{{1,9}}(?=[\w.~+/-]{{0,99}}[0-9]))({_PLACEHOLDER}[\w.~+/=-]{{6,}})"
)
"""``Authorization: Bearer abcdefgh``, ``Bearer a1b2c3…``; not ``bearer of news``."""
_PASS = r"pass(?:word|wd|phrase)|pwd"
_NAME = rf"(?i:{_PASS}|secret|token|credential|api[_-]?key|(?:access|account|auth|private|secret)[_-]?key)"
_VALUE = rf"{_PLACEHOLDER}[^\s\"'`,;&()\[\]{{}}<>|\\]{{6,}}+"
_QUOTED = rf"({_NAME}[\"']?\s?(?:[:=]\s?|[ ])([\"'])){_PLACEHOLDER}[^\s\"'\\]{{6,}}(?=\2)"
"""``"client_secret": "p8~xyzzy"``, ``PASSWORD 'q1w2e3r4'``; not ``token = "…"`` with blanks in it."""
_BARE = rf"({_NAME}(?:=|:[ ])){_VALUE}(?![(\[])"
"""``DB_PASSWORD=hunter22``; not ``token=get_token()``. What it finds in code is let go by `_CODE`."""
_ASSIGNED = rf"({_NAME}[ ]{{1,9}}[=:][ ]{{1,9}})(?=[A-Za-z+/]{{0,99}}[0-9])[A-Za-z0-9+/]{{16,}}+={{0,2}}(?![\w.(\[])"
"""``aws_secret_access_key = wJalr/K7…``; not ``token = first_token2``."""
_SPOKEN = rf"((?i:{_PASS})[ ](?:is|was)[ ][\"'`]?){_VALUE}"
"""``The password is q1w2e3r4``; not ``the password is wrong``."""
_OPTION = rf"(--[\w-]{{0,30}}{_NAME}[ ]{{1,9}}[\"']?|\bmachine[ ]\S{{1,99}}[ ]login[ ]\S{{1,99}}[ ]password[ ]){_VALUE}"
"""``--password q1w2e3r4``, a line of netrc; not ``--token-file path/to``."""
_USER = rf"((?<!\S)(?:-u|--user)[ =]?[\"']?[\w.@+-]{{1,99}}:){_VALUE}"
"""``curl -u admin:q1w2e3r4``; not ``docker run -u 1000:1000``."""
_MYSQL = rf"(\b(?:mysql|mysqldump|mariadb)\b[^\n|;&]{{0,99}}?\s-p){_VALUE}"
"""``mysql -u root -pq1w2e3r4``: the one program that takes it without a blank."""
_NAMED = tuple(map(lazy_pattern, (_QUOTED, _BARE, _ASSIGNED, _SPOKEN, _OPTION, _USER, _MYSQL)))
"""What a name, an option or a program says is a secret."""
_WORD = lazy_pattern(
    rf"({_NAME}=)(?!(?i:undefined|string)\b)(?!\w{{0,99}}{_NAME})(?:[A-Za-z]{{6,}}|[0-9]{{6,}})(?=[\s&;\"'`]|$)"
)
"""A plain word or number, where no code has it: ``password=correcthorse``; not ``f(token=given)``, which goes on with
a bracket or comma."""
_COOKIE = lazy_pattern(r"(\b(?i:cookie)[\"']?\s?[:=]\s?[\"']?[\w.-]{1,60}=)[^\s\"']{6,}[^\n\"']*")
"""``Cookie: session=…; theme=dark`` to its end; not ``cookie: string``."""
_SIGNED = lazy_pattern(r"([?&]sig(?:nature)?=)[\w%+/=-]{20,}")
"""``…&sig=…`` of a signed address."""
_KEY_LINE = lazy_pattern(
    r"^(?=[ \t]*[^\sA-Z]{0,99}[A-Z])(?=[ \t]*[^\sa-z]{0,99}[a-z])(?=[ \t]*[^\s0-9]{0,99}[0-9])"
    r"([ \t]*)(?:[A-Za-z0-9+/]{40,100}={0,2}|[A-Za-z0-9+/]{20,98}={1,2})[ \t]*$",
    re.M,
)
"""A line of a key that was split into its lines: base64 and nothing else; no digest, which has letters of one case."""
_KEY = lazy_pattern(rf".*(?:{_NAME}|(?i:authorization|cookie))", re.DOTALL)
_WORDS = r"(?:[A-Z]+|[A-Z]{0,3}[a-z]+(?:[A-Z]{1,3}[a-z]{2,})*)"
_CODE = lazy_pattern(rf"_*{_WORDS}(?:[_.]+{_WORDS})*[_.]*|[0-9.]+|[./~].*|.*\.\.\..*|.*[_.-]{_NAME}s?")
"""A bare value of this form is a name in code, a number, a path or an ellipsis, rather than a secret."""


def redact(text: str) -> str:
    """`text` with each secret in it replaced by ``[secret]``; all else as it was."""
    if "PRIVATE KEY" in text:
        text = _without_keys(text)
    text = _KEY_LINE.sub(rf"\1{MARK}", _without_known(text))
    for mark, form in _FORMS:
        if mark in text:
            text = re.sub(form, MARK, text)
    for pattern in (_URL, _HEADER, _COOKIE, _SIGNED, _WORD):
        text = pattern.sub(rf"\1{MARK}", text)
    for pattern in _NAMED:
        text = pattern.sub(_hidden, text)
    return text


_OFTEN = 1_000
"""Characters: so short a text may come again: facts stand in a plan, by themselves, and in a session's next plan."""


def redact_data(value: Any, name: str = "") -> Any:
    """JSON data with `redact` applied to every text in it, and a text under a secret's name replaced whole.

    `name`: the one that `value` stands under. Names stay.
    """
    if isinstance(value, dict):
        return {key: redact_data(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_data(inner, name) for inner in value]
    if not isinstance(value, str):
        return value
    if value and _KEY.fullmatch(name):
        return MARK
    return _redact_often(value) if len(value) <= _OFTEN else redact(value)


@lru_cache(2**14)
def _redact_often(text: str) -> str:
    return redact(text)


def _hidden(match: re.Match[str]) -> str:
    whole, name = match[0], match[1]
    return whole if _CODE.fullmatch(whole, len(name)) else name + MARK


def _without_keys(text: str) -> str:
    """`text` without private keys, whole ones and those that were cut off."""
    parts: list[str] = []
    at, closed = 0, True
    while (begin := _KEY_BEGINS.search(text, at)) is not None:
        end = _KEY_ENDS.search(text, begin.end()) if closed else None
        closed = end is not None  # looked for in vain once, it is not there further on
        body = _KEY_LINES.match(text, begin.end())
        parts += text[at : begin.start()], MARK
        at = end.end() if end else (body.end() if body else begin.end())
    return "".join([*parts, text[at:]])


def _without_known(text: str) -> str:
    """`text` without what detect-secrets knows."""
    spans = sorted({span for pattern, group in _patterns() for span in _spans(text, pattern, group)})
    parts: list[str] = []
    at = 0
    for first, last in spans:
        if first >= at:
            parts += text[at:first], MARK
        at = max(at, last)
    return "".join([*parts, text[at:]])


def _spans(text: str, pattern: re.Pattern[str], group: int) -> Iterator[tuple[int, int]]:
    """Where `pattern` finds secrets in `text`, window by window."""
    reached = 0
    for start in range(0, max(1, len(text)), _WINDOW - _OVERLAP):
        for match in pattern.finditer(text[start : start + _WINDOW]):
            first, last = (start + place for place in match.span(group))
            if first < reached:
                continue
            rest = _REST.match(text, last) if group == 0 else None
            reached = rest.end() if rest else last
            yield first, reached


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], int], ...]:
    """The patterns of detect-secrets, each with the group that is the secret."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    classes: dict[str, Any] = dict(get_mapping_from_secret_type_to_class())
    plugins = [
        plugin
        for _, plugin in sorted(classes.items())
        if issubclass(plugin, RegexBasedDetector) and plugin.__name__ not in _LEFT_OUT
    ]
    # The group of most patterns is a prefix such as ``ghp``; only of an address the user's name and the host stay.
    return tuple(
        (pattern, int(plugin.__name__ == "BasicAuthDetector")) for plugin in plugins for pattern in plugin.denylist
    )
