"""The page in a real Chromium: keys and clicks, what it shows, and that no text of a transcript ever runs."""

import json

import pytest

pytest.importorskip("selenium", reason="needs the extra bench")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from applier import preview
from applier.session.events import Event
from applier.web import PageServer
from planner import plan_compaction, read_history
from tests.web.browser import chromium, click, opened, settled, show_as, text, wait
from tests.web.conftest import review_of

pytestmark = pytest.mark.real

HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    "<svg onload='window.hacked = 1'></svg></pre></textarea></script>"
    "<a href='javascript:window.hacked = 1'>x</a><style>body{display:none}</style>"
)
TURNS = 1_000


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def review(browser, server):
    """The page of the small plan, open; it is left before its server goes, for a page may ask at any time."""
    show_as(browser)
    browser.get_log("browser")
    opened(browser, server.link)
    yield browser
    browser.get("about:blank")
    log = [entry for entry in browser.get_log("browser") if entry["source"] != "intervention"]
    assert [entry for entry in log if entry["level"] == "SEVERE"] == []


def press(browser, *keys):
    for key in keys:
        ActionChains(browser).send_keys(key).perform()
    settled(browser)


def tokens(browser) -> int:
    return int(text(browser, "#after").replace(",", ""))


def current(browser) -> str:
    return text(browser, "#turn-list [aria-current] .id")


def strategy(browser, turn_id) -> str:
    script = "return document.querySelector(`#turn-list li:nth-child(${arguments[0]})`)?.dataset.strategy"
    return browser.execute_script(script, int(turn_id[1:]))


def first(plan, strategy) -> str:
    return next(own.turn_id for own in plan.turns if own.strategy == strategy)


def test_link_works_once_and_a_reload_keeps_the_changes(review, server, plan):
    assert "#" not in review.current_url
    dropped = first(plan, "drop")
    click(review, f"#turn-list li:nth-child({dropped[1:]}) button[data-strategy=keep]")
    settled(review)
    review.refresh()
    wait(review, lambda: strategy(review, dropped) == "keep")
    first_tab = review.current_window_handle
    review.switch_to.new_window("tab")
    try:
        review.get(server.link)
        wait(review, lambda: "used before" in text(review, "#status"))
        assert text(review, "#turn-list") == ""
        assert ["/api/open" in entry["message"] for entry in review.get_log("browser")] == [True]
    finally:
        review.close()
        review.switch_to.window(first_tab)


def test_keys_move_and_decide(review, plan):
    assert current(review) == "t1"
    press(review, "j", "j", "k")
    assert current(review) == "t2"
    before = tokens(review)
    press(review, "1")
    assert strategy(review, "t2") == "keep"
    assert tokens(review) > before
    press(review, "u")
    assert strategy(review, "t2") == plan.decisions["t2"].strategy
    assert tokens(review) == before
    press(review, "?")
    assert review.find_element(By.ID, "help-dialog").is_displayed()
    press(review, Keys.ESCAPE)
    press(review, "e")
    assert review.switch_to.active_element.get_attribute("id") == "brief-text"
    press(review, Keys.ESCAPE, "j")
    assert current(review) == "t3"


def test_click_on_a_decision_changes_the_tokens(review, plan):
    dropped, before = first(plan, "drop"), tokens(review)
    click(review, f"#turn-list li:nth-child({dropped[1:]}) button[data-strategy=keep]")
    settled(review)
    assert tokens(review) > before
    assert current(review) == dropped


def test_click_on_a_row_shows_the_turn_and_decides_nothing(review, plan):
    before = tokens(review)
    click(review, "#turn-list li:nth-child(3) .main")
    settled(review)
    assert text(review, "#detail h2 .id") == "t3"
    wait(review, lambda: len(review.find_elements(By.CSS_SELECTOR, "#detail .lines [data-stays]")) > 3)
    assert tokens(review) == before
    assert not review.find_element(By.ID, "undo").is_enabled()


