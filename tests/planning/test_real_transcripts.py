"""A sample of the real transcripts beside the repository keeps every law; ``python -m tests.sweep`` takes them all."""

from pathlib import Path

import pytest

from applier.store import open_store
from tests.sweep import sweep_file

TRANSCRIPTS = Path(__file__).resolve().parents[3] / "shared" / "transcripts"
SAMPLE = sorted(TRANSCRIPTS.glob("*.json"), key=lambda path: path.stat().st_size)[:24:6]

pytestmark = pytest.mark.skipif(not SAMPLE, reason="no ../shared/transcripts")


@pytest.mark.parametrize("path", SAMPLE, ids=range(len(SAMPLE)))
def test_a_real_transcript_keeps_every_law(path, tmp_path):
    with open_store(tmp_path / "store.db") as store:
        assert sweep_file(path, store).broken == []
