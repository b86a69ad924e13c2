"""Counts the steps that a backtracking matcher takes, so that growth is measured without a clock.

A slow twin of `re`: it finds the same matches (a law in the tests) and counts each character it looks at and each place
it returns to. `re` skips some of these steps; it takes no more than these.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

ONE = (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY)
"""Nodes that match one character."""
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}
FRAMES = 200_000
"""Python's own limit of nested calls while a matcher runs: a repeat nests a few for each turn."""

Next = Callable[[int], bool]
Matcher = Callable[[int, Next], bool]


class StepLimitError(Exception):
    """A match takes more steps than it may."""


class Steps:
    """A pattern whose matches are counted in steps."""

    def __init__(self, text: str, flags: int) -> None:
        parsed = parser.parse(text, flags)
        self.tree = list(parsed)
        self.flags: int = parsed.state.flags
        self._match = self._sequence(self.tree, self.flags)
        self._text = ""
        self._left = 0
        self._groups: dict[int, tuple[int, int]] = {}

    def everywhere(self, text: str, limit: int) -> int:
        """Count the steps of all matches, one behind the other.

        Raises:
            StepLimitError: there are more than `limit`.
        """
        for _ in self.spans(text, limit):
            pass
        return limit - self._left

    def at_start(self, text: str, limit: int) -> int:
        """Count the steps of a match at the start and of one of the whole text.

        Raises:
            StepLimitError: there are more than `limit`.
        """
        with self._running(text, limit):
            self._match(0, lambda _: True)
            self._match(0, lambda end: end == len(text))
        return limit - self._left

    def spans(self, text: str, limit: int) -> Iterator[tuple[int, int]]:
        """Yield where the matches are that `re.finditer` finds."""
        start, at, is_empty, ends = 0, 0, False, [0]

        def done(end: int) -> bool:
            if is_empty and end == at == start:  # the last match was this one
                return False
            ends[0] = end
            return True

        with self._running(text, limit):
            while at <= len(text):
                self._step()
                self._groups.clear()
                if self._match(at, done):
                    yield at, ends[0]
                    is_empty, start = ends[0] == at, ends[0]
                    at = start
                else:
                    at += 1

    @contextmanager
    def _running(self, text: str, limit: int) -> Iterator[None]:
        self._text, self._left = text, limit
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(FRAMES)
        try:
            yield
        finally:
            sys.setrecursionlimit(before)

    def _step(self, count: int = 1) -> None:
        self._left -= count
        if self._left < 0:
            raise StepLimitError

    def _sequence(self, nodes: Sequence[Any], flags: int) -> Matcher:
        matchers = [self._node(op, value, flags) for op, value in nodes]
        if not matchers:
            return lambda at, go_on: go_on(at)
        last = matchers[-1]
        for matcher in reversed(matchers[:-1]):
            last = _joined(matcher, last)
        return last

    def _node(self, op: Any, value: Any, flags: int) -> Matcher:
        if op in ONE:
            return self._one(one_character(op, value, flags))
        if op in REPEATS:
            return self._repeat(op, value, flags)
        if op is codes.SUBPATTERN:
            group, added, removed, nodes = value
            return self._group(group, self._sequence(nodes, (flags | added) & ~removed))
        if op is codes.BRANCH:
            return self._branch([self._sequence(nodes, flags) for nodes in value[1]])
        if op is codes.ATOMIC_GROUP:
            return self._atomic(self._sequence(value, flags))
        if op in (codes.ASSERT, codes.ASSERT_NOT):
            direction, nodes = value
            back = nodes.getwidth()[0] if direction < 0 else 0
            return self._assertion(self._sequence(nodes, flags), back, op is codes.ASSERT)
        if op is codes.AT:
            return self._place(_place_text(value, flags))
        if op is codes.GROUPREF:
            return self._same_again(value, flags)
        if op is codes.GROUPREF_EXISTS:
            group, yes, no = value
            return self._if_group(group, self._sequence(yes, flags), self._sequence(no or [], flags))
        if op is codes.FAILURE:
            return lambda _at, _go_on: False
        raise NotImplementedError(str(op))

    def _one(self, fits: Callable[[str], bool]) -> Matcher:
        def match(at: int, go_on: Next) -> bool:
            self._step()
            return at < len(self._text) and fits(self._text[at]) and go_on(at + 1)

        return match

    def _repeat(self, op: Any, value: Any, flags: int) -> Matcher:
        least, most, nodes = value
        most = sys.maxsize if most is codes.MAXREPEAT else most
        if len(nodes) == 1 and nodes[0][0] in ONE:
            return self._run(op, least, most, one_character(*nodes[0], flags))
        body = self._sequence(nodes, flags)
        if op is codes.POSSESSIVE_REPEAT:
            return self._atomic(self._greedy(body, least, most))
        return self._greedy(body, least, most) if op is codes.MAX_REPEAT else self._lazy(body, least, most)

    def _run(self, op: Any, least: int, most: int, fits: Callable[[str], bool]) -> Matcher:
        """Match a repeat of one character without a nested call for each."""

        def match(at: int, go_on: Next) -> bool:
            text, end = self._text, at
            longest = min(len(text), at + most)
            if op is codes.MIN_REPEAT:
                while True:
                    self._step()
                    if end >= at + least and go_on(end):
                        return True
                    if end >= longest or not fits(text[end]):
                        return False
                    end += 1
            while end < longest and fits(text[end]):
                end += 1
            self._step(end - at + 1)
            if op is codes.POSSESSIVE_REPEAT:
                return end >= at + least and go_on(end)
            while end >= at + least:
                self._step()
                if go_on(end):
                    return True
                end -= 1
            return False

        return match

    def _greedy(self, body: Matcher, least: int, most: int) -> Matcher:
        def again(at: int, count: int, before: int, go_on: Next) -> bool:
            self._step()
            if (
                count < most
                and not (count >= least and at == before)
                and (body(at, lambda end: again(end, count + 1, at, go_on)))
            ):
                return True
            return count >= least and go_on(at)

        return lambda at, go_on: again(at, 0, -1, go_on)

    def _lazy(self, body: Matcher, least: int, most: int) -> Matcher:
        def again(at: int, count: int, before: int, go_on: Next) -> bool:
            self._step()
            if count >= least and go_on(at):
                return True
            empty = count >= least and at == before
            return count < most and not empty and body(at, lambda end: again(end, count + 1, at, go_on))

        return lambda at, go_on: again(at, 0, -1, go_on)

    def _atomic(self, body: Matcher) -> Matcher:
        def match(at: int, go_on: Next) -> bool:
            ends: list[int] = []
            return body(at, lambda end: not ends.append(end)) and go_on(ends[-1])

        return match

    def _group(self, group: int | None, body: Matcher) -> Matcher:
        if group is None:
            return body

        def match(at: int, go_on: Next) -> bool:
            before = self._groups.get(group)

            def close(end: int) -> bool:
                inner = self._groups.get(group)
                self._groups[group] = (at, end)
                if go_on(end):
                    return True
                self._restore(group, inner)
                return False

            if body(at, close):
                return True
            self._restore(group, before)
            return False

        return match

    def _restore(self, group: int, span: tuple[int, int] | None) -> None:
        if span is None:
            self._groups.pop(group, None)
        else:
            self._groups[group] = span

    def _branch(self, branches: Sequence[Matcher]) -> Matcher:
        def match(at: int, go_on: Next) -> bool:
            return any(branch(at, go_on) for branch in branches)

        return match

    def _assertion(self, body: Matcher, back: int, wanted: bool) -> Matcher:
        def match(at: int, go_on: Next) -> bool:
            self._step()
            return (at >= back and body(at - back, lambda _: True)) is wanted and go_on(at)

        return match

    def _place(self, text: str) -> Matcher:
        place = re.compile(text)

        def match(at: int, go_on: Next) -> bool:
            self._step()
            return place.match(self._text, at) is not None and go_on(at)

        return match

    def _same_again(self, group: int, flags: int) -> Matcher:
        def match(at: int, go_on: Next) -> bool:
            if group not in self._groups:
                return False
            start, end = self._groups[group]
            size = end - start
            self._step(size + 1)
            first, second = self._text[start:end], self._text[at : at + size]
            same = first.lower() == second.lower() if flags & re.I else first == second
            return same and go_on(at + size)

        return match

    def _if_group(self, group: int, yes: Matcher, no: Matcher) -> Matcher:
        return lambda at, go_on: (yes if group in self._groups else no)(at, go_on)


