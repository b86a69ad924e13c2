"""The example agent's tools really act, and stay inside their folder."""

from pathlib import Path

import pytest

from planner.reading.messages import result_text
from tests.example.workspace import TOOLS, Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def call(workspace: Workspace, name: str, **given: object) -> tuple[str, bool]:
    result = workspace.answer({"type": "tool_use", "id": "toolu_1", "name": name, "input": given})
    assert result["tool_use_id"] == "toolu_1"
    return result_text(result), result.get("is_error", False)


def test_a_file_is_written_read_edited_and_run(workspace, tmp_path):
    call(workspace, "write", path="/workspace/pkg/a.py", content="x = 1\nprint(x)\n")
    assert call(workspace, "read", path="pkg/a.py") == ("     1\tx = 1\n     2\tprint(x)", False)
    assert call(workspace, "edit", path="pkg/a.py", old_string="x = 1", new_string="x = 2")[1] is False
    assert call(workspace, "bash", command="python pkg/a.py") == ("2", False)
    assert (tmp_path / "pkg/a.py").read_text() == "x = 2\nprint(x)\n"


def test_part_of_a_file(workspace):
    call(workspace, "write", path="n.txt", content="".join(f"{n}\n" for n in range(1, 100)))
    assert call(workspace, "read", path="n.txt", offset=50, limit=2)[0] == "    50\t50\n    51\t51"


def test_a_failing_command_is_an_error_with_its_code_and_output(workspace):
    assert call(workspace, "bash", command="echo so far; exit 3") == ("Exit code 3\nso far", True)


def test_a_command_that_does_not_end_is_stopped_with_all_it_started(tmp_path):
    text, failed = call(Workspace(tmp_path, command_seconds=0.3), "bash", command="echo begun; sleep 60 & wait")
    assert (text, failed) == ("Stopped after 0.3 seconds\nbegun", True)


@pytest.mark.parametrize("old", ["nothing like it", "b"])
def test_an_edit_that_does_not_fit_exactly_once_changes_nothing(workspace, tmp_path, old):
    call(workspace, "write", path="a.txt", content="a b b\n")
    text, failed = call(workspace, "edit", path="a.txt", old_string=old, new_string="c")
    assert failed
    assert "expected exactly once" in text
    assert (tmp_path / "a.txt").read_text() == "a b b\n"


@pytest.mark.parametrize("path", ["../secret", "/workspace/../../secret", "link/secret"])
def test_nothing_outside_the_folder_is_read_or_written(tmp_path, path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("s")
    (root / "link").symlink_to(tmp_path)
    for name, given in (("read", {}), ("write", {"content": "x"})):
        text, failed = call(Workspace(root), name, path=path, **given)
        assert failed
        assert "outside /workspace" in text
    assert (tmp_path / "secret").read_text() == "s"


def test_the_folder_is_called_workspace_in_commands_and_output(workspace, tmp_path):
    text, _ = call(workspace, "bash", command="pwd; mkdir /workspace/in; ls; python -c 'import json; print(json)'")
    assert text.startswith("/workspace\nin\n<module 'json' from '/usr/")
    assert str(tmp_path) not in text


def test_unknown_tools_and_missing_arguments_are_errors_the_model_can_read(workspace):
    assert call(workspace, "fly") == ("no such tool: fly", True)
    assert call(workspace, "read") == ("read: missing argument 'path'", True)


def test_every_tool_that_is_offered_is_there(workspace):
    for tool in TOOLS:
        assert "no such tool" not in call(workspace, tool["name"])[0]
