"""What a user has is what ``kept/`` says: what is read off the code here, what is made of it by CI."""

import subprocess
import sys

import pytest

from tests.inventory.product import ROOT

pytestmark = pytest.mark.real


@pytest.mark.skipif(not (ROOT / "planner").is_dir(), reason="a wheel's tests stand without the pages and prompts")
def test_a_user_has_what_is_kept():
    """In an interpreter of its own: it imports every module, and sets the environment and the folder."""
    command = [sys.executable, "-m", "tests.inventory", "--quick"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "as it was\n"), ran.stdout + ran.stderr
