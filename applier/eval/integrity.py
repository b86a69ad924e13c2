"""Whether a compacted list can be sent, undone and paid for: validity, references, cache, the planner's price."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from applier.eval.methods import CompactedList
from applier.eval.texts import message_tokens, plain_text
from applier.store import open_store
from planner.prices import payback_calls
from planner.reading.history import History, Turn, read_history
from planner.reading.messages import Message, blocks, message_digest, to_json
from planner.validity import check_messages

__all__ = ["Integrity", "measure_integrity"]

_NOTE = re.compile(r'<compacted(?: history="(h[0-9a-f]{8,64})")? turns="([^"]+)">')
_POINTER = re.compile(r'restore_context\("(?:(h[0-9a-f]{8,64}):)?t(\d+)"\)')
_RANGE = re.compile(r"t(\d+)(?:-t?(\d+))?")


@dataclass(frozen=True)
class Integrity:
    """Numbers to decide by, besides what survives."""

    violations: int
    """What the Messages API itself would refuse."""
    restored: float | None
    """The share of turns not in the list as they were that a reference in it names and that come back byte-exact;
    None if there is no reference at all."""
    first_changed_message: int | None
    """Index of the first message that is not as it was."""
    payback_calls: float | None
    """After how many calls the smaller list has paid for the rewritten cache; None if it never does."""
    planner_input_ratio: float
    """Tokens the planner model read, over the history's."""
    planner_output_ratio: float


def measure_integrity(before: Sequence[Message], compacted: CompactedList) -> Integrity:
    """The integrity of `compacted`, made of `before`."""
    tokens, first = message_tokens(before), _first_changed(before, compacted.messages)
    prefix = message_tokens(before[:first])
    usage = compacted.plan.provenance.usage if compacted.plan else None
    return Integrity(
        violations=sum(violation.refused for violation in check_messages(compacted.messages)),
        restored=_restored(read_history(before), compacted.messages),
        first_changed_message=first,
        payback_calls=_finite(payback_calls(tokens, tokens - message_tokens(compacted.messages), prefix)),
        planner_input_ratio=(usage.input_tokens if usage else 0) / max(1, tokens),
        planner_output_ratio=(usage.output_tokens if usage else 0) / max(1, tokens),
    )


def _finite(calls: float) -> float | None:
    return calls if math.isfinite(calls) else None


def _first_changed(before: Sequence[Message], after: Sequence[Message]) -> int | None:
    for index, message in enumerate(before):
        if index >= len(after) or message_digest(message) != message_digest(after[index]):
            return index
    return None


def _restored(history: History, result: Sequence[Message]) -> float | None:
    """The share of removed turns that come back, through a store that holds nothing else."""
    standing = {to_json(block) for message in result for block in blocks(message)}
    gone = [turn for turn in history.turns if not _stands(history, turn, standing)]
    named = _named_turns(plain_text(result))
    if gone and not named:
        return None
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder, "restore.db"))
        try:
            saved = store.save_history(history)
            back = [
                turn.id in named
                and store.restore(f"{named[turn.id] or saved}:{turn.id}").messages == history.messages_of(turn)
                for turn in gone
            ]
        finally:
            store.close()
    return sum(back) / len(back) if back else 1.0


def _stands(history: History, turn: Turn, standing: Collection[str]) -> bool:
    """True if every block of `turn` is in the list as it was, in whichever message; thinking may be gone."""
    return all(to_json(block) in standing for _, block in history.blocks_of(turn) if "thinking" not in block["type"])


def _named_turns(text: str) -> dict[str, str]:
    """The turns that `text` points at, each with the history key given there; a note without one has the last."""
    keys = {f"t{number}": key for key, number in _POINTER.findall(text)}
    key = ""
    for own, turns in _NOTE.findall(text):
        key = own or key
        for first, last in _RANGE.findall(turns):
            keys.update({f"t{number}": key for number in range(int(first), int(last or first) + 1)})
    return keys
