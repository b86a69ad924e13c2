"""`compactor learn`, `commits` and `facts` over whole conversations: what is read, asked, shown and written."""

import json
import os
import re
import subprocess
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.adapters.transcripts import read_transcript
from applier.adapters.visible import Visible
from applier.learning.learned import Memory
from applier.learning.propose import proposed_lines
from applier.learning.readers import with_written
from applier.store import open_store
from applier.store.listing import is_within
from applier.testing import Failure
from planner.analysis import analyze_history
from planner.errors import ReferenceNotFound
from planner.plan import ExtractedFact
from planner.reading.messages import read_history
from planner.reading.tokens import TokenCounter
from tests.bench.learned import lessons_in, prompt_of
from tests.loopback import KEY, Loopback

WISH = "Never push to main without asking me first."
OTHERS_WISH = "Never deploy on a Friday, from now on."


def files(folder):
    """All that stands in the project, by its path."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_lines_are_shown_then_written_with_where_they_are_from(learn, say, folder):
    say("s1", "Fix the parser, please.", WISH)
    ran = learn("--yes")
    assert ran.code == 0
    (line,) = [line for line in ran.out.splitlines() if line.startswith("+- ")]
    assert line == f"+- “{WISH}” (s1:t3, 2026-01-01)"
    assert line[1:] in (folder / "app/.compactor/learned/decisions.md").read_text()
    assert learn("--yes").out.endswith("\nNothing new to propose.\n")


def test_nothing_is_written_without_a_yes(learn, say, folder):
    say("s1", WISH)
    before = files(folder / "app")
    assert learn().code == 2  # nobody to ask
    assert learn("--dry-run", "--into", "AGENTS.md").code == 0
    assert files(folder / "app") == before


def test_a_dry_run_writes_no_store(learn, say, folder):
    say("s1", WISH)
    assert f"+- “{WISH}”" in learn("--dry-run").out
    assert not (folder / "store.db").exists()
    learn("--yes")
    say("s2", "Always use the field's own nouns for names.")
    before = (folder / "store.db").read_bytes()
    assert "nouns" in learn("--dry-run").out
    assert (folder / "store.db").read_bytes() == before


def test_what_a_person_deleted_stays_deleted(learn, say, folder):
    say("s1", WISH, "Always use the field's own nouns for names.")
    learn("--yes")
    place = folder / "app/.compactor/learned/decisions.md"
    place.write_text("\n".join(line for line in place.read_text().splitlines() if "main" not in line))
    say("s2", WISH)
    learn("--yes")
    assert "main" not in place.read_text()
    assert "nouns" in place.read_text()


def test_another_projects_lines_never_come_and_the_rest_is_told(learn, say, folder):
    say("s1", WISH)
    say("s2", OTHERS_WISH, project="other")
    (folder / "logs" / "s3.jsonl").write_text("not a log\n{")
    ran = learn("--yes")
    assert "Friday" not in ran.out
    assert "s3.jsonl" in ran.err
    assert "left out: 1 that worked in" in ran.out
    assert "Friday" not in json.dumps(files(folder / "app"))
    assert "main" not in learn("--dry-run", project="other").out  # though one store knows both


def test_lines_stand_between_marks_in_a_file_of_the_person(learn, say, folder):
    say("s1", WISH)
    (folder / "app" / "AGENTS.md").write_text("# Rules\n\n- Use bun.\n")
    learn("--into", "AGENTS.md", "--yes")
    text = (folder / "app" / "AGENTS.md").read_text()
    assert text.startswith("# Rules\n\n- Use bun.\n\n<!-- compactor: learned -->\n")
    assert WISH in text
    assert not (folder / "app" / ".compactor").exists()
    (folder / "app" / "AGENTS.md").write_text(f"{text}\nMore of mine.\n")
    say("s2", "Always use the field's own nouns for names.")
    learn("--into", "AGENTS.md", "--yes")
    again = (folder / "app" / "AGENTS.md").read_text()
    assert again.endswith("<!-- compactor: end of learned -->\n\nMore of mine.\n")
    assert "nouns" in again


def test_what_the_projects_instructions_say_is_not_proposed(learn, say, folder):
    say("s1", WISH, "Always use the field's own nouns for names.")
    (folder / "app" / "CLAUDE.md").write_text(f"# Rules\n\n- {WISH}\n")
    (line,) = learn("--dry-run", "--json").json["lines"]
    assert "nouns" in line


def test_a_log_without_times_gives_no_date(learn, say):
    path = say("s1", WISH)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "timestamp": None}) + "\n" for line in lines))
    assert learn("--dry-run", "--json").json["lines"] == [f"- “{WISH}” (s1:t1)"]


def test_a_link_in_a_strangers_repository_leads_nowhere(learn, say, folder):
    say("s1", WISH)
    outside = folder / "outside.md"
    outside.write_text("mine")
    (folder / "app/.compactor/learned").mkdir(parents=True)
    (folder / "app/.compactor/learned/decisions.md").symlink_to(outside)
    assert learn("--yes").code == 2
    assert learn("--into", "../outside.md", "--yes").code == 2
    assert outside.read_text() == "mine"


def test_a_file_that_cannot_be_one_of_ours_is_named_and_not_read(learn, say, folder):
    say("s1", WISH)
    place = folder / "app/.compactor/learned/decisions.md"
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    assert "decisions.md: expected" in learn("--yes").err
    place.unlink()
    place.write_bytes(b"- x\n" * 600_000)
    assert learn("--yes").code == 2
    place.write_bytes(b"\xff")
    assert learn("--yes").code == 2


def test_a_repository_within_the_project_is_another_project(learn, say, folder):
    say("s1", OTHERS_WISH, project="app/vendored")
    assert "Friday" in learn("--dry-run").out
    (folder / "app/vendored/.git").mkdir()
    assert "Friday" not in learn("--dry-run").out


def test_logs_of_one_name_are_two_conversations_and_what_goes_on_from_another_is_one(learn, say, folder):
    logs = folder / "logs"
    one = say("s1", "Fix the parser, please.", WISH)
    (logs / "deep").mkdir()
    one.rename(logs / "deep" / "s1.jsonl")
    say("s1", "Build the page.", "Always use the field's own nouns for names.")
    say("s2", "Fix the parser, please.", WISH, "Now the tests.")  # the first one, resumed
    first = learn("--yes", "--json")
    assert first.json["conversations"] == first.json["read_now"] == 2
    assert len(first.json["lines"]) == 2
    assert learn("--yes", "--json").json["read_now"] == 0


def test_logs_are_files_too_and_a_files_name_breaks_no_line(compactor, say, folder):
    say("s1", OTHERS_WISH)
    path = say("s2", WISH)
    odd = path.rename(path.with_name("my log (1)\nAlways push.jsonl"))
    ran = compactor("learn", odd, "--project", folder / "app", "--planner", "rules", "--yes")
    (line,) = [line for line in ran.out.splitlines() if line.startswith("+- ")]
    assert line == f"+- “{WISH}” (my-log-1-Always-push:t1, 2026-01-01)"
    assert compactor("learn", folder / "nowhere.jsonl").code == 2


def test_who_moved_a_project_is_told_how_to_name_its_old_place(learn, say, folder):
    (folder / "app").mkdir()
    (folder / "logs").mkdir()
    assert "~/.codex/sessions" in learn("--dry-run").out
    say("s1", WISH, project="old")
    assert "--also" in learn("--dry-run").out
    say("s2", WISH)
    assert "--also" not in learn("--dry-run").out


def test_a_store_is_read_by_the_folder_that_was_noted_with_each_conversation(compactor, say, folder):
    path = say("s1", "Fix the parser, please.", WISH)
    with open_store() as store:
        read = read_transcript(path)
        older = store.save_history(read_history(read.messages[:2]))
        key = store.save_history(read_history(read.messages))
        for one in (older, key):
            store.note_origin(one, read.working_folder, 1_767_225_600.0)
    ran = compactor("learn", "--project", folder / "app", "--planner", "rules", "--yes")
    assert f"+- “{WISH}” ({key}:t3, 2026-01-01)" in ran.out
    compactor("store", "forget", key, "--yes")
    with open_store() as store:
        assert store.states("lessons:") == {}


def lessons(*written):
    return json.dumps(
        {"lessons": [dict(zip(("kind", "about", "text", "turn", "words"), one, strict=True)) for one in written]}
    )


def answering(*replies, review=lambda ids: [{"of": [one]} for one in ids]):
    """Answers about conversations one after the other, the last one for ever; and a review that leaves all."""
    left = list(replies)

    def answer(request):
        asked = str(request.messages[0]["content"])
        if "<candidates>" in asked:
            return json.dumps({"lines": review(re.findall(r"^(c\d+) · ", asked, re.M))})
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


REFUSAL = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). To tell you how to proceed, the user said:\n"
)
SOUND = ("wish", "pushing", "Ask before a push to main", "t3", "Never push to main without asking me first.")
BESIDE = ("decision", "module", "parser.py is never pushed to main unasked", "t3", "Never push to main")
INVENTED = ("decision", "queue", "Refreshes go through RefreshQueue.push()", "t3", "Never push to main")
UNSAID = ("wish", "tests", "Write tests first", "t3", "tests first, always")
NOWHERE = ("wish", "tests", "Write tests first", "t99", "Never push to main")


@pytest.fixture
def asking(compactor, folder, monkeypatch):
    """`learn` with a model that answers as the script says; what it was asked."""

    def call(server, *options):
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        return compactor("learn", folder / "logs", "--project", folder / "app", *options)

    return call


def test_a_models_line_stands_if_its_turn_holds_its_words_and_names(asking, say):
    say("s1", "Fix parser.py, please.", WISH)
    gossip = ("gossip", "x", "y", "t3", "Never push")
    with Loopback(answering(lessons(SOUND, BESIDE, INVENTED, UNSAID, NOWHERE, gossip))) as server:
        ran = asking(server, "--dry-run", "--json")
    assert ran.json["lines"] == [
        "- parser.py is never pushed to main unasked: “Never push to main” (s1:t3, s1:t1, 2026-01-01)",
        "- Ask before a push to main: “Never push to main without asking me first.” (s1:t3, 2026-01-01)",
    ]
    assert server.violations == []
    request, review = server.requests
    assert WISH in json.dumps(request.body, ensure_ascii=False)
    assert "c2 · wish · t3 · Ask before a push to main" in json.dumps(review.body, ensure_ascii=False)


def test_a_recorded_answer_is_read_and_checked_as_one_that_was_asked_for(asking, say):
    log, answer = say("s1", "Fix parser.py, please.", WISH), lessons(SOUND, BESIDE, INVENTED, UNSAID)
    analysis = analyze_history(read_history(read_transcript(log).messages), TokenCounter.for_model(""))
    with Loopback(answering(answer)) as server:
        told = asking(server, "--dry-run", "--json").json["lines"]
    request = server.requests[0]
    sent = "\n\n".join([request.body["system"][0]["text"], request.body["messages"][0]["content"]])
    assert sent == prompt_of(analysis)
    assert f'" {WISH}' in sent  # without the mark of a kept line, which means nothing here
    for text in (answer, f"Two lines stand out.\n```json\n{answer}\n```"):
        recorded = with_written(lessons_in(text), analysis.evidence)
        assert sorted(one.text for one in recorded) == sorted(line[2:].rpartition(" (")[0] for line in told)
    assert lessons_in("There is nothing.") is lessons_in('{"lessons": 3}') is None


def evidence_of(log):
    return analyze_history(read_history(read_transcript(log).messages), TokenCounter.for_model("")).evidence


def failing(cause, mended, later=("make lint", "0 issues.", False)):
    """A lint that failed and passed, and what a model says of it."""
    words = "/bin/sh: line 3: golint: command not found"
    steps = [("make lint", f"Exit code 127\n{words}", True), ("make install", "installed 3 tools", False), later]
    every = tuple(({"name": "Bash", "input": {"command": run}}, out, bad) for run, out, bad in steps)
    error = {"kind": "error", "about": "lint", "text": "`make lint` needs `make install`", "turn": "t3", "words": words}
    return every, json.dumps({"lessons": [{**error, "why": cause, "mended": mended}]})


@pytest.mark.parametrize(
    ("cause", "mended", "later", "stands"),
    [
        ("The tools are not installed yet.", "t5", ("make lint", "0 issues.", False), True),
        ("The tools are not there.", "t5", ("make lint", "0 issues.", False), False),  # nobody said so
        ("The tools are not installed yet.", "t4", ("make lint", "0 issues.", False), False),  # another command
        ("The tools are not installed yet.", "t5", ("make lint", "Exit code 1\n3 issues", True), False),
        ("The tools are not installed yet.", "t5", ("ls", "a b", False), False),
    ],
)
def test_a_models_error_stands_if_its_cause_was_said_and_the_same_check_passed(say, cause, mended, later, stands):
    steps, answer = failing(cause, mended, later)
    log = say("s1", "Lint it.", steps=steps, says="Look. The tools are not installed yet.")
    told = with_written(lessons_in(answer), evidence_of(log))
    assert any("needs `make install`" in one.text for one in told) == stands


def test_what_a_model_cites_stands_as_its_card_shows_it(say, folder):
    """Paths below the root without it; and names of its text may stand in any turn."""
    paths = [str(folder / "app/src" / name) for name in ("a.py", "b.py")]
    writes = [({"name": "Write", "input": {"file_path": path, "content": "x"}}, "ok", False) for path in paths]
    fails = ({"name": "Bash", "input": {"command": "make lint"}}, f"Exit code 1\n{paths[0]}:3:1: E501 too long", True)
    log = say("s1", "Read Queue.push() first.", steps=(*writes, fails), says=f"See {paths[0]}, the only reader.")
    evidence = evidence_of(log)
    words = "See a.py, the only reader."
    assert words not in evidence.turns["t3"].text
    for cited, stands in ((words, True), ("See c.py, the only reader.", False)):
        told = ("decision", "reader", "Only a.py reads, by Queue.push()", "t3", cited)
        assert bool(with_written(lessons_in(lessons(told)), evidence)) == stands


@pytest.mark.parametrize(
    ("text", "stands"), [("Manual-commit pushes nothing", True), ("Manual-branch7 pushes nothing", False)]
)
def test_a_name_that_begins_a_line_may_have_a_capital(say, text, stands):
    log = say("s1", "manual-commit must never push anything.")
    told = ("decision", "sync", text, "t1", "must never push anything")
    assert any(text in one.text for one in with_written(lessons_in(lessons(told)), evidence_of(log))) == stands


@pytest.mark.parametrize(
    ("said", "lasts"), [("not as a comment, as a page", False), ("never as a comment, please", True)]
)
def test_what_the_user_says_to_one_call_is_no_wish_unless_it_says_that_it_lasts(say, said, lasts):
    refused = f"{REFUSAL}{said}"
    log = say("s1", "Note it.", steps=(({"name": "Bash", "input": {"command": "note it"}}, refused, True),))
    told = ("wish", "notes", "Notes are no comments", "t3", said)
    (lesson,) = with_written(lessons_in(lessons(told)), evidence_of(log))
    assert lesson.lasting == lasts


def test_a_line_of_the_rules_gives_way_to_a_models_that_says_the_same(say):
    log = say("s1", "Always use the field's own nouns for names of classes.", WISH)
    told = ("wish", "names", "Names of classes are nouns of the field", "t1", "use the field's own nouns for names")
    texts = [one.text for one in with_written(lessons_in(lessons(told)), evidence_of(log))]
    assert texts == ["Names of classes are nouns of the field: “use the field's own nouns for names”", f"“{WISH}”"]


def test_a_models_wish_that_asks_is_none(asking, say):
    say("s1", "Why do we never push to main?")
    asks = ("wish", "pushing", "Push to main", "t1", "Why do we never push to main?")
    with Loopback(answering(lessons(asks))) as server:
        assert asking(server, "--dry-run", "--json").json["lines"] == []


def test_nothing_is_asked_over_the_cap_and_what_it_may_cost_is_said_first(asking, say):
    say("s1", WISH)
    with Loopback(answering(lessons(SOUND))) as server:
        ran = asking(server, "--cap", "0.00001", "--yes")
        assert ran.code == 2
        assert "1 conversations, and a review of their lessons, may cost" in ran.err
        assert server.requests == []
        assert "at most ≈ $0.00" in asking(server, "--yes").err


def test_no_upper_limit_is_printed_for_a_model_without_a_known_price(asking, say):
    say("s1", WISH)
    with Loopback(answering(lessons(SOUND))) as server:
        printed = asking(server, "--yes", "--model", "anthropic/claude-of-our-own").err
    assert "at most" not in printed
    assert "(the prices of claude-of-our-own are not known)" in printed


def test_a_reading_that_was_stopped_goes_on_where_it_was(asking, say):
    for name in ("s1", "s2", "s3"):
        say(name, f"Fix the parser of {name}, please.", WISH)
    with Loopback(answering(lessons(SOUND), Failure(401, "authentication_error", "no"), lessons(SOUND))) as server:
        first = asking(server, "--yes")
        assert "s2: " in first.err
        assert len(server.requests) == 4
    with Loopback(answering(lessons(SOUND))) as server:
        again = asking(server, "--yes", "--json")
        assert len(server.requests) == 1  # its line says what another says, which a review has seen
        assert again.json["read_now"] == 1
    with Loopback(answering(lessons(SOUND))) as server:
        asking(server, "--yes")
        assert server.requests == []


def test_a_review_leaves_out_and_joins_and_is_asked_only_about_what_is_new(asking, say, compactor, folder):
    say("s1", "Fix parser.py, please.", WISH)
    with Loopback(answering(lessons(SOUND, BESIDE), review=lambda ids: [{"of": ids[::-1]}])) as server:
        ran = asking(server, "--yes", "--json")
        assert ran.json["lines"] == [
            "- Ask before a push to main: “Never push to main without asking me first.” (s1:t3, s1:t1, 2026-01-01)"
        ]
        assert ran.json["dollars"] > 0
        assert asking(server, "--yes", "--json").json["change"] == ""
        assert len(server.requests) == 2
        say("s2", "Fix lexer.py, please.", "Always use the field's own nouns for names.")
        noted = ("wish", "names", "Names are nouns of the field", "t3", "Always use the field's own nouns")
    with Loopback(answering(lessons(noted), review=lambda ids: [{"of": [one]} for one in ids[:1]])) as server:
        assert asking(server, "--yes", "--json").json["change"] == ""
        assert "c1 · wish · t3 · kept · Ask before a push" in str(server.requests[-1].messages)
    assert compactor("learn", folder / "logs", "--project", folder / "app", "--planner", "rules").code == 0


def test_what_was_not_reviewed_waits_until_it_is(asking, say, compactor, folder):
    say("s1", "Fix parser.py, please.", WISH)
    failing = answering(lessons(SOUND), review=lambda ids: "none")
    with Loopback(failing) as server:
        ran = asking(server, "--yes", "--json")
        assert ran.json["lines"] == []
        assert "not reviewed and not shown: 1 lines; planner model" in ran.json["problems"][0]
    rules = compactor(
        "learn", folder / "logs", "--project", folder / "app", "--planner", "rules", "--dry-run", "--json"
    )
    assert rules.json["lines"] == []
    with Loopback(answering(lessons(SOUND))) as server:
        dear = asking(server, "--yes", "--json", "--cap", "0.0001")
        assert dear.code == 2
        assert len(asking(server, "--yes", "--json").json["lines"]) == 1
        assert len(server.requests) == 1


def test_what_is_forgotten_of_a_conversation_takes_the_review_with_it(asking, compactor, say, folder):
    path = say("s1", "Fix the parser, please.", WISH)
    with open_store() as store:
        read = read_transcript(path)
        key = store.save_history(read_history(read.messages))
        store.note_origin(key, read.working_folder, 1_767_225_600.0)
    path.unlink()
    with Loopback(answering(lessons(SOUND))) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        patch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert "Ask before" in compactor("learn", "--project", folder / "app", "--yes").out
    with open_store() as store:
        assert store.states("lessons-review:")
    compactor("store", "forget", key, "--yes")
    with open_store() as store:
        assert store.states("lessons") == {}


def dollars_in(text):
    return float(text.partition("at most ≈ $")[2].split()[0])


def test_commits_and_conversations_are_known_by_each_other(learn, say, compactor, folder):
    commit = {"name": "Bash", "input": {"command": "git commit -am 'Fix the race'"}}
    say("s1", "Fix the race, please.", steps=((commit, "[main a1b2c3d] Fix the race\n 1 file changed", False),))
    say("s2", "Build the page.")
    learn("--yes")
    (row,) = compactor("commits", "a1b2c3d4e5f6", "--project", folder / "app", "--json").json
    assert row == {"commit": "a1b2c3d", "from": "s1:t3", "date": "2026-01-01", "subject": "Fix the race"}
    assert compactor("commits", "s1", "--project", folder / "app", "--json").json == [row]
    assert compactor("commits", "s2", "--project", folder / "app", "--json").json == []
    assert compactor("commits", "--project", folder, "--json").json == []


def test_commits_of_a_real_repository_are_known_by_their_whole_hashes(learn, say, compactor, folder):
    """What git itself prints of a first commit, on a branch, amended, and on no branch, in a worktree."""
    repository, tree = folder / "app", folder / "app" / "tree"
    repository.mkdir()

    def git(*arguments, place=repository):
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        ran = subprocess.run(["git", *identity, *arguments], cwd=place, capture_output=True, text=True, check=True)
        return ran.stdout + ran.stderr

    def step(command, *arguments, place=repository):
        return {"name": "Bash", "input": {"command": command}}, git(*arguments, place=place), False

    git("init", "-b", "main")
    commit = ("commit", "--allow-empty", "-m")
    first = step("git commit -m 'Begin: read [all] lines'", *commit, "Begin: read [all] lines")
    hashes = [git("rev-parse", "HEAD").strip()]
    git("checkout", "-b", "fix/#12@race")
    wrong = step("git commit -m 'Mend teh race'", *commit, "Mend teh race")
    gone = git("rev-parse", "HEAD").strip()
    amended = step("git commit --amend -m 'Mend the race'", "commit", "--allow-empty", "--amend", "-m", "Mend the race")
    hashes.append(git("rev-parse", "HEAD").strip())
    git("worktree", "add", "--detach", str(tree))
    detached = step(f"cd {tree} && git commit -m 'Try it'", *commit, "Try it", place=tree)
    hashes.append(git("rev-parse", "HEAD", place=tree).strip())
    git("checkout", "-b", "other")
    elsewhere = git("log", "--oneline"), git("rev-parse", "HEAD").strip()
    say("s1", "Begin.", steps=(first, wrong, amended))
    say("s2", "Try it.", steps=(detached, ({"name": "Bash", "input": {"command": "git log"}}, elsewhere[0], False)))
    learn("--yes")

    def made_by(what):
        rows = compactor("commits", what, "--project", repository, "--json").json
        return [(row["from"].partition(":")[0], row["subject"]) for row in rows]

    assert [made_by(one) for one in hashes] == [
        [("s1", "Begin: read [all] lines")],
        [("s1", "Mend the race")],
        [("s2", "Try it")],
    ]
    assert made_by(gone) == []
    assert [subject for _, subject in made_by("s1")] == ["Begin: read [all] lines", "Mend the race"]
    assert [subject for _, subject in made_by("s2")] == ["Try it"]


def test_an_error_comes_back_in_another_conversation_not_in_one_that_was_resumed(learn, say, folder):
    steps = [
        ("make lint", "Exit code 127\n/bin/sh: line 3: golint: command not found", True),
        ("make install", "installed 3 tools", False),
        ("make lint", "0 issues.", False),
        ("make test", "12 passed", False),
    ]
    every = tuple(({"name": "Bash", "input": {"command": run}}, out, bad) for run, out, bad in steps)
    proposed = []
    for name, words, some in (
        ("s1", "Lint it.", every[:3]),
        ("s2", "Lint it.", every),
        ("s3", "Mend the lint.", every),
    ):
        say(name, words, steps=some)
        assert learn("--yes", "--json").json["read_now"] == 1
        with open_store() as store:
            lines = proposed_lines(Memory(store, str(folder / "app")).heard, date(2026, 1, 2))
        proposed.append([line.line.rpartition(" (")[2] for line in lines if line.kind == "error"])
    assert proposed == [[], [], ["s3:t3, s1:t3, 2026-01-01)"]]


@pytest.fixture
def known(folder):
    """Facts of two conversations in two projects, a year apart."""
    facts = (
        ("app", "decision", "auth tokens are refreshed by a queue", 1_790_000_000.0),
        ("app", "error", "the build needs protoc", 1_760_000_000.0),
        ("other", "constraint", "the auth page must stay as it is", 1_790_000_000.0),
    )
    with open_store() as store:
        for project, kind, content, at in facts:
            key = store.save_history(read_history([{"role": "user", "content": f"Work on {project}, please."}]))
            store.note_origin(key, str(folder / project), at)
            store.save_facts([ExtractedFact(type=kind, content=content, source="t1", timestamp=at)], key)


def contents(ran):
    return [fact["content"] for fact in ran.json]


def test_facts_are_found_in_the_whole_store_by_words_project_type_and_time(compactor, known, folder):
    every = compactor("facts", "--json")
    assert len(every.json) == 3
    assert contents(compactor("facts", "--words", "auth tokens", "--json"))[0] == "auth tokens are refreshed by a queue"
    assert len(compactor("facts", "--words", "auth", "--json").json) == 2
    assert len(compactor("facts", "--words", "auth", "--project", folder / "app", "--json").json) == 1
    assert contents(compactor("facts", "--type", "error", "--json")) == ["the build needs protoc"]
    assert len(compactor("facts", "--since", "2026-01-01", "--json").json) == 2
    assert compactor("facts", "--since", "soon").code == 2
    for fact in every.json:
        assert compactor("restore", f"{fact['history']}:{fact['source']}").code == 0
    key = next(fact["history"] for fact in every.json if fact["folder"].endswith("other"))
    assert contents(compactor("facts", key, "--json")) == ["the auth page must stay as it is"]


def test_two_projects_that_say_the_same_both_have_it(compactor, folder):
    fact = ExtractedFact(type="constraint", content="Never push to main.", source="t1", timestamp=1_790_000_000.0)
    with open_store() as store:
        for project in ("app", "other"):
            words = ("Never push to main.", f"This is {project}.")
            key = store.save_history(read_history([{"role": "user", "content": text} for text in words]))
            store.note_origin(key, str(folder / project), 1_790_000_000.0)
            store.save_facts([fact], key)
    for project in ("app", "other"):
        assert contents(compactor("facts", "--project", folder / project, "--json")) == ["Never push to main."]


def test_the_tools_of_a_client_see_the_facts_of_their_project_alone(known, folder):
    visible = Visible(open_store, project=str(folder / "app"))
    assert sorted(one.fact.type for one in visible.facts()) == ["decision", "error"]
    with pytest.raises(ReferenceNotFound):  # what was said there is not theirs to read
        visible.search("Work", part=None, tool=None, limit=None)
    visible.close()
    with pytest.raises(ReferenceNotFound, match="no conversation is named here"):
        Visible(open_store).facts()


@given(st.lists(st.sampled_from(["/w/app", "/w/app/sub", "/w/app2", "/w", "", "/"]), min_size=2, max_size=2))
def test_a_folder_is_within_a_project_by_whole_names(places):
    folder, project = places
    parts, whole = ([*filter(None, place.split("/"))] for place in (folder, project))
    assert is_within(folder, project) == bool(folder and project and parts[: len(whole)] == whole)
