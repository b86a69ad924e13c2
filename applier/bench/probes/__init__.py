"""Questions about a conversation, asked of its compacted form: made, answered and judged by a model."""

from applier.bench.probes.exam import Grade, examine, make_probes
from applier.bench.probes.model import Ask, asking
from applier.bench.probes.probe import Probe, ProbeKind, ProbeSet, load_probes, save_probes
from applier.bench.probes.run import ExamMean, ExamRow, exam_means, hold_exams

__all__ = [
    "Ask",
    "ExamMean",
    "ExamRow",
    "Grade",
    "Probe",
    "ProbeKind",
    "ProbeSet",
    "asking",
    "exam_means",
    "examine",
    "hold_exams",
    "load_probes",
    "make_probes",
    "save_probes",
]
