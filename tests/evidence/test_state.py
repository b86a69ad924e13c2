"""The state of the work as statements: each says what the record says, and names the turns it rests on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.analysis import analyze
from planner.evidence.turns import call_head
from planner.programming.command_failures import check_kinds, check_outcomes, recoveries
from planner.programming.repository import branches, changed_files, commits, conflicts
from planner.rules import latest_request, open_tasks, urls


class Session:
    """A history in the making."""

    def __init__(self, task):
        self.messages = [{"role": "user", "content": task}]
        self.stopped = False

    @classmethod
    def of(cls, other):
        """Another one that began as `other`."""
        session = cls("")
        session.messages = list(other.messages)
        return session

    def says(self, words):
        self.messages.append({"role": "assistant", "content": words})
        return self

    def asks(self, words):
        self.messages.append({"role": "user", "content": words})
        return self

    def calls(self, name, result, is_error=False, **arguments):
        number = f"c{len(self.messages)}"
        answer = {"type": "tool_result", "tool_use_id": number, "content": result}
        answer |= {"is_error": True} if is_error else {}
        use = {"type": "tool_use", "id": number, "name": name, "input": arguments}
        self.messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]
        return self

    @property
    def evidence(self):
        return analyze(self.messages).evidence


def lines(statements):
    return [(one.text, one.turn_ids) for one in statements]


def test_the_latest_request_is_what_the_user_typed_last():
    session = Session("Fix the race in auth.py.").says("Done.")
    assert latest_request(session.evidence).text == "“Fix the race in auth.py.”"
    session.asks("Now write a changelog.").says("Shall I list every commit?").asks("yes").says("On it.")
    request = latest_request(session.evidence)
    assert request.text == "“yes” to: Shall I list every commit?"
    assert request.turn_ids == ("t4", "t5")


def test_changed_files_say_how_they_were_changed_last():
    session = Session("Fix it.")
    session.calls("Write", "ok", file_path="src/a.py", content="a")
    session.calls("Edit", "ok", file_path="src/b.py", old_string="a", new_string="b")
    session.calls("Edit", "String to replace not found", is_error=True, file_path="src/b.py", old_string="x")
    session.calls("apply_patch", "Success.", input="*** Begin Patch\n*** Update File: src/c.py\n*** End Patch")
    assert lines(changed_files(session.evidence)) == [
        ("src/a.py: written", ("t2",)),
        ("src/b.py: edited", ("t3",)),
        ("src/c.py: edited", ("t5",)),
    ]


def test_a_patch_says_what_it_removes_and_where_it_moves_a_file():
    patch = "*** Begin Patch\n*** Delete File: a.py\n*** Update File: b.py\n*** Move to: lib/b.py\n@@\n-x\n+y\n"
    session = Session("Fix it.").calls("apply_patch", "Success.", input=f"{patch}*** Add File: c.py\n+z\n*** End Patch")
    told = [line.text for line in changed_files(session.evidence)]
    assert told == ["a.py: removed", "b.py: moved to lib/b.py", "c.py: written"]


def test_an_edit_that_was_taken_back_has_changed_nothing():
    session = Session("Fix it.").calls("Edit", "ok", file_path="/w/a.py", old_string="a", new_string="b")
    session.calls("Edit", "ok", file_path="/w/b.py", old_string="b", new_string="a")
    session.calls("Edit", "ok", file_path="/w/b.py", old_string="a", new_string="c")
    session.calls("Edit", "ok", file_path="/w/b.py", old_string="c", new_string="a")
    session.calls("Edit", "ok", file_path="/w/a.py", old_string="b", new_string="a")
    assert lines(changed_files(session.evidence)) == [("b.py: edited", ("t3",))]
    session.calls("Edit", "ok", file_path="/w/a.py", old_string="a", new_string="b")
    assert ("a.py: edited", ("t7",)) in lines(changed_files(session.evidence))


def test_of_each_kind_of_check_the_last_run_counts():
    session = Session("Fix it.").calls("Bash", "1 failed, 3 passed", command="pytest -q")
    session.calls("Bash", "All checks passed!", command="ruff check .")
    session.calls("Bash", "[main a1b2c3d] Fix the build and test", command="git commit -m 'Fix the build and test'")
    session.calls("Bash", "4 passed in 1s", command="cd app && pytest -q 2>&1 | tail -3")
    assert lines(check_outcomes(session.evidence)) == [
        ("test: `cd app && pytest -q 2>&1 | tail -3`: 4 passed in 1s", ("t5",)),
        ("lint: `ruff check .`: All checks passed!", ("t3",)),
    ]


RECOVERIES = {
    "shown another way": (["make test | tail -3", "4 passed in 1s", False], True),
    "no success that shows": (["make test", "fine", False], False),
    "failed again": (["make test", "2 failed, 3 passed", False], False),
    "another command": (["make test SUITE=a", "4 passed in 1s", False], False),
    "what the agent says alone": (["git status", "The root cause was: a missing default.", False], False),
}


@pytest.mark.parametrize(("later", "told"), RECOVERIES.values(), ids=RECOVERIES)
def test_a_failed_command_has_recovered_where_a_later_run_of_it_shows_that_it_passed(later, told):
    command, result, is_error = later
    session = Session("Fix it.").calls("Bash", "Exit code 1\nKeyError: 'token'", is_error=True, command="make test")
    session.calls("Bash", result, is_error, command=command)
    wanted = [("Bash make test | tail -3 failed; the same command passed at t3", ("t2", "t3"))] if told else []
    assert lines(recoveries(session.evidence)) == wanted


def test_branch_commits_urls_and_open_items():
    session = Session("See https://host.example/a/b/issues/3.")
    session.calls("Bash", "Switched to a new branch 'fix-race'", command="git checkout -b fix-race")
    session.calls("Bash", "[fix-race a1b2c3d] Fix the race\n 1 file changed", command="git commit -am x")
    todos = [{"content": "Write a test", "status": "completed"}, {"content": "Open a PR", "status": "pending"}]
    session.calls("TodoWrite", "ok", todos=json.dumps(todos))
    evidence = session.evidence
    assert lines(branches(evidence)) == [("on branch fix-race", ("t2", "t3"))]
    assert lines(commits(evidence)) == [("commit a1b2c3d Fix the race", ("t3",))]
    assert lines(urls(evidence)) == [("https://host.example/a/b/issues/3", ("t1",))]
    assert lines(open_tasks(evidence)) == [("Open a PR (pending)", ("t4",))]


def test_pages_are_those_that_the_agent_wrote_and_that_did_not_fail():
    session = Session("Do not use https://host.example/seller.")
    session.calls(
        "fetch", "See https://host.example/unread and https://host.example/x.svg", url="https://host.example/a"
    )
    session.calls("fetch", "404 not found", is_error=True, url="https://host.example/gone").says("Hm.")
    assert [line.text for line in urls(session.evidence)] == ["https://host.example/a"]


@pytest.mark.parametrize(("asked", "calls", "left"), [("Now the docs.", 9, []), ("Go on.", 2, ["Test it (pending)"])])
def test_a_list_that_nobody_took_up_again_is_not_open_for_ever(asked, calls, left):
    session = Session("Fix it.").calls("TodoWrite", "ok", todos=[{"content": "Test it", "status": "pending"}])
    session.says("All is done and tested.").asks(asked)
    for at in range(calls):
        session.calls("Read", "text", file_path=f"/w/{at}.md")
    assert [one.text for one in open_tasks(session.evidence)] == left


def test_an_empty_record_says_nothing():
    evidence = analyze([]).evidence
    assert latest_request(evidence) is None
    for statements in (changed_files, check_outcomes, recoveries):
        assert statements(evidence) == []


def test_the_branch_that_the_work_is_on_is_told_from_one_it_was_on():
    session = Session("Review it.").calls("Bash", "old-work", command="git branch --show-current")
    session.calls("Bash", "Switched to branch 'their-fix'", command="gh pr checkout 2")
    said = [one.text for one in branches(session.evidence)]
    assert said == ["before on branch old-work", "on branch their-fix"]


def test_files_in_conflict_are_told_until_a_commit_settles_them():
    session = Session("Merge main.").calls(
        "Bash",
        "Auto-merging app/a.py\nCONFLICT (content): Merge conflict in app/a.py\n"
        "CONFLICT (content): Merge conflict in app/b.py\nAutomatic merge failed; fix conflicts and commit the result.",
        command="git merge main",
    )
    session.calls("Edit", "done", file_path="/repo/app/b.py", old_string="<<<<<<< HEAD", new_string="both()")
    assert lines(conflicts(session.evidence)) == [("merge conflicts in app/a.py", ("t2",))]
    session.calls("Bash", "[fix a1b2c3d] Merge main", command="git commit --no-edit")
    assert conflicts(session.evidence) == []
    session.calls("Bash", "UU app/c.py\n M app/d.py", command="git status --short")
    assert lines(conflicts(session.evidence)) == [("merge conflicts in app/c.py", ("t5",))]
    session.calls("Bash", "", command="git merge --abort")
    assert conflicts(session.evidence) == []


def test_what_was_not_done_or_only_written_about_is_no_change_of_code():
    session = Session("Plan it.").calls(
        "Write", "done", file_path="/repo/plan.md", content="## Tests\n\nfunc TestDrain_Empty(t *testing.T) {"
    )
    refusal = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    session.calls("Edit", refusal, is_error=True, file_path="/repo/a.go", old_string="x", new_string="y")
    assert lines(changed_files(session.evidence)) == [("/repo/plan.md: written", ("t2",))]


def test_an_editor_that_only_looks_changes_nothing():
    session = Session("Fix it.").calls("str_replace_editor", "1 a", command="view", path="/a/b.py", view_range=[1, 9])
    session.calls("str_replace_editor", "done", command="str_replace", path="/a/c.py", old_str="a", new_str="b")
    assert lines(changed_files(session.evidence)) == [("/a/c.py: edited", ("t3",))]


def test_a_commit_that_was_amended_is_no_more():
    session = Session("Fix it.").calls("Bash", "[main a1b2c3d] Fix", command="git commit -m Fix")
    session.calls("Bash", "[main b2c3d4e] Fix\n Date: today", command="git add a && git commit --amend --no-edit")
    assert lines(commits(session.evidence)) == [("commit b2c3d4e Fix", ("t3",))]


@pytest.mark.parametrize(
    ("command", "left"),
    {
        "git commit --amend --no-edit | tail -1": ["commit a1b2c3d Fix"],
        "git reset --soft HEAD~1": ["commit a1b2c3d Fix"],
        "git reset HEAD~2": [],
        "git -C /w/app reset --soft HEAD~1": ["commit a1b2c3d Fix"],
        "git reset HEAD a.py": ["commit a1b2c3d Fix", "commit b2c3d4e Test"],
    }.items(),
)
def test_a_commit_that_was_taken_back_is_no_more(command, left):
    session = Session("Fix it.").calls("Bash", "[main a1b2c3d] Fix", command="git commit -m Fix")
    session.calls("Bash", "[main b2c3d4e] Test", command="git commit -m Test").calls("Bash", "ok", command=command)
    assert [one.text for one in commits(session.evidence)] == left


def test_what_the_user_ran_himself_counts():
    session = Session("Fix it.").calls("Bash", "[main a1b2c3d] Begin", command="git commit -am Begin")
    session.asks("<bash-input>git checkout -b fix && git commit -am Fix</bash-input>").says("Good.")
    session.asks("<bash-stdout>Switched to a new branch 'fix'\n[fix b2c3d4e] Fix</bash-stdout>").says("I see.")
    assert [one.text for one in branches(session.evidence)] == ["before on branch main", "on branch fix"]
    assert [one.text for one in commits(session.evidence)] == ["commit a1b2c3d Begin", "commit b2c3d4e Fix"]
    session.asks("<bash-input>git pull --rebase</bash-input>").says("Good.")
    assert commits(session.evidence) == []


def test_a_commit_has_the_hash_that_git_showed_last():
    session = Session("Fix it.").calls("Bash", "[main a1b2c3d] Fix", command="git commit -m Fix")
    session.calls("Bash", "a1b2c3d9 (HEAD -> main) Fix\nb2c3d4e Begin", command="git log --oneline")
    assert lines(commits(session.evidence)) == [("commit a1b2c3d Fix", ("t2",))]
    session.calls("Bash", "* c3d4e5f (origin/main) Fix", command="git log --oneline --graph")
    session.calls("Bash", "[main c3d4e5f] Fix", command="git cherry-pick fix")
    assert lines(commits(session.evidence)) == [("commit c3d4e5f Fix", ("t5",))]


def test_a_file_is_one_by_its_whole_path_and_by_its_end():
    session = Session("Fix it.").calls("Bash", "", command="mv hook.sh hooks/remind.sh")
    session.calls("Edit", "ok", file_path="/w/app/hooks/remind.sh", old_string="a", new_string="b")
    assert [one.text for one in changed_files(session.evidence)][-1] == "hooks/remind.sh: edited"
    session.calls("Bash", "", command="rm /w/app/hooks/remind.sh")
    assert [one.text for one in changed_files(session.evidence)][-1] == "hooks/remind.sh: removed"


def test_what_lies_beside_the_work_is_told_where_an_edit_made_it_and_no_git_takes_it_back():
    session = Session("Fix it.").calls("Write", "ok", file_path="/tmp/x/notes.md", content="a")
    session.calls("Write", "ok", file_path="C:\\Users\\ana\\AppData\\Local\\Temp\\b.md", content="b")
    session.calls("Bash", "HEAD is now at a1b2c3d", command="git reset --hard")
    assert [one.text.rpartition(": ")[2] for one in changed_files(session.evidence)] == ["written", "written"]
    session.calls("Bash", "", command="rm /tmp/x/notes.md; echo a > /tmp/x/log.txt")
    assert [one.text.rpartition(": ")[2] for one in changed_files(session.evidence)] == ["removed", "written"]


def test_of_a_patch_that_failed_the_file_that_it_names_was_not_changed():
    patch = "*** Begin Patch\n*** Update File: /w/a.py\n+x\n*** Update File: /w/b.py\n+y\n*** End Patch"
    told = "apply_patch verification failed: Failed to find expected lines in /w/b.py:\n- Some are covered."
    session = Session("Fix it.").calls("Edit", "ok", file_path="/w/a.py", old_string="a", new_string="b")
    session.calls("apply_patch", told, input=patch)
    assert lines(changed_files(session.evidence)) == [("a.py: edited", ("t2",))]
    failed = session.evidence.turns["t3"]
    assert [one.text for one in failed.statements_of(failed.decisive_lines)] == [told.split("\n")[0]]


def test_a_commit_without_a_branch_is_none():
    for told in ("50d6f345e", "HEAD", "## HEAD (no branch)\nhost.example\n  logged in"):
        session = Session("Fix it.").calls("Bash", told, command="git branch --show-current; git rev-parse HEAD")
        assert branches(session.evidence) == []


def test_the_branch_stands_where_the_command_that_asks_for_it_does():
    told = " src/a.py | 3 +-\nunknown\n--- branch ---\nfix-race"
    session = Session("Fix it.").calls("Bash", told, command="git diff --stat && git branch --show-current")
    assert [one.text for one in branches(session.evidence)] == ["on branch fix-race"]


def test_a_merge_that_is_only_asked_about_is_none():
    told = "CONFLICT (content): Merge conflict in src/a.py"
    session = Session("Merge it?").calls("Bash", told, command="git fetch; git merge-tree main fix")
    assert conflicts(session.evidence) == []
    assert [turn.failed for turn in session.evidence.turns.values()] == [False, False]


def test_a_script_that_calls_tools_is_no_shell_and_what_is_applied_to_a_cluster_changes_no_file():
    session = Session("Fix it.").calls("exec", "Script completed", input="tools.list.filter(x => x.name > y.md)")
    session.calls("kubectl_apply", "pod/a created", filename="/w/pod.yaml")
    assert changed_files(session.evidence) == []


def test_a_worktree_beside_the_work_is_no_branch_of_it():
    session = Session("Fix it.").calls("Bash", "On branch main", command="git status")
    session.calls("Bash", "Switched to a new branch 'try'", command="git worktree add ../try -b try")
    assert [one.text for one in branches(session.evidence)] == ["on branch main"]


def test_a_file_of_windows_is_one_file_however_it_is_written():
    home = "C:\\Users\\ana\\app"
    session = Session("Fix it.")
    for name in ("a.md", "b.md", "c.md", "d.md"):
        session.calls("Edit", "ok", file_path=f"{home}\\docs\\{name}", old_string="a", new_string="b")
    session.calls("Bash", "ok", command="cat >> 'C:/Users/ana/app/docs/a.md' <<'EOF'\nx\nEOF")
    session.calls("Bash", "ok", command="rm /c/Users/ana/app/docs/b.md && echo x >> docs/c.md")
    assert session.evidence.root == "C:/Users/ana/app/docs"
    assert lines(changed_files(session.evidence)) == [
        ("a.md: appended to by a command", ("t2", "t6")),
        ("b.md: removed", ("t3", "t7")),
        ("c.md: appended to by a command", ("t4", "t7")),
        ("d.md: edited", ("t5",)),
    ]
    assert (
        session.evidence.shown("see /c/Users/ana/app/docs/x.md, not D:\\docs\\x.md") == "see x.md, not D:\\docs\\x.md"
    )


RUNNING = "Chunk ID: a1\nWall time: 30.0 seconds\nProcess running with session ID 77\nOutput:\n"


def test_what_still_runs_has_not_passed():
    session = Session("Fix it.").calls("Edit", "ok", file_path="src/a.py", old_string="a", new_string="b")
    session.calls("exec_command", "1 failed, 3 passed in 2s\n", cmd="bun run test")
    session.calls("exec_command", f"{RUNNING}@x/core test: Exited with code 0\n12 passed in 3s", cmd="bun run test")
    assert [line.text for line in check_outcomes(session.evidence)] == [
        "test: `bun run test` was still running: @x/core test: Exited with code 0 · 12 passed in 3s"
    ]
    assert recoveries(session.evidence) == []
    session.calls("write_stdin", f"{RUNNING}more", session_id=77, chars="")
    ended = "Chunk ID: b2\nWall time: 2.0 seconds\nProcess exited with code 0\nOutput:\n@x/web test: 9 pass\n"
    session.calls("write_stdin", ended, session_id=77, chars="")
    assert lines(check_outcomes(session.evidence)) == [("test: `bun run test`: @x/web test: 9 pass", ("t4", "t6"))]


def test_a_patch_says_which_files_it_made():
    patch = "*** Begin Patch\n*** Add File: a.txt\n+x\n*** Update File: b.txt\n@@\n-x\n+y\n*** End Patch"
    session = Session("Fix it.").calls("apply_patch", "Success", input=patch)
    assert lines(changed_files(session.evidence)) == [("a.txt: written", ("t2",)), ("b.txt: edited", ("t2",))]


def test_another_repository_says_nothing_of_this_one():
    session = Session("Fix it.")
    for number in range(4):
        session.calls("Write", "ok", file_path=f"/srv/app/src/a{number}.py", content="a")
        session.calls("Write", "ok", file_path=f"/srv/app/tests/b{number}.py", content="a")
    for command in ("git status", "cd /srv/app/tests && git status", "cd /srv && git status"):
        named = branches(Session.of(session).calls("Bash", "On branch main", command=command).evidence)
        assert [line.text for line in named] == ["on branch main"]
    for command in (
        "cd /srv/other && git status",
        "cd ../other && git status",
        "git -C /srv/other status",
        "git status",
    ):
        there = {"workdir": "/srv/other"} if command == "git status" else {}
        asked = Session.of(session).calls("Bash", "On branch theirs\nUU src/x.py", command=command, **there)
        assert branches(asked.evidence) == conflicts(asked.evidence) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [({"order_id": 17}, {"order_id": 18}), ({"customer": "a", "page": 1}, {"customer": "a", "page": 2})],
)
def test_calls_with_other_arguments_are_other_calls(one, other):
    session = Session("Refund them.").calls("refund_order", "ok", **one).calls("refund_order", "ok", **other)
    heads = [call_head(call) for turn in session.evidence.turns.values() for call in turn.calls]
    assert len(set(heads)) == 2
    assert all(str(value) in head for head, given in zip(heads, (one, other), strict=True) for value in given.values())


@pytest.mark.parametrize("part", ["startLine", "start_line", "head", "page", "start", "max_lines", "range", "offset"])
def test_a_part_of_a_file_does_not_stand_for_the_file(part):
    whole = "\n".join(f"line {number}" for number in range(40))
    session = Session("Look.").calls("Read", whole, file_path="a.py")
    session.calls("Read", "line 3", **{"file_path": "a.py", part: 3}).calls("Read", whole, file_path="b.py")
    assert [turn.superseded_by for turn in session.evidence.turns.values()] == ["", "", "", ""]


def test_a_large_edit_is_read_in_linear_time():
    """It took a minute; the suite's own limit of time would show it."""
    old, new = ("\n".join(f"{word}{n} = {word}(x{word}{n})" for n in range(20_000)) for word in ("old", "new"))
    session = Session("Fix it.").calls("Edit", "ok", file_path="a.ts", old_string=old, new_string=new)
    (change,) = changed_files(session.evidence)
    assert change.text == "a.ts: edited"


