"""What must hold of one list and one wish to plan it: told by reading the view, not by the code that made it."""

import json
import re
from copy import deepcopy
from functools import partial
from random import Random

from applier.view import apply, preview
from planner import CompactionPlan, PlanSettings, TokenCounter
from planner.analysis import analyze
from planner.api import plan_analysis
from planner.errors import PlannerUnavailable
from planner.guards import check_plan
from planner.model.planners import RelayedPlanner
from planner.rules import RulesPlanner
from tests.hunt.hostile import hostile_answer, hostile_edit
from tests.hunt.tiny_histories import Drawn
from tests.planning.planners import STRATEGIES, Liar, Says
from tests.viewed import plan_of, refusals

FRAME = re.compile(r"<[\s/]*(?:compacted|user-words|restored|carried)\b", re.I)
OURS = re.compile(r'<compacted (?:history="h[0-9a-f]{32}" )?turns="t\d+(?:-t\d+)?">|</compacted>|</?user-words>')
SPAN = re.compile(r'^<compacted (?:history="h[0-9a-f]{32}" )?turns="t(\d+)(?:-t(\d+))?">')
ENTRY = re.compile(r"^t(\d+)\b", re.M)
MEDIA = re.compile(r'"type": "(?:image|document)", "source"')
QUOTED = re.compile(r"<user-words>(?!\.)(.*?)</user-words>", re.S)
STRANGERS = re.compile(r"mark\d+[^u\d]\b")
"""A mark of `tiny_histories` in words that are not the user's: ``mark7t``; not ``mark7u``."""
NAMES = re.compile(r"mark\d+[a-z]\b|src/never\.ts|/etc/passwd")
"""What a lie of `hostile` or of a `Liar` names, or the texts of a tiny history themselves."""
GUIDE = "user-words tags instruct."
MODELS = ("", "", "", "claude-opus-5-5", "claude-sonnet-4-5", "gpt-5-mini")
RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
TASK = "fix the race"
ROOMY_TOKENS = 200_000
PAIRING = 1, 2, 3, 5
"""Rules of `applier.testing`: a call without its result, a result without its call, behind other content, or twice."""
SHOWN_START = 20
"""So many characters of a pasted line show at least."""
LEFT_OUT = re.compile(r"\n?\[\d+ (?:lines|tokens) left out here; [^\n]*\]\Z")
MOST_LINES = 10**6
WEIGHTS = {"rules": 7, "one word": 22, "liar": 5, "answer": 1, "edited": 65}
"""Of a hundred lists so many have a plan by the rules, by one word for every turn, by a liar, by what a model answered
(its cards and prompts take longer than all else), or plans that nobody planned, which cost a third."""
EDITS = *[1] * 9, 4


def check_planning(drawn, seed, store=None, *, twice=True, names=()):
    """Plan, guard and apply ``drawn.messages`` as `seed` says; AssertionError at the first broken law.

    With a `store` every turn is restored, too; with `twice` everything is done again, and must come out the same.
    `names` of `WEIGHTS` say who plans; without, one is drawn. Returns what happened, for counting: the planners, edits,
    and codes of findings.
    """
    drawn = drawn if isinstance(drawn, Drawn) else Drawn(drawn, valid=refusals(drawn) == [])
    chance = Random(seed)
    was, objects = repr(drawn.messages), list(drawn.messages)
    settings = PlanSettings(
        target_model=chance.choice(MODELS),
        window_tokens=chance.choice((1_000, ROOMY_TOKENS)),
        restore_tool=chance.choice(("", "restore_context")),
    )
    analysis = analyze(drawn.messages, settings.target_model)
    check_turns(drawn, analysis.history.turns)
    wish = {"target_tokens": int(chance.choice(RATIOS) * analysis.tokens), "settings": settings, "now": 0.0}
    outcome = []
    plan = None
    names = names or chance.choices([*WEIGHTS], WEIGHTS.values())
    for name, made in (maker for who in names for maker in makers(who, analysis, wish, chance, seed)):
        try:
            plan = made()
        except PlannerUnavailable:
            outcome.append("refused answers")
            continue
        outcome += [name, *findings_of(plan)]
        check_view(drawn, preview(plan, drawn.messages))
        if name != "edited" and plan.estimated_tokens > wish["target_tokens"]:
            assert EXPLAINED & set(findings_of(plan)), "no word of why"
        if twice:
            check_again(drawn, plan, made())
    if store is not None and plan is not None:
        check_restores(drawn.messages, plan, store)
    assert repr(drawn.messages) == was, "the caller's list was changed"
    assert all(one is other for one, other in zip(drawn.messages, objects, strict=True)), "a message was replaced"
    return outcome


EXPLAINED = {"target_unreachable", "saves_too_little"}


