"""Two folders of prompts compared on answers that were recorded."""

import pytest

from applier.eval import evaluation
from applier.eval.evaluation import cut_transcript
from applier.eval.prompt_comparison import PromptVariant, compare_prompts
from planner.errors import SettingsError
from tests.evaluation.work import FUTURE, PAST, TASK, call, result

NAMES = [f"def rows_{n}_by_key_{n * 7}(table_{n}): return cached_{n}.get_{n}" for n in range(600)]
NOISE = [
    message
    for n in range(20, 40)
    for message in (call(n, "Read", file_path=f"/srv/lib/m{n}.py"), result(n, "\n".join(NAMES[15 * n : 15 * n + 15])))
]
KEEP_READ = '{"need": "", "turns": ["t2 keep 9"], "facts": []}'
KEEP_NOTHING = '{"need": "", "turns": ["t2 drop 0"], "facts": []}'


@pytest.fixture
def cuts(monkeypatch):
    monkeypatch.setattr(evaluation, "LEAST_NEEDS", 1)
    monkeypatch.setattr("applier.eval.evaluation.LEAST_PREFIX_TOKENS", 20)
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
    rows, differences = compare_prompts(one, other, cuts, ratio=0.15)
    assert [row.method for row in rows] == [one.name, other.name, "rules"]
    one_kept, other_kept, _ = (row.recall.plain for row in rows)
    assert one_kept == 1 > other_kept
    found = {difference.what: difference for difference in differences}
    assert found["DEFAULT_DEADLINE"].kept_by == one.name
    assert found["DEFAULT_DEADLINE"].turn_id == "t2"
    assert found["DEFAULT_DEADLINE"].line == "DEFAULT_DEADLINE = 900"


def test_no_recorded_answer_at_all_is_one_clear_error(cuts, tmp_path):
    (cut,) = cuts
    one, empty = variant(tmp_path / "a", cut, KEEP_READ), variant(tmp_path / "b", cut)
    with pytest.raises(SettingsError, match=rf"no recorded answers .* {cut.name}\.answer\.txt"):
        compare_prompts(one, empty, cuts)
    prompts = sorted(path.read_text() for path in empty.answers.glob(f"{cut.name}.prompt*.txt"))
    assert prompts
    assert all("<history>" in prompt for prompt in prompts), "what is to be answered stands beside"


def test_comparing_a_folder_with_itself_is_refused(cuts):
    with pytest.raises(SettingsError, match="compared with itself"):
        compare_prompts(PromptVariant(), PromptVariant(), cuts)