def test_arguments_of_any_form_and_scripts_without_an_end_are_read():
    session = Session("Fix it.").calls("Edit", "ok", file_path="a.ts", old_string=["a"], new_string={"b": 1})
    session.calls("Bash", "ok", command="python3 <<EOF\n\n" * 50_000)
    session.calls("apply_patch", "ok", why="tidy", input=["*** Begin Patch\n*** Update File: b.ts"])
    assert [line.text for line in changed_files(session.evidence)] == ["a.ts: edited"]


CHECKS = {
    "pytest -q": ["test"],
    "CI=1 timeout 60 uv run pytest -x": ["test"],
    ".venv/bin/python -m pytest tests": ["test"],
    "cd app && bun --filter @a/core build": ["build"],
    "npm run test:unit": ["test"],
    "make lint && make -C app test": ["lint", "test"],
    "npx tsc --noEmit": ["typecheck"],
    "go vet ./... ; go test ./...": ["typecheck", "test"],
    "git add auth.test.ts": [],
    "git commit -m 'build: test the lint'": [],
    "npm install jest": [],
    "pytest --version": [],
    "node build/make.js": [],
    "make clean": [],
    "bin/rails test": ["test"],
    "cat > a.sh <<'EOF'\npytest -q\nEOF": [],
    "python tests/report.py": [],
}


