"""The extension in a Pi that lacks what it uses: it never stops Pi, leaves it its own compaction, and says why."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from applier.adapters.client_plugin import CLIENTS, plugin_files, version_problem
from tests.patience import PATIENCE_SECONDS

HOST = Path(__file__).with_name("pi_host.mjs")
FUNCTIONS = "export const buildSessionProjection = () => ({ entries: [] })\nexport const convertToLlm = (all) => all\n"
PI = {
    "of another name": (None, True, "too old: install Pi 0.87 or newer"),
    "0.74": ("export const VERSION = '0.74.2'\nexport const convertToLlm = 1", False, "Pi 0.74.2 is too old"),
    "0.86": (f"export const VERSION = '0.86.1'\n{FUNCTIONS}", True, "Pi 0.86.1 is too old"),
    "of an unknown interface": ("export const VERSION = '9.0.0'", False, "Pi 9.0.0 has no buildSessionProjection"),
    "that is newer": (f"export const VERSION = '9.1.0'\n{FUNCTIONS}", True, "there is nothing to compact"),
}
"""Pi's own module, whether its registry answers questions, and what the person reads."""

pytestmark = [pytest.mark.real, pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")]


@pytest.mark.parametrize("version", PI)
def test_a_pi_of_any_version_starts_and_compacts_by_itself(tmp_path, version):
    module, answers, line = PI[version]
    folder = tmp_path / "compactor"
    folder.mkdir()
    program = [
        "sh",
        "-c",
        'test $0 = describe && echo \'{"tools": []}\' || echo \'{"pass": "there is nothing to compact"}\'',
    ]
    for name, content in plugin_files(program, {}, "pi").items():
        (folder / name).write_bytes(content)
    (folder / "package.json").write_text('{"type": "module"}')
    if module is not None:
        own = tmp_path / "node_modules/@earendil-works/pi-coding-agent"
        own.mkdir(parents=True)
        (own / "package.json").write_text('{"type": "module", "main": "index.js"}')
        (own / "index.js").write_text(module)
    command = ["node", str(HOST), str(folder), json.dumps({"complete": answers})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["result"] is None
    assert any(line in note and "Pi compacts by itself" in note for note in outcome["notes"]), outcome


@pytest.mark.parametrize(
    ("printed", "is_old"), [("0.73.1", True), ("0.86.1", True), ("0.87.0", False), ("1.6.0", False)]
)
def test_status_and_install_know_which_pi_is_too_old(printed, is_old):
    problem = version_problem(CLIENTS["pi"], printed)
    assert (problem is not None) == is_old
    assert problem is None or "too old" in problem.what
