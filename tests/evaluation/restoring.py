"""What of the turns that a view left out comes back by the references in it, read apart from who wrote them."""

import re
import tempfile
from pathlib import Path

from applier.eval.survival import plain_text
from applier.store import open_store
from planner.reading.messages import blocks, read_history, to_json

_NOTE = re.compile(r'<compacted(?: history="(h[0-9a-f]{8,64})")? turns="([^"]+)">')
_POINTER = re.compile(r'restore_context\("(?:(h[0-9a-f]{8,64}):)?t(\d+)"\)')
_RANGE = re.compile(r"t(\d+)(?:-t?(\d+))?")


def restored_share(before, result):
    """The share of the turns that are not in the list as they were that a reference in it names and that come back
    byte-exact, through a store that holds nothing else; None if there is no reference at all.

    A turn stands if every block is in the list as it was, in whichever message; thinking may be gone.
    """
    history = read_history(before)
    standing = {to_json(block) for message in result for block in blocks(message)}
    gone = [
        turn
        for turn in history.turns
        if any(to_json(one) not in standing for _, one in history.blocks_of(turn) if "thinking" not in one["type"])
    ]
    named = _named_turns(plain_text(result))
    if gone and not named:
        return None
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder, "restore.db")) as store:
        saved = store.save_history(history)
        back = [
            turn.id in named
            and store.restore(f"{named[turn.id] or saved}:{turn.id}").messages == history.messages_of(turn)
            for turn in gone
        ]
    return sum(back) / len(back) if back else 1.0


def _named_turns(text):
    """The turns that `text` points at, each with the history key given there; a note without one has the last."""
    keys = {f"t{number}": key for key, number in _POINTER.findall(text)}
    key = ""
    for own, turns in _NOTE.findall(text):
        key = own or key
        for first, last in _RANGE.findall(turns):
            keys.update({f"t{number}": key for number in range(int(first), int(last or first) + 1)})
    return keys
