"""The printed review of one plan made by hand, letter by letter, on a narrow and a wide terminal.

After a wanted change: ``REWRITE_GOLDEN=1 pytest tests/cli/test_print_review.py``, and read the difference.
"""

import math
import os
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from applier.cli.commands.plans import print_review
from applier.cli.screen import FULL_WIDTH
from applier.plan_review import PlanReview, reviewed
from applier.view import Preview
from planner import (
    CompactionPlan,
    ExtractedFact,
    Finding,
    HistoryStamp,
    Provenance,
    TurnDecision,
    Usage,
    plan_compaction,
)
from planner.review_text import PlanNotes, plan_notes, row_groups

GOLDEN = Path(__file__).parent / "golden"
HEADS = {
    "t1": "user: Fix the token refresh race in src/auth.ts, please.",
    "t2": "Read src/auth.ts",
    "t3": "Bash npm test -- auth",
    "t8": "Edit src/auth.ts",
    "t9": "Bash npm test -- auth --testNamePattern parallel_refresh --runInBand --verbose",
}
HEADS |= {f"t{number}": f"Read src/part{number}.ts" for number in (4, 5, 6, 7)}


def decision(number, strategy, score, before, after, reason="", **more):
    return TurnDecision(
        turn_id=f"t{number}",
        strategy=strategy,
        relevance_score=score,
        reason=reason,
        tokens_before=before,
        tokens_after=after,
        **more,
    )


PLAN = CompactionPlan(
    task="Fix the token refresh race in src/auth.ts",
    history=HistoryStamp(messages=18, turns=9, tokens=12_905, digest="sha256:" + "ab" * 32),
    target_tokens=3_000,
    turns=(
        decision(1, "keep", 1.0, 41, 41, "the task itself"),
        decision(2, "reference", 0.22, 2_013, 11, "read again at t8"),
        decision(3, "summarize", 0.6, 4_120, 44, "failed approach", failed_approach=True, summary="Deadlock."),
        *(decision(number, "drop", number / 100, 1_500, 0, "read once, never named again") for number in (4, 5, 6, 7)),
        decision(8, "keep", 0.9, 311, 311, "the last edit"),
        decision(9, "keep", 0.8, 420, 420, "live tail"),
    ),
    extracted_facts=(
        ExtractedFact(type="constraint", content="Must support Node 18+", quote="no Bun-only APIs", source="t1"),
        ExtractedFact(type="error", content="timeout after 30 s", source="t3"),
        ExtractedFact(type="file_state", content="src/auth.ts: refresh() holds a lock", source="t8"),
    ),
    brief="REQUEST\n- Fix the token refresh race (t1)\nFAILED\n- Mutex around refresh() deadlocked (t3)",
    estimated_tokens=1_104,
    findings=(Finding(code="failed_approach", turn_id="t3", problem="drop would lose how it failed", repair="kept"),),
    provenance=Provenance(
        planner="model",
        model="claude-sonnet-5-5",
        prompts="sha256:" + "cd" * 32,
        usage=Usage(input_tokens=2_104, output_tokens=138, requests=1),
    ),
)
PREVIEW = Preview([], 12_905, 1_104, 2, 12_864, 1.1, "strip", PLAN)
NOTES = PlanNotes(
    HEADS,
    ({"turn": "t3", "what": HEADS["t3"], "how": "Error: parallel_refresh timed out after 30 s · 1 failed, 41 passed"},),
    {
        "t2": "t2 Read src/auth.ts",
        "t3": "t3 ✗ Deadlock.\n" + "\n".join(f" line {n}" for n in range(1, 9)),
    },
)
REVIEW = PlanReview(PLAN, NOTES, PREVIEW)


def printed(review: PlanReview, width: int, **how: bool) -> str:
    console = Console(file=StringIO(), width=width, markup=False, emoji=False, highlight=False)
    print_review(console, review, **how)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("width", [80, 120])
