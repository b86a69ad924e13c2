"""Methods of compaction to compare, by name: planners, presets, recorded answers, plain baselines, the user's own.

The baselines use no plan, and no guards that repair a plan. Writes only to temporary stores, except that a method with
recorded answers of a model writes the prompts of missing answers.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, count, takewhile
from pathlib import Path
from typing import Any

from applier.eval.survival import message_tokens
from applier.session.presets import PRESETS, preset_named
from applier.session.session import Session
from applier.settings import SessionSettings
from applier.store.opening import temporary_store
from applier.view import preview
from planner.api import plan_compaction
from planner.errors import CompactorError, PlannerUnavailable, SettingsError
from planner.model.planners import ModelPlanner, RelayedPlanner, rendered_prompts
from planner.plan import PlanRequest, Proposal
from planner.reading.messages import Message, blocks, read_history
from planner.reading.tokens import TokenCounter

Method = Callable[[Sequence[Message], str, int], list[Message]]
"""Function ``method(messages, task, target_tokens)`` that returns a shorter list. `target_tokens`: wanted size of the
list, in o200k tokens of all its text."""

RECORDED, PROMPTS = "recorded:", "prompts:"
"""Beginnings of the names of methods with recorded answers, and with the user's own prompts, before their folder."""
CLEARED = "[cleared]"
"""Text in place of a removed tool result."""
_YOURS = re.compile(r"[\w.]+:\w+")
"""Name of a user's own method of compaction: ``module:function``."""

WINDOWS = (1.0, 2.0, 3.5, 5.0, 10.0)
"""Sizes of the window to try with a preset, as multiples of the target size, as a preset may leave more or less."""
LEAST_WINDOW_TOKENS = 2_000
"""Smallest window that `SessionSettings` accepts."""


class NotRecorded(PlannerUnavailable):
    """Error for a transcript without a recorded answer of a model."""


@dataclass(frozen=True)
class FolderPlanner:
    """Planner that reads the model's answers from files in `folder`, so that a person can ask any model by hand.

    The answer is ``SAMPLE.answer.txt``; of a history that is planned in pieces ``SAMPLE.answer-1.txt``,
    ``SAMPLE.answer-2.txt`` and so on. If answers are missing, the planner writes their prompts to the same folder, with
    ``prompt`` in place of ``answer``. The last prompt is written when all other pieces have answers.
    """

    folder: Path
    sample: str
    """Name of the transcript, with which the names of its files begin."""

    @property
    def answers(self) -> list[str]:
        """Recorded answers of the model, up to the first missing one."""
        single = self._file("answer")
        files = [single] if single.is_file() else takewhile(Path.is_file, (self._file("answer", n) for n in count(1)))
        return [file.read_text("utf-8") for file in files]

    def propose(self, request: PlanRequest) -> Proposal:
        """Return the plan in the recorded answers. If some are missing, write their prompts and raise `NotRecorded`."""
        answers = self.answers
        has_single_answer = self._file("answer").is_file()
        prompts = () if has_single_answer else rendered_prompts(request, answers=answers)
        if len(prompts) <= len(answers):  # no answer is missing, or nothing is to be asked
            return RelayedPlanner(answers).propose(request)
        self.folder.mkdir(parents=True, exist_ok=True)
        last = len(prompts)
        files = []
        # the last prompt contains the answers to all others, so it is written only if it alone is missing
        for number in range(len(answers) + 1, last) or [last]:
            files.append(self._file("prompt", number if last > 1 else 0))
            files[-1].write_text(prompts[number - 1], "utf-8")
        listed = ", ".join(file.name for file in files)
        raise NotRecorded(f"{self.folder}: answers are missing: write one beside each of {listed}, named answer")

    def _file(self, kind: str, piece: int = 0) -> Path:
        """Return the file for an ``answer`` or a ``prompt``, of the whole history (0) or of a piece of it."""
        return self.folder / f"{self.sample}.{kind}{f'-{piece}' if piece else ''}.txt"


def find_method(name: str, model: str | None = None, sample: str = "") -> Method:
    """Return the method of compaction called `name`, such as ``rules`` or ``preset:NAME``; raise SettingsError if there
    is none. `model`: model that the methods ``model`` and ``prompts:DIR`` ask; None for that of the settings. `sample`:
    beginning of the names of files with recorded answers."""
    if name.startswith(RECORDED):
        return partial(compact_by, planner=FolderPlanner(Path(name.removeprefix(RECORDED)), sample))
    if name.startswith(PROMPTS):
        return partial(compact_by, planner=ModelPlanner(None, model, name.removeprefix(PROMPTS)))
    if name in ("rules", "model"):
        return partial(compact_by, planner=name, model=model)
    if name in PLAIN_METHODS:
        return PLAIN_METHODS[name]
    if name.startswith("preset:"):
        return partial(compact_by_preset, preset=preset_named(name.removeprefix("preset:")).name)
    if _YOURS.fullmatch(name):
        return _own_method(*name.split(":"))
    listed = ", ".join(METHODS)
    raise SettingsError(
        f"no method {name!r}; there are {listed}, prompts:DIR, recorded:DIR, and module:function of your own"
    )


