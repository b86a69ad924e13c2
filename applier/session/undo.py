"""Undo of a session: returns to the list that was sent before the last compaction.

`Ledger.note_compaction` records the earlier lists, and `Ledger.take` forgets those with a text that the caller has
changed since. Automatic compaction pauses after an undo, or it would make the same change at the next call.
"""

from __future__ import annotations

from dataclasses import replace

from applier.session.chain import save_for_restart
from applier.session.compaction import pause_tier
from applier.session.state import State


def undo(state: State) -> bool:
    """Return to the list before the last compaction, and pause all automatic compaction; return False if there is no
    compaction to undo. The content that the compaction left out is sent again; the store keeps it, too."""
    ledger, tokens_before = state.ledger, state.tokens
    if not ledger.undoable:
        return False
    last, ledger.undoable = ledger.undoable[-1], ledger.undoable[:-1]
    ledger.thought_since, ledger.cached_messages = last.thought_since or 0, 0  # from here thinking may be refused
    ledger.take_into_force(replace(ledger.committed, frame=last.frame))
    state.pressure.left_tokens = 0
    for row in state.setup.preset.steps:
        pause_tier(state, row.tier, forced=False, is_held=True)
        pause_tier(state, row.tier, forced=True, is_held=True)
    text = "the last compaction was taken back"
    state.setup.log("undone", text, tokens_before=tokens_before, tokens_after=state.tokens)
    save_for_restart(state)
    return True
