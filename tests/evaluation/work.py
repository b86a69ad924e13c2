"""A small piece of agent work with a future, made up, to measure compactions of."""

from tests.strategies import text

TASK = "Make the report job stop at 30 s"


def call(number: int, name: str, **arguments: object) -> dict:
    """An assistant message with one call."""
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": f"call_{number}", "name": name, "input": arguments}],
    }


def result(number: int, output: str, is_error: bool = False) -> dict:
    """The user message that answers it."""
    block = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": output, "is_error": is_error}
    return {"role": "user", "content": [block]}


PAST = [
    {"role": "user", "content": f"{TASK}. Never change the public API, please."},
    call(1, "Read", file_path="/srv/jobs/report/runner.py"),
    result(1, "def run_report(job_id):\n    return fetch_rows(job_id, limit=50000)\nDEFAULT_DEADLINE = 900"),
    call(2, "Bash", command="pytest tests/test_runner.py"),
    result(2, "FAILED tests/test_runner.py::test_stops - DeadlineMissed: still running\nexit code 1", is_error=True),
    {"role": "assistant", "content": [text("Setting signal.alarm did not work: it never fires in a worker thread.")]},
    {"role": "user", "content": "Then find another way"},
]
FUTURE = [
    call(3, "Edit", file_path="/srv/jobs/report/runner.py", old="DEFAULT_DEADLINE = 900", new="DEFAULT_DEADLINE = 30"),
    result(3, "edited; fetch_rows is now called with a deadline"),
    call(4, "Bash", command="pytest tests/test_runner.py -k test_stops"),
    result(4, "1 passed"),
    {"role": "assistant", "content": [text("run_report stops in time; fetch_rows and new_name are as they were.")]},
]
