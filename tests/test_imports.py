"""Allowed imports: one direction, no circles, and clients only where they are used."""

import ast
import importlib.util
import pkgutil
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

PACKAGES = ("planner", "applier")

ONLY_IN = {
    "instructor": ("planner.model",),
    "anthropic": ("planner.model", "applier.adapters.frameworks"),
    "langchain": ("applier.adapters.frameworks.langchain_",),
    "langchain_core": ("applier.adapters.frameworks.langchain_",),
    "langgraph": ("applier.adapters.frameworks.langchain_",),
    "agent": ("applier.adapters.frameworks.hermes_engine",),
    "agents": ("applier.adapters.frameworks.openai_agents",),
    "pydantic_ai": ("applier.adapters.frameworks.pydantic_ai_",),
    "opentelemetry": ("applier.session.events",),
    "psycopg": ("applier.store",),
    "kingfisher_sdk": ("planner.reading.secrets",),
    "starlette": ("applier.adapters.proxy", "applier.web"),
    "uvicorn": ("applier.serving",),
    "rich": ("applier.cli",),
    "click": ("applier.cli",),
    "httpx": ("applier.adapters.proxy",),
    "prometheus_client": ("applier.adapters.proxy",),
    "zstandard": ("applier.adapters.proxy", "applier.store.records"),
    "mcp": ("applier.adapters.mcp",),
    "ray": ("applier.fleet",),
    "tiktoken": ("planner.reading.tokens",),
}
"""Libraries that only these modules (or those below them) may import."""


def found_modules():
    """Return every module of both packages with its file."""
    found = {}
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        found[package] = Path(spec.origin)
        for module in pkgutil.walk_packages(spec.submodule_search_locations, f"{package}."):
            found[module.name] = Path(importlib.util.find_spec(module.name).origin)
    return found


MODULES = found_modules()


@cache
def tree(name):
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


@cache
def imported(name):
    """Return the imports of `name` as full dotted names, also inside functions and for types alone."""
    found = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            found |= {submodule_or_self(node.module, alias.name) for alias in node.names}
    return found


def submodule_or_self(module, name):
    """Return the module of ``from a.b import c``: ``a.b.c`` if there is one, else ``a.b``."""
    return f"{module}.{name}" if f"{module}.{name}" in MODULES else module


def at_import(node):
    """Yield the nodes that run on import: not those in functions, nor those for types alone."""
    for child in ast.iter_child_nodes(node):
        later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_for_checkers(child)
        if not later:
            yield child
            yield from at_import(child)