def test_review_reads_as_agreed(width):
    found, path = printed(REVIEW, width), GOLDEN / f"review-{width}.txt"
    if os.environ.get("REWRITE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


def test_a_failure_is_named_by_the_call_that_failed_and_whole_where_there_is_room():
    commands = {"a": "git status --short --branch", "b": "npm test -- --testNamePattern parallel src/auth.test.ts"}
    ends = {"a": "## main", "b": "Error: boom"}
    calls = [
        {"type": "tool_use", "id": key, "name": "Bash", "input": {"command": said}} for key, said in commands.items()
    ]
    results = [
        {"type": "tool_result", "tool_use_id": key, "content": end, "is_error": key == "b"} for key, end in ends.items()
    ]
    messages = [
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
        {"role": "assistant", "content": "Hm. " * 200},
        {"role": "user", "content": "Go on."},
    ]
    review = reviewed(plan_compaction(messages, "fix", planner="rules", target_ratio=0.5), messages)
    assert "✗ t2 Bash npm test -- --testNamePattern para…: Error: boom" in printed(review, 80)
    assert f"✗ t2 Bash {commands['b']}: Error: boom" in printed(review, FULL_WIDTH, whole=True)
    unbound = review.plan.unbound()
    assert "✗ t2: failed approach" in printed(PlanReview(unbound, plan_notes(unbound)), 80)


def test_brief_is_shown_whole():
    assert "  FAILED\n  - Mutex around refresh() deadlocked (t3)\n" in printed(REVIEW, 80)


def test_all_unfolds_rows_stand_ins_and_facts():
    whole = printed(PlanReview(PLAN, REVIEW.notes), 80, whole=True)
    assert all(f"\nt{number} " in whole for number in range(1, 10))
    assert "line 8" in whole
    assert "timeout after 30 s" in whole


def test_never_paying_back_is_said():
    preview = Preview([], 10, 10, 0, 10, math.inf, "strip", PLAN)
    assert "never pays back" in " ".join(printed(PlanReview(PLAN, preview=preview), 80).split())
    assert PlanReview(PLAN, preview=preview).to_json()["cost"]["payback_calls"] is None


strategies = st.lists(st.sampled_from(["keep", "summarize", "reference", "drop"]), min_size=1, max_size=60)


@given(strategies)
def test_folded_rows_lose_no_turn_and_fold_no_two_strategies(strategies):
    turns = [decision(n, strategy, 0.5, n, n // 2) for n, strategy in enumerate(strategies, 1)]
    rows = row_groups(turns)
    assert [own for row in rows for own in row] == turns
    assert all(len({own.strategy for own in row}) == 1 for row in rows)
    assert row_groups(turns, fold=False) == [[own] for own in turns]


def test_a_run_of_neighbours_is_one_row_with_all_its_tokens_that_says_how_many_failed():
    turns = tuple(decision(n, "keep", n / 10, 10, n, failed_approach=n == 2) for n in range(1, 5))
    heads = {f"t{n}": "Bash npm test" for n in range(1, 5)}
    review = PlanReview(PLAN.model_copy(update={"turns": turns}), PlanNotes(heads))
    assert "\nt1-t4 keep      0.40     40    10 ✗ 4 turns, 1 failed (Bash)\n" in printed(review, 120)


def test_verdict_stands_first():
    assert printed(REVIEW, 80).startswith("12,905 tokens → 1,104 (9%); target 3,000: met.\n9 turns: 3 keep")


@given(st.text(min_size=1), st.text(), st.integers(60, 140))
def test_no_content_steers_the_terminal_or_widens_the_table(what, why, width):
    plan = PLAN.model_copy(update={"turns": (decision(1, "keep", 0.5, 1, 1, why),), "task": what})
    out = printed(PlanReview(plan, PlanNotes({"t1": what})), width)
    assert not {char for char in out if ord(char) < 32 and char != "\n"}
    assert "\x1b" not in out
    out.encode()


def test_markup_in_content_is_shown_as_it_is():
    plan = PLAN.model_copy(update={"turns": (decision(1, "keep", 0.5, 1, 1, "[bold]x[/]"),)})
    assert "[bold]x[/]" in printed(PlanReview(plan), 80)


MANY = 200


def many_turns(changed: str = "") -> CompactionPlan:
    """A plan of turns that never share a row, and of more failures than fit a screen."""
    strategies = ("keep", "drop")
    reasons = {changed: "set by hand"}
    turns = tuple(
        decision(n, strategies[n % 2], 0.5, n, 0, reasons.get(f"t{n}", "old"), failed_approach=True)
        for n in range(1, MANY + 1)
    )
    return PLAN.model_copy(update={"turns": turns})


@given(st.sampled_from([f"t{number}" for number in range(1, MANY + 1)]))
def test_a_long_plan_fits_three_screens_and_shows_what_was_changed_by_hand(changed):
    text = printed(PlanReview(many_turns(changed), NOTES), 120)
    assert len(text.splitlines()) < 75
    assert [line.split()[0] for line in text.splitlines() if line.endswith("set by hand")] == [changed]
    assert f"… and {MANY - 24} smaller rows" in text


def test_a_plan_prints_as_its_review():
    assert str(PLAN) == PLAN.review()
    assert PLAN.review().startswith("12,905 tokens → 1,104 (9%); target 3,000: met.\n9 turns: 3 keep")
    assert max(map(len, PLAN.review(60).splitlines())) <= 60
    assert "timeout after 30 s" in PLAN.review(whole=True)
    assert len(many_turns().review(whole=True).splitlines()) > 2 * MANY