def test_drop_of_a_failed_approach_is_repaired_and_said(review, plan):
    failed = next(own.turn_id for own in plan.turns if own.failed_approach)
    click(review, f"#turn-list li:nth-child({failed[1:]}) button[data-strategy=drop]")
    settled(review)
    wait(review, lambda: strategy(review, failed) == "summarize")
    assert "drop would lose how it failed" in text(review, "#status")
    assert "its decisive lines stay" in text(review, "#detail .notes")
    assert f"{failed} ✗" in text(review, "#detail .left-text")
    click(review, "#tab-findings")
    assert "from your changes" in text(review, "#panel-findings article:first-child")


def test_line_is_let_stay_by_its_number(review, plan):
    dropped = first(plan, "drop")
    click(review, f"#turn-list li:nth-child({dropped[1:]}) .main")
    wait(review, lambda: review.find_elements(By.CSS_SELECTOR, "#detail [data-line='1']"))
    settled(review)
    click(review, "#detail [data-line='1']")
    settled(review)
    assert strategy(review, dropped) == "summarize"
    assert review.find_element(By.CSS_SELECTOR, "#detail [data-line='1']").get_attribute("aria-pressed") == "true"
    assert text(review, "#detail .left-text").startswith(dropped)


def test_invented_name_in_the_brief_is_struck_as_it_is_typed(review, written):
    press(review, "e", Keys.END, Keys.ENTER, "- The cache lives in /opt/nowhere/cache.bin (t3)")
    wait(review, lambda: review.find_elements(By.CSS_SELECTOR, "#statements [data-state=struck]"))
    assert "/opt/nowhere/cache.bin" in text(review, "#statements [data-state=struck] .problem")
    press(review, Keys.ESCAPE, "s")
    wait(review, lambda: "The plan is in plan.json" in text(review, "#status"))
    assert "nowhere" not in written.plans[0].brief
    press(review, "u")
    assert not review.find_elements(By.CSS_SELECTOR, "#statements [data-state=struck]")


def test_save_and_apply_hand_over_what_is_shown(review, plan, written):
    dropped = first(plan, "drop")
    click(review, f"#turn-list li:nth-child({dropped[1:]}) button[data-strategy=keep]")
    settled(review)
    click(review, "#save")
    wait(review, lambda: written.plans)
    assert written.plans[0].decisions[dropped].strategy == "keep"
    assert written.plans[0].estimated_tokens == tokens(review)
    click(review, "#apply")
    assert written.sheets == []
    assert "view.json" in text(review, "#apply-text")
    click(review, "#apply-dialog .primary")
    wait(review, lambda: "compactor restore h1:t1" in text(review, "#status"))
    assert written.sheets[0].plan.decisions[dropped].strategy == "keep"


def test_one_decision_for_selected_rows_is_one_change(review, plan):
    before = {own.turn_id: own.strategy for own in plan.turns}
    for number in (3, 5):
        click(review, f"#turn-list li:nth-child({number}) .pick")
    last = review.find_element(By.CSS_SELECTOR, "#turn-list li:nth-child(8) .main")
    ActionChains(review).key_down(Keys.SHIFT).click(last).key_up(Keys.SHIFT).perform()
    assert text(review, "#picked").startswith("5 selected · ")
    click(review, "#picks [data-strategy=keep]")
    settled(review)
    chosen = ("t3", "t5", "t6", "t7", "t8")
    assert {strategy(review, turn_id) for turn_id in chosen} == {"keep"}
    assert strategy(review, "t4") == before["t4"]
    press(review, "u")
    assert {turn_id: strategy(review, turn_id) for turn_id in before} == before
    press(review, "x", "2", Keys.ESCAPE)
    assert not review.find_element(By.ID, "picks").is_displayed()
    click(review, "#turn-list li:nth-child(10) .main")
    press(review, "J", "J", "1")
    assert {strategy(review, turn_id) for turn_id in ("t10", "t11", "t12")} == {"keep"}


