"""What the evidence says of calls and words: which failed, whose words they are, which bind, what is superseded."""

import json

import pytest

from planner.analysis import analyze
from planner.evidence.turns import call_head
from planner.rules import latest_request
from tests.strategies import text

SOURCE = """def parse(line):
    if not line:
        raise ValueError("Error: empty line")
    try:
        return json.loads(line)
    except KeyError as error:
        log.error("failed to parse")
        return None

FAILED = 3
EXIT_CODES = {1: 'error'}
# exit code 2 means usage"""


def call(name, result, number=1, /, is_error=False, **arguments):
    """A call with its result."""
    use = {"type": "tool_use", "id": f"c{number}", "name": name, "input": arguments}
    answer = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result}
    answer |= {"is_error": True} if is_error else {}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


def evidence_of(*messages):
    """Evidence of `messages` between a task and an end."""
    start, end = {"role": "user", "content": "Fix it."}, {"role": "assistant", "content": "So far so good."}
    return analyze([start, *messages, end]).evidence


def failing(*messages):
    """The lines of the turn of `messages` that say most of a failure."""
    turn = evidence_of(*messages).turns["t2"]
    assert set(turn.decisive_lines) <= set(turn.failure_lines)
    return [turn.lines[number - 1].text for number in turn.decisive_lines]


@pytest.mark.parametrize("order", [1, -1])
def test_what_a_search_found_elsewhere_is_no_part_of_how_it_failed(order):
    complaint = "rg: tests: No such file or directory (os error 2)"
    found = ["src/trace.ts:10:  TraceEnvelopeWire,", "src/wire.ts:22: build(trace)", "src/a.ts:7:1: expected"]
    lines = [complaint, *found][::order]
    tried = call("Bash", "\n".join(["Exit code 2", *lines]), is_error=True, command='rg -n "race" src tests')
    assert failing(*tried) == [complaint]
    turn = evidence_of(*tried).turns["t2"]
    assert not {turn.lines[number - 1].text for number in turn.failure_lines} & set(found)


FAILED = {
    "error flag": (call("Edit", "no", is_error=True, file_path="a.py"), "no"),
    "exit code": (call("Bash", "Exit code 2\nsomething", command="make"), "something"),
    "exit code as JSON": (call("shell", '{"exit_code": 1, "output": "x"}', command=["make", "all"]), '"exit_code": 1'),
    "pytest": (
        call(
            "Bash", "....F\nE       assert 1 == 2\nFAILED tests/a.py::test_b - assert 1 == 2\n1 failed, 4 passed in 1s"
        ),
        "assert 1 == 2",
    ),
    "go test": (
        call(
            "Bash", "--- FAIL: TestRefresh (0.01s)\n    auth_test.go:31: got 2, want 1\nFAIL\nFAIL\texample.org/a 0.1s"
        ),
        "auth_test.go:31: got 2, want 1",
    ),
    "jest": (
        call("Bash", "  ✓ a (2 ms)\n  ✕ refreshes once (5 ms)\nTests: 1 failed, 3 passed, 4 total"),
        "refreshes once",
    ),
    "bun": (
        call("Bash", "error: expect(received).toBe(expected)\n\nExpected: 3\nReceived: undefined\n(fail) adds [2 ms]"),
        "Received: undefined",
    ),
    "cargo": (call("Bash", "running 2 tests\ntest a ... FAILED\ntest result: FAILED. 1 passed; 1 failed"), "FAILED"),
    "rustc": (call("Bash", "error[E0382]: borrow of moved value: `store`\n --> src/a.rs:3:9"), "E0382"),
    "tsc": (call("Bash", "src/auth.ts:3:7 - error TS2322: Type 'string' is not assignable"), "TS2322"),
    "gcc": (call("Bash", "auth.c:12:5: error: expected ';' before 'return'"), "expected ';'"),
    "traceback": (
        call("Bash", "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\nKeyError: 'token'"),
        "KeyError: 'token'",
    ),
    "command not found": (call("Bash", "bash: rg: command not found", command="rg x"), "command not found"),
    "reading command": (call("Bash", "rg: unrecognized flag --include", command="rg --include x | head"), "--include"),
    "rejected edit": (
        call("Edit", "The user doesn't want to proceed with this tool use. The tool use was rejected.", file_path="a"),
        "rejected",
    ),
    "no match": (call("Edit", "String to replace not found in file.", file_path="a.py"), "String to replace not found"),
    "merge conflict": (call("Bash", "Auto-merging a.py\nCONFLICT (content): Merge conflict in a.py"), "CONFLICT"),
    "time out": (call("Bash", "Error: timed out after 30 s", command="npm test"), "timed out"),
    "task runner": (
        call("Bash", "a.go:3:1: same slice\nb\nc\n[lint] ERROR task failed", command="mise run lint"),
        "task failed",
    ),
    "compiler": (call("Bash", "# app/cli\napp/cli/a.go:3:9: undefined: Parse", command="go build ./..."), "undefined"),
    "a count of errors": (call("Bash", "checked 9 files\nFound 3 errors in 2 files", command="mypy ."), "3 errors"),
    "time limit": (call("Bash", "EXECUTION TIMED OUT", command="python solve.py"), "TIMED OUT"),
    "a search that breaks": (call("Bash", "Exit code 2\nrg: regex parse error", command="rg '('"), "regex parse error"),
    "what a search may not read, not what it found": (
        call(
            "Bash", 'rg: /home/ana/x: Operation not permitted\na.py: raise Error("expected 1, got 2")', command="rg x"
        ),
        "not permitted",
    ),
    "refused patch": (
        call("apply_patch", "apply_patch verification failed: no such lines", input="*** Begin Patch"),
        "verification failed",
    ),
    "no separator": (
        call("Bash", "Exit code 1\nit broke\n-----", is_error=True, command="make"),
        "it broke",
    ),
    "a code of its own, not the hint below": (
        call("Bash", "Exit code 1\n ERR_PNPM_UNEXPECTED_STORE  Unexpected store\n(may happen after an update)", True),
        "ERR_PNPM_UNEXPECTED_STORE",
    ),
    "what failed, not the warning before": (
        call("Bash", "Exit code 128\nwarning: could not open 'a/b/': No such file\nfatal: no pathspec 'b'", True),
        "fatal: no pathspec",
    ),
    "the check that failed": (
        call("Bash", "Exit code 1\nE2E\tfail\t3m\nBuild\tpass\t43s", True, command="gh pr checks 7"),
        "E2E\tfail",
    ),
    "a status in JSON": (
        call("create_refund", '{"status": 403, "error": "over the limit"}', order=7),
        "over the limit",
    ),
    "an error in JSON, whatever the language": (
        call("termin_aendern", '{"fehler": {"code": "KONFLIKT", "status": 409}}', id="e1"),
        "KONFLIKT",
    ),
    "no success": (call("send_mail", '{"success": false, "reason": "no such box"}', to="a"), "no such box"),
}


