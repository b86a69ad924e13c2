"""The package is light to import, complete, and contains only the two packages."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def installed_files(tmp_path: Path) -> set[str]:
    """Return the files of the wheel, built from the sources if they are here."""
    if not (ROOT / "planner").is_dir():
        return {str(file) for file in metadata.files("relevance-compactor") or ()}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_wheel_holds_both_packages_the_prompts_and_nothing_else(tmp_path):
    files = {name for name in installed_files(tmp_path) if not name.endswith(".pyc")}
    tops = {name.split("/")[0] for name in files if not name.startswith("..")}
    assert {top for top in tops if ".dist-info" not in top} == {"planner", "applier"}
    assert {"planner/py.typed", "applier/py.typed"} <= files
    assert "planner/_prompts/system.md" in files
    assert any(name.endswith("licenses/LICENSE") for name in files)
    assert not [name for name in files if "test" in name.split("/")[-1]]


@pytest.mark.real
def test_import_loads_no_model_client():
    clients = ("anthropic", "instructor", "openai", "langchain_core", "pydantic_ai")
    code = "import sys, applier.cli.app\nfrom planner import *\nfrom applier import *\n"
    code += f"print([m for m in {clients} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_command_is_installed():
    scripts = {script.name: script.value for script in metadata.entry_points(group="console_scripts")}
    assert scripts["compactor"] == "applier.cli:main"


@pytest.mark.parametrize("name", ["anthropic", "instructor", "pydantic"])
def test_libraries_we_lean_on_have_a_lower_and_an_upper_bound(name):
    (found,) = [need for need in PROJECT["dependencies"] if re.match(rf"{name}(?![\w-])", need)]
    assert ">=" in found
    assert ",<" in found


def test_changelog_has_the_version():
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()
