"""The agent's own notes: whatever a planner makes of the rest, they stay until the agent removes them."""

from hypothesis import given
from hypothesis import strategies as st

from applier import apply, preview
from applier.adapters.agent_tools import AGENT_TOOLS, handle_tool_use
from applier.session import Session
from planner import plan_compaction
from planner.brief import read_brief
from planner.evidence.effects import note_id
from planner.plan import Proposal, Provenance, TurnProposal
from planner.settings import ToolUse

NAMES = ("note", "mcp__compactor__note", "compactor-note")
WORDS = st.lists(st.sampled_from(["pool", "queue", "lease", "north", "pier", "ledger"]), min_size=1, max_size=6)
NOTES = st.lists(st.tuples(st.sampled_from(["decision", "fact", "open"]), WORDS.map(" ".join)), max_size=6)


def worked(calls):
    """A history in which the agent makes these calls amid its work."""
    messages = [{"role": "user", "content": "Move the ledger to the north pier"}]
    with Session(planner="rules") as session:
        for number, (name, arguments) in enumerate(calls):
            note = {"type": "tool_use", "id": f"n{number}", "name": name, "input": arguments}
            answer = handle_tool_use(session, {**note, "name": "note"})
            read = {"type": "tool_use", "id": f"r{number}", "name": "look", "input": {"at": number}}
            page = {"type": "tool_result", "tool_use_id": f"r{number}", "content": f"page {number} of it\n" * 200}
            messages += [{"role": "assistant", "content": [note]}, {"role": "user", "content": [answer]}]
            messages += [{"role": "assistant", "content": [read]}, {"role": "user", "content": [page]}]
    return [*messages, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on"}]


class Dropping:
    """A planner that drops every turn and writes a note of its own."""

    def propose(self, request):
        turns = {turn.id: TurnProposal(turn.id, 0.0, "no use", "drop") for turn in request.history.turns}
        return Proposal(turns, Provenance(planner="dropping"), (), "NOTES\n- decision: send all of it away (t1)")


def notes_of(plan):
    return [one.text for one in read_brief(plan.brief) if one.heading == "NOTES"]


@given(NOTES, st.data())
def test_notes_stay_in_a_section_of_their_own_until_they_are_removed(notes, data):
    removed = data.draw(st.lists(st.sampled_from(notes), max_size=3)) if notes else []
    name = st.sampled_from(NAMES)
    calls = [(data.draw(name), {"kind": kind, "text": text}) for kind, text in notes]
    calls += [(data.draw(name), {"remove": note_id(*note)}) for note in removed]
    history = worked(calls)
    standing = [f"{kind}: {text}" for kind, text in dict.fromkeys(notes) if (kind, text) not in removed]
    for planner in ("rules", Dropping()):
        plan = plan_compaction(history, "Move the ledger", planner=planner, target_ratio=0.5)
        assert sorted(notes_of(plan)) == sorted(standing)
        if any(turn.strategy != "keep" for turn in plan.turns):
            shown = str(apply(plan, history))
            assert all(text in shown for text in standing)


def test_a_tool_of_somebody_else_writes_no_note():
    history = worked([("mcp__tracker__note", {"kind": "fact", "text": "the pier is closed"})])
    assert notes_of(plan_compaction(history, "Move the ledger", planner="rules", target_ratio=0.3)) == []


@given(NOTES, st.sampled_from(NAMES), st.sampled_from((0.05, 0.2)), st.booleans())
def test_a_note_is_shown_once_and_a_removed_one_nowhere_and_neither_is_an_effect(notes, name, ratio, declared):
    notes = [(kind, f"{text} of note {at}.") for at, (kind, text) in enumerate(notes)]
    calls = [("look", {"at": 99}), *((name, {"kind": kind, "text": text}) for kind, text in notes)]
    calls += [(name, {"remove": note_id(*note)}) for note in notes[::2]]
    history = worked([*calls, ("compact", {})])
    uses = {name: ToolUse(effect="acts")} if declared else {}
    for planner in ("rules", Dropping()):
        plan = plan_compaction(history, "", planner=planner, target_ratio=ratio, tool_uses=uses)
        assert "EFFECTS" not in plan.brief
        shown = str(preview(plan, history).messages)
        times = [plan.brief.count(text) for _, text in notes]
        assert all(count <= at % 2 for at, count in enumerate(times))
        assert [shown.count(text) for _, text in notes] == times


def test_a_note_says_something_and_its_answer_names_it(tmp_path):
    assert "note" in {tool["name"] for tool in AGENT_TOOLS}
    with Session(planner="rules") as session:
        call = {"type": "tool_use", "id": "a", "name": "note", "input": {"kind": "open", "text": "call the  pier"}}
        assert handle_tool_use(session, call)["content"] == f"Noted as {note_id('open', 'call the pier')}."
        empty = handle_tool_use(session, {**call, "input": {"kind": "open"}})
    assert empty["is_error"]
    assert "give a text" in empty["content"]
