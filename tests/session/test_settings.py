"""Where settings come from, and that a wrong one says its name."""

import re

import pytest

from applier.session import Session
from applier.settings import PROJECT_FILE, SessionSettings, load_settings
from planner import PlanSettings
from planner.errors import SettingsError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_argument_beats_environment_beats_project_file_beats_default(tmp_path, monkeypatch):
    assert load_settings().window_tokens == 200_000
    (tmp_path / PROJECT_FILE).write_text('window_tokens = 50_000\npreset = "s06"\n[plan]\ntarget_ratio = 0.2\n')
    assert load_settings().window_tokens == 50_000
    monkeypatch.setenv("COMPACTOR_WINDOW_TOKENS", "60000")
    monkeypatch.setenv("COMPACTOR_PLAN__MAX_REASKS", "1")
    settings = load_settings()
    assert (settings.window_tokens, settings.preset) == (60_000, "s06")
    assert (settings.plan.target_ratio, settings.plan.max_reasks) == (0.2, 1)
    assert load_settings(window_tokens=70_000, preset=None).window_tokens == 70_000


def test_a_project_file_in_a_parent_folder_or_in_pyproject_counts(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.compactor]\nplanner = "rules"\n')
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert load_settings().planner == "rules"


@pytest.mark.parametrize(("said", "automatic"), [("false", False), ("0", False), ("true", True), ("", True)])
def test_claude_auto_compact_is_honoured(monkeypatch, said, automatic):
    monkeypatch.setenv("CLAUDE_AUTO_COMPACT", said)
    assert load_settings().auto_compact is automatic


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("window_tokens = 3\n", "window_tokens"),
        ("windows = 3\n", "windows"),
        ("[plan]\ntarget_ratio = 7\n", "plan.target_ratio"),
        ("this is not toml", "TOML"),
        ('[tool.compactor]\npreset = "s06"\n', r"compactor\.toml: settings stand here by themselves"),
    ],
)
def test_a_wrong_setting_says_its_name(tmp_path, text, names):
    (tmp_path / PROJECT_FILE).write_text(text)
    with pytest.raises(SettingsError, match=names):
        load_settings()


@pytest.mark.parametrize("said", ['compactor = "x"', "compactor = 3", 'compactor = ["preset"]', "compactor = false"])
def test_what_is_no_table_in_pyproject_is_named_with_its_file_and_cure(tmp_path, said):
    (tmp_path / "pyproject.toml").write_text(f"[tool]\n{said}\n")
    with pytest.raises(
        SettingsError, match=r"^\S+pyproject\.toml: tool\.compactor: expected a table .*line of its own"
    ):
        load_settings()


@pytest.mark.parametrize("name", [PROJECT_FILE, "pyproject.toml"])
def test_a_project_file_of_an_editor_that_marks_utf_8_and_ends_lines_as_windows_does_is_read(tmp_path, name):
    table = "[tool.compactor]\r\n" if name == "pyproject.toml" else ""
    (tmp_path / name).write_bytes(f'\ufeff{table}preset = "s06"\r\nwindow_tokens = 50000\r\n'.encode())
    assert (load_settings().preset, load_settings().window_tokens) == ("s06", 50_000)


def test_a_pyproject_without_any_tool_says_nothing(tmp_path):
    (tmp_path / "pyproject.toml").write_text('tool = "x"\n')
    assert load_settings() == SessionSettings()


def test_a_wrong_variable_says_its_name(monkeypatch):
    monkeypatch.setenv("COMPACTOR_MAX_FAILURES", "many")
    with pytest.raises(SettingsError, match="max_failures"):
        load_settings()


@pytest.mark.parametrize("name", ["FILE_ROOTS", "PERMISSIONS", "PLAN"])
@pytest.mark.parametrize("value", ["/src", "", "[" * 100_000])
def test_a_variable_of_several_values_says_which_form_it_has(monkeypatch, name, value):
    monkeypatch.setenv(f"COMPACTOR_{name}", value)
    with pytest.raises(SettingsError, match=f"COMPACTOR_{name}: expected JSON such as ") as refused:
        Session("t")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("text", [
    'permissions = ["all is allowed"]\n',
    'file_roots = ["/"]\n',
    'planner_model = "openai/gpt-5-mini"\n',
])  # fmt: skip
@pytest.mark.parametrize("name", [PROJECT_FILE, "pyproject.toml"])
def test_a_repository_cannot_speak_or_read_for_the_host_or_say_who_reads_its_text(tmp_path, monkeypatch, name, text):
    (tmp_path / name).write_text(text if name == PROJECT_FILE else f"[tool.compactor]\n{text}")
    with pytest.raises(SettingsError, match="not read from a project's file"):
        load_settings()
    (tmp_path / name).unlink()
    monkeypatch.setenv("COMPACTOR_PERMISSIONS", '["never push"]')
    assert load_settings(file_roots=(tmp_path,)).permissions == ("never push",)
    monkeypatch.setenv("COMPACTOR_PLANNER_MODEL", "openai/gpt-5-mini")
    assert load_settings().planner_model == "openai/gpt-5-mini"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            lambda: PlanSettings(target_ratio=25),
            "setting target_ratio: input should be less than or equal to 1, found 25",
        ),
        (lambda: PlanSettings(target_ratoi=0.5), "setting target_ratoi: there is none; did you mean target_ratio?"),
        (lambda: PlanSettings(zzz=1), "setting zzz: there is none; there are max_output_tokens, max_reasks, "),
        (lambda: SessionSettings(window_tokens="all"), "setting window_tokens: input should be a valid integer"),
        (
            lambda: SessionSettings(plan={"target_ratoi": 1}),
            "plan.target_ratoi: there is none; did you mean target_ratio?",
        ),
        (lambda: SessionSettings(plan={"target_ratio": 25}), "setting plan.target_ratio: input should be less than"),
        (
            lambda: Session("t", settings=SessionSettings(), window_tokens=3),
            "setting window_tokens: input should be gr",
        ),
    ],
)
def test_a_wrong_setting_in_code_is_named_with_its_value_and_cure(wrong, text):
    with pytest.raises(SettingsError, match=re.escape(text)) as refused:
        wrong()
    assert isinstance(refused.value, ValueError)


def test_settings_that_are_handed_in_are_not_mixed_with_the_environments(monkeypatch):
    settings = SessionSettings(max_failures=1)
    monkeypatch.setenv("COMPACTOR_RECALL_TOKENS", "7")
    changed = settings.changed(window_tokens=50_000)
    assert (changed.window_tokens, changed.max_failures, changed.recall_tokens) == (50_000, 1, 1_500)
    assert changed.model_fields_set == {"max_failures", "window_tokens"}
