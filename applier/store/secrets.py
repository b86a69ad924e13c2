"""Takes secrets out of text that is kept for reading: facts, plans and events; originals where that is asked for.

What a credential of each provider looks like is known by detect-secrets; the names in front of a value, and forms
it does not know, stand here. A name alone, a placeholder or a piece of code is left as it is. Time is linear in
the text, whatever stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from planner.reading.patterns import lazy_pattern

__all__ = ["MARK", "redact", "redact_data", "redact_texts"]

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

_FORMS = lazy_pattern(
    r"""
      \bsk-ant-[\w-]{16,}                                             # Anthropic
    | \bsk-(?=[\w-]{0,99}[0-9])(?=[\w-]{0,99}[A-Z])[\w-]{20,}         # those who copied OpenAI's form
    | \b(?:sk|rk|pk)_(?:live|test)_\w{16,} | \bwhsec_\w{16,}          # Stripe's test keys and webhooks
    | \bgh[pousr]_\w{20,} | \bgithub_pat_\w{20,}                      # GitHub, cut ones and fine-grained ones
    | \bAIza[\w-]{35} | \bya29\.[\w-]{20,}                            # Google
    | \bxox[abeoprs]-[\w-]{10,} | \bxapp-[\w-]{20,}                   # Slack, all kinds
    | \bnpm_[A-Za-z0-9]{36} | \bpypi-[\w-]{50,} | \bhf_[A-Za-z]{30,}  # registries, outside their own files
    """,
    re.VERBOSE,
)
"""Forms that detect-secrets does not know, wherever they stand: ``sk-ant-api03-…``; not ``sk-icon-large-button-x``."""
_MARKS = ("sk-", "k_live_", "k_test_", "whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
          "AIza", "ya29.", "xox", "xapp-", "npm_", "pypi-", "hf_")  # fmt: skip
"""Without one of these, none of `_FORMS` is in a text: asking this is quick, looking for them is not."""
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
_NAME = rf"(?i:{_PASS}|secret|token|credential|api[_-]?key|(?:access|auth|private|secret)[_-]?key)"
_QUOTED = lazy_pattern(rf"({_NAME}[\"']?\s?[:=]\s?([\"'])){_PLACEHOLDER}[^\s\"'\\]{{6,}}(?=\2)")
"""``"client_secret": "p8~xyzzy"``; not ``token = "…"`` with blanks in it."""
_BARE = lazy_pattern(rf"({_NAME}(?:=|:[ ])){_PLACEHOLDER}[^\s\"'`,;&()\[\]{{}}<>|\\]{{6,}}+(?![(\[\"'])")
"""``DB_PASSWORD=hunter22``; not ``token=get_token()``. What it finds in code is let go by `_CODE`."""
_WORD = lazy_pattern(
    rf"({_NAME}=)(?!(?i:undefined|string)\b)(?!\w{{0,99}}{_NAME})(?:[A-Za-z]{{6,}}|[0-9]{{6,}})(?=[\s&;\"'`]|$)"
)
"""A plain word or number, where no code has it: ``password=correcthorse``; not ``f(token=given)``, which goes on with
a bracket or comma."""
_KEY = lazy_pattern(rf".*(?:{_NAME}|(?i:authorization))", re.DOTALL)
_CODE = lazy_pattern(rf"[A-Za-z_.]+|[0-9.]+|[./~].*|.*\.\.\..*|.*[_.-]{_NAME}s?")
"""A bare value of this form is a name in code, a number, a path or an ellipsis, rather than a secret."""


def redact(text: str) -> str:
    """`text` with each secret in it replaced by ``[secret]``; all else as it was."""
    if "PRIVATE KEY" in text:
        text = _without_keys(text)
    text = _without_known(text)
    if any(mark in text for mark in _MARKS):
        text = _FORMS.sub(MARK, text)
    for pattern in (_URL, _HEADER, _WORD):
        text = pattern.sub(rf"\1{MARK}", text)
    for pattern in (_QUOTED, _BARE):
        text = pattern.sub(_hidden, text)
    return text


_HARMLESS: set[int] = set()
"""Hashes of texts without a secret: facts stand in a plan, by themselves, and in the next plan of a session again."""
_MOST_HARMLESS = 2**14


def redact_texts(value: Any) -> Any:
    """JSON data with `redact` applied to every text in it; names stay. The same object if nothing in it is secret."""
    texts = {hash(text): text for text in _texts(value)}
    unseen = [key for key in texts if key not in _HARMLESS]
    together = "\n".join(map(texts.__getitem__, unseen))  # looked through at once: most plans hold no secret
    if redact(together) != together:
        return _redacted(value)
    if len(_HARMLESS) > _MOST_HARMLESS:
        _HARMLESS.clear()
    _HARMLESS.update(unseen)
    return value


def _texts(value: Any) -> Iterator[str]:
    """Every text in JSON data, in any order: plans hold more numbers than texts."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list | tuple):
            waiting += value.values() if isinstance(value, dict) else value


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(inner) for inner in value]
    return redact(value) if isinstance(value, str) else value


def redact_data(value: Any, name: str = "") -> Any:
    """As `redact_texts`, and a text under a secret's name is replaced as a whole."""
    if isinstance(value, dict):
        return {key: redact_data(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_data(inner, name) for inner in value]
    if not isinstance(value, str):
        return value
    return MARK if value and _KEY.fullmatch(name) else redact(value)


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
