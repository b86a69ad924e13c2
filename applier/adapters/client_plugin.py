"""The plugins by which clients compact with us: their folders' files, and what keeps Claude Code from loading its own.

A folder in the client's ``skills`` is loaded by itself, in every session and project (seen with 2.1.330): there is no
setting to change, and no copy that could grow old. Reads no file but those of the wheel, and writes none but theirs.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from applier.adapters.transcripts.claude_code import config_folder

__all__ = [
    "CLAUDE_CODE",
    "CLIENTS",
    "PART",
    "PLUGIN_NAME",
    "PluginClient",
    "Problem",
    "is_ours",
    "listing_problems",
    "plugin_files",
    "program_of",
    "put_plugin",
    "refusals",
    "settings_problems",
    "version_problem",
]

PLUGIN_NAME = "compactor"
PART = f".{PLUGIN_NAME}-install-"
"""How a folder begins that is being made or taken away; the client does not look into hidden ones."""
PLUGIN_ID = f"{PLUGIN_NAME}@skills-dir"
"""How the client calls it."""
MANIFEST, PROGRAM = ".claude-plugin/plugin.json", "program.json"
FIRST_VERSION = (2, 1, 287)
"""Of the client that loads mods unasked."""
ADMINISTRATOR = "ask whoever manages this machine"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
"""``2.1.330`` in ``2.1.330 (Claude Code)``."""
_POLICY_PLUGINS = ("cc-plugin-sec-default@builtin", "sec-default@builtin")


@dataclass(frozen=True)
class PluginClient:
    """A client that loads plugins of ours."""

    title: str
    command: str
    """How it is run."""
    shipped: tuple[str, ...]
    """Where in the wheel its plugin's files are."""
    home: Callable[[Mapping[str, str]], Path]
    """Where it keeps its own files."""
    holder: str
    """The folder in there whose folders it loads."""

    def folder(self, environment: Mapping[str, str]) -> Path:
        """Where it finds the plugin."""
        return self.home(environment) / self.holder / PLUGIN_NAME


def _home_of_pi(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("PI_CODING_AGENT_DIR") or "~/.pi/agent").expanduser().absolute()


CLAUDE_CODE = "claude-code"
CLIENTS = {
    CLAUDE_CODE: PluginClient("Claude Code", "claude", ("claude_code_mod", "plugin"), config_folder, "skills"),
    "pi": PluginClient("Pi", "pi", ("pi_extension",), _home_of_pi, "extensions"),
}
"""What can be installed, by what a person types."""


@dataclass(frozen=True)
class Problem:
    """What keeps the mod from its work, and what to do about it."""

    what: str
    cure: str


def plugin_files(argv: Sequence[str], environment: Mapping[str, str], client: str = CLAUDE_CODE) -> dict[str, bytes]:
    """Every file of the folder, by its path in it; the program that it runs is `argv`, with `environment` added."""
    shipped = files("applier.adapters").joinpath(*CLIENTS[client].shipped)
    program = {"argv": list(argv), "environment": dict(environment)}
    return {**dict(_below(shipped, "")), PROGRAM: (json.dumps(program, indent=2) + "\n").encode()}