@pytest.mark.parametrize(("command", "kinds"), CHECKS.items(), ids=CHECKS)
def test_a_check_is_a_program_that_checks_where_a_program_stands(command, kinds):
    session = Session("Fix it.").calls("Bash", "3 passed", command=command)
    (call,) = session.evidence.turns["t2"].calls
    assert check_kinds(call) == kinds


ENDS = {
    "its counts": ("bun test", " 1309 pass\n 0 fail", False, "test: `bun test`: 1309 pass · 0 fail"),
    "words of failure in its log": (
        "bun test",
        "error: boom\n 9 pass\n 0 fail",
        False,
        "test: `bun test`: 9 pass · 0 fail",
    ),
    "its exit code": (
        "go test ./a",
        "Process exited with code 0\nOutput:\nfine",
        False,
        "test: `go test ./a`: exit code 0",
    ),
    "nothing": ("go build ./...", "", False, "build: `go build ./...` printed nothing"),
    "a test that is only built": ("go test -c ./a", "", False, "build: `go test -c ./a` printed nothing"),
    "what ran, not what had nothing to run": (
        "go test -run A ./...",
        "ok  app/a 0.3s\nok  app/b 0.3s [no tests to run]\nok  app/c 0.3s [no tests to run]",
        False,
        "test: `go test -run A ./...`: ok app/a 0.3s",
    ),
    "which of several": (
        "make lint && make test",
        "Exit code 2\nboom",
        True,
        "one of lint, test: `make lint && make test` failed: boom",
    ),
    "the flag": ("make test", "Exit code 2\nboom", True, "test: `make test` failed: boom"),
    "no end that shows": ("make test", "one\ntwo\nthree\nfour\nfive", False, None),
    "the exit code of what shows it": ("make test | tail -1", "Process exited with code 0\nOutput:\nfine", False, None),
}


