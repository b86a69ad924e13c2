"""Loads the prompts for the planner model: Markdown files that a person can edit, with variables like ``{{cards}}``.

Chooses each file (the user's before the packaged one), checks its variables, and escapes text from a conversation, so
that it cannot look like a part of a prompt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.errors import SettingsError

PROMPTS: Mapping[str, frozenset[str]] = {
    "brief": frozenset(),
    "system": frozenset({"brief_rules"}),
    "plan": frozenset(
        {"latest", "task", "focus", "user_words", "outcomes", "sizes", "brief", "before", "cards", "after"}
    ),
    "update": frozenset({"latest", "task", "focus", "sizes", "brief", "before", "outcomes", "cards"}),
    "learn_system": frozenset(),
    "learn": frozenset({"cards"}),
    "review_system": frozenset(),
    "review": frozenset({"candidates"}),
    "mend": frozenset({"statements"}),
    "prefix": frozenset({"brief_rules", "index", "focus", "sizes"}),
}
"""Names of all prompts, each with the variables that its file must contain."""

TAGS: tuple[str, ...] = tuple(
    sorted((PROMPTS["plan"] - {"sizes", "cards"}) | {"history", "index", "statements", "candidates"})
)
"""Names of the tags around the parts of a prompt, such as ``<task>``. They are escaped in text from a conversation, so
that it cannot end a part or begin another."""

_TAG = re.compile(rf"<(?=\s{{0,9}}/?\s{{0,9}}(?:{'|'.join(TAGS)})\b)", re.IGNORECASE)
"""The ``<`` of what a model could read as one of `TAGS`: ``</history>``, ``< Task``; not ``<tasks>`` or ``a < b``."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")
_VARIABLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_PART = re.compile(
    r"^<!-- (with entries|brief alone) -->\n"
    r"((?>(?:(?!<!-- (?:with entries|brief alone|end) -->$).*\n)*))"
    r"<!-- end -->(?:\n|$)",
    re.MULTILINE,
)
"""Part of a prompt file that is sent only if the model is to judge turns (``<!-- with entries -->``), or only if it is
to write the brief alone (``<!-- brief alone -->``). No part contains the beginning of another."""


@dataclass(frozen=True)
class Prompts:
    """Texts of all prompts for the planner model, by name; `render` fills their variables."""

    texts: Mapping[str, str]
    files: Mapping[str, Path]
    """File that each text was read from, by the prompt's name."""

    @property
    def hash(self) -> str:
        """Digest of all prompts (``sha256:…``), which a plan records so that it shows what its model was asked."""
        whole = "\0".join(f"{name}\0{self.texts[name]}" for name in sorted(self.texts))
        return "sha256:" + hashlib.sha256(whole.encode()).hexdigest()

    def render(self, name: str, entries: bool = True, /, **variables: str) -> str:
        """Return the prompt `name` with its variables replaced. A ``{{…}}`` in a value is not replaced. With `entries`,
        the prompt asks for choices about turns and a brief; without, for a brief alone. The rules for writing a brief
        replace ``{{brief_rules}}`` in the prompts that have it."""
        variables = {"brief_rules": self.texts["brief"], **variables}
        part = "with entries" if entries else "brief alone"
        text = _PART.sub(lambda match: match[2] if match[1] == part else "", self.texts[name])
        return _VARIABLE.sub(lambda place: variables[place.group(1)], text)


def safe_text(text: str) -> str:
    """Return `text`, which comes from a conversation, so that it can do no harm in a prompt: tags that the prompt uses
    are escaped, control characters and line breaks other than ``\\n`` become spaces, and lone surrogates, which no
    request can contain, become question marks."""
    text = text.encode("utf-8", "replace").decode()
    return _TAG.sub("&lt;", _CONTROL.sub(" ", text))


def safe_line(text: str, most_characters: int) -> str:
    """Return `text` as one line that is safe in a prompt; beyond `most_characters` it is cut, with ``…`` at its end."""
    line = " ".join(safe_text(text).split())
    return line if len(line) <= most_characters else line[: max(0, most_characters - 1)].rstrip() + "…"


def packaged_folder() -> Path:
    """Return the folder of the prompts that this project ships: in an installed wheel it is inside the package, in the
    source tree next to it."""
    inside = Path(__file__).parent.parent / "_prompts"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "prompts"


def load_prompts(folder: str | Path | None = None) -> Prompts:
    """Return all prompts; a file in `folder` replaces the packaged one of the same name.

    Raises:
        SettingsError: the folder or a file is missing, or a file is no prompt or has wrong variables.
    """
    own_files: set[Path] = set()
    if folder is not None:
        if not Path(folder).is_dir():
            raise SettingsError(f"{folder}: no such folder of prompts: make it with `compactor prompts copy {folder}`")
        own_files = {path for path in Path(folder).glob("*.md") if path.stem.lower() != "readme"}
    if unknown := sorted(path for path in own_files if path.stem not in PROMPTS):
        known = ", ".join(f"{name}.md" for name in sorted(PROMPTS))
        raise SettingsError(f"{unknown[0]}: no prompt has this name: rename it to one of {known}")
    files = {name: packaged_folder() / f"{name}.md" for name in sorted(PROMPTS)}
    files |= {path.stem: path for path in own_files if path.is_file()}
    return Prompts({name: _text(name, path) for name, path in files.items()}, files)


def _text(name: str, path: Path) -> str:
    """Return the text of prompt `name`; raise a SettingsError if it is empty or has wrong variables."""
    try:
        text = path.read_text("utf-8-sig").strip()
    except FileNotFoundError:
        raise SettingsError(f"{path}: this prompt is missing: install the package again") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read ({type(error).__name__}): save it as UTF-8 text") from None
    if not text:
        raise SettingsError(f"{path}: is empty: write the prompt, or delete the file")
    places = set(_VARIABLE.findall(text))
    if unknown := places - PROMPTS[name]:
        cure = f"use {_places(PROMPTS[name]) or 'none'}, or take it out"
        raise SettingsError(f"{path}: unknown variable {_places(unknown)}: {cure}")
    if missing := PROMPTS[name] - places:
        raise SettingsError(f"{path}: missing variable {_places(missing)}: put it where it belongs")
    return text


def _places(names: frozenset[str] | set[str]) -> str:
    return ", ".join("{{" + name + "}}" for name in sorted(names))