@pytest.mark.parametrize(("messages", "decisive"), FAILED.values(), ids=FAILED)
def test_a_failure_is_found_with_its_decisive_line(messages, decisive):
    if messages[0]["content"] and isinstance(messages[0]["content"], list) and not messages[0]["content"][0]["input"]:
        messages[0]["content"][0]["input"] = {"command": "make check"}
    assert any(decisive in line for line in failing(*messages))


FINE = {
    "the agent thinks aloud": [{"role": "assistant", "content": "I have hit a dead end, it did not work. I reverted."}],
    "a status that is none of HTTP's": call("get_order", '{"status": "open", "code": 7, "errors": []}', id="3"),
    "grep for error": call(
        "Grep", "src/a.py:3: raise ValueError('x')\nsrc/b.py:9: log.error('failed')\n" * 9, pattern="e"
    ),
    "source code": call("Read", SOURCE, file_path="src/parse.py"),
    "missing file": call("Read", "File does not exist.", file_path="src/gone.ts"),
    "a look for a file": call("Bash", "ls: .env.example: No such file or directory", command="ls .env.example | head"),
    "a look behind a removal": call(
        "Bash", "ls: cannot access 'tools': No such file or directory", command="rm b; ls tools"
    ),
    "a page that is not there": call("Bash", '{"statusCode":404,"message":"no such order"}', command="curl -s x"),
    "what is said after all went well": call(
        "exec_command", "Process exited with code 0\nError: no file a; as it must be", cmd="check a; echo ok"
    ),
    "source by cat": call("Bash", SOURCE, command="cat src/parse.py"),
    "exit code 0": call("Bash", "Exit code: 0\nBuilt in 3 s", command="make"),
    "0 failed": call("Bash", "12 passed, 0 failed in 3.2s", command="pytest -q"),
    "no errors": call("Bash", "Found no errors in 12 source files", command="mypy ."),
    "go passes": call("Bash", "ok  \texample.org/a\t0.012s", command="go test ./..."),
    "cargo passes": call("Bash", "test result: ok. 4 passed; 0 failed; 0 ignored", command="cargo test"),
    "jest passes": call("Bash", "PASS a.test.ts\nTests: 4 passed, 4 total", command="npm test"),
    "a written file": call("Write", "File created successfully", file_path="errors.py", content=SOURCE),
    "a plain word": [{"role": "assistant", "content": "Next I look at how errors are handled."}],
    "nothing": call("Bash", "", command="true"),
    "green with deliberate errors": call(
        "Bash",
        "error: boom\nTypeError: thrown on purpose\n(pass) rejects what is broken\n 1290 pass\n 0 fail\nRan 1290 tests",
        command="bun test",
    ),
    "unittest with a traceback in its log": call(
        "Bash",
        "Traceback (most recent call last):\nValueError: on purpose\n......\nRan 6 tests in 0.1s\n\nOK",
        command="make t",
    ),
    "go with failing output": call("Bash", "ERROR: on purpose\nPASS\nok  \texample.org/a\t0.3s", command="go test ./a"),
    "a commit": call("Bash", "[main a1b2c3d] Fix error: no such file\n 1 file changed", command="git commit -m x"),
    "a diff": call("Bash", "-    raise ValueError('failed')\n+    error: str\n" * 4, command="git diff"),
    "nothing to find": call("Bash", "Exit code 1", is_error=True, command="cd a && rg 'x|y' src"),
    "a comparison": call("Bash", "Exit code 1\n< a\n> b", is_error=True, command="diff a b"),
    "another agent's report": call(
        "Task", "Two tests failed before the fix.\nError: was handled.\n" * 3, prompt="look"
    ),
    "the agent agrees": [{"role": "assistant", "content": "You're right, it takes a name."}],
    "the agent's plan": [{"role": "assistant", "content": "This would break the tests. Let me revert it and move it."}],
    "what the agent took for true": [{"role": "assistant", "content": "I was wrong about the cache, my mistake."}],
    "what the agent left": [{"role": "assistant", "content": "Next is the cast at line 237 that I didn't fix."}],
    "a property": [{"role": "assistant", "content": "It returns None when the format doesn't match."}],
    "a browser's console": call(
        "mcp__browser__navigate", "### Result\n- Page URL: http://a\n- Console: 17 errors, 0 warnings", url="http://a"
    ),
    "a browser's console behind code": call(
        "mcp__browser__run_code", "### Page\n- Page URL: http://a\n- Console: 2 errors, 0 warnings", code="page => 1"
    ),
    "a review that speaks of an error": call(
        "Bash",
        "Thread 7:\nerror is present; update the guard\nerror.status is read",
        command="gh api graphql -f query=x",
    ),
    "warnings alone": call(
        "Bash", "warning: variant `NotFound` is never built\nFinished in 8 s", command="cargo check"
    ),
    "an empty find": call("Bash", "Exit code 1", is_error=True, command="find lib -name 'x*' 2>/dev/null"),
    "a list of what is there": call("Bash", "Exit code 2\nutils.ts", is_error=True, command="ls a b 2>/dev/null"),
    "records with a status": call("Bash", '[{"path": "/a", "status": 500}, {"path": "/b"}]', command="sift --where x"),
    "a null error": call("mcp__x__get", '{"error": null, "items": []}', id="3"),
}


