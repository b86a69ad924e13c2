"""Text of a view, its missing content, and the API's answer to it, for tests."""

from itertools import pairwise

from applier.testing import Refusal, Request, judge, judge_edit
from planner.plan import CompactionPlan, HistoryStamp, Provenance, TurnDecision
from planner.reading.messages import blocks, plain_message, readable_text
from planner.validity import check_messages

MODELS = ("", "claude-opus-5-5", "claude-sonnet-4-5", "gpt-5-mini")


def said(messages):
    """Return all text of a list, results included, one part a line."""
    return "\n".join(readable_text([block]) for message in messages for block in blocks(plain_message(message)))


def refused(messages, model="", before=None):
    """Return the violations of `messages` by the product, and by the judge of their edit from `before`."""
    found = [violation for violation in check_messages(messages, model=model) if violation.refused]
    return [*found, *(judge_edit(asked(before, model), asked(messages, model)) if before else ())]


def asked(messages, model=""):
    """Return a request of `messages`; only Claude's models bind thinking."""
    name = model if model.startswith("claude") or not model else "claude-opus-4-8"
    body = {"model": name, "max_tokens": 2_000, "thinking": {"type": "adaptive"}}
    return Request({**body, "messages": [plain_message(message) for message in messages]}, {})


def refusals(messages):
    """Return the violations of a list by the independent judge.

    Thinking is unsealed here, a list may end with the assistant (without a trailing space, for models that continue
    it), and neighbours of one role, which the API joins, count as one message too many.
    """
    older = judge(Request({"model": "claude-sonnet-4-5", "max_tokens": 1, "messages": messages}, {}))
    return [
        *(violation for violation in judge(asked(messages)) if violation.rule not in (11, 14, 15)),
        *(violation for violation in older if violation.rule == 16),
        *(
            Refusal(4, f"messages.{at}: two messages of one role in a row")
            for at, (one, other) in enumerate(pairwise(messages))
            if one["role"] == other["role"]
        ),
    ]


def removed(plan):
    """Return the ids of the turns that the view of `plan` changed."""
    return [turn_id for turn_id, decision in plan.decisions.items() if decision.strategy != "keep"]


def plan_of(history, strategies, *, target_tokens=0, model="", facts=(), **fields):
    """Return an unguarded plan of `history` with the `strategies`, or fields of decisions, by turn id."""
    turns = tuple(
        TurnDecision(
            **{"turn_id": turn_id, "relevance_score": 0.5, **(what if isinstance(what, dict) else {"strategy": what})}
        )
        for turn_id, what in strategies.items()
    )
    return CompactionPlan(
        task="fix the race",
        history=HistoryStamp.of(history, 0),
        target_tokens=target_tokens,
        target_model=model,
        turns=turns,
        extracted_facts=tuple(facts),
        estimated_tokens=0,
        provenance=Provenance(planner="test"),
        **fields,
    )
