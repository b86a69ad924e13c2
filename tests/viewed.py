"""What a view says, for tests: its text, what is not in it, and what the API would answer to it."""

from planner.plan import CompactionPlan, HistoryStamp, Provenance, TurnDecision
from planner.reading.messages import blocks, plain_message, readable_text
from planner.validity import check_messages
from tests.edit_rules import check_edit

MODELS = ("", "claude-opus-5-5", "claude-sonnet-4-5", "gpt-5-mini")


def said(messages):
    """All text of a list, results included, one part a line."""
    return "\n".join(readable_text([block]) for message in messages for block in blocks(plain_message(message)))


def refused(messages, model="", before=None):
    """What the API would refuse of `messages`, edited from `before`."""
    found = check_messages(messages, model=model)
    return [v for v in [*found, *(check_edit(before, messages, model) if before else ())] if v.refused]


def removed(plan):
    """Ids of the turns that are not in the view of `plan` as they were; its notes and previews name them."""
    return [turn_id for turn_id, decision in plan.decisions.items() if decision.strategy != "keep"]


def plan_of(history, strategies, *, target_tokens=0, model="", facts=(), **fields):
    """A plan of `history`, not yet guarded: of each turn what `strategies` says, a strategy or fields of a decision."""
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
