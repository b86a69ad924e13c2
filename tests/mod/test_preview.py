"""What `/compactor preview` shows is of the transcript that `/compact` would get, and of nothing else."""

from applier.adapters.claude_code_mod.preview import PreviewCall, preview_text
from tests.strategies import make_session


def shown(messages, arguments=""):
    return preview_text(PreviewCall(session_id="s", arguments=arguments, api=messages), "")


def test_reminders_of_the_client_do_not_count():
    first, *rest = make_session(60)
    reminder = {"type": "text", "text": f"<system-reminder>\n{'tools ' * 3_000}</system-reminder>"}
    words = {"type": "text", "text": first["content"]}
    assert shown([{"role": "user", "content": [reminder, words]}, *rest]) == shown([first, *rest])
    assert shown([{"role": "user", "content": [reminder]}, first, *rest]) == shown([first, *rest])


def test_a_word_that_is_no_command_is_answered_by_what_there_is():
    assert shown([], "previw").startswith("/compactor preview")
    assert shown(make_session(60), "preview keep the queue").startswith("A compaction now:")
