"""Takes secrets out of text that is kept for reading: facts, plans and events; originals where that is asked for.

What a credential of each provider looks like is known by detect-secrets; the names in front of a value, and forms
it does not know, stand here. A name alone, a placeholder or a piece of code is left as it is. Time is linear in
the text, whatever stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import takewhile
from typing import Any

from planner.reading.messages import strings_in
from planner.reading.patterns import lazy_pattern

__all__ = ["MARK", "redact"]

MARK = "[secret]"
"""What stands in the place of a secret."""

_WINDOW, _OVERLAP = 2_048, 512
"""Foreign patterns see so many characters at a time: some take the square of what they see. Of a longer secret they
need see the beginning only, see `_REST`; the longest beginning that one needs is 170 characters (PyPI)."""
_LEFT_OUT = (
    "BasicAuthDetector",  # addresses: below, with any password, and without blanks to fill in
    "IPPublicDetector",  # an address is a fact to remember
    "IbmCloudIamDetector",  # takes ``PASS: Test…`` with a name of 44 characters for a key
    "PrivateKeyDetector",  # knows the first line of a key only: below
)
"""Plugins that are not asked, as those without patterns are not: names are below, digests have the entropy of keys."""
_REST = lazy_pattern(r"[\w+/=-]*(?:\.[\w+/=-]+)*")
"""What goes on behind the part of a secret that a pattern found: ``.c2ln`` of ``eyJh.eyJz.c2ln``; no full stop."""

_ESCAPED = r"(?<=\\[nrt])|(?<=\\u[0-9a-f]{4})|(?<=[0-9]m)"
"""Behind ``\\n`` or ``\\u2192`` of JSON, or ``\\x1b[32m`` of a terminal."""
_START = rf"(?:\b|{_ESCAPED})"
_QUOTE = r"(?:\\*[\"'])"
"""In a text, in JSON, and in JSON in JSON."""
_RANDOM = r"(?=[a-z_-]{0,40}[0-9A-Z])"
"""No name of code in small letters: ``gsk_render_node_get_type``."""
_FORMS = tuple(
    lazy_pattern(_START + form)
    for form in (
        # Anthropic, Google, Slack, Docker, Vault, Figma: letters, digits, strokes
        rf"(?:sk-ant-|AIza|ya29\.|GOCSPX-|xox[abeoprs]-|xapp-|dckr_pat_|hv[sbr]\.|figd_){_RANDOM}[\w-]{{20,}}",
        # Stripe, GitHub (cut ones, too), npm, Hugging Face, Linear, Notion, Sentry, Grafana, Groq, xAI, Perplexity
        r"(?:[srp]k_(?:live|test)_|whsec_|gh[pousr]_|github_pat_|npm_|hf_|lin_(?:api|oauth)_|ntn_|sntry[su]_|glsa_|gsk_"
        rf"|xai-|pplx-|pscale_(?:pw|tkn|oauth)_){_RANDOM}[A-Za-z0-9]{{16}}[\w.+/=-]*",
        # Databricks, Shopify, DigitalOcean, Supabase, Mailgun, Postman
        r"(?:dapi|shp(?:at|ca|pa|ss)_|do[opr]_v1_|sbp_|key-|PMAK-[0-9a-f]{24}-)[0-9a-fA-F]{32}[0-9a-fA-F]*\b",
        r"sk-(?=[\w-]{0,99}[0-9])(?=[\w-]{0,99}[A-Z])[\w-]{20,}",  # OpenAI, and those who copied its form
        r"(?<!\.)s\.(?=[A-Za-z]{0,23}[0-9])(?=[a-z0-9]{0,23}[A-Z])[A-Za-z0-9]{24}(?![\w.(])",  # Vault, of old
        r"secret_(?=[A-Za-z]{0,42}[0-9])[A-Za-z0-9]{43}\b",  # Notion, of old
        r"AGE-SECRET-KEY-1[0-9A-Z]{50,}",
        r"(?<=/webhooks/)\d{5,30}/[\w-]{40,}",  # Discord
    )
)
"""Forms that detect-secrets does not know, or knows only in some places: ``sk-ant-api03-…``; not
``sk-icon-large-button-x``. Each vendor's own documentation shows them."""
_KEY_MARK = lazy_pattern(r"(-----(?:BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)")
_LONGEST_KEY = 2**15
"""Characters between the two marks; a key of PGP with its signatures has a third of that."""
_KEY_PIECE = lazy_pattern(
    r"(?<![\w./-])[\w./-]{1,99}[:-]\d{1,7}[:-]|(?:\x1b|\\+u001b)\[[\d;]{0,9}m|\\+(?:u[0-9a-f]{4}|[a-z])|([A-Za-z0-9+/]+={0,2})"
)
"""What stands in a key that was cut off: base64 (the group), and what viewers, terminals and JSON put between."""
_NO_KEY = lazy_pattern(r"[A-Z]?[a-z]*|[A-Z]+|[+/=]+")
"""Where a key that was cut off has ended: at ``done``; not at ``MIIEow``."""
_FAR_PIECE = lazy_pattern(r"(?=[^A-Z]*[A-Z])(?=[^a-z]*[a-z])(?=[^0-9]*[0-9]).{16}")
"""What goes on with a key whose mark stands in another text; not ``text``, nor ``toolu_01…`` (no stroke is base64)."""

_PLACEHOLDER = r"(?![$<{%\[*]|(?i:xxx|your[_-]|example|changeme|redacted|process\.|os\.|env[.:(\[]|(?:bearer|basic)\b))"
"""What a value does not begin with: a variable, a blank to fill in, or a piece of code that looks it up."""
_URL = lazy_pattern(
    rf"({_START}[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}://[^\s/:@'\"]{{0,100}}:){_PLACEHOLDER}[^\s/@'\"]{{1,200}}(?=@)"
)
"""``postgres://bob:s3@db``; not ``http://localhost:3000/a@b``."""
_HEADER = lazy_pattern(
    rf"((?i:authorization|x-api-key){_QUOTE}?\s?[:=]\s?{_QUOTE}?(?i:(?:bearer|basic|token|apikey)\s{{1,9}})?"
    rf"|{_START}[Bb]earer\s{{1,9}}(?=[\w.~+/-]{{0,99}}[0-9]))({_PLACEHOLDER}[\w.~+/=-]{{6,}})"
)
"""``Authorization: Bearer abcdefgh``, ``Bearer a1b2c3…``; not ``bearer of news``."""
_PASS = r"pass(?:word|wd|phrase)|pwd"
_NAME = rf"(?i:{_PASS}|secret|token|credential|api[_-]?key|(?:access|account|auth|private|secret)[_-]?key)"
_VALUE = rf"{_PLACEHOLDER}[^\s\"'`,;\x1b&()\[\]{{}}<>|\\]{{6,}}+"
_QUOTED = rf"({_NAME}{_QUOTE}?\s?(?:[:=]\s?|[ ])({_QUOTE})){_PLACEHOLDER}[^\s\"'\\]{{6,}}(?=\2)"
"""``"client_secret": "p8~xyzzy"``, ``PASSWORD 'q1w2e3r4'``; not ``token = "…"`` with blanks in it."""
_BARE = rf"({_NAME}(?:=|:[ ])){_VALUE}(?![(\[])"
"""``DB_PASSWORD=hunter22``; not ``token=get_token()``. What it finds in code is let go by `_CODE`."""
_ASSIGNED = rf"({_NAME}[ ]{{1,9}}[=:][ ]{{1,9}})(?=[A-Za-z+/]{{0,99}}[0-9])[A-Za-z0-9+/]{{16,}}+={{0,2}}(?![\w.(\[])"
"""``aws_secret_access_key = wJalr/K7…``; not ``token = first_token2``."""
_SPOKEN = rf"((?i:{_PASS})[ ](?:is|was)[ ][\"'`]?){_VALUE}"
"""``The password is q1w2e3r4``; not ``the password is wrong``."""
_OPTION = rf"(--[\w-]{{0,30}}{_NAME}[ ]{{1,9}}[\"']?|machine[ ]\S{{1,99}}[ ]login[ ]\S{{1,99}}[ ]password[ ]){_VALUE}"
"""``--password q1w2e3r4``, a line of netrc; not ``--token-file path/to``."""
_USER = rf"((?<!\S)(?:-u|--user)[ =]?[\"']?[\w.@+-]{{1,99}}:){_VALUE}"
"""``curl -u admin:q1w2e3r4``; not ``docker run -u 1000:1000``."""
_MYSQL = rf"({_START}(?:mysql|mysqldump|mariadb)\b[^\n|;&]{{0,99}}?\s-p){_VALUE}"
"""``mysql -u root -pq1w2e3r4``: the one program that takes it without a blank."""
_NAMED = tuple(map(lazy_pattern, (_QUOTED, _BARE, _ASSIGNED, _SPOKEN, _OPTION, _USER, _MYSQL)))
"""What a name, an option or a program says is a secret."""
_WORD = lazy_pattern(
    rf"({_NAME}=)(?!(?i:undefined|string)\b)(?!\w{{0,99}}{_NAME})(?:[A-Za-z]{{6,}}|[0-9]{{6,}})(?=[\s&;\"'`]|$)"
)
"""A plain word or number, where no code has it: ``password=correcthorse``; not ``f(token=given)``, which goes on with
a bracket or comma."""
_COOKIE = lazy_pattern(rf"((?i:cookie){_QUOTE}?\s?[:=]\s?{_QUOTE}?[\w.-]{{1,60}}=)[^\s\"'\\]{{6,}}[^\n\"'\\]*")
"""``Cookie: session=…; theme=dark`` to its end; not ``cookie: string``."""
_SIGNED = lazy_pattern(r"([?&]sig(?:nature)?=)[\w%+/=-]{20,}")
"""``…&sig=…`` of a signed address."""
_KEY_LINE = lazy_pattern(
    r"((?:^|(?<=\\[nr]))(?:[\w./-]{1,99}[:-]\d{1,7}[:-])?"
    rf"(?:[^A-Za-z\n\\\x1b]|(?:\x1b|\\+u001b)\[[\d;]{{0,9}}m|\\+(?:u[0-9a-f]{{4}}|t)){{0,40}}(?:(?<![A-Za-z0-9/=])|{_ESCAPED}))"
    r"(?=(?:[a-z0-9+/]{0,40}[A-Z]){4})(?=(?:[A-Z0-9+/]{0,40}[a-z]){4})(?=[A-Za-z+/]{0,99}[0-9])"
    r"(?:[A-Za-z0-9+/]{40,100}={0,2}|[A-Za-z0-9+/]{20,98}={1,2})(?=[^\w\n\\\x1b]{0,40}(?:[\\\x1b]|$))",
    re.M,
)
"""A line of a key that was split into its lines, behind its number, a mark of a diff, a bar or ``key.pem:12:``, in
quotes or in JSON: base64 and no word; not ``sha512-…`` behind a name, nor a digest, which has letters of one case."""
_KEY = lazy_pattern(rf".*(?:{_NAME}|(?i:authorization|cookie))", re.DOTALL)
_WORDS = r"(?:[A-Z]+|[A-Z]{0,3}[a-z]+(?:[A-Z]{1,3}[a-z]{2,})*)"
_CODE = lazy_pattern(rf"_*{_WORDS}(?:[_.]+{_WORDS})*[_.]*|[0-9.]+|[./~].*|.*\.\.\..*|.*[_.-]{_NAME}s?")
"""A bare value of this form is a name in code, a number, a path or an ellipsis, rather than a secret."""


def _without_others(text: str) -> str:
    """`text` without the secrets that stand in one line."""
    text = _KEY_LINE.sub(rf"\1{MARK}", _without_known(text))
    for form in _FORMS:
        text = form.sub(MARK, text)
    for pattern in (_URL, _HEADER, _COOKIE, _SIGNED, _WORD):
        text = pattern.sub(rf"\1{MARK}", text)
    for pattern in _NAMED:
        text = pattern.sub(_hidden, text)
    return text


_OFTEN = 1_000
"""Characters: so short a text may come again: facts stand in a plan, by themselves, and in a session's next plan."""


def redact(value: Any) -> Any:
    """A text or other JSON data with each secret in it replaced by ``[secret]``, and what has a secret's name whole.

    A key is one, too, where its lines stand in several texts: blocks of a result, arguments of a call. Names stay.
    """
    return _replaced(value, "", iter(_without_keys(list(strings_in(value)))))


def _replaced(value: Any, name: str, texts: Iterator[str]) -> Any:
    """`value`, which stands under `name`, with the next of `texts` for each of its own."""
    if isinstance(value, dict):
        return {key: _replaced(inner, str(key), texts) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner, name, texts) for inner in value]
    if not isinstance(value, str):
        return value
    text = next(texts)
    if value and _KEY.fullmatch(name):
        return MARK
    return _without_others_often(text) if len(text) <= _OFTEN else _without_others(text)


