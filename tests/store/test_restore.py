"""Whole turns, pages, ranges, searches; who may see what; and what a wrong reference is told."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from applier.store.excerpt import find_matches, restored_part
from planner.errors import ReferenceNotFound, SettingsError, StoreError
from planner.reading.lines import WRAP_CHARACTERS, join_lines, turn_lines, without_numbers
from planner.reading.messages import read_history
from tests.strategies import histories, make_session

NO_KEY = f"h{0:032}"
SAME_START = ("n21757", "n33560")
"""Two messages whose histories have digests with the same first eight digits (found by trying)."""


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture
def saved(store):
    return store.save_history(read_history(make_session(9)))


def test_a_range_is_the_exact_text_of_its_lines(store, saved):
    whole = store.restore(f"{saved}:t2").text.split("\n")
    assert store.restore(f"{saved}:t2", lines=(3, 5)).text.split("\n") == whole[2:5]
    assert store.restore(f"{saved}:t2", lines=(-4, 9999)).text.split("\n") == whole
    assert store.restore(f"{saved}:t2", lines=(3, 5)).messages == store.restore(f"{saved}:t2").messages


@pytest.mark.parametrize("lines", [(5, 3), (900, 901), (0, 0)])
def test_lines_that_are_not_there_are_told(store, saved, lines):
    with pytest.raises(ReferenceNotFound, match=r"t2: no lines? \d.*; its lines: 1 to \d+"):
        store.restore(f"{saved}:t2", lines=lines)


def test_a_search_gives_numbered_lines_with_two_around_each(store):
    key = store.save_history(read_history([user("one\ntwo\nthree\nFOUR\nfive\nsix\nseven\n8\n9\nten, four")]))
    found = store.restore(f"{key}:t1", search="four")
    assert found.matches == (4, 10)
    assert found.text == "2- two\n3- three\n4: FOUR\n5- five\n6- six\n…\n8- 8\n9- 9\n10: ten, four"
    assert store.restore(f"{key}:t1", lines=(5, 10), search="four").matches == (10,)
    assert store.restore(f"{key}:t1", search="^s.+n$").matches == (7,)
    cut = store.restore(f"{key}:t1", search="four", max_characters=30)
    assert (cut.text, cut.next_line) == ("2- two\n3- three\n4: FOUR", 10)
    assert store.restore(f"{key}:t1", lines=(10, 99), search="four").next_line is None


def test_a_search_that_matches_nothing_names_the_turns_that_match(store, saved):
    with pytest.raises(ReferenceNotFound) as raised:
        store.restore(f"{saved}:t1", search="TimeoutError")
    named = re.findall(rf"{saved}:(t[0-9]+)", str(raised.value).split("; ")[1])
    assert named == [match.turn_id for match in store.search("TimeoutError", saved, limit=3).matches] != []
    with pytest.raises(ReferenceNotFound, match="no line matches 'zebra giraffe'; no other turn of this history does"):
        store.restore(f"{saved}:t1", search="zebra giraffe")


def test_a_search_that_matches_nothing_has_the_best_line_of_the_turns_that_match(store):
    texts = ["noon", "the tide\nand the moon", "a tide turns at noon\nthe tide again"]
    key = store.save_history(read_history([user(text) for text in texts]))
    with pytest.raises(ReferenceNotFound) as raised:
        store.restore(f"{key}:t1", search="the tide")
    assert raised.value.elsewhere == ("t3 2: the tide again", "t2 1: the tide")
    with pytest.raises(ReferenceNotFound) as raised:
        store.restore(f"{key}:t1", search="turns the tide")
    assert raised.value.elsewhere[0] == "t3 1: a tide turns at noon"


def test_what_stands_elsewhere_is_not_looked_for_by_its_words(store):
    key = store.save_history(read_history([user("the tide turns at noon"), user("noon comes early")]))
    with pytest.raises(ReferenceNotFound, match=f"no line matches 'tide turns'; {key}:t1 match"):
        store.restore(f"{key}:t2", search="tide turns")
    assert store.restore(f"{key}:t2", search="zebra turns noon").text == "1: noon comes early"
    assert store.search("tide turns", key, part="assistant").matches == ()
    assert store.search("noon zebra", key, part="assistant").matches == ()
    assert [match.turn_id for match in store.search("noon zebra", key, part="user").matches] == ["t2", "t1"]


def test_a_search_finds_what_wrapping_or_a_line_break_cuts(store):
    key = store.save_history(read_history([user("x" * (WRAP_CHARACTERS - 3) + "needle in hay\nlast")]))
    assert store.restore(f"{key}:t1", search="needle in").matches == (1, 2)
    assert store.restore(f"{key}:t1", search="hay\nla").matches == (2, 3)


def test_text_is_found_as_it_stands_before_it_is_read_as_a_pattern_or_as_words(store):
    key = store.save_history(read_history([user("f(x)\nfx\na.b\naxb\nthe red fox\nfox, red\nred hen")]))
    assert store.restore(f"{key}:t1", search="f(x)").matches == (1,)
    assert store.restore(f"{key}:t1", search="A.B").matches == (3,)
    assert store.restore(f"{key}:t1", search="red fox").matches == (5,)
    assert store.restore(f"{key}:t1", search="fox RED hen").matches == (5, 6, 7)


def test_a_pattern_that_never_ends_and_one_that_is_too_long_are_told(store, monkeypatch):
    monkeypatch.setattr("applier.store.search.SEARCH_SECONDS", 0.1)
    key = store.save_history(read_history([user("a" * 40 + "!")]))
    with pytest.raises(StoreError, match="the pattern takes too long; use a simpler one"):
        store.restore(f"{key}:t1", search="(a|aa)+$")
    with pytest.raises(StoreError, match="the pattern takes too long; use a simpler one"):
        store.search("(a|aa)+$", key)
    key = store.save_history(read_history([user("x" * 300 + " \n\ny")]))  # matches at once, but not in its first line
    assert store.search(r"(x|xx)+ [\n]+[yz]", key).matches[0].excerpt.startswith(f"1: {'x' * 300} \n")
    with pytest.raises(StoreError, match="search: at most 1,000 characters"):
        store.search("a" * 1001, key)


def call(name, call_id, **arguments):
    return {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]}


def result(call_id, content):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": content}]}


SEARCHED = [
    user("Fix the parser"),
    call("Read", "c1", path="parser.py"),
    result("c1", "class Parser:\n" + "the parser token stream\n" * 40),
    call("Bash", "c2", command="pytest"),
    result("c2", "1 failed: parser token"),
    {"role": "assistant", "content": "The parser drops a token at the end of the stream."},
]


def test_words_and_calls_come_before_results_and_the_newer_first(store):
    key = store.save_history(read_history(SEARCHED))
    found = store.search("parser", key)
    assert [match.turn_id for match in found.matches] == ["t4", "t2", "t1", "t3"]
    assert store.search("parser", key, limit=1).matches == found.matches[:1]
    assert found.turns == store.search("parser", key, limit=1).turns == 4


def test_an_excerpt_names_the_lines_it_leaves_out(store):
    key = store.save_history(read_history(SEARCHED))
    (match,) = store.search("parser token stream", key).matches
    assert len(match.lines) == 40
    assert match.excerpt.count(": the parser token stream") == 1, "what stands there twice is shown once"
    assert match.excerpt.endswith("\n… also 5-42")


def test_of_several_words_the_rare_ones_say_where_and_long_lines_are_cut_around_them(store):
    key = store.save_history(
        read_history(
            [
                user("\n".join(f"func part_{n}() in force" for n in range(30))),
                user("x" * 3_000 + " func drain_queue() in force " + "y" * 3_000),
                user("drain_queue stands alone, far from func and force\n" * 2),
            ]
        )
    )
    first, *_ = store.search("force func drain_queue", key).matches
    assert first.turn_id == "t3"
    (match,) = (match for match in store.search("force func drain_queue", key).matches if match.turn_id == "t2")
    assert "drain_queue() in force" in match.excerpt
    assert len(match.excerpt) < 400


def test_a_search_can_be_of_one_speaker_or_one_tool(store):
    key = store.save_history(read_history(SEARCHED))

    def turns(**only):
        return [match.turn_id for match in store.search("parser", key, **only).matches]

    assert turns(part="user") == ["t1"]
    assert turns(part="assistant") == ["t4"]
    assert turns(part="call") == ["t2"]
    assert turns(part="result") == ["t3", "t2"]
    assert turns(tool="bash") == ["t3"]
    assert turns(tool="read", part="result") == ["t2"]
    assert turns(tool="Write") == []


def test_words_are_found_wherever_they_stand_in_a_turn(store):
    key = store.save_history(read_history(SEARCHED))
    assert store.search("drops stream parser", key).matches[0].turn_id == "t4"
    assert [match.turn_id for match in store.search("pytest failed zebra", key).matches] == ["t3"]
    assert store.search("zebra giraffe", key).matches == store.search(" ", key).matches == ()


def shown_lines(text):
    return [int(line.split(":")[0]) for line in text.split("\n") if re.match(r"\d+:", line)]


def test_of_several_words_a_turn_gives_the_best_lines_and_not_all_that_hold_one(store):
    notes = [f"the branch of commit {n} was merged" for n in range(20)]
    notes[13] = "the branch name was compared to HeadHash of the commit"
    key = store.save_history(read_history([user("\n".join(notes))]))
    assert store.restore(f"{key}:t1", search="branch commit HeadHash").matches == (14,)


def test_a_name_that_stands_exactly_comes_before_prose_with_common_words(store):
    prose = "The review says that the agent reads the tree by a function, readTreeItems, for each agent of the tree."
    code = "\n".join(["func readTree(root string) error {", "\treturn walk(root)", "}"])
    words = [user(f"agent {n} reads the tree by function {n}") for n in range(9)]
    key = store.save_history(read_history([*words, call("Write", "c1", content=code), result("c1", "ok"), user(prose)]))
    best = store.search("agent function tree readTree", key).matches[0]
    assert "func readTree(root" in best.excerpt


def parallel(*pairs):
    calls = [block for name, call_id, path, _ in pairs for block in call(name, call_id, path=path)["content"]]
    results = [block for _, call_id, _, text in pairs for block in result(call_id, text)["content"]]
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]


STARTED = "started\nworker-id: {} (ask for its report by this id)\nit runs"
STARTS = [("Start", f"c{n}", f"{name}.txt", STARTED.format(f"w{n}")) for n, name in enumerate(("hull", "mast", "keel"))]


def test_among_parallel_calls_a_result_names_its_call_and_a_call_its_result(store):
    key = store.save_history(read_history([user("Start them"), *parallel(*STARTS)]))
    (match,) = store.search("worker-id: w1", key).matches
    assert match.excerpt.startswith("result of 2: Start path=mast.txt\n7- started\n8: worker-id: w1")
    assert store.restore(f"{key}:t2", search="mast").text == "2: Start path=mast.txt\nresult: 7-9"
    both = store.restore(f"{key}:t2", search="mast|w1").text.split("\n")
    assert both[:2] == ["2: Start path=mast.txt", "result: 7-9"]
    assert both[3] == "result of 2"


def test_lines_of_one_result_say_once_whose_it_is(store):
    rows = "\n".join(f"row {n}" + " drained" * (n in (3, 30, 60)) for n in range(1, 70))
    key = store.save_history(read_history([user("Go"), *parallel(*STARTS[:1], ("Read", "c9", "rows.txt", rows))]))
    (match,) = store.search("drained", key).matches
    assert len(shown_lines(match.excerpt)) == 3
    assert match.excerpt.count("result of 2: Read path=rows.txt") == match.excerpt.count("result of") == 1


def test_the_lines_of_a_turn_are_shown_by_their_rank_and_the_others_named(store):
    key = store.save_history(read_history([user("Start them"), *parallel(*STARTS)]))
    (match,) = store.search("keel.txt worker-id report", key).matches
    assert sorted(shown_lines(match.excerpt)) == [3, 8, 11]
    assert match.excerpt.endswith("\n… also 5")


def test_each_rare_word_gets_its_best_line_and_its_turn_comes_before_more_of_the_same(store):
    pumps = [user(f"pump_drain of station {n} failed with pressure") for n in range(9)]
    key = store.save_history(read_history([user("valve_seal costs 40"), *pumps]))
    found = store.search("pump_drain pressure failed valve_seal costs", key, limit=2).matches
    assert {match.turn_id for match in found} == {"t1", "t10"}


def test_more_is_shown_behind_a_hit_in_a_call_or_a_definition(store):
    code = "\n".join(["import os", "", "def drain(queue):", *(f"    step_{n}(queue)" for n in range(9))])
    messages = [call("Write", "c1", path="a.py", content=code), result("c1", "ok"), user(code)]
    key = store.save_history(read_history(messages))
    for turn_id, first in (("t1", 5), ("t2", 3)):
        text = store.restore(f"{key}:{turn_id}", search="def drain").text
        assert text.endswith(f"{first + 6}-     step_5(queue)")


def test_the_number_of_a_file_viewer_is_not_said_beside_ours(store):
    viewed = result("c1", "   10→class Hull:\n   11→    mast = 3\n12 | not a number of a viewer")
    key = store.save_history(read_history([call("Read", "c1", path="hull.py"), viewed]))
    shown = "2- class Hull:\n3:     mast = 3\n4- 12 | not a number of a viewer"
    assert store.restore(f"{key}:t1", search="mast", lines=(2, 4)).text == shown
    assert store.search("mast =", key).matches[0].excerpt == shown


def test_a_phrase_in_quotes_is_one_word(store):
    key = store.save_history(read_history([user("red fox\na hen, red\nthe red hen stands\nhen and fox")]))
    assert store.restore(f"{key}:t1", search='"red hen" stands').matches == (3,)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(messages=histories(max_turns=4), data=st.data())
def test_what_stands_in_a_turn_is_found_there(messages, data):
    history = read_history(messages)
    turn = data.draw(st.sampled_from(history.turns))
    lines = turn_lines(history, turn)
    text = join_lines(lines)
    start = data.draw(st.integers(0, max(0, len(text) - 1)))
    part = text[start : start + data.draw(st.integers(1, 200))]
    if not part.strip():
        return
    restored = restored_part("h:t1", history.messages_of(turn), search=part)
    first, last = restored.matches[0], restored.matches[-1]
    assert part.lower().rstrip("\n") in join_lines(lines[first - 1 : last]).lower()
    assert f"{first}: {without_numbers(lines[first - 1].text)}" in restored.text
    assert turn.id in [match.turn_id for match in find_matches(history, part).matches]


WORDS = ("tide", "noon", "heron", "valve", "quill", "ochre")
LINES = st.lists(st.sampled_from((*WORDS, "", "x" * 300)), max_size=6).map(" ".join)


@given(texts=st.lists(LINES, min_size=1, max_size=12), asked=st.sets(st.sampled_from(WORDS), min_size=1))
def test_an_excerpt_shows_each_hit_between_its_neighbours(texts, asked):
    history = read_history([user("\n".join(["begin", *texts]))])
    for match in find_matches(history, f"zebra {' '.join(sorted(asked))}").matches:
        lines = {line.number: line.text for line in turn_lines(history, history.turns[0])}
        shown = {int(line.split("-")[0].split(":")[0]) for line in match.excerpt.split("\n") if line[0].isdigit()}
        for hit in shown_lines(match.excerpt):
            beside = {n for n in (hit - 1, hit + 1) if lines.get(n, "").strip()}
            assert beside <= shown
        best = asked & set(lines[shown_lines(match.best)[0]].split())
        assert not any(best < asked & set(text.split()) for text in lines.values()), "no line holds more of the words"


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(messages=histories(max_turns=4), size=st.integers(1, 3000), data=st.data())
def test_pages_of_a_turn_are_all_of_it(messages, size, data):
    history = read_history(messages)
    turn = history.messages_of(data.draw(st.sampled_from(history.turns)))
    whole = restored_part("h:t1", turn)
    pages = [restored_part("h:t1", turn, max_characters=size)]
    while pages[-1].next_line is not None:
        assert pages[-1].next_line == pages[-1].lines[1] + 1
        rest = (pages[-1].next_line, whole.total_lines)
        pages.append(restored_part("h:t1", turn, lines=rest, max_characters=size))
    assert all(len(page.text) <= size or page.lines[0] == page.lines[1] for page in pages)
    at = 0
    for page in pages:
        at = whole.text.index(page.text, at) + len(page.text)
    assert at == len(whole.text)
    media = [block for page in pages for block in page.blocks if block["type"] != "text"]
    assert media == [block for block in whole.blocks if block["type"] != "text"]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PAPER = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}


def test_images_and_documents_come_back_where_they_stood(store):
    marked = {**PAPER, "cache_control": {"type": "ephemeral"}}
    content = [IMAGE, {"type": "text", "text": "as in\nthe mock-up"}, marked, {"type": "text", "text": "and this"}]
    screenshot = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [IMAGE]}]}
    messages = [{"role": "user", "content": content}, call("Screenshot", "c1"), screenshot]
    key = store.save_history(read_history(messages))
    whole = store.restore(f"{key}:t1")
    assert whole.messages == (messages[0],)
    assert [block["type"] for block in whole.blocks] == ["image", "text", "document", "text"]
    assert [whole.blocks[0], whole.blocks[2]] == [IMAGE, PAPER]
    assert "".join(block.get("text", "\n") for block in whole.blocks[1:]).split() == whole.text.split()
    last = store.restore(f"{key}:t1", lines=(whole.total_lines, whole.total_lines))
    assert [block["type"] for block in last.blocks] == ["text"]
    assert IMAGE in store.restore(f"{key}:t2").blocks


def test_the_lines_of_a_reference_are_those_of_excerpts_and_searches(store):
    history = read_history(SEARCHED)
    key = store.save_history(history)
    for turn in history.turns:
        lines = turn_lines(history, turn)
        restored = store.restore(f"{key}:{turn.id}")
        assert (restored.lines, restored.total_lines) == ((1, len(lines)), len(lines))
        for line in lines:
            assert store.restore(f"{key}:{turn.id}", lines=(line.number, line.number)).text == line.text


class TestWithin:
    """What a session may see: itself, its children, what it was forked from."""

    @pytest.fixture
    def keys(self, store):
        own = make_session(9)
        fork = [*own[:3], user("another way"), *make_session(4)[1:]]
        foreign = [user("their password is swordfish")]
        histories = {"early": own[:5], "own": own, "fork": fork, "foreign": foreign}
        return {name: store.save_history(read_history(messages)) for name, messages in histories.items()}

    def test_a_session_reads_itself_and_what_it_grew_from(self, store, keys):
        for name in ("own", "early"):
            assert store.restore(f"{keys[name]}:t2", within=[keys["own"]]).reference == f"{keys[name]}:t2"
        assert store.restore(f"{keys['fork']}:t2", within=[keys["own"], keys["fork"]]).text
        assert store.restore("t2", within=[keys["own"], keys["fork"]]).reference == f"{keys['own']}:t2"

    @pytest.mark.parametrize("name", ["foreign", "fork"])
    def test_another_conversation_is_as_if_it_were_not_there(self, store, keys, name):
        absent = NO_KEY
        for options in ({}, {"search": "swordfish"}, {"lines": (1, 1)}):
            texts = []
            for key in (keys[name], absent):
                with pytest.raises(ReferenceNotFound) as raised:
                    store.restore(f"{key}:t1", within=[keys["own"]], **options)
                texts.append(str(raised.value).replace(key, "KEY"))
            assert texts[0] == texts[1] == f"no history KEY in this conversation; it has {keys['own']}"

    def test_a_child_sees_no_more_than_its_own(self, store, keys):
        with pytest.raises(ReferenceNotFound, match="in this conversation"):
            store.restore(f"{keys['own']}:t2", within=[keys["early"]])

    def test_nothing_is_seen_where_nothing_is_stored(self, store, keys):
        for reference in ("t1", f"{keys['foreign']}:t1"):
            for within in ([], [NO_KEY]):
                with pytest.raises(ReferenceNotFound) as raised:
                    store.restore(reference, within=within)
                assert not [key for key in keys.values() if key in str(raised.value).replace(reference[:-3], "")]

    def test_an_error_names_turns_of_this_conversation_only(self, store, keys):
        with pytest.raises(ReferenceNotFound, match="no other turn of this history does"):
            store.restore(f"{keys['own']}:t1", search="swordfish", within=[keys["own"]])


def test_a_bare_turn_is_enough_where_there_is_one_conversation(store):
    messages = make_session(9)
    for n in (3, 7, len(messages)):
        key = store.save_history(read_history(messages[:n]))
    assert store.restore("t5").reference == f"{key}:t5"
    store.save_history(read_history([user("another")]))
    with pytest.raises(ReferenceNotFound, match=r"several conversations, each with its own t5; use one of: h.*:t5, h"):
        store.restore("t5")


def test_a_short_key_is_only_looked_up_in_what_the_reader_may_see(store):
    keys = {text: store.save_history(read_history([user(text)])) for text in SAME_START}
    assert {key[:9] for key in keys.values()} == {"hf449670a"}
    with pytest.raises(ReferenceNotFound, match="too short for a key") as raised:
        store.restore("hf449670a:t1")
    assert set(keys.values()) <= set(str(raised.value).replace(",", "").split())
    for text, key in keys.items():
        assert store.restore(f"{key}:t1").text == store.restore("hf449670a:t1", within=[key]).text == text
    with pytest.raises(ReferenceNotFound, match="use more characters: ") as raised:
        store.restore("hf449670a:t1", within=list(keys.values()))
    longer = str(raised.value).split(": ")[1].split(", ")
    assert {store.restore(f"{key}:t1", within=list(keys.values())).text for key in longer} == set(SAME_START)


def test_the_error_says_what_there_is(store, saved):
    with pytest.raises(ReferenceNotFound, match=f"no turn t40 in history {saved}; its turns are t1 to t9"):
        store.restore(f"{saved}:t40")
    with pytest.raises(ReferenceNotFound, match=f"no history {NO_KEY} in this store; it has {saved}"):
        store.restore(f"{NO_KEY}:t1")
    with pytest.raises(ReferenceNotFound, match=f"it has {saved}"):
        store.load_history(saved[:-1] + ("0" if saved[-1] != "0" else "1"))


def test_an_empty_store_says_so(store):
    for name in ("t1", f"{NO_KEY}:t1"):
        with pytest.raises(ReferenceNotFound, match="is empty"):
            store.restore(name)


@pytest.mark.parametrize("name", ["", "x", "t0", "h12:t1", "hXYZ:t1", "t1:h1a2b3c4d", "h1a2b3c4d:t1-t3", "h1a2b3c4d"])
def test_what_is_no_reference_is_told_how_one_looks(store, name):
    with pytest.raises(ReferenceNotFound, match="expected "):
        store.restore(name)


def test_a_history_of_no_messages_is_kept_too(store):
    key = store.save_history(read_history([]))
    assert store.load_history(key).messages == ()
    with pytest.raises(ReferenceNotFound, match=r"no turn t1 in history .*; it is empty"):
        store.restore(f"{key}:t1")
    store.save_history(read_history([user("a")]))
    assert store.restore("t1").text == "a"


@pytest.mark.parametrize(
    ("wrong", "named"), [({"lines": "1-3"}, "lines"), ({"search": 5}, "search"), ({"max_characters": "9"}, "max_ch")]
)
def test_a_wrong_argument_is_named(store, saved, wrong, named):
    with pytest.raises(SettingsError, match=f"^{named}"):
        store.restore(f"{saved}:t2", **wrong)


@pytest.mark.parametrize(("wrong", "named"), [({"limit": -1}, "limit"), ({"part": "foo"}, "part")])
def test_a_wrong_argument_of_a_search_is_named(store, saved, wrong, named):
    with pytest.raises(SettingsError, match=f"^{named}"):
        store.search("refresh", saved, **wrong)
