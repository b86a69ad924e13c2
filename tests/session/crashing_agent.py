"""An agent in a process of its own: ``python -m tests.session.crashing_agent STORE LOG STYLE STOP``.

Writes each list it would send to LOG as a line of JSON, and dies without a word after STOP calls.
"""

import json
import os
import sys
from pathlib import Path

from applier.session import Session
from tests.strategies import make_session


def main(store, log, style, stop):
    """Play on from where LOG ends."""
    path = Path(log)
    lines = path.read_text().splitlines() if path.exists() else []
    history = make_session(40)
    session = Session(
        "fix the race", store=store, session_id="crash", planner="rules", window_tokens=8_000, clock=lambda: 0.0
    )
    own = json.loads(lines[-1]) if lines and style == "replace" else []
    known = 1 + 2 * max(0, len(lines) - 1)
    new = history[known : known + 2] if lines else history[:1]
    with path.open("a") as out:
        for number in range(len(lines), stop):
            own = [*own, *new] if style == "replace" else history[: 1 + 2 * number]
            own = session.prepare(own)
            out.write(json.dumps(own) + "\n")
            out.flush()
            new = history[1 + 2 * number : 3 + 2 * number]
    os._exit(9)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
