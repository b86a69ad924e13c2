"""Questions about a conversation, asked of its compacted form: made, answered and judged by a model."""

from applier.evaluation.probes.exam import Grade, examine, make_probes
from applier.evaluation.probes.model import Ask, asking
from applier.evaluation.probes.probe import Probe, ProbeKind, ProbeSet, load_probes, save_probes

__all__ = [
    "Ask",
    "Grade",
    "Probe",
    "ProbeKind",
    "ProbeSet",
    "asking",
    "examine",
    "load_probes",
    "make_probes",
    "save_probes",
]