@pytest.mark.parametrize("messages", FINE.values(), ids=FINE)
def test_words_of_failure_in_what_was_read_are_none(messages):
    assert failing(*messages) == []


TRIED = {
    "edit": (
        {"file_path": "a.py", "old_string": "def run():\n  x()", "new_string": "def run():\n  retry(x)"},
        "Edit a.py retry(x)",
    ),
    "edit with a remark": (
        {"file_path": "a.go", "old_string": "}", "new_string": "}\n\n// Load reads it.\nfunc Load() {\n}"},
        "Edit a.go func Load() {",
    ),
    "remark alone": ({"file_path": "a.py", "old_string": "x()", "new_string": "x()\n# late"}, "Edit a.py # late"),
    "removal": ({"file_path": "a.py", "old_string": "import sys", "new_string": ""}, "Edit a.py import sys"),
    "new file": ({"file_path": "a.py", "content": "\nimport sys\n"}, "Write a.py import sys"),
    "search": ({"path": "src", "pattern": "parse_args"}, "Grep parse_args src"),
    "command": ({"command": "git stash pop"}, "Bash git stash pop"),
}


@pytest.mark.parametrize(("tried", "head"), TRIED.values(), ids=TRIED)
def test_a_failed_call_says_what_was_tried(tried, head):
    messages = call(head.split()[0], "Error: refused", is_error=True, **tried)
    (failed,) = evidence_of(*messages).turns["t2"].calls
    assert call_head(failed, failed=True) == head


