"""Two folders of prompts compared on answers that were recorded."""

import pytest

from applier.evaluation import samples
from applier.evaluation.prompt_comparison import PromptVariant, compare_prompts
from applier.evaluation.samples import cut_transcript
from planner.errors import SettingsError
from tests.evaluation.work import FUTURE, PAST, TASK, call, result

NOISE = [
    message for n in range(20, 40) for message in (call(n, "Bash", command="ls"), result(n, "one two three\n" * 60))
]
KEEP_READ = '{"need": "", "turns": ["t2 keep 9"], "rest": "drop 0", "facts": []}'
KEEP_NOTHING = '{"need": "", "turns": ["t2 drop 0"], "rest": "reference 1", "facts": []}'


@pytest.fixture
def cuts(monkeypatch):
    monkeypatch.setattr(samples, "LEAST_NEEDS", 1)
    monkeypatch.setattr("applier.evaluation.cuts.LEAST_PREFIX_TOKENS", 20)
    return cut_transcript("job", [*PAST[:3], *NOISE, *PAST[3:], *FUTURE], TASK, (0.9,))


def variant(folder, cut, *answers):
    folder.mkdir()
    for number, answer in enumerate(answers, 1):
        name = f"{cut.name}.answer.txt" if len(answers) == 1 else f"{cut.name}.answer-{number}.txt"
        (folder / name).write_text(answer)
    return PromptVariant(answers=folder)


def test_what_one_keeps_and_the_other_loses_is_named_with_the_place_to_read(cuts, tmp_path):
    (cut,) = cuts
    one, other = variant(tmp_path / "a", cut, KEEP_READ), variant(tmp_path / "b", cut, KEEP_NOTHING)
    compared = compare_prompts(one, other, cuts, ratio=0.15)
    assert [row.method for row in compared.rows] == [one.name, other.name, "rules"]
    kept = {difference.what: difference for difference in compared.differences if difference.kept_by == one.name}
    assert compared.rows[0].recall.plain >= compared.rows[1].recall.plain
    for difference in kept.values():
        assert difference.what in difference.line
        assert difference.turn_id.startswith("t")


def test_no_recorded_answer_at_all_is_one_clear_error(cuts, tmp_path):
    (cut,) = cuts
    one, empty = variant(tmp_path / "a", cut, KEEP_READ), variant(tmp_path / "b", cut)
    with pytest.raises(SettingsError, match=rf"no recorded answers .* {cut.name}\.answer\.txt"):
        compare_prompts(one, empty, cuts)


def test_comparing_a_folder_with_itself_is_refused(cuts):
    with pytest.raises(SettingsError, match="compared with itself"):
        compare_prompts(PromptVariant(), PromptVariant(), cuts)
