"""How calls ended: the lines that say so stand beside the call."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.analysis import analyze
from planner.reading.lines import STATEMENT_CHARACTERS

LOG = "\n".join(f"step {n}: fine" for n in range(40))


def turn_of(name, result, is_error=None, **arguments):
    """The turn of a call with `result`, and what the host says of it, if it says anything."""
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": result}
    answer |= {} if is_error is None else {"is_error": is_error}
    messages = [
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": name, "input": arguments}]},
        {"role": "user", "content": [answer]},
        {"role": "assistant", "content": "Done."},
    ]
    return analyze(messages).evidence.turns["t2"]


def outcome_of(name, result, is_error=None, **arguments):
    """The status of a call with `result`, and the lines that say so."""
    turn = turn_of(name, result, is_error, **arguments)
    (outcome,) = turn.outcomes
    return outcome.status, [turn.lines[number - 1].text.strip() for number in outcome.lines]


ENDS = {
    "short": ("Bash", "a\nb", {"command": "x"}, "done", ["a", "b"]),
    "bun": (
        "Bash",
        f"{LOG}\n 1290 pass\n 0 fail\nRan 1290 tests",
        {"command": "bun test"},
        "passed",
        ["1290 pass", "0 fail"],
    ),
    "an error that a test throws on purpose": (
        "Bash",
        f"{LOG}\n  error: Item 3 failed\n 9 pass\n 0 fail",
        {"command": "bun test"},
        "passed",
        ["9 pass", "0 fail"],
    ),
    "warnings alone": (
        "Bash",
        f"{LOG}\n✖ 1 problem (0 errors, 1 warning)",
        {"command": "pnpm generate"},
        "done",
        None,
    ),
    "go": (
        "Bash",
        f"{LOG}\nPASS\nok  \tapp/a\t0.3s",
        {"command": "go test ./a"},
        "passed",
        ["PASS", "ok  \tapp/a\t0.3s"],
    ),
    "go of many": (
        "Bash",
        f"{LOG}\nFAIL\tapp/a\t0.1s\nok  \tapp/b\t0.3s\nFAIL",
        {"command": "go test"},
        "failed",
        None,
    ),
    "pytest": (
        "Bash",
        f"{LOG}\n==== 12 passed in 0.3s ====",
        {"command": "pytest"},
        "passed",
        ["==== 12 passed in 0.3s ===="],
    ),
    "workspace": (
        "Bash",
        f"{LOG}\n@a/core test:  20 pass\n@a/core test:  0 fail",
        {"command": "bun run test"},
        "passed",
        ["@a/core test:  20 pass", "@a/core test:  0 fail"],
    ),
    "two commands": (
        "Bash",
        f"{LOG}\n2 failed, 3 passed\nAll checks passed!",
        {"command": "pytest; ruff check"},
        "failed",
        None,
    ),
    "commit": (
        "Bash",
        f"{LOG}\n[main a1b2c3d] Fix the race\n 2 files changed, 3 insertions(+)\n{LOG}",
        {"command": "git commit -m x"},
        "done",
        ["[main a1b2c3d] Fix the race", "2 files changed, 3 insertions(+)"],
    ),
    "pull request": (
        "Bash",
        f"{LOG}\nhttps://host.example/a/b/pull/7\n",
        {"command": "gh pr create"},
        "done",
        ["https://host.example/a/b/pull/7"],
    ),
    "nothing there": ("Grep", "No matches found", {"pattern": "x"}, "done", ["No matches found"]),
    "a file": ("Read", LOG, {"file_path": "a.log"}, "done", []),
    "an edit": (
        "Edit",
        f"The file a.py has been updated.\n{LOG}",
        {"file_path": "a.py"},
        "done",
        ["The file a.py has been updated."],
    ),
}


@pytest.mark.parametrize(("name", "result", "arguments", "status", "lines"), ENDS.values(), ids=ENDS)
def test_the_lines_that_say_how_a_call_ended_are_its_outcome(name, result, arguments, status, lines):
    ended, told = outcome_of(name, result, **arguments)
    assert ended == status
    assert lines is None or told == lines


def test_a_failed_calls_outcome_is_its_report():
    status, lines = outcome_of("Bash", f"Exit code 1\n{LOG}\nKeyError: 'token'", is_error=True, command="make run")
    assert status == "failed"
    assert lines[-1] == "KeyError: 'token'"


NOTHING = "Exit code 1"
FOUND_NOTHING = {
    "behind a pipe, before a chain": ("ls -a src | grep -i race && echo there", ""),
    "before what did not run": ("rg -l 'a && b' src && make && make install", ""),
    "either of two": ("grep -q a f || \\\n  grep -q b f", ""),
    "in a loop": ("for f in a b; do\n  grep -n x $f\ndone", ""),
    "in parentheses": ("(cd src && grep -rn x .) 2>/dev/null", ""),
    "behind what printed": ("echo '== log'; git log -1 --oneline; grep -rn x src", "== log\na1b2c3d Fix the race"),
    "behind what would have complained": ("cd a && git status --short && rg x", " M src/auth.ts"),
    "through xargs": ("find . -name '*.py' | xargs grep -ln x", ""),
    "through find": ("find . -name '*.py' -exec grep -ln x {} +", ""),
    "of a count": ("grep -c x f", "0"),
    "behind a run that printed": ("make; make list | grep x", "cc -o a a.c\n12 files"),
    "in another folder": ("git -C ../app -c core.pager= diff --stat; git -C ../app grep x", "a.py | 2 +-"),
    "in words": ("entire trail show", 'no trail found for current branch "race"'),
    "as a host says it": ("git -C ../app status --short | grep -v '^??'", "(no output)"),
}
FAILED = {
    "what ran last": ("grep -q x f || make", ""),
    "what ran next": ("grep -q x f; make", ""),
    "the end of a pipe": ("grep x f | sort -k", ""),
    "what is not to be there": ("! grep -q x f", ""),
    "perhaps what printed": ("make && grep x f", "cc -o a a.c"),
    "what complained before": ("cd nowhere && grep x f", "bash: cd: nowhere: No such file or directory"),
    "what the shell does not read": ('rg -n "a|b" src | rg "c', 'zsh:1: unmatched "'),
    "what was raised before": ("python a.py; grep x f", "KeyError: 'token'"),
    "a search that says why": ("gh pr view 7", "GraphQL: Could not resolve to a PullRequest (HTTP 404)"),
    "a change": ("gh pr merge", 'no pull requests found for branch "race"'),
}


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(
    ("command", "printed", "failed"),
    [*((*one, False) for one in FOUND_NOTHING.values()), *((*one, True) for one in FAILED.values())],
    ids=[*FOUND_NOTHING, *FAILED],
)
def test_a_search_that_ran_last_and_found_nothing_did_not_fail(command, printed, failed, flag):
    status, _ = outcome_of("Bash", f"{NOTHING}\n{printed}", is_error=flag, command=command)
    assert (status == "failed") is failed


PASSED_ON = {
    "a search": ("find . -name '*.py' -print0 | xargs -0 grep -ln 'race'", "", False),
    "with options": ("git ls-files | xargs -r -n 20 -P4 -I {} rg x {}", "", False),
    "that found some": ("ls | xargs grep -n x", "a.py:3: x = 1", False),
    "before a chain": ("ls | xargs grep -q x && make", "", False),
    "a comparison": ("ls | xargs -n 2 cmp -s", "", False),
    "behind what printed": ("git log -1 --oneline; ls | xargs --no-run-if-empty grep x", "a1b2c3d Fix the race", False),
    "a run": ("ls *.sh | xargs -n 1 bash", "", True),
    "a search that complained": ("ls | xargs grep x", "grep: unmatched [\nbash: line 1: oops: command not found", True),
}


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(("command", "printed", "failed"), PASSED_ON.values(), ids=PASSED_ON)
def test_xargs_passes_on_that_its_command_said_no(command, printed, failed, flag):
    status, _ = outcome_of("Bash", f"Exit code 123\n{printed}", is_error=flag, command=command)
    assert (status == "failed") is failed


def test_colours_say_nothing_and_hide_nothing():
    failed = "\x1b[41m\x1b[1m FAIL \x1b[22m\x1b[49m tests/a.ts\nbuilt\n\x1b[31mTypeError: boom\x1b[39m\nx\ny"
    assert outcome_of("Bash", failed, command="npm test") == ("failed", failed.split("\n")[::2][:2])
    passed = f"{LOG}\n\x1b[2m      Tests \x1b[22m \x1b[1m\x1b[32m36 passed\x1b[39m\x1b[22m (36)"
    turn = turn_of("Bash", passed, command="npm test")
    assert turn.outcomes[0].status == "passed"
    assert turn.outcome_of(turn.calls[0]) == "Tests 36 passed (36)"


def test_a_program_that_was_stopped_on_purpose_did_not_fail():
    end = "Process exited with code 1\nOutput:\n^C"
    assert outcome_of("write_stdin", end, session_id=7, chars="\x03")[0] == "done"
    assert outcome_of("write_stdin", end, session_id=7, chars="")[0] == "failed"


def test_a_call_without_a_result_is_unanswered():
    messages = [
        {"role": "user", "content": "Fix it."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}],
        },
    ]
    (outcome,) = analyze(messages).evidence.turns["t2"].outcomes
    assert (outcome.status, outcome.lines) == ("unanswered", ())


LOGS = st.lists(
    st.sampled_from(["hooks.go:155: Hook output: INFO component=hooks", "a_test.go:9: state: idle", "busy"])
)


@given(LOGS, LOGS, st.sampled_from(["quiet", "verbose", "cut off"]), st.booleans())
def test_what_a_test_that_failed_printed_is_not_why_it_failed(before, after, form, says_why):
    why = ["    a_test.go:12: count = 7, want 6"] * says_why
    name = "--- FAIL: TestCount (0.01s)"
    logs, rest = [f"    {line}" for line in before], [f"    {line}" for line in after]
    told = {
        "quiet": [name, *why, *logs, *rest],
        "verbose": ["=== RUN   TestCount", *logs, *why, *rest, name],
        "cut off": [*logs, *why, *rest] if says_why else [name],
    }[form]
    turn = turn_of("Bash", "\n".join([*told, "FAIL", "FAIL\tapp/a\t0.3s"]), is_error=True, command="go test ./...")
    assert [one.text for one in turn.statements_of(turn.decisive_lines)] == (why or [name])


def test_a_run_that_the_user_stopped_failed_by_no_exit_code_of_its_own():
    stopped = "Exit code 137\n[Request interrupted by user for tool use]\nok  app/a 0.3s"
    turn = turn_of("Bash", stopped, is_error=True, command="go test ./...")
    (line,) = turn.statements_of(turn.decisive_lines)
    assert line.text == "[Request interrupted by user for tool use]"


def spoken(*words):
    """The turns of a conversation of words alone, and of calls where a dict stands."""
    return analyze(list(words)).evidence.turns


def lines_of(turn, numbers):
    return [turn.lines[number - 1].text.strip() for number in numbers]


def test_an_error_that_an_earlier_summary_lists_stands_with_how_it_was_mended():
    summary = "This session is being continued from a previous conversation that ran out of context.\n\n" + "\n".join(
        [
            "4. Errors and fixes:",
            "   - **Hash mismatch**: seven characters against forty",
            "     - Fixed by comparing prefixes",
            "     - The user agreed",
            "   - **Missing import**: had to add `time`",
            "   - Two tests failed at /0/metadata.json",
            "   - Fixed by updating the path",
            f"   - **Timeout**: the server {'waited ' * 30}for itself. Fixed by a lock",
            "5. Problem Solving:",
        ]
    )
    turn = spoken({"role": "user", "content": summary}, {"role": "assistant", "content": "I go on."})["t1"]
    errors = ["- **Hash mismatch**: seven characters against forty", "- **Missing import**: had to add `time`"]
    errors.append("- Two tests failed at /0/metadata.json")
    assert lines_of(turn, turn.failure_lines)[:3] == errors
    told = lines_of(turn, turn.decisive_lines)
    assert told[:3] == [errors[0], "- Fixed by comparing prefixes", errors[1]]
    assert told[3:5] == [errors[2], "- Fixed by updating the path"]
    assert told[-1].endswith("Fixed by a lock"), "to the end of its line"


HINT = "Run with RUST_BACKTRACE=full to include source snippets."
REASONS = {
    "before its package": (
        "ok  \tapp/a\t0.1s\nlookup host.example: no such host\nFAIL\tapp/b\t0.3s\nFAIL",
        "lookup host.exam",
    ),
    "below a heading": (
        f"Error: \n   0: File system loop found: /a/b\n\nBacktrace omitted.\n{HINT}",
        "0: File system loop",
    ),
    "before a hint": (f"no space left on device\n{HINT}", "no space left on device"),
    "above the usage": ("unknown flag: --job\n\nUsage:  gh run watch\n  -i, --interval int   Seconds", "unknown flag"),
    "the last that says why": (
        "group 1 ok\nconflict at c5e51ba\n    src/data.go\n 12 | assert row is None",
        "conflict at c5e51ba",
    ),
    "what broke, not who called it": (
        "panic: \n\tassert: mock: unexpected call\n\t/go/panic.go:860 +0x12c\nFAIL",
        "assert: mock",
    ),
    "what a script's check said": ('× An import is unused.\nerror: script "lint" exited with code 1', "× An import"),
    "by its name, not its heading": ("✖ failing tests:\n\ntest at a.js:35:1\n✖ releases it (1.6ms)", "✖ releases it"),
    "with the code of an error": ("AssertionError [ERR_ASSERTION]: 500 is not 200\n  1 failing", "AssertionError"),
    "by what was asserted": (
        "  1 failing\n  1) UI\n       loads:\n\n   AssertionError [ERR_ASSERTION]: Expected values to be equal:\n+ 'a'",
        "AssertionError",
    ),
    "what a formatter would change": (
        'Diff in /w/src/main.rs:7:\n     warn!("channel full, dropping");\n-a\n+b',
        "Diff in",
    ),
    "not how long it took": (
        "a.ts (3ms)\nFormat issues found in above 2 files.\nFinished in 206ms on 80 files",
        "Format i",
    ),
    "not what every error ends with": (
        "mise ERROR No version is set for shim: javap\nmise ERROR Version: 2026.8.1\nmise ERROR Run with --verbose",
        "mise ERROR No version",
    ),
    "an answer of HTTP": ("HTTP 401: Bad credentials (https://host.example)\nTry authenticating: gh auth", "HTTP 401"),
    "by the shell of an eval": ("(eval):3: file exists: /tmp/a.patch\ncorrupt patch", "(eval):3: file exists"),
}


@pytest.mark.parametrize(("printed", "why"), REASONS.values(), ids=REASONS)
def test_a_failure_is_told_by_its_reason(printed, why):
    turn = turn_of("Bash", f"Exit code 1\n{printed}", True, command="make check")
    assert lines_of(turn, turn.decisive_lines)[0].startswith(why)


def test_what_still_runs_or_the_host_says_is_no_error_has_not_failed_by_its_words():
    running = "Process running with session ID 7\nOutput:\nerror: 1 crate failed"
    assert outcome_of("exec_command", running, cmd="cargo test")[0] == "running"
    found = "a.py:3:34 'x' is defined but never used"
    assert outcome_of("Bash", found, False, command="python report.py")[0] == "done"
    assert outcome_of("Bash", found, False, command="python lint.py | tail -1")[0] == "failed"
    log = "7: [render] [show] ERROR task failed"
    assert outcome_of("Bash", log, command="pkill x || true\nrg -n task log.txt")[0] == "done"


@pytest.mark.parametrize("line", ["## Intent", "} else {", "+ let url = server();"])
def test_what_says_nothing_of_a_failure_stands_not_for_it(line):
    turn = turn_of("Bash", "\n".join(["Exit code 255", *[line] * 9]), True, command="./entire explain 1c47c1d")
    assert [turn.lines[number - 1].text for number in turn.decisive_lines] == ["Exit code 255"]


def test_of_a_look_its_programs_complaint_says_how_it_failed_and_no_line_that_it_shows():
    told = "Exit code 2\nerror: 3 checks failed\nsed: can't read b.ts: No such file or directory"
    turn = turn_of("Bash", told, True, command="sed -n 1,9p a.ts && sed -n 1,9p b.ts")
    assert [turn.lines[number - 1].text[:4] for number in turn.decisive_lines] == ["sed:"]


def test_a_frame_of_a_stack_says_not_why_a_package_of_go_failed():
    told = (
        "panic({0x1012cdb20?, 0x14})\n\t/go/src/testing/testing.go:2101 +0x3a8\ncreated by testing.Run in goroutine 1"
    )
    turn = turn_of("Bash", f"Exit code 1\n{told}\nFAIL\tapp/queue\t0.3s\nFAIL", True, command="go test ./queue")
    assert [turn.lines[number - 1].text for number in turn.decisive_lines] == ["FAIL\tapp/queue\t0.3s"]


def test_a_warning_of_a_place_says_not_why_a_run_failed():
    told = "Exit code 4\nlib/config.py:331: PluggyTeardownRaisedWarning: A plugin raised an exception\n"
    turn = turn_of("Bash", f"{told}E   ModuleNotFoundError: No module named 'respx'", True, command="pytest tests")
    assert [turn.lines[number - 1].text[:9] for number in turn.decisive_lines] == ["E   Modul"]


def test_of_a_command_whose_failure_is_swallowed_the_exit_code_says_nothing():
    told = "Exit code 0\nFailed to load: 2 causes\n  Import not found: a.pkl"
    turn = turn_of("Bash", told, command="./hk test || true")
    assert [turn.lines[number - 1].text.strip() for number in turn.decisive_lines] == ["Failed to load: 2 causes"]
    assert not turn_of("Bash", told, command="./hk test").failed


def test_what_a_command_says_of_its_own_is_an_answer():
    asked = "grep -q openapi page.html || echo '✗ names no /openapi.json'"
    assert outcome_of("Bash", "✗ names no /openapi.json", command=asked)[0] == "done"
    assert outcome_of("Bash", "#11  Fix tests\n  × 2/13 checks failing", command="make pr-status")[0] != "failed"
    assert outcome_of("Bash", "Exit code 0\nmesg: ttyname failed: no ioctl", command="docker run a")[0] == "done"
    assert outcome_of("Bash", "main: Pulling from a/aarch64-unknown-linux-gnu", command="docker run a")[0] == "done"


BELOW = st.lists(st.sampled_from(["    - It came from the cache", "      - and its lock"]), max_size=4)


@given(
    BELOW, BELOW, st.sampled_from(["Fix: a lock", "**Solution**: a lock", "Resolved by a lock", "Fixed with a lock"])
)
def test_how_it_was_mended_stands_with_an_error_wherever_a_summary_tells_it(before, after, mended):
    told = ["4. Errors and fixes:", "  - **Race**: two writers", *before, f"    - {mended}", *after]
    fine = [
        "  - **User feedback**: no locks in tests",
        "  - **Earlier fixes (still there):**",
        "    - A retry failed once",
    ]
    summary = "\n".join(
        ["This session is being continued from a previous conversation.", *told, *fine, "  - No errors"]
    )
    turn = spoken({"role": "user", "content": summary}, {"role": "assistant", "content": "I go on."})["t1"]
    assert lines_of(turn, turn.failure_lines) == ["- **Race**: two writers"]
    assert lines_of(turn, turn.decisive_lines) == ["- **Race**: two writers", f"- {mended}"]


@pytest.mark.parametrize(
    "said",
    [
        "- The old one still failed.",
        "| still failing |",
        "Why it didn't work:",
        "I look at the checks so that I can tell you what is still broken.",
        "If that didn't work, a second way is open.",
    ],
)
def test_what_the_agent_tells_of_others_is_no_admission(said):
    turn = spoken({"role": "user", "content": "Compare them."}, {"role": "assistant", "content": said})["t2"]
    assert not turn.failed


REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected. the user said:\nKeep it."


def test_a_long_error_without_a_known_form_is_told_by_its_beginning():
    result = "Agent type 'reviewer' is none. Available agents: " + ", ".join(f"team:of-kind-{at}" for at in range(900))
    turn = turn_of("Task", result, is_error=True, prompt="x")
    assert lines_of(turn, turn.decisive_lines)[0].startswith("Agent type 'reviewer' is none.")


LATER_TEXTS = {
    "an error": ("refund", {"id": 7}, ["Contacting the bank\nplease wait", "\nError: card expired"], "Error: card"),
    "an error in JSON": ("refund", {"id": 7}, ["Contacting the bank", '{"error": "card expired"}', "7"], '{"error"'),
    "an exit code": ("refund", {"id": 7}, ["Fine", f"Exit code 3\n{LOG}", LOG], "step 0"),
    "an error of an edit": ("edit_file", {"path": "a.py"}, ["Editing a.py", "Error: no such text"], "Error: no such"),
    "a refusal": ("refund", {"id": 7}, ["A hook ran", REFUSED], "The user doesn't want"),
    "a refusal of a command": ("Bash", {"command": "make"}, ["A hook ran", REFUSED], "The user doesn't want"),
}


@pytest.mark.parametrize(("name", "arguments", "texts", "reason"), LATER_TEXTS.values(), ids=LATER_TEXTS)
def test_a_later_text_of_a_result_may_report_the_failure(name, arguments, texts, reason):
    turn = turn_of(name, [{"type": "text", "text": text} for text in texts], **arguments)
    (outcome,) = turn.outcomes
    assert (outcome.status, outcome.refused) == ("failed", REFUSED in texts)
    assert lines_of(turn, turn.decisive_lines)[0].startswith(reason)


def test_the_texts_that_a_search_found_report_no_failure():
    hits = [{"type": "text", "text": text} for text in ("Hit 1", "Error codes", '{"error": "disk full"}')]
    assert not turn_of("search_logs", hits, query="disk").failed


FIELDS = st.sampled_from(["status", "error", "code", "message", "ok", "id"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 600)
    | st.text(max_size=12)
    | st.sampled_from(["failed", "Error: card expired", "a, b", "{", "long " * 60]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=10,
)


@given(
    st.dictionaries(FIELDS, VALUES, max_size=6) | st.lists(VALUES, max_size=4),
    st.sampled_from([0, 1, 2, "\t"]),
    st.booleans(),
    st.sampled_from(["refund", "update_order", "search_orders", "Bash"]),
)
def test_indented_json_shows_the_same_end_of_a_call_as_json_on_one_line(result, indent, is_error, name):
    texts = json.dumps(result, ensure_ascii=False), json.dumps(result, ensure_ascii=False, indent=indent)
    turns = [turn_of(name, text, is_error or None, id=7) for text in texts]
    flat, indented = ((turn.outcomes[0].status, turn.outcomes[0].is_doubtful, turn.calls[0].acts) for turn in turns)
    assert flat == indented
    if len(texts[0]) <= STATEMENT_CHARACTERS:
        assert turns[0].outcome_of(turns[0].calls[0]) == turns[1].outcome_of(turns[1].calls[0])


def test_words_in_json_that_a_change_returns_are_no_failure():
    record = {"id": "B-12", "note": "should not be missing", "errors": []}
    assert outcome_of("update_order", json.dumps(record), id="B-12")[0] == "done"


@pytest.mark.parametrize("result", ["Inserted: 7, unable to walk", "Code X-1001 applied. Invalid codes: none."])
def test_words_about_a_record_that_is_no_file_are_no_failure(result):
    assert outcome_of("update_record", result, id=7, note="unable to walk")[0] == "done"
    assert outcome_of("edit_file", "Unable to find the text", path="a.py")[0] == "failed"
    assert outcome_of("edit", "Your edit has a syntax error", replacement_text="x", start_line=7)[0] == "failed"


READ = {
    "a code in a log": ("get_logs", {"job": "j-1"}, f"{LOG}\nProcess 4411 exited with code 137", "done"),
    "a code in a record": ("get_job", {"job": "j-1"}, '{"job": "j-1", "exit_code": 137}', "done"),
    "a code in a file": ("Read", {"file_path": "notes.md"}, f"Exit code 2\n{LOG}", "done"),
    "a code of a command": ("Bash", {"command": "cat a"}, "Exit code 2\ncat: a: Permission denied", "failed"),
    "a code in a terminal": ("get_terminal_output", {"id": "7"}, f"Exit code 2\n{LOG}\nKeyError: 'x'", "failed"),
    "a title": ("fetch_page", {"url": "https://a.example"}, f"Error analysis in linguistics\n{LOG}", "done"),
    "an error": ("fetch_page", {"url": "https://a.example"}, f"Error: no such page\n{LOG}", "failed"),
    "a short error": ("fetch_page", {"url": "https://a.example"}, "Failed to fetch the page", "failed"),
    "a traceback": ("get_rows", {"n": 7}, f"Traceback (most recent call last):\n{LOG}", "failed"),
}


@pytest.mark.parametrize(("name", "arguments", "result", "status"), READ.values(), ids=READ)
def test_what_a_call_reads_reports_no_failure_of_the_call(name, arguments, result, status):
    assert outcome_of(name, result, **arguments)[0] == status


def test_a_heading_is_no_reason_of_a_failure_beside_its_text():
    turn = turn_of("browser_click", "### Error\nError: Ref e7 not found on this page", ref="e7")
    assert lines_of(turn, turn.decisive_lines) == ["Error: Ref e7 not found on this page"]
    turn = turn_of("browser_click", "### Error", ref="e7")
    assert lines_of(turn, turn.decisive_lines) == ["### Error"]


@pytest.mark.parametrize("error", [{"code": 0, "message": ""}, {"code": None}, {}, "", False, None, []])
def test_an_error_field_without_content_is_no_failure(error):
    assert outcome_of("pay", json.dumps({"error": error, "receipt": "R-7004"}), id=7)[0] == "done"
    assert outcome_of("pay", json.dumps({"error": {"code": 7}}), id=7)[0] == "failed"
    assert outcome_of("Read", '{"error": "of a test"}', file_path="a.json")[0] == "done"


STATUSES = {
    "an error": ("pay_invoice", {"status": "error", "message": "card declined"}, ("failed", True)),
    "a failure": ("zahlen", {"Status": "failed", "id": "P-7001"}, ("failed", True)),
    "what a call read": ("get_payment", {"status": "failed", "id": "P-7001"}, ("done", False)),
    "another status": ("pay_invoice", {"status": "failed over to card 2"}, ("done", False)),
    "a change": ("update_payment", {"status": "declined", "id": "P-7001"}, ("failed", True)),
    "an answer": ("get_weather", {"status": "error", "message": "no such city"}, ("failed", True)),
    "a sure sign beside it": ("pay_invoice", {"status": "error", "error": "card declined"}, ("failed", False)),
}


@pytest.mark.parametrize(("name", "record", "ended"), STATUSES.values(), ids=STATUSES)
def test_an_action_with_a_status_of_failure_may_have_failed(name, record, ended):
    (outcome,) = turn_of(name, json.dumps(record), nr="P-7001").outcomes
    assert (outcome.status, outcome.is_doubtful) == ended
    (flagged,) = turn_of(name, json.dumps(record), is_error=True, nr="P-7001").outcomes
    assert flagged.has_failed


ERROR_WORDS = ["error", "Fehler", "Buchungsfehler", "erreur", "erro", "ошибка", "hata", "خطأ", "错误", "エラー", "오류"]


@pytest.mark.parametrize("word", [*ERROR_WORDS, "exception", "status of B-7", "kein_fehler"])
def test_a_word_for_an_error_is_read_alike_as_a_field_and_as_a_status(word):
    results = {word: "no such account"}, {"status": word, "code": "KX-7"}
    ends = {outcome_of("refund", json.dumps(result), id=7)[0] for result in results}
    assert ends == {"failed" if word in (*ERROR_WORDS, "exception") else "done"}


PAGE = "\n".join(f"Paragraph {at} about mistakes." for at in range(9))
REPORTS = [
    '{"status": "declined", "code": "05"}',
    '{"state": "failed"}',
    '{"outcome": "timed out"}',
    '{"code": "NOT_FOUND"}',
    '{"exception": "Timeout"}',
    '{"error": true}',
    '{"data": {"status": "rejected"}}',
    "HTTP 500 Internal Server Error",
    f"HTTP/1.1 403 Forbidden\nServer: x\n\n{PAGE}",
    "500 Internal Server Error",
    "Error: 0 rooms left",
    "Error 409: conflict",
    "Booking failed: no room",
    f"Traceback (most recent call last):\n{PAGE}",
    "{'error': 'no room'}",
    '{"fehler": "Konto gesperrt"}',
    '{"Fehlermeldung": "Konto gesperrt"}',
    '{"erfolg": false}',
    '{"status": "abgelehnt"}',
    '{"statut": "refusée"}',
    '{"éxito": false}',
    '{"estado": "rechazado"}',
    '{"статус": "отклонено"}',
    '{"durum": "reddedildi"}',
    '{"الحالة": "مرفوض"}',
    '{"स्थिति": "अस्वीकृत"}',
    '{"状态": "失败"}',
    '{"错误": "余额不足"}',
    '{"ステータス": "却下"}',
    '{"상태": "거절됨"}',
    '{"สถานะ": "ปฏิเสธ"}',
    "Fehler: keine Zimmer frei",
    "Buchungsfehler 409: belegt",
    "Fehler beim Buchen: belegt",
    "Erreur : carte refusée",
    '{"errcode": 40029, "errmsg": "余额不足"}',
    '{"failed": true, "reason": "sold out"}',
    "Error: saldo insuficiente",
    "Erro: saldo insuficiente",
    "Ошибка: недостаточно средств",
    "Hata: yetersiz bakiye",
    "خطأ: الرصيد غير كاف",
    "त्रुटि: शेष राशि कम है",
    "系统错误：余额不足",
    "エラー: この時間帯は満席です。",
    "오류: 잔액 부족",
    "ข้อผิดพลาด: ยอดเงินไม่พอ",
]


@pytest.mark.parametrize("result", REPORTS)
def test_an_action_that_reports_its_failure_failed_without_a_flag(result):
    turn = turn_of("book_room", result, room="R-32")
    assert turn.outcomes[0].status == "failed"
    assert turn.outcome_of(turn.calls[0]) == " ".join(result.split("\n")[0].split())


def test_the_field_that_reports_a_failure_is_shown_however_far_below_it_is():
    record = {**{f"item_{at}": f"The guest wishes a quiet room {at}" for at in range(9)}, "status": "declined"}
    turn = turn_of("book_room", json.dumps(record, indent=2), room="The guest wishes a quiet room" * 20)
    assert '"status": "declined"' in turn.outcome_of(turn.calls[0])


NO_REPORTS = {
    "a count": [("book_room", text) for text in ("Failed login attempts: 0", "Failed attempts: 3", "エラー: 0件")],
    "a denial": [
        ("book_room", text)
        for text in (
            *('{"errcode": 0, "errmsg": "ok"}', '{"error": "No error", "id": 7}', '{"failed": false}'),
            *('{"error": false}', '{"errors": [], "id": 7}', '{"error": "none"}', "Error: none", "Fehler: keine"),
            *("Erreur : aucune", "Erro: nenhum", "Ошибка: нет", "Hata: yok", "خطأ: لا", "त्रुटि: नहीं", "没有错误：完成"),
            *(
                '{"fehler": ""}',
                '{"fehler": 0}',
                '{"kein_fehler": "alles gut"}',
                '{"erfolg": true}',
                '{"状态": "完成"}',
            ),
            *("エラー: なし", "오류: 없음", "ข้อผิดพลาด: ไม่มี", "Fehlerfrei gespeichert: ja"),
        )
    ],
    "another word": [("book_room", text) for text in ("Terror: a film", "Ferro: 12 mg", '{"status": "cancelled"}')],
    "what the call asks for": [
        ("reject_offer", '{"id": 7, "status": "rejected"}'),
        ("deny_request", '{"id": 7, "status": "DENIED"}'),
    ],
    "what a call read": [
        ("get_payment", '{"id": 7, "status": "declined"}'),
        ("web_fetch", f"Error handling in Go\n{PAGE}"),
        ("web_fetch", f"404 Not Found\n{PAGE}"),
        ("http_request", f"Error handling in Go\n{PAGE}"),
        ("web_search", f"Erreur judiciaire : une affaire\n{PAGE}"),
    ],
}


@pytest.mark.parametrize(("name", "result"), [row for rows in NO_REPORTS.values() for row in rows])
def test_a_text_about_errors_is_no_failure(name, result):
    assert outcome_of(name, result, id=7)[0] == "done"


def test_a_log_that_was_read_is_no_failure():
    log = f"ERROR: disk full\n{PAGE}"
    assert outcome_of("Read", log, file_path="/var/app.log")[0] == "done"
    assert outcome_of("Bash", log, command="cat app.log")[0] == "done"
    assert outcome_of("Read", "Error: no such file", file_path="/var/app.log")[0] == "failed"