@pytest.mark.parametrize(("command", "result", "flag", "line"), ENDS.values(), ids=ENDS)
def test_a_check_is_told_in_its_own_words_or_not_at_all(command, result, flag, line):
    session = Session("Fix it.").calls("Bash", result, flag, command=command)
    assert [one.text for one in check_outcomes(session.evidence)] == [line] * (line is not None)


@pytest.mark.parametrize("result", ["ok  app/a 0.3s [no tests to run]", "0 passed in 1s", "fine"])
def test_a_run_that_shows_no_success_is_none(result):
    session = Session("Fix it.").calls("Bash", "FAIL app/a", True, command="go test ./...")
    assert recoveries(session.calls("Bash", result, command="go test ./...").evidence) == []


SHELL = {
    "sed -i 's/a/b/' src/a.py": ["src/a.py: edited by a command"],
    "cd x && sed -n 1,9p src/a.py": ["src/a.py: edited"],
    "cat > notes.md <<'EOF'\nit's > b.py\nEOF": ["src/a.py: edited", "notes.md: written by a command"],
    "echo x >> src/a.py 2> /dev/null": ["src/a.py: appended to by a command"],
    "echo x > 'notes.md'": ["src/a.py: edited", "notes.md: written by a command"],
    "uv run ruff format src/a.py": ["src/a.py: edited"],
    'cd "/w/my app" && rm b.py': ["src/a.py: edited", "/w/my app/b.py: removed"],
    "make 2>err.txt >/dev/null; grep 'a > b.py' c": ["src/a.py: edited"],
    "git checkout main -- src/a.py": ["src/a.py: restored by git"],
    "git checkout --theirs src/a.py && git add src/a.py": ["src/a.py: restored by git"],
    "git restore a.py": ["src/a.py: restored by git"],
    "git restore --staged a.py": ["src/a.py: edited"],
    "git checkout -b fix": ["src/a.py: edited"],
    "git reset --hard HEAD~1": ["src/a.py: edited, before `git reset --hard`"],
    "git checkout .": ["src/a.py: edited, before `git checkout .`"],
    "git stash && make": ["src/a.py: edited"],
    "cp src/a.py src/b.py": ["src/a.py: edited", "src/b.py: written by a command"],
    "rm src/a.py": ["src/a.py: removed"],
    'rm "/w/app/src/a.py"': ["src/a.py: removed"],
    'mv src/a.py "$TARGET"': ["src/a.py: moved"],
    "cd /repo/lib && sed -i 's/a/b/' c.py": ["src/a.py: edited", "/repo/lib/c.py: edited by a command"],
    "cd /tmp/x && echo a > b.txt": ["src/a.py: edited"],
    "cd $(mktemp -d) && echo a > b.txt": ["src/a.py: edited"],
    "cd src && rm a.py": ["src/a.py: removed"],
    "rm -rf app/src": ["src/a.py: removed"],
    "git worktree remove --force /w/app": ["src/a.py: removed with its worktree"],
    "git worktree remove ../app && git reset --hard": ["src/a.py: removed with its worktree"],
    "rm -rf src/a.py && ditto b.py src/a.py": ["src/a.py: written by a command"],
    "cd lib && rm ../src/a.py": ["src/a.py: removed"],
    "rm -rf /w/app/src": ["src/a.py: removed"],
    "rm -rf /w/app/sr": ["src/a.py: edited"],
    "cd /w && rm -r app/src/": ["src/a.py: removed"],
    "mv src/a.py lib/": ["src/a.py: moved to lib/"],
    "mv src/a.py b.py && rm b.py": ["src/a.py: moved to b.py", "b.py: removed"],
    "git mv /w/app/src /w/app/lib": ["src/a.py: moved to lib"],
    "git rm --cached src/a.py": ["src/a.py: edited"],
    "python3 - <<'EOF'\ns = open('src/a.py').read()\nopen('src/a.py', 'w').write(s)\nEOF": [
        "src/a.py: edited by a command"
    ],
    "python3 - <<'EOF'\nopen('b.py', 'w').write(open('src/a.py').read())\nEOF": ["src/a.py: edited"],
    "python3 - <<'EOF'\nprint(open('src/a.py').read())\nEOF": ["src/a.py: edited"],
    "# over > 5MB\nmake": ["src/a.py: edited"],
}


