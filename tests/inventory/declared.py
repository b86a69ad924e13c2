"""What the product declares: settings, findings, rules, errors, events, presets, formats, tools, words of its own."""

import ast
import asyncio
import dataclasses
import json
import re
import tomllib
import typing
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

import planner
from applier.adapters import transcripts
from applier.adapters.agent_tools import AGENT_TOOLS
from applier.session import PRESETS, Event, Preset
from applier.store import open_store
from planner.validity import Violation
from tests.inventory.names import default_of, type_text
from tests.inventory.product import ROOT, field_lines, first_line, is_ours, plain, public_modules, subclasses, syntax

OUR_WORD = re.compile(r"COMPACTOR_[A-Z_]*[A-Z]|CLAUDE_[A-Z]+_[A-Z_]+|x-compactor-[\w-]+|compactor[._][a-z_]+")
"""Variables, headers and metrics: not ``COMPACTOR_`` itself, a module's path, nor what the code calls a client."""
CODE = re.compile(r"[a-z]+(?:_[a-z0-9]+)*")


def settings() -> Iterator[str]:
    """Each field of each settings model: type, default, bounds, and what is said of it."""
    root = next(base for base in reversed(planner.PlanSettings.__mro__) if is_ours(base))
    models = [cls for cls in subclasses(root) if cls.model_fields]
    offered = {
        value
        for module in public_modules().values()
        if module
        for value in vars(module).values()
        if _is_settings(value)
    }
    for cls in sorted({*models, *offered}, key=lambda cls: cls.__name__):
        prefix = getattr(cls, "model_config", {}).get("env_prefix", "")
        yield f"## {cls.__name__}" + (f", environment {prefix}…" if prefix else "")
        said = field_lines(cls)
        yield from sorted(f"{line}  # {said.get(name, '-')}" for name, line in _setting_lines(cls))
        yield ""


def _is_settings(value: Any) -> bool:
    return isinstance(value, type) and value.__name__.endswith("Settings") and dataclasses.is_dataclass(value)


def _setting_lines(cls: type) -> Iterator[tuple[str, str]]:
    if not issubclass(cls, BaseModel):
        yield from (
            (own.name, f"{own.name}: {type_text(own.type)}{default_of(own)}") for own in dataclasses.fields(cls)
        )
        return
    for name, field in cls.model_fields.items():
        bounds = [
            plain(bound).removeprefix("_PydanticGeneralMetadata")
            for bound in field.metadata
            if not hasattr(bound, "func")
        ]
        default = plain(field.get_default(call_default_factory=True))
        yield name, " ".join([f"{name}: {type_text(field.annotation)} = {default}", *bounds])


def words() -> Iterator[str]:
    """Variables, headers and metrics that the code names; extras, commands and dependencies that the project has."""
    texts = {node.value for package in ("planner", "applier") for node in syntax(package) if _is_text(node)}
    yield "## variables, headers, metrics"
    yield from sorted(text for text in texts if OUR_WORD.fullmatch(text))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    yield from ("", "## dependencies", *sorted(project["dependencies"]))
    yield from ("", "## extras")
    yield from (
        f"{name}: {', '.join(sorted(needs))}" for name, needs in sorted(project["optional-dependencies"].items())
    )
    yield from ("", "## commands", *(f"{name} = {where}" for name, where in sorted(project["scripts"].items())))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def findings() -> Iterator[str]:
    """Codes of all findings that guards, planners and readers of plans can make."""
    calls = [node for node in syntax("planner") if isinstance(node, ast.Call)]
    yield from sorted({code for call in calls if _callee(call).lower().endswith("finding") for code in _codes(call)})


def _callee(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _codes(call: ast.Call) -> Iterator[str]:
    """The code of a finding: named, or the first of its arguments."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
    yield from (node.value for node in [*named, *call.args[:1]] if _is_text(node) and CODE.fullmatch(node.value))


def violations() -> Iterator[str]:
    """Rules of the validator by number, with the codes that tell their problems apart.

    Told by form: a call with the number first, or second where the request is, and the code last.
    """
    found = set()
    for call in (node for node in syntax("planner") if isinstance(node, ast.Call) and len(node.args) >= 4):
        rule = next((node.value for node in call.args[:2] if isinstance(node, ast.Constant)), None)
        if isinstance(rule, int) and _is_text(call.args[-1]) and CODE.fullmatch(call.args[-1].value):
            found.add((rule, call.args[-1].value))
    for rule, code in sorted(found):
        refused = Violation(rule, "", "", "", code).refused
        yield f"{rule:>2} {code}" + ("" if refused else " (mended by the API)")


def errors() -> Iterator[str]:
    """Each error with what it is a kind of."""
    for cls in sorted(subclasses(planner.CompactorError), key=lambda cls: cls.__name__):
        bases = ", ".join(base.__name__ for base in cls.__bases__)
        yield f"{cls.__name__}({bases}): {first_line(cls.__doc__)}"


def events() -> Iterator[str]:
    """Kinds of a session's events."""
    yield from sorted(typing.get_args(typing.get_type_hints(Event)["kind"]))


def presets() -> Iterator[str]:
    """Each preset as a table; what is as a tier has it by itself is left out."""
    for name, preset in PRESETS.items():
        yield f"## {name}"
        for field in dataclasses.fields(Preset):
            value = getattr(preset, field.name)
            rows = value if isinstance(value, tuple) else (value,)
            if value != field.default:
                yield from (f"{field.name}: {plain(row)}" for row in rows)
        yield ""


def formats() -> Iterator[str]:
    """Formats of transcripts."""
    for form in transcripts.FORMATS:
        yield f"{form.name}: {form.title}"


def tools() -> Iterator[str]:
    """What agents are told of their tools, word by word, and what a client of the MCP server is told."""
    for tool in AGENT_TOOLS:
        yield from (f"## agent: {tool['name']}", *_pretty(tool), "")
    told = asyncio.run(_mcp_offers())
    for kind, name, offer in told:
        yield from (f"## MCP {kind}: {name}", *_pretty(offer), "")


async def _mcp_offers() -> list[tuple[str, str, dict[str, Any]]]:
    import mcp  # a second of loading that no other text needs

    from applier.adapters.mcp import mcp_server
    from applier.adapters.visible import Visible

    visible = Visible(lambda: open_store("inventory.db"), session="none")
    async with mcp.Client(mcp_server(visible)) as client:
        offered = [("tool", tool.name, tool) for tool in (await client.list_tools()).tools]
        offered += [("resource", r.name, r) for r in (await client.list_resources()).resources]
        offered += [("resource", r.name, r) for r in (await client.list_resource_templates()).resource_templates]
    return [(kind, name, offer.model_dump(mode="json", exclude_none=True)) for kind, name, offer in offered]


def _pretty(data: Any) -> list[str]:
    return json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True).splitlines()


def prompts() -> Iterator[str]:
    """What the planner model reads, by digest: the texts themselves are in the tree."""
    for path in sorted((ROOT / "prompts").glob("*.md")):
        text = path.read_text("utf-8")
        yield f"{path.stem}: {len(text.split())} words, {sha256(text.encode()).hexdigest()[:12]}"
