"""Public suites as one command each: the literal items that views by rules contain.

``python -m tests.bench compactbench TEMPLATES`` and ``python -m tests.bench side-constraints FILE TRANSCRIPTS…``. Their
data is read where it was downloaded and never stored; CONTRIBUTING names its source. Asks no model.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from applier.adapters.transcripts import read_transcript, transcript_files
from applier.eval.methods import find_method
from applier.eval.survival import message_tokens, plain_text
from planner.errors import SettingsError, TranscriptError
from planner.reading.lines import one_line
from planner.reading.messages import Message, blocks

ITEM_TYPES = {
    "locked_decision_retention": "decisions",
    "immutable_fact_recall": "facts",
    "entity_integrity": "entities",
    "forbidden_behavior_retention": "forbidden",
}
"""Types of CompactBench with literal items; the others judge a model's text."""
HARD = "This is an important constraint: for the rest of this session. "
FRAMINGS = {"hard": HARD, "session": "For the rest of this session. ", "plain": ""}
"""Framings of a side constraint in compaction-integrity: the strongest, the default, and the bare sentence."""
PLACES = ("top", "middle")
"""Places of a constraint: before the user's first words, and before the middle ones."""


@dataclass(frozen=True)
class Asked:
    """Item checked against one view."""

    group: str
    """Group of the count."""
    place: str
    """Source of the item: case or transcript, and its key."""
    wanted: str
    """Text to find, in any case and spacing."""
    view: str

    @property
    def stands(self) -> bool:
        """True if the view contains it."""
        return _folded(self.wanted) in _folded(self.view)


def _folded(text: str) -> str:
    return one_line(text).lower()


def ask_chats(templates: Path, difficulty: str, seeds: Iterable[int], ratio: float, method: str) -> Iterator[Asked]:
    """Yield the literal items of CompactBench's `templates` for every seed.

    Raises:
        SettingsError: the package ``compactbench`` is not installed, or there is no such method.
    """
    try:
        dsl, engine = (importlib.import_module(f"compactbench.{name}") for name in ("dsl", "engine"))
    except ImportError as error:
        raise SettingsError(f"this suite needs its package: pip install compactbench ({error})") from error
    level = dsl.DifficultyLevel(difficulty)
    seeds = list(seeds)
    for path in sorted(templates.glob("*.yaml")):
        template = dsl.parse_template_file(path)
        for seed in seeds:
            case = engine.generate_case(template, seed, level)
            messages: list[Message] = [
                {"role": str(turn.role), "content": turn.content} for turn in case.transcript.turns
            ]
            view = _view(messages, messages[-1]["content"], ratio, method)
            for item in case.evaluation_items:
                kind = ITEM_TYPES.get(str(item.item_type))
                if kind and item.expected["check"] == "contains_normalized":
                    yield Asked(kind, f"{case.case_id} {item.key}", item.expected["value"], view)


def _view(messages: Sequence[Message], task: str, ratio: float, method: str) -> str:
    target = max(1, int(ratio * message_tokens(messages)))
    return plain_text(find_method(method)(messages, task, target))


def read_constraints(path: Path) -> list[str]:
    """Return the side constraints in `path`, ``sssc.py`` of compaction-integrity, which is parsed and not run.

    Raises:
        TranscriptError: it contains no list of them.
    """
    try:
        statements = ast.parse(path.read_text("utf-8")).body
        lists = [s.value for s in statements if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "SSSCS"]
        return [constraint["sssc"] for constraint in ast.literal_eval(lists[0])]
    except (OSError, SyntaxError, LookupError, ValueError) as error:
        raise TranscriptError(f"{path}: no list SSSCS of side constraints in there ({error})") from error


def ask_constraints(
    paths: Iterable[Path], constraints: Sequence[str], framings: Sequence[str], ratio: float, method: str
) -> Iterator[Asked]:
    """Yield each constraint in each framing, at the top and in the middle of each transcript."""
    for path in paths:
        transcript = read_transcript(path)
        for framing in framings:
            for place in PLACES:
                for number, constraint in enumerate(constraints, 1):
                    wanted = constraint[0].lower() + constraint[1:] if FRAMINGS[framing] else constraint
                    messages = _with_words(transcript.messages, f"{FRAMINGS[framing]}{wanted}\n", place)
                    view = _view(messages, transcript.task, ratio, method)
                    yield Asked(f"{framing}, {place}", f"{path.stem} {number}", wanted, view)


