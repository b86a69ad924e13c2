"""What the page of learned lines shows, and takes as decided; writes by the function it was given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from applier.learning.files import HEADINGS
from applier.learning.propose import Line

__all__ = ["Decided", "LineReview"]


class Decided(BaseModel):
    """The keys of the lines that were agreed to, and of those that were refused."""

    model_config = ConfigDict(extra="forbid")

    yes: list[str]
    no: list[str]


@dataclass(frozen=True)
class LineReview:
    """Lines that are proposed for a project."""

    project: str
    lines: Sequence[Line]
    standing: str
    """What changes of lines that were approved before, as a diff; empty if nothing does."""
    write: Callable[[Collection[str], Collection[str]], str]
    """Takes the keys that `Decided` holds; what it did, in words."""

    def page(self) -> Mapping[str, Any]:
        """All that is shown."""
        return {"project": self.project, "lines": [_shown(line) for line in self.lines], "standing": self.standing}

    def decide(self, decided: Decided) -> Mapping[str, Any]:
        """Write what was agreed to.

        Raises:
            CompactorError: a file cannot be written.
        """
        known = {line.key for line in self.lines}
        return {"message": self.write(known.intersection(decided.yes), known.intersection(decided.no))}


def _shown(line: Line) -> dict[str, Any]:
    """A line with its quote apart."""
    words = line.sources[0].lesson.words
    claim = line.text.replace(f": “{words}”", "", 1).replace(f": `{words}`", "", 1)
    cited = line.line.removeprefix(f"- {line.text} (").removesuffix(")")
    heading = HEADINGS[line.kind].strip("# ")
    return {"key": line.key, "heading": heading, "text": claim, "quote": words, "cited": cited}
