"""Nothing is imported from the folder that a program of ours is run in: it is a stranger's."""

import json
import os
import shutil
import site
import subprocess
import sys
from importlib import metadata
from importlib.resources import files
from pathlib import Path

import anyio
import pytest

from applier.processes import program

OURS = ("applier", "planner", "sitecustomize", "usercustomize")
INSTALLED = sorted(name for name in metadata.packages_distributions() if name.isidentifier())
STANDARD = sorted(name for name in sys.stdlib_module_names if name not in sys.builtin_module_names)
EVERYWHERE = os.pathsep.join((".", "", "nowhere", "{project}"))
"""All forms in which PYTHONPATH can name the project."""
COMMAND = str(Path(sys.executable).with_name("compactor"))


def project_of(folder, names):
    """A project that has a module for each of `names`: whichever is imported leaves a mark."""
    project = folder / "a project"
    project.mkdir()
    for name in names:
        (project / f"{name}.py").write_text("open(__file__ + '.ran', 'w').close()\n")
    (project / "compactor.toml").write_text('preset = "relevance"\n')
    return project


def imported_from(project):
    return sorted(path.name for path in project.glob("*.ran"))


def imported_at_start(folder):
    """What Python itself imports before any line of ours it takes from PYTHONPATH, as docs/security.md says: what
    `site` and each ``.pth`` of the environment need (that of setuptools imports `_distutils_hack`)."""
    begun = run([sys.executable, "-c", "import re, sys; print(*sys.modules)"], folder, environment(folder, None))
    return {*begun.split(), "sitecustomize", "usercustomize"}


def environment(project, variable):
    """This process's, with PYTHONPATH as `variable` says; the project in the place of ``{project}``."""
    named = {} if variable is None else {"PYTHONPATH": variable.format(project=project)}
    return {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **named}