_without_others_often = lru_cache(2**14)(_without_others)


def _hidden(match: re.Match[str]) -> str:
    whole, name = match[0], match[1]
    return whole if _CODE.fullmatch(whole, len(name)) else name + MARK


def _without_keys(texts: list[str]) -> list[str]:
    """`texts` without private keys, whole ones and those that were cut off, or cut over several of them."""
    if not any("PRIVATE KEY" in text for text in texts):
        return texts
    every = [_KEY_MARK.split(text) for text in texts]  # each second part is a mark
    for mark, step in (("BEGIN", 1), ("END", -1)):  # what goes on behind a beginning, then what comes before an end
        within = False
        for parts in every[::step]:
            for index in range(len(parts))[::step]:
                if index % 2:
                    within = mark in parts[index]
                elif within:
                    parts[index] = _without_body(parts, index, step)
    clean = ["".join(MARK if index % 2 else part for index, part in enumerate(parts)) for parts in every]
    return [text.replace(MARK + MARK, MARK) for text in clean]


def _without_body(parts: list[str], index: int, step: int) -> str:
    """A part of a text without the piece of a key at its beginning; with a `step` of -1, at its end."""
    part = parts[index]
    before, behind = parts[index - 1] if index else "", parts[index + 1] if index + 1 < len(parts) else ""
    if "BEGIN" in before and "END" in behind and len(part) <= _LONGEST_KEY:
        return ""
    start = max(0, len(part) - _LONGEST_KEY) if step < 0 else 0
    pieces = list(_KEY_PIECE.finditer(part, start, start + _LONGEST_KEY))[::step]
    body = takewhile(lambda piece: not piece[1] or not _NO_KEY.fullmatch(piece[1]), pieces)
    spans = [piece.span() for piece in body if piece[1] and not piece[1].isdigit()]
    if not spans or not ((before if step > 0 else behind) or _FAR_PIECE.match(part, *spans[0])):
        return part
    return part[: min(spans)[0]] + MARK + part[max(spans)[1] :]


def _without_known(text: str) -> str:
    """`text` without what detect-secrets knows."""
    spans = sorted({span for pattern in _patterns() for span in _spans(text, pattern)})
    parts: list[str] = []
    at = 0
    for first, last in spans:
        if first >= at:
            parts += text[at:first], MARK
        at = max(at, last)
    return "".join([*parts, text[at:]])


def _spans(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Where `pattern` finds secrets in `text`, window by window."""
    reached = 0
    for start in range(0, max(1, len(text)), _WINDOW - _OVERLAP):
        for match in pattern.finditer(text[start : start + _WINDOW]):
            first, last = (start + place for place in match.span())
            if first < reached:
                continue
            rest = _REST.match(text, last)
            reached = rest.end() if rest else last
            yield first, reached


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """The patterns of detect-secrets."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    classes: dict[str, Any] = dict(get_mapping_from_secret_type_to_class())
    return tuple(
        pattern
        for _, plugin in sorted(classes.items())
        if issubclass(plugin, RegexBasedDetector) and plugin.__name__ not in _LEFT_OUT
        for pattern in plugin.denylist
    )
