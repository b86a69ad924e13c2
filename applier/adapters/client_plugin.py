"""Files and folders of the plugins by which coding agents (clients) use this package, and why a client ignores one.

A plugin is a folder that the client loads in every session and project; none of the client's settings is changed. The
plugin of Claude Code is called a mod. Only files of this package are read, and only files of the plugin written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from typing import Any

from applier.adapters.transcripts.claude_code import config_folder
from applier.adapters.transcripts.codex import home_folder
from applier.store.opening import STORE_VARIABLE

PLUGIN_NAME = "compactor"
PART = f".{PLUGIN_NAME}-install-"
"""Beginning of the name of a temporary folder during installation or removal. Clients ignore it, as it is hidden."""
PLUGIN_ID = f"{PLUGIN_NAME}@skills-dir"
"""Name of the plugin in Claude Code."""
DISTRIBUTION = "relevance-compactor"
"""Name of this package, and of the marketplace from which Codex loads the plugin."""
CODEX_ID = f"{PLUGIN_NAME}@{DISTRIBUTION}"
"""Name of the plugin in Codex."""
ENTRY = f"../{PLUGIN_NAME}.js"
"""File next to the plugin's folder, which loads the plugin into OpenCode: that client loads files, not folders."""
_ENTRY_TEXT = """\
// OpenCode loads each file of its `plugins` folder; the plugin itself is in the folder beside this file.

export { default } from './compactor/index.js'
"""
MANIFEST, PROGRAM = ".claude-plugin/plugin.json", "program.json"
"""Files of the plugin: its description for Claude Code, and the command line of the program that the plugin runs."""
ADMINISTRATOR = "ask whoever manages this machine"
"""Advice about a setting that the user cannot change."""
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
"""Version in the output of ``--version``: ``2.1.330`` in ``2.1.330 (Claude Code)``."""
HOOK_SECONDS = 120
"""Longest time that Codex waits for the plugin's program after a compaction."""
_POLICY_PLUGINS = ("cc-plugin-sec-default@builtin", "sec-default@builtin")
"""Plugins of Claude Code that an administrator may set to forbid other plugins, in ``pluginConfigs``."""


@dataclass(frozen=True)
class PluginClient:
    """Coding agent that loads a plugin of this project, and where and how it does so."""

    title: str
    command: str
    """Program that a person types: ``claude``."""
    sources: tuple[str, ...]
    """Folders below `applier/adapters/javascript` with files of the plugin."""
    home: Callable[[Mapping[str, str]], Path]
    """Function that returns the folder of the client's own files, by the environment."""
    holder: str
    """Folder below `home` from which the client loads plugins: ``skills``."""
    first_version: tuple[int, int, int]
    """First version of the client with the interface that the plugin uses."""
    update: str
    """Command that updates the client."""
    documents: Callable[[Sequence[str], Mapping[str, str]], Mapping[str, object]] = lambda _argv, _environment: {}
    """Function that returns more files of the plugin, as JSON data by path. Its arguments are the command line that the
    plugin runs, and the variables that this adds to the environment."""
    registers: tuple[str, ...] = ()
    """Commands of the client that load the plugin, for a client that does not find the folder itself."""
    forgets: tuple[str, ...] = ()
    """Commands of the client that undo `registers`."""

    def folder(self, environment: Mapping[str, str]) -> Path:
        """Return the folder for the plugin's files: ``~/.claude/skills/compactor``."""
        return self.home(environment) / self.holder / PLUGIN_NAME


def _home_of_opencode(environment: Mapping[str, str]) -> Path:
    """Return OpenCode's folder: ``$OPENCODE_CONFIG_DIR``, or ``opencode`` in the user's folder of settings."""
    shared = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(environment.get("OPENCODE_CONFIG_DIR") or os.path.join(shared, "opencode")).expanduser().absolute()


def _claude_code_documents(_argv: Sequence[str], _environment: Mapping[str, str]) -> dict[str, object]:
    """Return the JSON files by which Claude Code loads the plugin's module ``hooks/register.js``, by their paths."""
    return {
        MANIFEST: {
            "name": PLUGIN_NAME,
            "version": metadata.version(DISTRIBUTION),
            "description": "Compacts by relevance: what matters stays, everything removed can be brought back.",
            "author": {"name": DISTRIBUTION},
            "license": "MIT",
        },
        "hooks/hooks.json": {"modules": ["./register.js"]},
    }


