"""The databases and tools of `sierra-research/tau2-bench`, loaded from a checkout.

Only the two shops' own files are imported: the package's start would load every model client. Nothing of it is kept
in this project.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

DOMAINS = {"retail": ("RetailTools", "RetailDB"), "airline": ("AirlineTools", "FlightDB")}
"""Names of each domain's toolkit and database class."""
NEEDED = "loguru toml pyyaml addict deepdiff python-dotenv docstring-parser"


@dataclass(frozen=True)
class Call:
    """Tool call."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def has_effect(self) -> bool:
        """True if the tool changes the database."""
        return not self.is_look_up and self.name.split("_")[0] not in ("calculate", "restore", "transfer")

    @property
    def is_look_up(self) -> bool:
        """True if the tool reads the database."""
        return self.name.split("_")[0] in ("get", "find", "list", "search")


@dataclass(frozen=True)
class ToolAnswer:
    """Result of a call, as the model reads it."""

    text: str
    is_error: bool


def load_tasks(checkout: Path, domain: str) -> dict[str, list[Call]]:
    """Return the expected calls with an effect of each task, by the task's number."""
    tasks = json.loads(_data(checkout, domain, "tasks.json").read_text("utf-8"))
    expected = {task["id"]: (task["evaluation_criteria"] or {}).get("actions") or [] for task in tasks}
    calls = {number: [Call(one["name"], one["arguments"]) for one in own] for number, own in expected.items()}
    return {number: [call for call in own if call.has_effect] for number, own in calls.items()}


def _data(checkout: Path, domain: str, name: str) -> Path:
    return checkout / "data" / "tau2" / "domains" / domain / name


class World:
    """One copy of a domain's database, and its tools."""

    def __init__(self, checkout: Path, domain: str) -> None:
        """Load the database of `domain` from `checkout`.

        Raises:
            SystemExit: a package that the checkout's tools import is not installed.
        """
        toolkit, database = DOMAINS[domain]
        if "tau2" not in sys.modules:
            package = ModuleType("tau2")
            package.__path__ = [str(checkout / "src" / "tau2")]
            sys.modules["tau2"] = package
        try:
            logging.getLogger("dotenv").setLevel(logging.ERROR)
            import_module("loguru").logger.remove()  # the tools' own log is not an answer of theirs
            tools = import_module(f"tau2.domains.{domain}.tools")
            models = import_module(f"tau2.domains.{domain}.data_model")
        except ModuleNotFoundError as error:
            raise SystemExit(f"{checkout}: {error}; its tools need `pip install {NEEDED}`") from error
        self.domain = domain
        self.db: Any = getattr(models, database).load(_data(checkout, domain, "db.json"))
        self._tools: Any = getattr(tools, toolkit)(self.db)
        self.policy = _data(checkout, domain, "policy.md").read_text("utf-8")

    def run(self, call: Call) -> ToolAnswer:
        """Run `call`; an exception of the tool becomes the text of a failed answer."""
        try:
            returned = self._tools.use_tool(call.name, **json.loads(json.dumps(call.arguments)))
        except Exception as error:  # noqa: BLE001 - any tool may raise anything, as the benchmark's own environment expects
            return ToolAnswer(f"Error: {error}", True)
        return ToolAnswer(returned if isinstance(returned, str) else json.dumps(_plain(returned)), False)

    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools as the Messages API declares them."""
        functions = [tool.openai_schema["function"] for tool in self._tools.get_tools().values()]
        return [
            {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
            for one in functions
        ]

    def digest(self) -> str:
        """Return the digest of the database."""
        return str(self.db.get_hash())


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return [_plain(one) for one in value] if isinstance(value, list) else value
