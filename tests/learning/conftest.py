"""A project's folder, the logs of sessions in it, and the command line in this process."""

from pathlib import Path

import pytest

from tests.cli.conftest import compactor, folder
from tests.transcripts.session_logs import ClaudeCodeLog

__all__ = ["compactor", "folder"]


@pytest.fixture
def say(folder: Path):
    """Writes the log of a finished session in a project, each of `words` answered, and what failed and passed."""

    def write(
        name: str, *words: str, project: str = "app", steps: tuple[tuple[dict, str, bool], ...] = (), says: str = ""
    ) -> Path:
        log, at = ClaudeCodeLog(), str(folder / project)
        for number, text in enumerate(words):
            log.user(text, cwd=at)
            log.assistant(f"msg_{number}", {"type": "text", "text": "Done."}, cwd=at)
        for number, (call, result, failed) in enumerate(steps):
            key = f"toolu_{number}"
            spoken = [{"type": "text", "text": says}] if says else []
            log.assistant(f"msg_call_{number}", *spoken, {"type": "tool_use", "id": key, **call}, cwd=at)
            log.user([{"type": "tool_result", "tool_use_id": key, "content": result, "is_error": failed}], cwd=at)
        path = folder / "logs" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        (folder / project).mkdir(parents=True, exist_ok=True)
        path.write_text(log.text())
        return path

    return write


@pytest.fixture
def learn(compactor, folder):
    """`compactor learn` over those logs, in the project ``app``, by rules."""

    def call(*options: object, project: str = "app"):
        return compactor("learn", folder / "logs", "--project", folder / project, "--planner", "rules", *options)

    return call