def is_for_checkers(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def for_checkers(node):
    """Yield the nodes that only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if is_for_checkers(child):
            yield from child.body


def is_below(name, root):
    return name == root or name.startswith(f"{root}.")


def test_no_property_is_computed_under_a_lock_of_its_class():
    """Python 3.11 has such a lock in functools; the `cached_property` of propcache has none."""
    guilty = {
        name
        for name in MODULES
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ImportFrom) and node.module == "functools"
        if any(alias.name == "cached_property" for alias in node.names)
    }
    assert not guilty


def test_planner_never_imports_applier():
    guilty = {
        name: found
        for name in MODULES
        if is_below(name, "planner")
        for found in imported(name)
        if is_below(found, "applier")
    }
    assert guilty == {}


def test_modules_never_import_a_package_they_are_in():
    """But for ``__main__``, which runs it."""
    guilty = {
        name: found
        for name in MODULES
        for found in imported(name)
        if found in PACKAGES or (name.startswith(f"{found}.") and name != f"{found}.__main__")
    }
    assert guilty == {}


def test_no_circles():
    graph = {name: {found for found in imported(name) if found in MODULES} - {name} for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


FOLDERS = {
    "planner.reading": ("planner.errors",),
    "planner.validity": ("planner.errors", "planner.reading"),
    "planner.evidence": ("planner.reading", "planner.settings"),
    "planner.relevance": ("planner.reading", "planner.evidence", "planner.analysis"),
    "planner.programming": (
        "planner.reading",
        "planner.evidence.calls",
        "planner.evidence.error_signs",
        "planner.evidence.hosts",
        "planner.evidence.turns",
        "planner.evidence.words",
    ),
    "planner.placeholders": ("planner.reading", "planner.evidence", "planner.plan"),
    "planner.layout": (
        "planner.reading",
        "planner.evidence",
        "planner.analysis",
        "planner.plan",
        "planner.placeholders",
    ),
    "applier.testing": (),
    "applier.store": ("planner",),
    "applier.settings": ("planner",),
    "applier.plan_review": ("planner", "applier.store", "applier.view"),
    "applier.receipt": ("planner", "planner.reading.secrets", "applier.view"),
    "applier.serving": (),
    "applier.processes": (),
    "applier.fleet": ("planner", "applier.adapters.transcripts", "applier.store", "applier.view"),
    "applier.web": (
        "planner",
        "applier.store",
        "applier.view",
        "applier.plan_review",
        "applier.serving",
    ),
    "applier.view": ("planner", "applier.store"),
    "applier.learning": ("planner", "applier.settings", "applier.store"),
    "applier.session": ("planner", "applier.settings", "applier.store", "applier.view", "applier.learning"),
    "applier.adapters": (
        "planner",
        "applier.processes",
        "applier.receipt",
        "applier.serving",
        "applier.settings",
        "applier.store",
        "applier.view",
        "applier.session",
    ),
}
"""Modules that each folder or module may import besides itself; eval and cli are above all of these.

The test server judges the others' work, so it shares nothing with them.
"""


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_import_in_the_order_the_data_passes(folder):
    allowed = (folder, *FOLDERS[folder])
    names = [name for name in MODULES if is_below(name, folder)]
    guilty = {
        (name, found)
        for name in names
        for found in imported(name)
        if found in MODULES and not any(is_below(found, root) for root in allowed)
    }
    assert names
    assert guilty == set()


FOREIGN = re.compile(
    r"\b(?:git|bash|shell|pytest|npm|kubectl|docker|branch(?:es)?|commits?|compilers?|test runners?|def)\b", re.I
)
"""Words of programming."""


def test_general_code_knows_no_word_of_programming():
    """Hosts write what they write, and a name in a claim may be a package; all else is in its own folder."""
    at_the_top = {name for name in MODULES if name.startswith("planner.") and name.count(".") == 1}
    general = {name for name in MODULES if is_below(name, "planner.evidence")} | at_the_top
    general -= {"planner.model", "planner.programming"}
    texts = {
        (name, node.value)
        for name in general - {"planner.evidence.hosts", "planner.evidence.grounding"}
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {(name, found[0]) for name, text in texts if (found := FOREIGN.search(text))} == set()


def test_only_the_api_and_what_measures_or_prints_know_the_model_and_nothing_below_knows_them():
    above = {
        "planner.model": (
            "planner.api",
            "planner.model",
            "applier.eval",
            "applier.cli",
            "applier.adapters.claude_code_mod",
            "applier.adapters.proxy.responses_api",
            "applier.learning.readers",
            "applier.learning.propose",
        ),
        "applier.eval": ("applier.eval", "applier.cli"),
        "applier.cli": ("applier.cli",),
    }
    guilty = {
        (name, found)
        for top, users in above.items()
        for name in MODULES
        for found in imported(name)
        if is_below(found, top) and not any(is_below(name, user) for user in users)
    }
    assert guilty == set()
    assert "planner.api" not in {
        found for name in MODULES if is_below(name, "planner.model") for found in imported(name)
    }


def test_libraries_are_imported_only_where_they_belong():
    guilty = {
        (name, library)
        for name in MODULES
        for library in {found.split(".")[0] for found in imported(name)} & set(ONLY_IN)
        if not name.startswith(ONLY_IN[library])
    }
    assert guilty == set()


def test_only_one_module_says_how_a_program_of_ours_is_run():
    """Or else one of them would import from the folder it is run in. (One benchmark times a bare import.)"""
    users = {
        name
        for name in MODULES
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable"
    }
    assert users == {"applier.processes"}


def test_the_command_loads_nothing_before_it_has_left_the_folder():
    begins = ("applier", "applier.cli", "applier.cli.__main__")
    early = {found for name in begins for node in at_import(tree(name)) for found in named(node)}
    assert early <= {"applier.cli", "os", "site", "sys"}


def named(node):
    """Return the modules that an import statement names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {node.module} if isinstance(node, ast.ImportFrom) else set()


MEASURING = ("measure",)
"""Modules of commands that measure; `demo` only takes its transcript from there, as data."""


def test_only_commands_that_measure_import_what_measures():
    allowed = {f"applier.cli.commands.{command}" for command in MEASURING}
    importers = {name for name in MODULES for found in imported(name) if is_below(found, "applier.eval")} - {
        name for name in MODULES if is_below(name, "applier.eval")
    }
    assert importers <= allowed


def test_validity_lives_apart_from_what_builds_lists():
    allowed = {
        "planner.errors",
        "planner.reading.tokens",
        "planner.reading.lazy",
        "planner.reading.messages",
    }
    used = {
        found for name in MODULES if is_below(name, "planner.validity") for found in imported(name) if found in MODULES
    }
    assert {found for found in used if not is_below(found, "planner.validity")} <= allowed


@pytest.mark.real
def test_importing_everything_else_loads_no_client():
    """Every module but those that are made for a client, in a fresh interpreter; warnings are errors."""
    clients = [
        "anthropic",
        "instructor",
        "langchain_core",
        "pydantic_ai",
        "opentelemetry",
        "openai",
        "starlette",
        "mcp",
        "ray",
    ]
    made_for_one = tuple(prefix for client in clients for prefix in ONLY_IN.get(client, ()))
    light = [name for name in MODULES if not name.startswith(made_for_one) and not name.endswith("__main__")]
    code = f"import sys, importlib\nfor name in {light!r}: importlib.import_module(name)\n"
    code += f"print([name for name in {clients!r} if name in sys.modules])"
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def listed(name):
    """Return the names in ``__all__`` of a module; None without one."""
    for node in tree(name).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return ast.literal_eval(node.value)
    return None


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_exist_and_are_sorted_once(package):
    module = import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert dir(module) == sorted(module.__all__)
    assert not hasattr(module, "unheard_of")


@pytest.mark.real
def test_a_root_is_cheap_and_errors_need_nothing_else():
    code = "import sys, planner, applier; from planner import StoreError; print('pydantic' in sys.modules)"
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("False", "")


def test_every_listed_name_is_defined():
    missing = {
        f"{name}.{offered}"
        for name in MODULES
        for offered in listed(name) or ()
        if offered not in defined(name) and f"{name}.{offered}" not in MODULES
    }
    assert missing == set()


def defined(name):
    """Return the names that the top level of a module binds, also those loaded late."""
    found = set()
    for node in (*at_import(tree(name)), *for_checkers(tree(name))):
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return found | {node.name for node in tree(name).body if isinstance(node, functions)}