def methods_for(sample: str, names: Sequence[str], model: str | None = None) -> dict[str, Method]:
    """Return the methods of compaction called `names`, by name; `sample` and `model` are those of `find_method`."""
    return {name: find_method(name, model, sample) for name in names}


def _own_method(module: str, function: str) -> Method:
    """Return the user's `function` in `module` as a method of compaction; an error in it becomes a `SettingsError`."""
    if places := os.environ.get("PYTHONPATH"):  # the command ignores this variable otherwise
        sys.path += places.split(os.pathsep)
    name = f"method {module}:{function}"

    def checked(messages: Sequence[Message], task: str, target_tokens: int) -> list[Message]:
        """Call the user's function, and check that it returns a list."""
        with _explained_errors(name):
            view: list[Message] = method(messages, task, target_tokens)
        if not isinstance(view, list):
            raise SettingsError(f"{name}: expected a list of messages, found {type(view).__name__}")
        return view

    with _explained_errors(name):
        method = getattr(importlib.import_module(module), function)
    if not callable(method):
        raise SettingsError(f"{name}: expected a function, found {type(method).__name__}")
    return checked


@contextmanager
def _explained_errors(name: str) -> Iterator[None]:
    """Turn an error of the user's own code in the ``with`` block into a `SettingsError` about `name`; a
    `CompactorError` stays as it is."""
    try:
        yield
    except CompactorError:
        raise
    except Exception as error:
        cure = ": name its folder by PYTHONPATH" if isinstance(error, ModuleNotFoundError) else ""
        raise SettingsError(f"{name}: {type(error).__name__}: {error}{cure}") from error


def compact_by(
    messages: Sequence[Message], task: str, target_tokens: int, planner: Any = "rules", model: str | None = None
) -> list[Message]:
    """Return the compacted list that a `planner` (and its `model`) makes of `messages` for the size `target_tokens`."""
    # the target is passed on as a share of the messages, as the planner does not count in o200k tokens
    ratio = min(1.0, target_tokens / max(1, message_tokens(messages)))
    return list(preview(plan_compaction(messages, task, target_ratio=ratio, planner=planner, model=model)).messages)


def compact_by_preset(messages: Sequence[Message], task: str, target_tokens: int, preset: str) -> list[Message]:
    """Let a session with this `preset` compact `messages` for each window size in `WINDOWS`. Return the largest list
    that has at most `target_tokens`; if none has, the smallest."""
    # the window is in the session's own tokens, of which there may be more or fewer than o200k tokens
    token_ratio = TokenCounter.for_model().messages(messages) / max(1, message_tokens(messages))
    lists: list[list[Message]] = []
    for width in WINDOWS:
        window = max(LEAST_WINDOW_TOKENS, int(width * target_tokens * token_ratio))
        settings = SessionSettings(preset=preset, window_tokens=window, max_output_tokens=1, planner="rules")
        with temporary_store() as store, Session(task, settings=settings, store=store) as session:
            lists.append(session.prepare(list(messages)))
    fitting = [view for view in lists if message_tokens(view) <= target_tokens]
    return max(fitting, key=message_tokens) if fitting else min(lists, key=message_tokens)


def newest(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """Return the newest whole turns that fit in `target_tokens`, for comparison with better methods."""
    history = read_history(messages)
    turns = [list(history.messages_of(turn)) for turn in history.turns]
    sizes = accumulate(map(message_tokens, reversed(turns)))
    fitting = sum(size <= target_tokens for size in sizes)
    return list(chain.from_iterable(turns[len(turns) - fitting :]))


def clear_results(messages: Sequence[Message], _task: str, target_tokens: int) -> list[Message]:
    """Return `messages` with tool results replaced by ``[cleared]``, the oldest first, until the list fits in
    `target_tokens`."""
    tokens, result = message_tokens(messages), list(messages)
    for place, message in enumerate(messages):
        if tokens <= target_tokens:
            break
        cleared = [
            {**block, "content": CLEARED} if block["type"] == "tool_result" else block for block in blocks(message)
        ]
        if cleared != list(blocks(message)):  # the message has a result
            result[place] = {**message, "content": cleared}
            tokens += message_tokens([result[place]]) - message_tokens([message])
    return result


PLAIN_METHODS: dict[str, Method] = {"newest": newest, "clear": clear_results}
"""Plain methods to compare others with, by their names on the command line."""

METHODS = ("rules", "model", *PLAIN_METHODS, *(f"preset:{name}" for name in PRESETS))
"""Names of all methods, besides ``module:function``, ``prompts:DIR`` and ``recorded:DIR``."""