def makers(name, analysis, wish, chance, seed):
    """`name`, and what makes its plan, the same each time; of edits there may be some."""
    if name != "edited":
        yield name, partial(plan_analysis, analysis, TASK, planner=planner(name, chance, seed), **wish)
        return
    settings = wish["settings"].model_dump(include={"target_model", "window_tokens", "restore_tool"})
    first = dict.fromkeys(analysis.evidence.turns, chance.choice(("keep", "reference", "drop", "drop")))
    plan = plan_of(analysis.history, first, target_tokens=wish["target_tokens"]).model_copy(update=settings)
    for _ in range(chance.choice(EDITS)):
        yield name, partial(check_plan, hostile_edit(plan, chance), analysis)


def planner(name, chance, seed):
    """The rules, one word for all turns, a planner that lies, or a model whose answer means no good."""
    if name == "rules":
        return RulesPlanner()
    if name == "one word":
        return Says(chance.choice((*STRATEGIES, None)), chance.random())
    return Liar(seed) if name == "liar" else RelayedPlanner([hostile_answer(chance)])


def findings_of(plan):
    return [finding.code for finding in plan.findings]


def check_turns(drawn, turns):
    """Turns hold all messages, each once, and of a valid list each call with its results."""
    assert [at for turn in turns for at in range(turn.start, turn.stop)] == list(range(len(drawn.messages)))
    for turn in turns if drawn.valid else ():
        own = [block for message in drawn.messages[turn.start : turn.stop] for block in content_of(message)]
        results = {block["tool_use_id"] for block in own if block["type"] == "tool_result"}
        calls = {block["id"] for block in own if block["type"] == "tool_use"}
        assert results == calls or (turn.live and results < calls), f"{turn.id} is cut between a call and its result"


def check_again(drawn, plan, again):
    """The same from the same, from a file, and behind the guards once more."""
    assert again.to_json() == plan.to_json(), "planned twice, two plans"
    shown = preview(plan, drawn.messages)
    copied = deepcopy(drawn.messages)
    assert check_plan(plan, analyze(copied, plan.target_model)) == plan, "guarded twice, two plans"
    loaded = CompactionPlan.from_json(plan.to_json())
    assert same(preview(loaded, copied).messages, shown.messages), "a plan from disk gives another view"


def check_view(drawn, shown):
    """The API takes the view if it took the list, its size is as said, nothing is lost, no stranger is the user."""
    messages = drawn.messages
    worse = rules_of(shown.messages) - (set() if drawn.valid else rules_of(messages))
    assert not worse, f"the API would refuse the view: {worse}"
    counter = TokenCounter.for_model(shown.plan.target_model)
    assert shown.tokens_after == counter.messages(shown.messages), "the size is not as said"
    assert shown.tokens_after <= shown.tokens_before, "the view grew"
    originals = {text for message in messages for text in texts_of(message)}
    changed = [text for message in shown.messages for text in texts_of(message) if text not in originals]
    notes = [text for text in changed if not is_pasted_end(text, messages)]
    for note in notes:
        check_note(note)
        if drawn.is_marked:
            check_quotes(messages, note)
    for fact in shown.plan.extracted_facts:
        assert not STRANGERS.search(fact.quote), f"a stranger's words are quoted as the user's: {fact}"
    check_nothing_lost(messages, shown, notes)
    check_live_tail(drawn, shown)
    check_decisions(drawn, shown, notes)
    facts = [fact.content + fact.quote for fact in shown.plan.extracted_facts]
    view = json.dumps([shown.messages, shown.plan.brief, facts], ensure_ascii=False)
    check_what_stands(drawn, view, findings_of(shown.plan))
    invented = set(NAMES.findall(view)) - set(NAMES.findall(json.dumps(messages, ensure_ascii=False)))
    assert not invented, f"nobody said {invented}"


def is_pasted_end(text, messages):
    """True if it is what shows of a last text or result: ends of its lines, if they fit, and where it is whole."""
    named = LEFT_OUT.search(text)
    shown = text[: named.start()].replace("‹", "<") if named else ""  # a tag of the product's own is written otherwise
    lines = [line.rstrip("…") for line in shown.split("\n") if line]
    texts = [own.replace("‹", "<") for message in messages for own in texts_of(message)]
    known = any(lines[0][:SHOWN_START] in own for own in texts) if lines else True
    return named is not None and known


