"""Definitions in lines of code: functions, types and constants, as they are in a file, a viewer or a diff."""

from __future__ import annotations

from planner.reading.patterns import lazy_pattern

__all__ = ["defines"]

_DEFINITION = lazy_pattern(
    r"[ \t]{0,8}"
    r"(?:(?:export|default|public|private|protected|static|async|abstract|final|pub|unsafe)[ \t]){0,4}"
    r"(?:def|class|func|function|fn|interface|type|struct|enum|trait|impl|module"
    r"|(?<![ \t])const|(?<=export )const|(?<=pub )const)"
    r"[ \t]{1,4}(?:\([^()\n]{0,60}\)[ \t]{0,2})?[A-Za-z_]"
)
"""A function, type or constant of a module: ``func (s *Store) Save(``, ``export class Foo``, ``const LIMIT``; not
``return type(x)``, nor a ``const`` within a function."""
_BEFORE_CODE = lazy_pattern(r"(?:\+|\s{0,8}\d{1,9}(?:→|\t| \| ))?")
"""Marks of viewers and diffs before a line of code: ``12→``, ``+``."""


def defines(line: str) -> bool:
    """Return True for a line that defines a function, type or constant."""
    before = _BEFORE_CODE.match(line)
    return _DEFINITION.match(line[before.end() :] if before else line) is not None