@pytest.mark.parametrize(("command", "changes"), SHELL.items(), ids=SHELL)
def test_a_shell_command_that_changes_a_file_changes_it(command, changes):
    session = Session("Fix it.").calls("Edit", "ok", file_path="/w/app/src/a.py", old_string="a", new_string="b")
    session.calls("Bash", "ok", command=command)
    assert [line.text.replace("/w/app/", "") for line in changed_files(session.evidence)] == changes
    failed = Session("Fix it.").calls("Bash", "Exit code 1\nno", True, command=command)
    assert changed_files(failed.evidence) == []


def test_what_ran_before_the_command_that_failed_has_changed_its_file():
    made = "cat > /w/a.py <<'EOF'\nprint(1\nEOF\n"
    told = "Exit code 1\nSyntaxError: '(' was never closed"
    for command, changes in {made + "python /w/a.py": ["/w/a.py: written by a command"], "make && rm a.py": []}.items():
        session = Session("Fix it.").calls("Bash", told, True, command=command)
        assert [line.text for line in changed_files(session.evidence)] == changes
    session = Session("Fix it.").calls("Bash", "Blocked: write a test first", True, command=made + "python /w/a.py")
    assert changed_files(session.evidence) == []


def test_what_was_committed_no_reset_takes_back():
    session = Session("Fix it.").calls("Edit", "ok", file_path="/w/a.py", old_string="a", new_string="b")
    session.calls("Bash", "[main a1b2c3d] Fix it\n 1 file changed", command="git commit -am 'Fix it'")
    session.calls("Bash", "ok", command="rm b.py").calls("Bash", "ok", command="git reset --hard && git checkout main")
    assert lines(changed_files(session.evidence)) == [
        ("/w/a.py: edited", ("t2",)),
        ("b.py: removed, before `git reset --hard`", ("t4", "t5")),
    ]
    session.calls("Bash", "", command="rm b.py")
    assert lines(changed_files(session.evidence))[1] == ("b.py: removed", ("t4", "t5", "t6"))


