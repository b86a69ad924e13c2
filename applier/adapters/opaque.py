"""Opaque blocks: content that an adapter cannot translate stays in place while everything around it is compacted."""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

from planner.reading.messages import OPAQUE, Block

logger = logging.getLogger("applier.session")
_CARRIED = "carried"
_NAME = re.compile(r"[\w.-]{1,40}")
"""``shell_call``; a longer text may quote the conversation."""


def opaque_block(kind: str, carried: Any) -> Block:
    """Return a block that carries the JSON data `carried`, which has an unknown `kind`. Log each kind once."""
    _warn_once(kind if _NAME.fullmatch(kind) else "item")
    return {"type": OPAQUE, _CARRIED: carried}


def carried_by(block: Block) -> Any:
    """Return the data that an opaque block carries."""
    return block[_CARRIED]


@cache
def _warn_once(kind: str) -> None:
    logger.warning("each %s stays as it is: its kind is unknown; all around it is compacted", kind)
