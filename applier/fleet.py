"""Plans compactions of many transcript files, and returns a row of numbers for each file.

Runs in a pool of processes or in Ray Data (a library for many machines). Writes nothing. A file that fails has its
error in its row. Plans by rules give the same row on every machine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from applier.adapters.transcripts import Transcript, read_transcript
from applier.adapters.transcripts.document import file_content
from applier.view import look_in
from planner.api import plan_compaction
from planner.errors import TranscriptError
from planner.plan import CompactionPlan, Strategy, Usage
from planner.reading.secrets import redact
from planner.settings import PlannerName, PlanSettings, ToolUse

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["DIED", "EMPTY_ROW", "PlanOptions", "Row", "content_digest", "plan_row", "planned_rows"]

_LONGEST_ERROR = 600
"""Largest length of the error text in a row of results, in characters."""
Row = dict[str, Any]
EMPTY_ROW: Row = {
    **dict.fromkeys(("path", "digest", "options", "format"), ""),
    **dict.fromkeys(("messages", "turns", "tokens_before", "tokens_after", *get_args(Strategy), "failures"), 0),
    "findings": [],
    "warnings": 0,
    **dict.fromkeys(("planner", "model"), ""),
    **dict.fromkeys(("input_tokens", "output_tokens"), 0),
    **dict.fromkeys(("plan", "cause", "error"), ""),
}
"""Row of results for a file that was not planned yet: all fields, in order. ``digest`` is the digest of the file's
bytes, and ``options`` that of its `PlanOptions`. ``findings`` lists the codes of findings, and ``warnings`` counts
those of the reader. ``plan`` is the plan as JSON, if the options ask for it. ``cause`` is the name of the error's
class."""
DIED: Row = {"cause": "died", "error": "the process that planned it died: out of memory?"}
"""Fields of the row for a file if the process that planned it died."""


@dataclass(frozen=True)
class PlanOptions:
    """Options of planning a transcript. A file's row of results depends only on these and the file."""

    planner: PlannerName = "rules"
    model: str | None = None
    task: str | None = None
    """Task of all transcripts; None means each transcript's own task."""
    target_tokens: int | None = None
    target_ratio: float | None = None
    focus: str | None = None
    prompts_dir: str | None = None
    prompts: str = ""
    """Digest of the prompts that a model gets; empty if the rules plan."""
    settings: PlanSettings = field(default_factory=PlanSettings)
    tool_uses: Mapping[str, ToolUse] = field(default_factory=dict)
    """Effects of the agent's tools, by name."""
    with_plan: bool = False
    """True if the row of results also contains the plan."""
    store: str | None = None
    """Store in which the originals of an already compacted transcript are searched, besides the default one."""

    @property
    def digest(self) -> str:
        """Digest of all options, to notice rows of results that were made with other options."""
        uses = {name: use.model_dump() for name, use in self.tool_uses.items()}
        data = asdict(self) | {"settings": self.settings.model_dump(), "tool_uses": uses}
        return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    def task_of(self, read: Transcript) -> str:
        """Return the agent's task in the transcript `read`, which these options may replace; empty if there is none."""
        return (self.task or "").strip() or read.task

    def plan(self, read: Transcript) -> CompactionPlan:
        """Return a plan for compacting one transcript. Raise TranscriptError if it has messages but no task."""
        task = self.task_of(read)
        if read.messages and not task:
            raise TranscriptError("names no task: set by --task what the agent is to do now")
        return plan_compaction(
            read.messages,
            task,
            target_tokens=self.target_tokens,
            target_ratio=self.target_ratio,
            focus=self.focus,
            planner=self.planner,
            model=self.model,
            system=read.system,
            tools=read.tools,
            tool_uses=self.tool_uses,
            prompts_dir=self.prompts_dir,
            settings=self.settings,
        )


def content_digest(content: bytes) -> str:
    """Return the digest of a file's bytes, to notice files that were planned before."""
    return sha256(content).hexdigest()


def plan_row(path: str, options: PlanOptions, content: bytes | None = None) -> Row:
    """Return the row of results for the transcript file `path`; `content` has the file's bytes, if they are known."""
    row = EMPTY_ROW | {"path": path, "options": options.digest}
    try:
        content = file_content(Path(path)) if content is None else content
        row["digest"] = content_digest(content)
        read = read_transcript(content)
        look_in(options.store)  # where the plan looks for originals of a compacted transcript
        plan = options.plan(read)
        usage = plan.provenance.usage
        numbers: Row = {
            "format": read.format,
            "messages": plan.history.messages,
            "turns": plan.history.turns,
            "tokens_before": plan.history.tokens,
            "tokens_after": plan.estimated_tokens,
            **Counter(turn.strategy for turn in plan.turns),
            "failures": sum(turn.failed_approach for turn in plan.turns),
            "findings": sorted(finding.code for finding in plan.findings),
            "warnings": len(read.warnings),
            "planner": plan.provenance.planner,
            "model": plan.provenance.model,
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.output_tokens,
            "plan": plan.to_json() if options.with_plan else "",
        }
        return row | numbers
    except Exception as error:  # noqa: BLE001 - one of thousands of files may contain anything
        # the error begins with the file's path or with "text"; the row has the path already
        usage = getattr(error, "usage", None) or Usage()
        row |= {"input_tokens": usage.prompt_tokens, "output_tokens": usage.output_tokens}
        text = str(error).removeprefix(path).removeprefix("text").lstrip(",: ") or type(error).__name__
        return row | {"cause": type(error).__name__, "error": redact(text)[:_LONGEST_ERROR]}  # it may quote the file


def planned_rows(files: Dataset, options: PlanOptions, **resources: Any) -> Dataset:
    """Return a dataset with the row of each file in the dataset `files`, in any order. `files` has a column ``path``
    and perhaps one of ``bytes``, as ``ray.data.read_binary_files(…, include_paths=True)`` returns it. `resources` are
    options of ``Dataset.map``, such as ``num_cpus``."""
    return files.map(lambda file: plan_row(str(file["path"]), options, file.get("bytes")), **resources)