def _codex_documents(argv: Sequence[str], environment: Mapping[str, str]) -> dict[str, object]:
    """Return the JSON files of a marketplace with one plugin for Codex, by their paths. The plugin adds the MCP server
    `compactor mcp`, and a hook that runs the program after each compaction by Codex."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    digest = sha256(repr([*argv, *variables]).encode()).hexdigest()
    # Codex starts hooks with the person's environment but MCP servers without: pass on the variable with the store
    passed: dict[str, object] = {"env": dict(environment)} if environment else {"env_vars": [STORE_VARIABLE]}
    # the last word of `argv` is the command `mod`, in place of which the server's command comes
    server = {"command": "".join(argv[:1]), "args": [*argv[1:-1], "mcp", "--thread"], **passed}
    run = shlex.join([*(["env", *variables] if variables else []), *argv, "remember"])
    hook = {"matcher": "compact", "hooks": [{"type": "command", "command": run, "timeout": HOOK_SECONDS}]}
    plugin = {
        "name": PLUGIN_NAME,
        "source": {"source": "local", "path": f"./{PLUGIN_NAME}"},
        "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
    }
    return {
        ".agents/plugins/marketplace.json": {"name": DISTRIBUTION, "plugins": [plugin]},
        f"{PLUGIN_NAME}/.codex-plugin/plugin.json": {
            "name": PLUGIN_NAME,
            # Codex copies a plugin again only if its version changed
            "version": f"{metadata.version(DISTRIBUTION)}+{digest[:8]}",
            "description": "Keeps what Codex' compactions leave out",
            "mcpServers": "./.mcp.json",
            "hooks": "./hooks/hooks.json",
        },
        f"{PLUGIN_NAME}/.mcp.json": {"mcpServers": {PLUGIN_NAME: server}},
        f"{PLUGIN_NAME}/hooks/hooks.json": {"hooks": {"SessionStart": [hook]}},
    }


CLAUDE_CODE, CODEX, OPENCODE = "claude-code", "codex", "opencode"
CLIENTS = {
    CLAUDE_CODE: PluginClient(
        title="Claude Code",
        command="claude",
        sources=("claude_code",),
        home=config_folder,
        holder="skills",
        first_version=(2, 1, 287),
        update="claude update",
        documents=_claude_code_documents,
    ),
    CODEX: PluginClient(
        title="Codex",
        command="codex",
        sources=(),
        home=home_folder,
        holder="",
        first_version=(0, 171, 0),
        update="codex update",
        documents=_codex_documents,
        registers=("plugin marketplace add {folder}", f"plugin add {CODEX_ID}"),
        forgets=(f"plugin remove {CODEX_ID}", f"plugin marketplace remove {DISTRIBUTION}"),
    ),
    OPENCODE: PluginClient(
        title="OpenCode",
        command="opencode",
        sources=("opencode", "shared"),
        home=_home_of_opencode,
        holder="plugins",
        first_version=(1, 18, 17),
        update="opencode upgrade",
    ),
    "pi": PluginClient(
        title="Pi",
        command="pi",
        sources=("pi", "shared"),
        home=lambda environment: Path(environment.get("PI_CODING_AGENT_DIR") or "~/.pi/agent").expanduser().absolute(),
        holder="extensions",
        first_version=(0, 87, 0),
        update="npm install -g @earendil-works/pi-coding-agent, with Node 22.19 or newer",
    ),
}
"""Clients with a plugin, by the name that a person types after ``compactor install``."""


@dataclass(frozen=True)
class Problem:
    """Reason why the plugin does not work, and its remedy."""

    what: str
    cure: str
    """Command to run, or advice."""


def plugin_files(argv: Sequence[str], environment: Mapping[str, str], client: str = CLAUDE_CODE) -> dict[str, bytes]:
    """Return the contents of the plugin's files for `client`, by their paths in its folder. The plugin runs the command
    line `argv`, with the variables `environment` added."""
    program = {"argv": list(argv), "environment": dict(environment)}
    documents = {PROGRAM: program, **CLIENTS[client].documents(argv, environment)}
    contents = {path: (json.dumps(document, indent=2) + "\n").encode() for path, document in documents.items()}
    for source in CLIENTS[client].sources:
        contents |= _files_below(files("applier.adapters").joinpath("javascript", source), "")
    return {**contents, ENTRY: _ENTRY_TEXT.encode()} if client == OPENCODE else contents


def _files_below(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file in and below `folder`, with `path` in front of its relative path."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files_below(entry, f"{path}{entry.name}/")
        else:
            yield f"{path}{entry.name}", entry.read_bytes()


def put_plugin(contents: Mapping[str, bytes], folder: Path) -> None:
    """Replace `folder` by one with the files `contents`, by path. The files are written to a temporary folder, which is
    then moved into place, so that a failure (OSError) leaves `folder` unchanged."""
    with tempfile.TemporaryDirectory(prefix=PART, dir=folder.parent) as temporary:
        new = Path(temporary, "new")
        new.mkdir(mode=0o700)  # a store's address in the program's environment may contain a password
        for path, content in contents.items():
            file = Path(temporary, "entry") if path == ENTRY else new / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        if folder.exists():
            folder.rename(Path(temporary, "old"))
        new.rename(folder)
        if ENTRY in contents:  # moved last, because the client loads the folder by it
            Path(temporary, "entry").replace(folder / ENTRY)


def is_ours(present: Mapping[str, bytes], shipped: Collection[str]) -> bool:
    """Return True if a folder with the files `present` (contents by path) has this project's plugin, in any version, so
    that it may be replaced. `shipped`: paths of this version; a folder with only some of these, or none, counts too."""
    has_our_name = _json(present.get(MANIFEST, b"")).get("name") == PLUGIN_NAME
    return has_our_name or PROGRAM in present or present.keys() <= set(shipped)


def _json(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in `raw`; an empty one if it contains none."""
    try:
        return _object(json.loads(raw))
    except (ValueError, RecursionError):
        return {}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def program_of(present: Mapping[str, bytes]) -> tuple[list[str], dict[str, str]]:
    """Return the command line that the plugin with the files `present` runs, and the variables that it adds to the
    environment. Both are empty if they cannot be read."""
    recorded = _json(present.get(PROGRAM, b""))
    argv, environment = recorded.get("argv"), _object(recorded.get("environment"))
    words = [str(part) for part in argv] if isinstance(argv, list) else []
    return words, {name: str(value) for name, value in environment.items()}