def run(command, project, env, text=""):
    """What a command prints; a command line is run as a client does, by the shell."""
    done = subprocess.run(
        command, shell=isinstance(command, str), cwd=project, env=env, input=text, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.real
@pytest.mark.parametrize("variable", [pytest.param(None, marks=pytest.mark.slow), EVERYWHERE])
def test_what_a_client_runs_imports_nothing_from_the_project(compactor, folder, session_log, variable):
    project = project_of(folder, {*OURS, *INSTALLED, *STANDARD})
    env = environment(project, variable)
    assert compactor("resume", session_log, "--planner", "rules", "--store", "store.db").code == 0
    (history,) = compactor("log", "--store", "store.db", "--json").json
    server = compactor("mcp", "--config", "--history", history["history"], "--store", "store.db").json
    assert anyio.run(tool_names, server, project, env) >= {"restore_context", "search_context"}
    assert imported_from(project) == []


async def tool_names(server, project, env):
    from mcp import Client, StdioServerParameters  # takes a second, also where this test is skipped
    from mcp.client.stdio import stdio_client

    asked = StdioServerParameters(command=server["command"], args=server["args"], cwd=project, env=env)
    # else what was standard error when this was loaded, which a test before this one has closed
    async with Client(stdio_client(asked, errlog=sys.__stderr__)) as client:
        return {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.real
@pytest.mark.parametrize("variable", [pytest.param(None, marks=pytest.mark.slow), EVERYWHERE])
def test_what_a_person_runs_imports_nothing_from_the_project_once_it_has_begun(folder, session_log, variable):
    """The script that pip writes imports `applier` and `re` before any line of ours."""
    project = project_of(folder, {*OURS, *INSTALLED, *STANDARD} - imported_at_start(folder) - {"applier"})
    env = environment(project, variable)
    assert json.loads(run([COMMAND, "resume", str(session_log), "--planner", "rules", "--json"], project, env))[
        "written"
    ]
    assert imported_from(project) == []


@pytest.mark.real
@pytest.mark.parametrize("variable", [pytest.param(None, marks=pytest.mark.slow), EVERYWHERE])
def test_processes_that_plan_many_files_import_nothing_from_the_project_either(folder, session_log, variable):
    project = project_of(folder, {*OURS, *INSTALLED, *STANDARD} - imported_at_start(folder) - {"applier"})
    (folder / "logs").mkdir()
    session_log.rename(folder / "logs" / "session.jsonl")
    ran = run(f"{COMMAND} plan '{folder}/logs' --planner rules 2>&1", project, environment(project, variable))
    assert json.loads(ran.splitlines()[0])["format"] == "claude_code"
    assert imported_from(project) == []


@pytest.mark.real
def test_the_module_that_is_run_by_hand_leaves_the_project_too(folder):
    project = project_of(folder, {"planner", *INSTALLED} - imported_at_start(folder) - {"applier"})
    ran = run([sys.executable, "-m", "applier.cli", "--version"], project, environment(project, None))
    assert ran.startswith("compactor")
    assert imported_from(project) == []


@pytest.mark.slow
def test_what_the_interpreter_has_anyway_stays_and_the_client_of_wrap_gets_the_variable_as_it_was(folder):
    project = project_of(folder, {"planner", *INSTALLED} - imported_at_start(folder) - {"applier"})
    anyway = (*site.getsitepackages(), str(Path(os.__file__).parent))
    env = environment(project, os.pathsep.join((".", *anyway)))
    show = [COMMAND, "wrap", sys.executable, "-Pc", "import os; print(os.environ['PYTHONPATH'])"]
    shown = subprocess.run(show, cwd=project, env=env, capture_output=True, text=True)
    assert (shown.returncode, shown.stdout.strip()) == (0, env["PYTHONPATH"])
    assert "bypassed: nothing came from" in shown.stderr
    assert imported_from(project) == []


@pytest.mark.slow
def test_a_module_that_the_user_names_is_found_by_his_variable(folder):
    project = project_of(folder, {"mine", "planner", *INSTALLED} - imported_at_start(folder) - {"applier"})
    with (project / "mine.py").open("a") as module:
        module.write("def newest(messages, task, target_tokens):\n    return messages[:1]\n")
    (folder / "run.json").write_bytes(files("applier.eval").joinpath("transcript.json").read_bytes())
    measure = [
        COMMAND,
        "eval",
        str(folder / "run.json"),
        "--method",
        "mine:newest",
        "--ratio",
        "0.5",
        "--json",
    ]
    run(measure, project, environment(project, "."))
    assert imported_from(project) == ["mine.py.ran"]


@pytest.mark.slow
def test_an_installation_for_one_user_is_found_although_python_hides_it(folder, session_log):
    """As ``pip install --user`` leaves it: packages in the user's folder, for an interpreter that has none of them."""
    interpreter = getattr(sys, "_base_executable", sys.executable)
    env = {**environment(folder, None), "PYTHONUSERBASE": str(folder / "the user's")}
    asked = [interpreter, "-c", "import site; print(site.getusersitepackages())"]
    packages = Path(run(asked, folder, env).strip())
    packages.mkdir(parents=True)
    ours = metadata.distribution("relevance-compactor")
    (information,) = Path(ours.locate_file("")).glob("relevance_compactor-*.dist-info")
    shutil.copytree(information, packages / information.name)
    (packages / "rest.pth").write_text(f"import site; site.addsitedir({site.getsitepackages()[0]!r})\n")

    server = json.loads(run([interpreter, "-m", "applier.cli", "mcp", "--config", "--store", "store.db"], folder, env))
    project = project_of(folder, {*OURS, *INSTALLED, *STANDARD})
    elsewhere = environment(project, ".")
    listed = [server["command"], *server["args"][: server["args"].index("mcp")], "log", "--store", str(folder / "s.db")]
    resume = [COMMAND, "resume", str(session_log), "--planner", "rules", "--store", str(folder / "s.db"), "--json"]
    assert json.loads(run(resume, folder, environment(folder, None)))["written"]
    assert "apply" in run(listed, project, elsewhere)
    assert imported_from(project) == []


@pytest.mark.real
def test_the_command_line_is_one_that_runs():
    assert subprocess.run(program("--version"), capture_output=True, text=True).stdout.startswith("compactor")
    assert Path(program()[0]).is_absolute()
