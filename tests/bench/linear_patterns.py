"""Attacks a regular expression with hostile texts made from its own parse tree, and measures how its work grows.

A hostile text is a prefix that leads to a repeat, a long run of what the repeat takes, and an end that fails. Work is
counted in steps of a backtracking matcher, or measured as the processor's time of `re`.
"""

from __future__ import annotations

import math
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from operator import attrgetter
from re import _constants as codes  # type: ignore[attr-defined]
from typing import Any

from tests.bench.pattern_sites import PatternSite
from tests.bench.steps import ONE, REPEATS, StepLimitError, Steps, below, one_character

MOST_RATIO = 2.3
"""How much the work may grow for twice the text."""
ALPHABET = "abcXYZ019 _-./:;,=+*'\"`<>()[]{}|\\\n\t#@!?$%&~^éЖ日\u2028\0"
"""Characters that attacks are made of, besides those that a pattern spells."""
ENDS = ("\0", "\n", "")
"""Texts after the run, of which at least one fails."""
LONG_REPEAT = 20
"""A repeat that takes fewer is no run."""
SCREENING = (50, 100)
"""Characters of the first round, which all attacks run."""
SCREENING_STEPS = 500_000
"""Steps of the first round after which it ends; what takes so many is steep."""
FINALISTS = 2
"""Attacks of the second round: the steepest and the longest of the first, so many of each."""
SIZES = ((400, 800), (2_000, 4_000))
"""Characters of the second round, and of the third for what grows too much there: a bound of 600 shows only then."""
STEPS_PER_CHARACTER = 1_000
"""A match that takes more is stopped."""
LEAST_SECONDS, MOST_SECONDS = (0.02, 0.2, 0.5), 5.0
"""A timed run repeats until it takes so long, longer if the growth seems too large, and is stopped after so long."""