def _with_words(messages: Sequence[Message], words: str, place: str) -> list[Message]:
    """Return `messages` with `words` before the user's own at `place`; tool results are not the user's."""
    own = [at for at, message in enumerate(messages) if _is_words(message)]
    at = own[0] if place == "top" else own[len(own) // 2]
    text, *rest = blocks(messages[at])
    changed = [{**text, "text": f"{words}{text['text']}"}, *rest]
    return [*messages[:at], {**messages[at], "content": changed}, *messages[at + 1 :]]


def _is_words(message: Message) -> bool:
    return bool(message["role"] == "user" and [block["type"] for block in blocks(message)][:1] == ["text"])


def shares(items: Iterable[Asked]) -> dict[str, tuple[int, int]]:
    """Return found and all items by group."""
    counts: dict[str, tuple[int, int]] = {}
    for item in items:
        standing, asked = counts.get(item.group, (0, 0))
        counts[item.group] = standing + item.stands, asked + 1
    return counts


def add_commands(commands: Any) -> None:
    """Add the commands of both suites."""
    chats = commands.add_parser("compactbench", help="the literal items of CompactBench")
    chats.add_argument("templates", type=Path, help="its folder benchmarks/public/elite_practice")
    chats.add_argument("--difficulty", default="elite", choices=("easy", "medium", "hard", "elite"))
    chats.add_argument("--seeds", type=int, default=5, help="cases of each template")
    chats.add_argument("--ratio", type=float, default=0.25)
    chats.set_defaults(run=_chats)
    constraints = commands.add_parser("side-constraints", help="the side constraints of compaction-integrity")
    constraints.add_argument("file", type=Path, help="its src/compaction_integrity/sssc.py")
    constraints.add_argument("places", nargs="+", type=Path)
    constraints.add_argument("--framing", action="append", choices=list(FRAMINGS))
    constraints.add_argument("--most", type=int, help="a seeded draw of so many of the transcripts")
    constraints.add_argument("--ratio", type=float, default=0.05)
    constraints.set_defaults(run=_constraints)
    for command in (chats, constraints):
        command.add_argument("--method", default="rules")
        command.add_argument("--lost", action="store_true", help="print each item that does not stand")
        command.add_argument("--views", type=Path, help="write the view of each lost item into this folder")


def _chats(console: Console, options: argparse.Namespace) -> None:
    seeds = range(1, options.seeds + 1)
    items = ask_chats(options.templates, options.difficulty, seeds, options.ratio, options.method)
    _print(console, f"CompactBench, {options.difficulty}, at {options.ratio:g}", list(items), options)


def _constraints(console: Console, options: argparse.Namespace) -> None:
    paths = sorted(path for path in transcript_files(options.places) if _has_words(path))
    if options.most is not None:
        paths = random.Random(options.most).sample(paths, min(options.most, len(paths)))
    framings = options.framing or ["hard", "plain"]
    items = ask_constraints(paths, read_constraints(options.file), framings, options.ratio, options.method)
    _print(console, f"side constraints in {len(paths)} transcripts at {options.ratio:g}", list(items), options)


def _has_words(path: Path) -> bool:
    return any(map(_is_words, read_transcript(path).messages))


def _print(console: Console, title: str, items: Sequence[Asked], options: argparse.Namespace) -> None:
    table = Table("group", "stand", "asked", "share", title=title)
    for group, (standing, asked) in shares(items).items():
        table.add_row(group, f"{standing}", f"{asked}", f"{standing / asked:.3f}")
    console.print(table)
    for number, item in enumerate(item for item in items if not item.stands):
        if options.lost:
            console.print(f"{item.group}: {item.place}: {item.wanted}", highlight=False, soft_wrap=True, markup=False)
        if options.views:
            options.views.mkdir(parents=True, exist_ok=True)
            (options.views / f"{number:03}.txt").write_text(f"{item.place}: {item.wanted}\n\n{item.view}", "utf-8")