NAMES = st.sampled_from(["a.py", "b.py", "c.py"])
OPERATIONS = st.lists(st.tuples(st.sampled_from(["write", "cp", "mv", "rm", "rm -r"]), NAMES, NAMES), max_size=8)


@given(OPERATIONS, st.sampled_from([" && ", "\n", None]))
def test_a_file_that_is_gone_is_not_told_as_written(operations, joined):
    there, commands = set(), []
    for act, one, other in operations:
        if act == "write":
            there.add(one)
            commands.append(f"echo x > d/{one}" + f"  # > {other}" * (joined != " && "))
        elif act == "rm -r" and there:
            there.clear()
            commands.append("rm -r d; mkdir d")
        elif one in there and act == "rm":
            there.remove(one)
            commands.append(f"rm d/{one}")
        elif one in there and one != other and act in ("cp", "mv"):
            there = (there if act == "cp" else there - {one}) | {other}
            commands.append(f"{act} d/{one} d/{other}")
    session = Session("Fix it.")
    for command in [joined.join(commands)] if joined else commands:
        session.calls("Bash", "ok", command=command)
    said = dict(line.text.removeprefix("d/").split(": ", 1) for line in changed_files(session.evidence))
    assert {name for name, how in said.items() if how == "written by a command"} == there


PARTS = {"offset": st.integers(1, 999), "startLine": st.integers(1, 999), "page": st.text("0123456789-", min_size=1)}


