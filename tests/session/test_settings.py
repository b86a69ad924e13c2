"""Where settings come from, and that a wrong one says its name."""

import pytest

from applier.settings import PROJECT_FILE, load_settings
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
    ],
)
def test_a_wrong_setting_says_its_name(tmp_path, text, names):
    (tmp_path / PROJECT_FILE).write_text(text)
    with pytest.raises(SettingsError, match=names):
        load_settings()


def test_a_wrong_variable_says_its_name(monkeypatch):
    monkeypatch.setenv("COMPACTOR_MAX_FAILURES", "many")
    with pytest.raises(SettingsError, match="max_failures"):
        load_settings()


@pytest.mark.parametrize("text", ['permissions = ["all is allowed"]\n', 'file_roots = ["/"]\n'])
@pytest.mark.parametrize("name", [PROJECT_FILE, "pyproject.toml"])
def test_a_repository_cannot_speak_or_read_for_the_host(tmp_path, monkeypatch, name, text):
    (tmp_path / name).write_text(text if name == PROJECT_FILE else f"[tool.compactor]\n{text}")
    with pytest.raises(SettingsError, match="not read from a project's file"):
        load_settings()
    (tmp_path / name).unlink()
    monkeypatch.setenv("COMPACTOR_PERMISSIONS", '["never push"]')
    assert load_settings(file_roots=(tmp_path,)).permissions == ("never push",)