@pytest.mark.parametrize("after", ["Never push to main.", "It must ship by 2026-03-21."])
def test_what_the_user_says_again_with_another_value_takes_nothing_away(after):
    before = "It must ship by 2026-03-14."
    messages = [
        {"role": "assistant", "content": "What next?"},
        {"role": "user", "content": before},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": after},
    ]
    assert [line.text for turn in evidence_of(*messages).turns.values() for line in turn.typed_lines] == [
        "Fix it.",
        before,
        after,
    ]


def own(content):
    """The user's own words in a user message, or in the result of a call, and those that the user typed."""
    messages = [{"role": "user", "content": content}] if not isinstance(content, list) else content
    turn = evidence_of({"role": "assistant", "content": "What next?"}, *messages).turns["t3"]
    return [line.text for line in turn.user_lines], [line.text for line in turn.typed_lines]


REFUSAL = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). To tell you how to proceed, the user said:\n"
)

WORDS = {
    "plain": ("Use Node 18 only.", ["Use Node 18 only."]),
    "reminder": ("<system-reminder>\nToday is Monday\n</system-reminder>\nPlease go on.", ["Please go on."]),
    "reminder in a line": ("<system-reminder>Today</system-reminder>", []),
    "interrupted": ("[Request interrupted by user for tool use]", []),
    "command": ("<command-name>/clear</command-name>", []),
    "command without words": ("<command-name>/exit</command-name>\n  <command-args></command-args>", []),
    "skill": ("Base directory for this skill: /s\n\n# Review\nNever skip tests.\nARGUMENTS: a.py", ["ARGUMENTS: a.py"]),
    "output": ("<local-command-stdout>Set model</local-command-stdout>", []),
    "earlier summary": (
        'This session is being continued from a previous conversation.\nThe agent read files.\n- "never touch main"',
        [],
    ),
    "rejection": (call("Bash", REFUSAL + "use npm instead", is_error=True), ["use npm instead"]),
    "result": (call("Bash", "you must never do this"), []),
}


@pytest.mark.parametrize(("content", "words"), WORDS.values(), ids=WORDS)
def test_the_users_own_words_are_told_from_the_machines(content, words):
    assert own(content)[0] == words


TYPED = {
    "a mark": "[IMPORTANT] You must never book before noon.",
    "a tag": "<important>Never book before noon.</important>",
    "a brace": "{name}: never book before noon",
    "a quote": "> Never book before noon.",
    "a date": "2026-03-14: book nothing before noon",
    "a time": "10:30 is the earliest, never before",
    "figures": "DE89 3704 0044 0532 0130 00, 1.240,50 and 2 x 250 mg, never more",
    "a fence that nobody closes": "```\nNever book before noon.",
    "thrice": "Never book before noon.\nNever book before noon.\nNever book before noon.",
}


@pytest.mark.parametrize("words", TYPED.values(), ids=TYPED)
def test_all_words_of_a_message_that_is_not_long_count_as_typed(words):
    assert own(words)[1] == words.split("\n")


def test_of_a_long_message_long_runs_of_data_count_as_pasted_and_single_lines_of_data_as_typed():
    rows = [f"{at},2026-01-05,17.{at},ok" for at in range(400)]
    said = ["2026-03-14 10:30 is the earliest.", "Here is my log.", *rows, "You must support Node 18."]
    assert own("\n".join(said))[1] == [said[0], said[1], said[-1]]
    assert own("\n".join(["```", *rows, "```", "Never touch the schema."]))[1] == ["Never touch the schema."]


PAGE = "\n".join(
    [
        "Catalog of the shop",
        *(f"  region of the page\n    button Close number {at}\nfooter\n    link to Office" for at in range(52)),
    ]
)
"""Outline of a page, as agents that browse get it: words, indented, with some lines between that are not."""
API = json.dumps([{"name": "find_patient", "description": "You must never call it without a number. " * 90}])
LIST = "\n".join(
    f"{at}. Part {at}\n   - it must hold number {at} of the rules\n   - nobody may ask twice" for at in range(60)
)


@pytest.mark.parametrize(("long", "typed"), [(PAGE, ["Catalog of the shop"]), (API, []), (LIST, LIST.split("\n"))])
def test_an_outline_of_a_page_and_one_line_of_json_count_as_pasted_and_a_list_of_points_as_typed(long, typed):
    assert own(f"Order six of them.\n{long}")[1] == ["Order six of them.", *typed]