def _below(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _below(entry, f"{path}{entry.name}/")
        else:
            yield f"{path}{entry.name}", entry.read_bytes()


def put_plugin(contents: Mapping[str, bytes], folder: Path) -> None:
    """Have `folder` hold these files and nothing else: made beside it and put in its place.

    Raises:
        OSError: they cannot be written, and `folder` is as it was, or another process has put its own there.
    """
    with tempfile.TemporaryDirectory(prefix=PART, dir=folder.parent) as beside:
        new = Path(beside, "new")
        new.mkdir(mode=0o700)  # the program's environment may name a store by its password
        for path, content in contents.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            (new / path).write_bytes(content)
        if folder.exists():
            folder.rename(Path(beside, "old"))
        new.rename(folder)


def is_ours(present: Mapping[str, bytes], shipped: Collection[str]) -> bool:
    """True for the files of our folder, of any version; for some of those that are `shipped`, damaged too; for none."""
    named = _json(present.get(MANIFEST, b"")).get("name") == PLUGIN_NAME
    return named or PROGRAM in present or present.keys() <= set(shipped)


def _json(raw: bytes) -> dict[str, Any]:
    """The object in `raw`; an empty one if there is none."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def program_of(present: Mapping[str, bytes]) -> tuple[list[str], dict[str, str]]:
    """The program that the folder names, and what is added to its environment; empty where that cannot be read."""
    own = _json(present.get(PROGRAM, b""))
    argv, environment = own.get("argv"), own.get("environment")
    return (
        [str(part) for part in argv] if isinstance(argv, list) else [],
        {name: str(value) for name, value in environment.items()} if isinstance(environment, dict) else {},
    )


def version_problem(printed: str) -> Problem | None:
    """What is wrong with a client that prints this as its version."""
    match = _VERSION.search(printed)
    if match is None:
        return Problem(f"the client says {printed[:60]!r} for its version", "is `claude` Claude Code?")
    if tuple(map(int, match.groups())) >= FIRST_VERSION:
        return None
    return Problem(f"Claude Code {match[0]} loads no mods; {'.'.join(map(str, FIRST_VERSION))} does", "claude update")


def listing_problems(listing: Sequence[Mapping[str, Any]], folder: str) -> Iterator[Problem]:
    """What is wrong by what ``claude plugin list --json`` printed, where the mod is in `folder`."""
    ours = [entry for entry in listing if str(entry.get("id", "")).partition("@")[0] == PLUGIN_NAME]
    others = [entry for entry in ours if entry.get("id") != PLUGIN_ID and entry.get("enabled")]
    for entry in others:
        what = f"{entry['id']} is loaded in its place, from {entry.get('installPath', 'elsewhere')}"
        yield Problem(what, f"claude plugin uninstall {entry['id']}")
    own = next((entry for entry in ours if entry.get("id") == PLUGIN_ID), None)
    if own is None:
        yield Problem(f"Claude Code does not load what is in {folder}", f"{ADMINISTRATOR}, or start it anew")
    elif own.get("errors") and not others:
        yield Problem(" ".join(map(str, own["errors"])), "compactor install claude-code")
    elif not own.get("enabled") and not others:
        yield Problem("the mod is turned off in Claude Code", f"claude plugin enable {PLUGIN_ID}")


def refusals(checked: Mapping[str, Any]) -> Iterator[Problem]:
    """Why the client does not take the mod as it is, by what ``claude plugin validate --json`` printed."""
    contents = checked.get("contents")
    parts = [checked.get("manifest"), *(contents if isinstance(contents, list) else ())]
    listed = [part.get("errors") for part in parts if isinstance(part, dict)]
    for error in (error for errors in listed if isinstance(errors, list) for error in errors):
        said = error.get("message") if isinstance(error, dict) else error
        yield Problem(f"Claude Code does not take the mod: {said}", "pip install -U relevance-compactor, then install")


def settings_problems(name: str, settings: Mapping[str, Any], *, managed: bool) -> Iterator[Problem]:
    """What in the client's `settings`, in the file `name`, keeps it from loading mods.

    `managed`: they are the machine's, whose rules a person cannot change.
    """
    cure = ADMINISTRATOR if managed else f"take it out of {name}"
    for key in ("disableAllHooks", "allowManagedHooksOnly") if managed else ("disableAllHooks",):
        if settings.get(key):
            yield Problem(f"{name}: {key} turns mods off", cure)
    if not managed:
        return
    policies = [_inside(settings, "pluginConfigs", plugin, "options") for plugin in _POLICY_PLUGINS]
    if any(options.get("allowManagedModsOnly") for options in policies):
        yield Problem(f"{name}: allowManagedModsOnly turns all mods but the machine's off", cure)
    allowed, blocked = settings.get("strictKnownMarketplaces"), settings.get("blockedMarketplaces")
    if isinstance(allowed, list) and {"source": "skills-dir"} not in allowed:
        yield Problem(f"{name}: strictKnownMarketplaces does not allow plugins of the skills folder", cure)
    if isinstance(blocked, list) and {"source": "skills-dir"} in blocked:
        yield Problem(f"{name}: blockedMarketplaces forbids plugins of the skills folder", cure)


def _inside(settings: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The object at the end of `names`; an empty one if there is none."""
    for name in names:
        inner = settings.get(name)
        settings = inner if isinstance(inner, dict) else {}
    return settings
