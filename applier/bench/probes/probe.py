"""A probe: one question whose answer the agent will need, and where sets of them are kept between runs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import TranscriptError

__all__ = ["Probe", "ProbeKind", "ProbeSet", "load_probes", "save_probes"]

ProbeKind = Literal["recall", "artifact", "continuation", "decision"]
"""``recall``: a fact or error text; ``artifact``: which files, commits or objects, in which state;
``continuation``: what comes next; ``decision``: what was chosen or forbidden, and why."""


class Probe(BaseModel):
    """One question."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: ProbeKind
    question: str = Field(min_length=1)
    answer: str = Field(min_length=1, description="The full answer, in one or two sentences, with its exact names")


class ProbeSet(BaseModel):
    """Probes by the name of the cut they are for."""

    model_config = ConfigDict(extra="forbid")

    model: str = ""
    """Who wrote them."""
    probes: dict[str, tuple[Probe, ...]] = {}


def load_probes(path: Path) -> ProbeSet:
    """The probes kept in `path`; none if there is no such file.

    Raises:
        TranscriptError: the file holds something else.
    """
    if not path.is_file():
        return ProbeSet()
    try:
        return ProbeSet.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise TranscriptError(f"{path}: expected a set of probes: {error.errors()[0]['msg'].lower()}") from error


def save_probes(probes: ProbeSet, path: Path) -> None:
    """Keep `probes` in `path`, so that the next run asks the same questions."""
    path.write_text(probes.model_dump_json(indent=1) + "\n", "utf-8")