@dataclass(frozen=True, order=True)
class Attack:
    """A hostile text of any size."""

    prefix: str
    unit: str
    end: str

    def text(self, size: int) -> str:
        """Return the text with a run of `size` characters."""
        return self.prefix + self.unit * (size // len(self.unit)) + self.end


@dataclass(frozen=True)
class Growth:
    """The worst attack on one pattern, and the work that it takes at each size."""

    site: PatternSite
    attack: Attack
    work: tuple[float, ...]
    """Steps or seconds, by size; the last is infinite if the match was stopped."""

    @property
    def ratio(self) -> float:
        """The largest ratio of one size's work to the one before."""
        return max((b / a for a, b in pairwise((1.0, *self.work)) if a > 1 or b == math.inf), default=0.0)

    @property
    def is_linear(self) -> bool:
        """True if no size takes much more than twice the work of its half."""
        return self.ratio <= MOST_RATIO


def count_growth(site: PatternSite, screening_steps: int = SCREENING_STEPS) -> Growth:
    """Return the attack whose steps grow most, or the first that grows too much."""
    steps = Steps(site.text, site.flags)
    screened = list(_screened(site, steps, screening_steps))
    steep = sorted(screened, key=attrgetter("ratio"), reverse=True)[:FINALISTS]
    long = sorted(screened, key=attrgetter("work"), reverse=True)[:FINALISTS]
    worst = Growth(site, Attack("", "", ""), ())
    for attack in dict.fromkeys(one.attack for one in (*steep, *long)):
        grown = next(
            one for sizes in SIZES if (one := _counted(site, steps, attack, sizes)).is_linear or sizes is SIZES[-1]
        )
        worst = max(worst, grown, key=attrgetter("ratio"))
        if not worst.is_linear:
            break
    return worst


def _screened(site: PatternSite, steps: Steps, most_steps: float) -> Iterator[Growth]:
    """Yield the growth of attacks at small sizes, in a mixed order, until they have taken `most_steps`."""
    attacks = sorted(set(_attacks(steps, site.text)))
    random.Random(ascii(site.text)).shuffle(attacks)
    for attack in attacks:
        growth = _counted(site, steps, attack, SCREENING)
        yield growth
        most_steps -= min(sum(growth.work), max(SCREENING) * STEPS_PER_CHARACTER)
        if most_steps < 0:
            return


def _counted(site: PatternSite, steps: Steps, attack: Attack, sizes: Sequence[int]) -> Growth:
    count = steps.at_start if site.is_anchored else steps.everywhere
    work: list[float] = []
    for size in sizes:
        limit = STEPS_PER_CHARACTER * size
        try:
            work.append(count(attack.text(size), limit))
        except StepLimitError:
            work.append(math.inf)
            break
    return Growth(site, attack, tuple(work))


def time_growth(site: PatternSite, attack: Attack, sizes: Sequence[int]) -> Growth:
    """Return the processor time that `re` takes for an attack at doubling sizes; what grows too much is timed anew, as
    other work disturbs short runs."""
    pattern = re.compile(site.text, site.flags)
    match = _match_at_start(pattern) if site.is_anchored else _match_everywhere(pattern)
    for least in LEAST_SECONDS:
        work: list[float] = []
        for size in sizes:
            work.append(_seconds(match, attack.text(size), least))
            if work[-1] == math.inf:
                break
        growth = Growth(site, attack, tuple(work))
        if growth.is_linear:
            break
    return growth


def _match_everywhere(pattern: re.Pattern[str]) -> Callable[[str], object]:
    return lambda text: sum(1 for _ in pattern.finditer(text))


def _match_at_start(pattern: re.Pattern[str]) -> Callable[[str], object]:
    return lambda text: (pattern.match(text), pattern.fullmatch(text))


class _Stopped(BaseException):
    """A match ran too long."""


def _stop(*_: object) -> None:
    raise _Stopped


def _seconds(match: Callable[[str], object], text: str, least: float) -> float:
    """Return the processor time of one match, of as many as take `least`; infinite if it was stopped."""
    before = signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        start, runs = time.process_time(), 0
        while not runs or time.process_time() - start < least:
            match(text)
            runs += 1
        return (time.process_time() - start) / runs
    except _Stopped:
        return math.inf
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _attacks(steps: Steps, text: str) -> Iterator[Attack]:
    samples = _Samples(steps.flags, random.Random(ascii(text)), _atoms(steps))
    for prefix, unit in samples.runs(steps.tree):
        for end in ENDS:
            yield Attack(prefix, unit, end)


def _atoms(steps: Steps) -> list[str]:
    """Return one character for each set of characters that the pattern tells apart."""
    nodes = list(_single(steps.tree))
    tests = [one_character(op, value, steps.flags) for op, value in nodes]
    literals = [chr(value) for op, value in nodes if op is codes.LITERAL]
    kinds: dict[tuple[bool, ...], str] = {}
    for character in (*ALPHABET, *literals):
        kinds.setdefault(tuple(test(character) for test in tests), character)
    return list(kinds.values())


def _single(nodes: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the nodes that match one character."""
    for op, value in nodes:
        if op in ONE:
            yield op, value
        for inner in below(op, value):
            yield from _single(inner)


class _Samples:
    """Texts that parts of one pattern match, roughly."""

    def __init__(self, flags: int, choices: random.Random, atoms: list[str]) -> None:
        self._flags = flags & (re.I | re.A | re.S)
        self._random = choices
        self._atoms = atoms
        self._groups: dict[int, str] = {}

    def runs(self, tree: Sequence[Any]) -> Iterator[tuple[str, str]]:
        """Yield prefixes and units: of each repeat, of what leads to it, and of whole matches."""
        units = [*self._atoms, *map("".join, product(self._atoms[:6], repeat=2)), *(f"{one}\n" for one in self._atoms)]
        for unit in units:
            yield "", unit
        for prefix, body in self._repeats(tree, ""):
            own = [text for _ in range(4) if (text := self.text(body))]
            for unit in (*own, *(self._atoms if len(body) == 1 else ())):
                yield prefix, unit
            for unit in own:
                yield "", prefix + unit
                yield "", prefix + unit * 12 + "\n"
                yield prefix, unit + self.text(body)
            if prefix:
                yield "", prefix
                yield "", prefix + "\n"
                yield "", prefix + " "
        for _ in range(2):
            whole = self.text(tree)
            for cut in {len(whole), len(whole) // 2, len(whole) - 1}:
                if cut > 0:
                    yield "", whole[:cut]
                    yield "", whole[:cut] + "\n"

    def _repeats(self, nodes: Sequence[Any], prefix: str) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield each long repeat's body, with a text that leads to it."""
        for op, value in nodes:
            if op in REPEATS and (value[1] is codes.MAXREPEAT or value[1] >= LONG_REPEAT):
                yield prefix, value[2]
            for inner in below(op, value):
                yield from self._repeats(inner, prefix)
            prefix += self._text_of(op, value, leads=True)

    def text(self, nodes: Sequence[Any]) -> str:
        """Return a text that matches the nodes one after the other."""
        return "".join(self._text_of(op, value) for op, value in nodes)

    def _text_of(self, op: Any, value: Any, *, leads: bool = False) -> str:
        if op in ONE:
            return chr(value) if op is codes.LITERAL else self._character(op, value)
        if op in REPEATS:
            least = max(value[0], 1) if leads else value[0] + self._random.randint(0, 2)
            return "".join(self.text(value[2]) for _ in range(min(least, value[1], 100)))
        if op is codes.BRANCH:
            return self.text(self._random.choice(value[1]))
        if op is codes.SUBPATTERN:
            text = self.text(value[3])
            self._groups[value[0]] = text
            return text
        if op is codes.GROUPREF:
            return self._groups.get(value, "")
        if op in (codes.ATOMIC_GROUP, codes.GROUPREF_EXISTS):
            return self.text(below(op, value)[0])
        return ""

    def _character(self, op: Any, value: Any) -> str:
        fits = one_character(op, value, self._flags)
        fitting = [character for character in (*self._atoms, *ALPHABET) if fits(character)]
        if fitting:
            return self._random.choice(fitting)
        return next(filter(fits, map(chr, range(32, 0x3000))), "")
