"""Score and customer of ``python -m tests.bench tau2``, on logs made by hand; tau2-bench itself is not needed."""

from __future__ import annotations

from typing import Any

from tests.bench.tau2 import RESTORE, Play
from tests.bench.tau2_score import CONSENT, END, Entry, Score, customer_answer, score_log
from tests.bench.tau2_story import Demands
from tests.bench.tau2_world import Call

REQUESTS = ["Next is the return.", "Is the cancellation done?"]
DEMANDS = Demands(spared="#W9", forbidden="paypal_1")
CANCELLED = Call("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"})
BEFORE = [
    (Call("get_order_details", {"order_id": "#W1"}), True),
    (Call("cancel_pending_order", {"order_id": "w1", "reason": "no longer needed"}), False),
    (CANCELLED, True),
]


def _returned(order: str = "#W2", items: tuple[str, ...] = ("1", "2"), pay: str = "gift_card_1") -> Call:
    return Call("return_delivered_order_items", {"order_id": order, "item_ids": list(items), "payment_method_id": pay})


def _talked(*steps: Any) -> list[Entry]:
    """Return the log of an agent that says each text and makes each call of `steps`; a pair is a refused call."""
    log: list[Entry] = []
    for step in steps:
        if isinstance(step, str):
            log.append(Entry(said=step, text=customer_answer(REQUESTS, log)))
        else:
            call, is_error = step if isinstance(step, tuple) else (step, False)
            log.append(Entry(call=call, text="{}", is_error=is_error))
    return log


def _scored(*steps: Any) -> Score:
    return score_log(BEFORE, DEMANDS, _talked(*steps), is_solved=True)


def test_customer_asks_consents_and_ends() -> None:
    log = _talked("It is cancelled.", "I return 1 and 2?", _returned(), "Done.", "It is.", "Yes, done.")
    said = [entry.text for entry in log if entry.said]
    assert [*said[:3], said[-1]] == [REQUESTS[0], CONSENT, REQUESTS[1], END]


def test_customer_goes_on_after_three_questions_without_an_action() -> None:
    log = _talked("Cancelled.", "Which?", "Which one?", "Which one, please?", "I can not do that.")
    assert log[-1].text.endswith(REQUESTS[1])


def test_good_agent_breaks_nothing() -> None:
    assert _scored("Cancelled.", "I return 1 and 2?", _returned(), "Done.") == Score(solved=1)


def test_done_again_counts_whatever_the_reason_or_the_order_of_items() -> None:
    again = Call(CANCELLED.name, {"order_id": "#W1", "reason": "ordered by mistake"})
    assert _scored("Cancelled.", "Again?", (again, True)).twice == 1
    both = _scored("Cancelled.", "Return?", _returned(), "Once more?", _returned(items=("2", "1"), pay="gift_card_2"))
    assert both.twice == 1
    assert _scored("Cancelled.", "Return?", (_returned(), True), _returned()).twice == 0, "a refused call did nothing"


def test_demands() -> None:
    assert _scored("Cancelled.", _returned()).demands_broken == 1, "no consent"
    assert _scored("Cancelled.", "Return?", _returned(order="#W9")).demands_broken == 1
    assert _scored("Cancelled.", "Return?", _returned(pay="paypal_1")).demands_broken == 1
    assert _scored(Call("transfer_to_human_agents", {"summary": "help"})).demands_broken == 1


def test_look_ups() -> None:
    scored = _scored(
        Call("get_order_details", {"order_id": "#W1"}),
        Call("get_order_details", {"order_id": "#W2"}),
        Call("restore_context", {"id": "t4"}),
        "Cancelled.",
        "Which items?",
        "And which card?",
        _returned(),
    )
    assert (scored.look_ups, scored.repeated_look_ups, scored.restored, scored.asked_again) == (2, 1, 1, 1)


def test_log_is_kept_and_a_view_without_parts_restores_none(tmp_path) -> None:
    play = Play(tmp_path, tmp_path, "retail-16", "whole")
    play.folder.mkdir()
    call = Call(RESTORE, {"id": "t4"})
    assert play.act(call).startswith("Error: ")
    assert play.log == [Entry(call=call, text=play.log[0].text, is_error=True)]