def turns_with(words: str, messages) -> set[str]:
    history = read_history(messages)
    return {turn.id for turn in history.turns if words in json.dumps(history.messages_of(turn)).lower()}


def test_only_turns_that_are_shown_are_selected(review, plan):
    click(review, "#pick-all")
    live = [turn.id for turn in plan.bound_analysis.history.turns if turn.live]
    assert text(review, "#picked").startswith(f"{len(plan.turns) - len(live)} selected")
    click(review, "#filter option[value=failed]")
    shown = review.execute_script(f"return {SHOWN}.map(item => item.querySelector('.id').textContent)")
    assert 0 < len(shown) < len(plan.turns)
    assert text(review, "#picked").startswith(f"{len(shown)} selected")
    click(review, "#picks [data-strategy=keep]")
    settled(review)
    changed = "return [...document.querySelectorAll('#turn-list [data-changed=true] .id')].map(id => id.textContent)"
    assert review.execute_script(changed) == shown


def test_view_is_shown_as_the_model_gets_it_and_follows_a_change(review, plan, messages):
    click(review, "#tab-view")
    wait(review, lambda: review.find_elements(By.CSS_SELECTOR, "#panel-view article"))
    view = preview(plan, messages).messages
    assert len(review.find_elements(By.CSS_SELECTOR, "#panel-view article")) == len(view)
    assert text(review, "#panel-view article:first-child pre") == view[0]["content"][0]["text"]
    click(review, "#tab-turns")
    press(review, "j", "1")
    click(review, "#tab-view")
    wait(review, lambda: len(review.find_elements(By.CSS_SELECTOR, "#panel-view article")) > len(view))
    assert "as it was, message 1 of the transcript" in text(review, "#panel-view")


def test_plan_is_made_anew_under_what_was_changed_by_hand(review, plan, written):
    dropped, before = first(plan, "drop"), tokens(review)
    click(review, f"#turn-list li:nth-child({dropped[1:]}) button[data-strategy=keep]")
    settled(review)
    click(review, "#replan")
    target = review.find_element(By.ID, "replan-target")
    assert int(target.get_attribute("value")) == plan.target_tokens
    target.clear()
    target.send_keys("14000", Keys.ENTER)
    wait(review, lambda: "not saved yet" in text(review, "#status"))
    settled(review)
    assert tokens(review) > before + 2_000
    assert strategy(review, dropped) == "keep"
    assert "target of 14,000" in text(review, "#target")
    press(review, "s")
    wait(review, lambda: written.plans)
    assert (written.plans[0].target_tokens, written.plans[0].decisions[dropped].strategy) == (14_000, "keep")
    press(review, "u")
    assert strategy(review, dropped) != "keep"


SHOWN = "[...document.querySelectorAll('#turn-list li')].filter(item => !item.hidden)"


def test_search_finds_titles_and_originals_and_escape_shows_all_again(review, plan, messages):
    holding = turns_with("pytest", messages)
    press(review, "/", "pytest")
    wait(review, lambda: len(review.execute_script(f"return {SHOWN}")) == len(holding))
    ids = review.execute_script(f"return {SHOWN}.map(item => item.querySelector('.id').textContent)")
    titled = review.execute_script(f"return {SHOWN}.filter(item => item.textContent.includes('pytest')).length")
    assert set(ids) == holding
    click(review, f"#turn-list li:nth-child({max(ids, key=lambda key: int(key[1:]))[1:]}) .main")
    wait(review, lambda: "pytest" in text(review, "#detail [data-hit=true] span").lower())
    assert titled < len(holding) < len(plan.turns), "some hold it in their originals alone"
    press(review, "/", Keys.ESCAPE)
    assert not review.find_elements(By.CSS_SELECTOR, "#detail [data-hit=true]")
    assert review.execute_script("return document.getElementById('search').value") == ""
    assert len(review.execute_script(f"return {SHOWN}")) == len(plan.turns)