def _joined(first: Matcher, second: Matcher) -> Matcher:
    return lambda at, go_on: first(at, lambda end: second(end, go_on))


def _place_text(place: Any, flags: int) -> str:
    inline = "(?a)" if flags & re.A else ""
    lines = "(?m)" if flags & re.M else ""
    return {
        codes.AT_BEGINNING: rf"{lines}^",
        codes.AT_BEGINNING_STRING: r"\A",
        codes.AT_BOUNDARY: rf"{inline}\b",
        codes.AT_NON_BOUNDARY: rf"{inline}\B",
        codes.AT_END: rf"{lines}$",
        codes.AT_END_STRING: r"\Z",
    }[place]


def below(op: Any, value: Any) -> list[Any]:
    """Return the lists of nodes inside a node."""
    if op in REPEATS:
        return [value[2]]
    if op is codes.SUBPATTERN:
        return [value[3]]
    if op is codes.BRANCH:
        return list(value[1])
    if op is codes.ATOMIC_GROUP:
        return [value]
    if op in (codes.ASSERT, codes.ASSERT_NOT):
        return [value[1]]
    if op is codes.GROUPREF_EXISTS:
        return [one for one in value[1:] if one]
    return []


def one_character(op: Any, value: Any, flags: int) -> Callable[[str], bool]:
    """Return a test for the characters that a node of one character matches."""
    return _test(_class_text(op, value), flags & (re.I | re.A | re.S))


@cache
def _test(text: str, flags: int) -> Callable[[str], bool]:
    pattern = re.compile(text, flags)
    return lru_cache(maxsize=None)(lambda character: pattern.match(character) is not None)


def _class_text(op: Any, value: Any) -> str:
    if op is codes.ANY:
        return "."
    if op is codes.IN:
        return "[" + "".join(_item_text(*item) for item in value) + "]"
    return f"[{'^' if op is codes.NOT_LITERAL else ''}{_escaped(value)}]"


def _item_text(op: Any, value: Any) -> str:
    if op is codes.NEGATE:
        return "^"
    if op is codes.LITERAL:
        return _escaped(value)
    if op is codes.RANGE:
        return f"{_escaped(value[0])}-{_escaped(value[1])}"
    return CATEGORIES[value]


def _escaped(number: int) -> str:
    return f"\\U{number:08x}"