def version_problem(client: PluginClient, printed: str) -> Problem | None:
    """Return a problem if `client` is too old for the plugin, or None. `printed`: output of its ``--version``."""
    match, first = _VERSION.search(printed), ".".join(map(str, client.first_version))
    if match is None:
        what = f"`{client.command} --version` prints {printed[:60]!r}, no version"
        return Problem(what, f"is `{client.command}` {client.title}?")
    if tuple(map(int, match.groups())) >= client.first_version:
        return None
    what = f"{client.title} {match[0]} is too old: it compacts by itself; {first} is the first that works"
    return Problem(what, client.update)


def listing_problems(listing: Sequence[Mapping[str, Any]], folder: str) -> Iterator[Problem]:
    """Yield the reasons why Claude Code does not use the plugin in `folder`: it is missing, switched off, faulty, or
    another plugin has its name. `listing`: output of ``claude plugin list --json``."""
    same_name = [entry for entry in listing if str(entry.get("id", "")).partition("@")[0] == PLUGIN_NAME]
    others = [entry for entry in same_name if entry.get("id") != PLUGIN_ID and entry.get("enabled")]
    for entry in others:
        what = f"{entry['id']} is loaded in its place, from {entry.get('installPath', 'elsewhere')}"
        yield Problem(what, f"claude plugin uninstall {entry['id']}")
    plugin = next((entry for entry in same_name if entry.get("id") == PLUGIN_ID), None)
    if plugin is None:
        yield Problem(f"Claude Code does not load what is in {folder}", f"{ADMINISTRATOR}, or start it again")
    elif plugin.get("errors") and not others:
        yield Problem(" ".join(map(str, plugin["errors"])), "compactor install claude-code")
    elif not plugin.get("enabled") and not others:
        yield Problem("the mod is turned off in Claude Code", f"claude plugin enable {PLUGIN_ID}")


def codex_problems(listing: Mapping[str, Any], folder: str) -> Iterator[Problem]:
    """Yield the reason why Codex does not use the plugin in `folder`, if there is one. `listing`: output of ``codex
    plugin list --json``."""
    listed = (entry for entry in listing.get("installed") or () if isinstance(entry, dict))
    plugin = next((entry for entry in listed if entry.get("pluginId") == CODEX_ID), None)
    if plugin is None:
        yield Problem(f"Codex does not load what is in {folder}", "compactor install codex")
    elif not plugin.get("enabled"):
        yield Problem("the plugin is turned off in Codex", f"codex plugin add {CODEX_ID}")


def refusals(checked: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each error in `checked`, the output of ``claude plugin validate --json``."""
    errors = (_list(_object(part).get("errors")) for part in (checked.get("manifest"), *_list(checked.get("contents"))))
    for error in chain.from_iterable(errors):
        message = error.get("message") if isinstance(error, dict) else error
        yield Problem(f"Claude Code refuses the mod: {message}", "pip install -U relevance-compactor, then install")


def settings_problems(name: str, settings: Mapping[str, Any], *, managed: bool) -> Iterator[Problem]:
    """Yield a problem for each of the `settings` that keeps Claude Code from loading the plugin. `name`: the settings
    file. `managed`: True if an administrator wrote it, so that the person cannot change it."""
    cure = ADMINISTRATOR if managed else f"remove it from {name}"
    for key in ("disableAllHooks", "allowManagedHooksOnly") if managed else ("disableAllHooks",):
        if settings.get(key):
            yield Problem(f"{name}: {key} turns mods off", cure)
    if not managed:
        return
    configs = _object(settings.get("pluginConfigs"))
    policies = [_object(configs.get(plugin)) for plugin in _POLICY_PLUGINS]
    if any(_object(policy.get("options")).get("allowManagedModsOnly") for policy in policies):
        yield Problem(f"{name}: allowManagedModsOnly turns all mods but the machine's off", cure)
    allowed, blocked = settings.get("strictKnownMarketplaces"), settings.get("blockedMarketplaces")
    if isinstance(allowed, list) and {"source": "skills-dir"} not in allowed:
        yield Problem(f"{name}: strictKnownMarketplaces does not allow plugins of the skills folder", cure)
    if isinstance(blocked, list) and {"source": "skills-dir"} in blocked:
        yield Problem(f"{name}: blockedMarketplaces forbids plugins of the skills folder", cure)