def test_what_is_said_lies_over_nothing(browser, review, plan):
    failed = next(own.turn_id for own in reversed(plan.turns) if own.failed_approach)
    click(review, f"#turn-list li:nth-child({failed[1:]}) button[data-strategy=drop]")
    settled(review)
    wait(review, lambda: "drop would lose" in text(review, "#status"))
    box = "document.querySelector('{}').getBoundingClientRect()"
    for size in ((1440, 960), (1024, 500)):
        show_as(browser, *size)
        top = review.execute_script(f"return {box.format('#status')}.top")
        assert review.execute_script(f"return {box.format('main')}.bottom") <= top, size


def test_every_control_has_a_name(review):
    unnamed = """return [...document.querySelectorAll('button, input, select, textarea, [role=group], canvas')]
        .filter(node => !node.textContent.trim() && !node.getAttribute('aria-label') && !node.labels?.length
            && node.getAttribute('aria-hidden') !== 'true')
        .map(node => node.outerHTML)"""
    assert review.execute_script(unnamed) == []


def test_page_is_never_wider_than_the_screen(browser, server):
    show_as(browser, 360, 844)
    opened(browser, server.link)
    for width in (360, 390, 768, 1024, 1440):
        show_as(browser, width, 844)
        for tab in ("turns", "brief", "view", "failed", "words", "facts", "findings"):
            click(browser, f"#tab-{tab}")
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (width, tab)


def test_turn_opens_over_the_list_on_a_phone_and_closes_again(browser, server):
    show_as(browser, 390, 844)
    opened(browser, server.link)
    assert not browser.find_element(By.ID, "detail").is_displayed()
    click(browser, "#turn-list li:nth-child(3) .main")
    assert browser.find_element(By.ID, "detail").is_displayed()
    click(browser, "#detail .back")
    assert not browser.find_element(By.ID, "detail").is_displayed()


def test_colours_follow_the_system(browser, server):
    show_as(browser)
    opened(browser, server.link)
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(ground)
    show_as(browser, dark=True)
    assert browser.execute_script(ground) != light


def test_text_of_a_transcript_never_runs(browser):
    call = {"type": "tool_use", "id": "c1", "name": f"bash{HOSTILE}", "input": {"command": f"cat {HOSTILE}\n{HOSTILE}"}}
    failure = f"Traceback (most recent call last):\nValueError: {HOSTILE}\n" + "a line of a log\n" * 400
    messages = [
        {"role": "user", "content": f"Never do this: {HOSTILE}\nAlways write {HOSTILE}"},
        {"role": "assistant", "content": [call]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": failure, "is_error": True}],
        },
        {"role": "assistant", "content": f"Done {HOSTILE} " + "and said " * 400},
        {"role": "user", "content": "go on"},
    ]
    plan = plan_compaction(messages, f"Task {HOSTILE}", planner="rules", target_ratio=0.5)
    with PageServer(review_of(plan, messages)) as server:
        show_as(browser)
        opened(browser, server.link)
        for number in (1, 2, 3):
            click(browser, f"#turn-list li:nth-child({number}) .main")
            wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#detail .lines [data-stays]"))
            settled(browser)
            assert HOSTILE[:8] in text(browser, "#detail .lines")
        press(browser, "e", Keys.END, Keys.ENTER, f"- {HOSTILE} (t1)")
        for tab in ("failed", "words", "facts", "findings", "view"):
            click(browser, f"#tab-{tab}")
        wait(browser, lambda: HOSTILE[:8] in text(browser, "#panel-view"))
        assert HOSTILE[:8] in text(browser, "#task")
        assert HOSTILE[:8] in text(browser, "#panel-words")
        assert browser.execute_script("return window.hacked") is None
        assert (
            browser.execute_script("return document.querySelectorAll('main script, img, svg, a[href^=java]').length")
            == 0
        )
        with pytest.raises(Exception, match="TrustedHTML"):
            browser.execute_script("document.body.insertAdjacentHTML('beforeend', '<b>x</b>')")
    browser.get_log("browser")