@given(st.fixed_dictionaries({}, optional=PARTS))
def test_a_read_of_a_part_names_its_range_and_one_of_the_whole_none(part):
    session = Session("Look.").calls("Read", "1 a", file_path="/a/b.py", **part)
    (call,) = session.evidence.turns["t2"].calls
    assert call_head(call) == " ".join(["Read /a/b.py", *(f"{key} {value}" for key, value in part.items())])


ENDS_OF_WORK = st.lists(st.sampled_from(["answered", "asked back", "stopped", "only talked"]), min_size=1, max_size=6)


@given(ENDS_OF_WORK)
def test_a_request_is_answered_where_words_that_ask_nothing_end_the_work_on_it(ends):
    session = Session("Begin.").says("Hello.")
    for end in ends:
        session.asks("[Request interrupted by user]\nDo it." if session.stopped else "Do it.")
        session.stopped = end == "stopped"
        if end != "only talked":
            session.calls("Read", "1 a", file_path="/a/b.py")
        if end != "stopped" or len(ends) % 2:
            session.says("Shall I go **on?**" if end == "asked back" else "So it is.")
    session.asks("[Request interrupted by user]\nNext." if session.stopped else "Next.")
    asking = [turn for turn in session.evidence.turns.values() if turn.turn.kind == "user"]
    assert [bool(turn.answered_at) for turn in asking] == [False, *(end == "answered" for end in ends), False]


def test_unanswered_words_are_no_statement_as_they_stay_whole():
    session = Session("Fix it.").says("Done.").asks("Now the docs.")
    assert latest_request(session.evidence) is None
    assert latest_request(session.calls("Read", "text", file_path="/w/a.md").says("Hm.").evidence).turn_ids == ("t3",)