def test_the_request_is_what_was_typed_and_not_the_page_that_was_sent_behind_it():
    sent = [{"type": "text", "text": text} for text in ("Order six of them.", PAGE)]
    messages = [
        {"role": "user", "content": sent},
        *call("click", "done", 1, on="a1"),
        *call("click", "done", 2, on="a2"),
    ]
    assert latest_request(evidence_of(*messages)).text.startswith("“Order six of them.”")


OVERTAKEN = {
    "read again": ([call("Read", "a", 1, file_path="a.py"), call("Read", "a", 2, file_path="a.py")], {"t2": "t3"}),
    "written since": (
        [call("Read", "a", 1, file_path="a.py"), call("Write", "ok", 2, file_path="a.py", content="b")],
        {"t2": "t3"},
    ),
    "another file": ([call("Read", "a", 1, file_path="a.py"), call("Read", "b", 2, file_path="b.py")], {}),
    "a part": (
        [call("Read", "a", 1, file_path="a.py", offset=10), call("Read", "b", 2, file_path="a.py", offset=90)],
        {},
    ),
    "the same command": (
        [call("Bash", "ok", 1, command="make"), call("Bash", "ok", 2, command="make")],
        {"t2": "t3"},
    ),
    "the same command elsewhere": (
        [call("move", "A forest.", 1, to="east"), call("move", "A dead end.", 2, to="east")],
        {},
    ),
    "a run that failed again": (
        [call("Bash", "1 failed", 1, command="pytest"), call("Bash", "1 failed", 2, command="pytest")],
        {},
    ),
    "a write": ([call("Write", "ok", 1, file_path="a", content="1"), call("Read", "1", 2, file_path="a")], {}),
}


@pytest.mark.parametrize(("calls", "overtaken"), OVERTAKEN.values(), ids=OVERTAKEN)
def test_what_a_later_call_overtakes_is_superseded(calls, overtaken):
    turns = evidence_of(*[message for messages in calls for message in messages]).turns
    assert {turn_id: turn.superseded_by for turn_id, turn in turns.items() if turn.superseded_by} == overtaken


@pytest.mark.parametrize(
    ("command", "again"),
    [
        ("git switch main", {}),
        ("git fetch && git checkout -b fix/drain origin/main", {}),
        ("gh pr checkout 90", {}),
        ("git checkout -- b.py", {"t2": "t5", "t3": "t6"}),
        ("git status", {"t2": "t5", "t3": "t6"}),
    ],
)
def test_on_another_branch_nothing_is_done_again(command, again):
    both = [(("Read", "a"), {"file_path": "a.py"}), (("Bash", "ok"), {"command": "make test"})]
    before, after = ([one for n, (c, asked) in enumerate(both) for one in call(*c, at + n, **asked)] for at in (1, 7))
    turns = evidence_of(*before, *call("Bash", "done", 5, command=command), *after).turns
    assert {turn_id: turn.superseded_by for turn_id, turn in turns.items() if turn.superseded_by} == again


def test_one_of_two_parallel_reads_overtaken_leaves_the_turn_current():
    two = call("Read", "a", 1, file_path="a.py")
    two[0]["content"] += call("Read", "b", 2, file_path="b.py")[0]["content"]
    two[1]["content"] += call("Read", "b", 2, file_path="b.py")[1]["content"]
    assert evidence_of(*two, *call("Read", "a", 3, file_path="a.py")).turns["t2"].superseded_by == ""


def test_the_root_is_the_folder_most_paths_are_in():
    reads = [m for n in range(6) for m in call("Read", f"/srv/app/src/m{n}.ts", n, file_path=f"/srv/app/src/m{n}.ts")]
    evidence = evidence_of(*reads, {"role": "assistant", "content": [text("see /etc/hosts")]})
    assert evidence.root == "/srv/app/src"
    assert evidence.shown("in /srv/app/src/m1.ts and /etc/hosts") == "in m1.ts and /etc/hosts"


def test_a_container_holds_its_repository_in_a_folder_of_the_file_systems_root():
    paths = [f"/testbed/{folder}/m{n}.py" for folder in ("src", "tests", "docs") for n in range(4)]
    reads = [m for n, path in enumerate(paths) for m in call("Read", f"def f{n}(): ...", n, file_path=path)]
    assert evidence_of(*reads).root == "/testbed"


def test_what_was_edited_in_part_is_not_superseded():
    edit = {"file_path": "a.py", "old_string": "x", "new_string": "y"}
    turns = evidence_of(*call("Read", "x", 1, file_path="a.py"), *call("Edit", "ok", 2, **edit)).turns
    assert turns["t2"].superseded_by == ""