def test_page_of_a_session_shows_curve_happenings_and_bill(browser):
    compaction = Event("post_compact", "s", 0, "growth", "plan", 300, 80, 2, 250, f"2 drop {HOSTILE}")
    prompts = ((100, 100, 0), (200, 200, 0), (80, 300, 250), (110, 330, 0))
    run = {
        "preset": "relevance",
        "limit_tokens": 250,
        "calls": [
            {"sent_tokens": sent, "history_tokens": history, "invalidated_tokens": gone}
            for sent, history, gone in prompts
        ],
        "compactions": [{"call": 3, **compaction.as_json(), "money": "≈ $2 once"}],
        "cost": {"0.1": 400, "0.05": 300},
        "cost_without": {"0.1": 1_000, "0.05": 900},
        "dollars": 1.0,
        "dollars_without": 4.0,
        "money": ["≈ $1", "≈ $4"],
        "exceeded": 0,
        "violations": ["the prompt of call 2 is too long"],
        "unrestorable": [],
    }
    calls = [{**call, "sent_tokens": call["history_tokens"]} for call in run["calls"]]
    other = {**run, "preset": "off", "calls": calls, "compactions": [], "violations": []}
    with PageServer({"task": f"Task {HOSTILE}", "runs": [run, other]}) as server:
        for width in (1440, 360):
            show_as(browser, width)
            browser.refresh() if width == 360 else opened(browser, server.link)
            wait(browser, lambda: text(browser, "#saved") == "47%")
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert text(browser, "#summary") == "490 sent in 4 calls, 930 without"
        assert text(browser, "#compactions") == "1"
        assert "60%" in text(browser, "#bill tbody tr")
        assert "; ≈ $2 once" in text(browser, "#happenings")
        assert "in money≈ $1≈ $475%" in text(browser, "#bill tbody")
        rows = browser.find_elements(By.CSS_SELECTOR, "#presets tbody tr")
        assert [row.text for row in rows] == ["relevance 1 490 250 200 0 1 0 0 ≈ $1", "off 0 930 250 330 0 0 0 0 ≈ $1"]
        assert "too long" in text(browser, "#problems")
        click(browser, "#presets tbody tr:last-child button")
        assert text(browser, "#saved") == "0%"
        browser.execute_script("run.value = 0; run.dispatchEvent(new Event('change'))")
        assert text(browser, "#saved") == "47%"
        assert browser.execute_script("return window.hacked") is None


def many_turns():
    messages = [{"role": "user", "content": "Read every file and say what is in it."}]
    for number in range(TURNS - 2):
        call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"src/part{number}.py"}}
        result = "\n".join(f"value_{number}_{at} = {number * at}" for at in range(8))
        messages.append({"role": "assistant", "content": [call]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": result}]}
        )
    return [*messages, {"role": "assistant", "content": "All read."}]


def test_a_thousand_turns_stay_fluid(browser):
    """No frame of a long scroll or of a walk by keys takes long; only rows in sight are laid out."""
    messages = many_turns()
    plan = plan_compaction(messages, "Say what is in it.", planner="rules", target_ratio=0.3)
    assert len(plan.turns) == TURNS
    with PageServer(review_of(plan, messages)) as server:
        show_as(browser)
        opened(browser, server.link)
        assert len(browser.find_elements(By.CSS_SELECTOR, "#turn-list > li")) == TURNS
        contained = "return getComputedStyle(document.querySelector('#turn-list li')).contentVisibility"
        assert browser.execute_script(contained) == "auto"
        press(browser, *"jjjjjjjjjj", "1")
        assert strategy(browser, "t11") == "keep"
        browser.execute_script("document.querySelector('#turn-list li:last-child').scrollIntoView()")
        click(browser, f"#turn-list li:nth-child({TURNS - 1}) .main")
        settled(browser)
        assert text(browser, "#detail h2 .id") == f"t{TURNS - 1}"