def check_note(note):
    """One note: its frames are the product's own, closed, and hold no stranger's words as the user's."""
    plain = note.replace(GUIDE, "", 1)
    tags = OURS.findall(plain)
    assert len(FRAME.findall(plain)) == len(tags), f"a text opens or closes a frame in {note!r}"
    assert tags[0].startswith("<compacted"), "a note that does not begin with its frame"
    assert tags[-1] == "</compacted>", "a note that does not end with its frame"
    assert tags[1:-1] == ["<user-words>", "</user-words>"] * (len(tags) // 2 - 1), "frames that do not close"
    for words in QUOTED.findall(plain):
        assert not STRANGERS.search(words), f"a stranger speaks as the user: {words!r}"


def check_quotes(messages, note):
    """Each piece of what a note frames as the user's stands in a text block of the user's."""
    own = "\n".join(text for message in messages if message["role"] == "user" for text in texts_of(message))
    own = own.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for words in QUOTED.findall(note):
        pieces = [piece for line in words.split("\n") for piece in line.replace("‹", "<").split("…")]
        assert all(piece in own for piece in pieces), f"the user did not say {words!r}"


def check_nothing_lost(messages, shown, notes):
    """Every block stands in the view, or its turn was dropped or is named by a note; a live result may be cut."""
    standing = {id(block) for message in shown.messages for block in content_of(message)}
    texts = {text for message in shown.messages for text in texts_of(message)}
    named = set()
    for first, last in (SPAN.match(note).groups() for note in notes):
        named.update(range(int(first), int(last or first) + 1))
    for turn in shown.plan.bound_analysis.history.turns:
        strategy = shown.plan.decisions[turn.id].strategy
        if turn.number in named or strategy == "drop" or (strategy == "summarize" and turn.live):
            continue
        for block in (block for message in messages[turn.start : turn.stop] for block in content_of(message)):
            gone = id(block) not in standing and block.get("text") not in texts
            assert not gone or block["type"].endswith("thinking"), f"{turn.id} lost {block}"


def rules_of(messages):
    """Which rules `messages` break, wherever; whatever is wrong between calls and their results is one fault: cut
    around, it shows from its other side."""
    return {2 if violation.rule in PAIRING else violation.rule for violation in refusals(messages)}


def check_decisions(drawn, shown, notes):
    """Each decision says something, a failure is called one and leaves words, and what is no text leaves an entry."""
    entries = {number for note in notes for number in ENTRY.findall(note)}
    for turn in shown.plan.bound_analysis.history.turns:
        decision = shown.plan.decisions[turn.id]
        if decision.strategy == "keep":
            continue
        assert decision.strategy != "summarize" or decision.summary or decision.excerpts, f"{turn.id} says nothing"
        assert all(first <= last < MOST_LINES for first, last in decision.excerpts), f"{turn.id} has no such lines"
        own = json.dumps(drawn.messages[turn.start : turn.stop])
        if drawn.valid and any(mark in own for mark in drawn.failures):
            assert decision.failed_approach, f"{turn.id} failed, and is not said to"
        told = turn.id in re.findall(r"\bt\d+\b", shown.plan.brief)
        assert told or not (decision.failed_approach and decision.strategy == "drop" and '"tool_use"' in own), (
            f"{turn.id} failed, and neither a statement nor a line says so"
        )
        assert turn.live or not MEDIA.search(own) or str(turn.number) in entries, f"{turn.id} lost an image or document"


def check_live_tail(drawn, shown):
    """What nobody has answered yet, and the calls that it answers, stands as it was, where a window surely holds it."""
    messages = drawn.messages
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    start = answers[-1] + 1 if answers else 0
    results = [block for message in messages[start:] for block in content_of(message) if block["type"] == "tool_result"]
    live = messages[start - bool(results) :]
    if not drawn.valid or shown.plan.window_tokens < ROOMY_TOKENS or len(json.dumps(live)) > ROOMY_TOKENS / 4:
        return
    standing = {id(block) for message in shown.messages for block in content_of(message)}
    texts = {text for message in shown.messages for text in texts_of(message)}
    for block in (block for message in live for block in content_of(message) if "thinking" not in block["type"]):
        assert id(block) in standing or block.get("text") in texts, f"the live tail lost {block}"


def check_what_stands(drawn, view, findings):
    """What failed is in the view, however small it has to be; and what binds, or the plan reports that it is not."""
    demands = () if "user_words_cut" in findings else drawn.demands
    for words in (*demands, *drawn.failures) if drawn.valid else ():
        assert words in view, f"{words!r} is not in the view"


def check_restores(messages, plan, store):
    """Every turn that is not in the view as it was comes back exactly."""
    apply(plan, messages, store=store)
    history = plan.bound_analysis.history
    key = "h" + history.digest.removeprefix("sha256:")[:32]
    for turn in history.turns:
        if plan.decisions[turn.id].strategy != "keep":
            restored = list(store.restore(f"{key}:{turn.id}").messages)
            assert same(restored, messages[turn.start : turn.stop]), f"{turn.id} does not come back as it was"


def texts_of(message):
    return [block["text"] for block in content_of(message) if block["type"] == "text"]


def content_of(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def same(one, other):
    return json.dumps(one) == json.dumps(other)
