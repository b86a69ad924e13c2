"""Takes secrets out of text that is kept for reading: facts and events. The originals keep every byte.

Finds what looks like a credential by its form or by the name in front of it; a name alone, a placeholder or
a piece of code is left as it is.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["MARK", "redact", "redact_data"]

MARK = "[secret]"
"""What stands in the place of a secret."""

_FORMS = re.compile(
    r"""
      \bsk-ant-[\w-]{16,}                                             # Anthropic
    | \bsk-(?=[\w-]*[0-9])(?=[\w-]*[A-Z])[\w-]{20,}                   # OpenAI and those who copied its form
    | \b(?:sk|rk|pk)_(?:live|test)_\w{16,} | \bwhsec_\w{16,}          # Stripe
    | \bgh[pousr]_\w{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{20,} # GitHub, GitLab
    | \b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b                         # AWS
    | \bAIza[\w-]{35} | \bya29\.[\w-]{20,}                            # Google
    | \bxox[abeoprs]-[\w-]{10,} | \bxapp-[\w-]{20,}                   # Slack
    | \bnpm_[A-Za-z0-9]{36} | \bpypi-[\w-]{50,} | \bhf_[A-Za-z]{30,}  # package and model registries
    | \bSG\.[\w-]{16,}\.[\w-]{16,}                                    # SendGrid
    | \beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*                            # JSON web tokens
    | -----BEGIN\ (?P<kind>[A-Z0-9 ]*PRIVATE\ KEY(?:\ BLOCK)?)-----
      (?: (?s:.{0,20000}?)-----END\ (?P=kind)----- | (?:[A-Za-z0-9+/=\s]|\\[rn])* )
    """,
    re.VERBOSE,
)
"""Secrets known by their own form, wherever they stand."""
_MARKS = ("sk-", "k_live_", "k_test_", "whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-",
          "AKIA", "ASIA", "ABIA", "ACCA", "AIza", "ya29.", "xox", "xapp-", "npm_", "pypi-", "hf_", "SG.", "eyJ",
          "-----BEGIN ")  # fmt: skip
"""Without one of these, no form is in a text: asking this is quick, looking for the forms is not."""

_PLACEHOLDER = r"(?![$<{%\[*]|(?i:xxx|your[_-]|example|changeme|redacted|process\.|os\.|env[.:(\[]|(?:bearer|basic)\b))"
"""What a value does not begin with: a variable, a blank to fill in, or a piece of code that looks it up."""
_URL = re.compile(rf"(\b[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}://[^\s/:@'\"]{{0,100}}:){_PLACEHOLDER}[^\s/@'\"]+(?=@)")
_HEADER = re.compile(
    r"((?i:authorization|x-api-key)[\"']?\s?[:=]\s?[\"']?(?i:(?:bearer|basic|token|apikey)\s+)?"
    rf"|\b[Bb]earer\s+(?=[\w.~+/-]{{0,99}}[0-9]))({_PLACEHOLDER}[\w.~+/=-]{{6,}})"
)
_PASS = r"pass(?:word|wd|phrase)|pwd"
_NAME = rf"(?i:{_PASS}|secret|token|credential|api[_-]?key|(?:access|auth|private|secret)[_-]?key)"
_QUOTED = re.compile(rf"({_NAME}[\"']?\s?[:=]\s?([\"'])){_PLACEHOLDER}[^\s\"'\\]{{6,}}(?=\2)")
_BARE = re.compile(rf"({_NAME}(?:=|:[ ])){_PLACEHOLDER}[^\s\"'`,;&()\[\]{{}}<>|\\]{{6,}}+(?![(\[\"'])")
_WORD = re.compile(
    rf"({_NAME}=)(?!(?i:undefined|string)\b)(?!\w*{_NAME})(?:[A-Za-z]{{6,}}|[0-9]{{6,}})(?=[\s&;\"'`]|$)"
)
"""A plain word or number, where no code has it: ``f(token=found)`` goes on with a bracket or comma."""
_KEY = re.compile(rf".*(?:{_NAME}|(?i:authorization))")
_CODE = re.compile(rf"[A-Za-z_.]+|[0-9.]+|[./~].*|.*\.\.\..*|.*[_.-]{_NAME}s?")
"""A bare value of this form is a name in code, a number, a path or an ellipsis, rather than a secret."""


def redact(text: str) -> str:
    """`text` with each secret in it replaced by ``[secret]``; all else as it was."""
    if any(mark in text for mark in _MARKS):
        text = _FORMS.sub(MARK, text)
    for pattern in (_URL, _HEADER, _WORD):
        text = pattern.sub(rf"\1{MARK}", text)
    for pattern in (_QUOTED, _BARE):
        text = pattern.sub(_hidden, text)
    return text


def redact_data(value: Any, name: str = "") -> Any:
    """JSON data with `redact` applied to every text, and texts under a secret's name replaced."""
    if isinstance(value, dict):
        return {key: redact_data(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_data(inner, name) for inner in value]
    if not isinstance(value, str):
        return value
    return MARK if value and _KEY.fullmatch(name) else redact(value)


def _hidden(found: re.Match[str]) -> str:
    whole, name = found[0], found[1]
    return whole if _CODE.fullmatch(whole, len(name)) else name + MARK
