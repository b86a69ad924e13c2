"""The mod is put where Claude Code loads it, whole or not at all, and taken away without a trace."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.adapters.client_plugin import CLIENTS, listing_problems, plugin_files, settings_problems, version_problem
from applier.cli.app import run
from applier.processes import program
from applier.store import open_store
from applier.testing import use
from tests.loopback import Loopback
from tests.patience import PATIENCE_SECONDS

CLIENT = "claude-code"


@pytest.fixture
def config(folder, monkeypatch):
    """The client's folder, not there yet; no client is on the PATH."""
    path = folder / "the person's config"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(path))
    monkeypatch.setenv("PATH", str(folder / "empty"))
    return path


def held(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")} if folder.exists() else set()


def problems(compactor):
    """What `status` says is wrong, but that this machine has no client."""
    said = compactor("status", CLIENT, "--json").json["problems"]
    return [one["what"] for one in said if "PATH" not in one["what"]]


def test_installing_shows_the_change_first_and_leaves_what_the_wheel_has_and_the_program(compactor, config):
    wanted = plugin_files(program("mod"), {})
    shown = compactor("install", CLIENT, "--dry-run")
    assert shown.code == 0
    assert [line.split()[1].rstrip(":") for line in shown.out.splitlines()[1:]] == sorted(wanted)
    assert held(config) == set()
    refused = compactor("install", CLIENT)
    assert (refused.code, "--yes" in refused.err, held(config)) == (2, True, set())
    assert compactor("install", CLIENT, "--yes").code == 0
    place = config / "skills" / "compactor"
    assert {path: (place / path).read_bytes() for path in wanted} == wanted
    assert held(config) - {"skills", "skills/compactor"} == {
        f"skills/compactor/{part}" for path in wanted for part in (path, str(Path(path).parent)) if part != "."
    }
    assert problems(compactor) == []


def test_nothing_is_changed_unasked(compactor, config):
    for command in ("install", "uninstall"):
        assert compactor("install", CLIENT, "--yes").code == 0 if command == "uninstall" else not config.exists()
        ran = compactor(command, CLIENT)
        assert (ran.code, "use --yes" in ran.err) == (2, True)
        assert (config / "skills").exists() == (command == "uninstall")


def test_installing_again_changes_nothing_and_uninstalling_leaves_nothing(compactor, config):
    assert compactor("install", CLIENT, "--yes", "--json").json["written"]
    inode = (config / "skills" / "compactor").stat().st_ino
    again = compactor("install", CLIENT, "--json").json
    assert (again["changes"], again["written"]) == ([], False)
    assert (config / "skills" / "compactor").stat().st_ino == inode
    gone = compactor("uninstall", CLIENT, "--yes")
    assert (gone.code, held(config)) == (0, set())
    assert compactor("uninstall", CLIENT, "--yes").code == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_uninstalling_names_the_plugins_own_store_if_there_is_one(compactor, config, tmp_path, is_there):
    store = tmp_path / "elsewhere.db"
    if is_there:
        open_store(store).close()
    assert compactor("install", CLIENT, "--yes", "--store", store).code == 0
    gone = compactor("uninstall", CLIENT, "--yes")
    assert (f"The store stays: {store}" in gone.out) == is_there
    assert ("The store stays" in gone.out) == is_there


SOME_CLIENTS = [pytest.param(name, marks=() if name in (CLIENT, "codex") else pytest.mark.slow) for name in CLIENTS]


@pytest.mark.real
@pytest.mark.parametrize("client", SOME_CLIENTS)
def test_installing_again_keeps_the_store_of_the_last_install(compactor, config, folder, monkeypatch, client):
    """The next version of this package still finds every original."""
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(folder / "pi"))
    monkeypatch.setenv("OPENCODE_CONFIG_DIR", str(folder / "opencode"))
    monkeypatch.setenv("CODEX_HOME", str(folder / "codex"))

    def named(*more):
        compactor("install", client, "--yes", *more)
        return compactor("status", client, "--json").json["store"]

    default = named()
    first, second = (str(folder / f"{name}.db") for name in ("first", "second"))
    assert [named("--store", first), named(), named("--store", second), named()] == [first, first, second, second]
    compactor("uninstall", client, "--yes")
    assert named() == default


@pytest.mark.parametrize("client", sorted({*CLIENTS} - {CLIENT}))
def test_other_clients_have_a_plugin_and_files_that_are_not_ours_are_left_alone(compactor, folder, monkeypatch, client):
    home = folder / "the person's client"
    for variable in ("PI_CODING_AGENT_DIR", "OPENCODE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.setenv("PATH", str(folder / "empty"))
    place = home / CLIENTS[client].holder / "compactor"
    wanted = plugin_files(program("mod"), {}, client)
    assert compactor("install", client, "--yes").code == 0
    assert {path: (place / path).read_bytes() for path in wanted} == wanted
    assert len([path for path in home.rglob("*") if path.is_file()]) == len(wanted)
    assert compactor("install", client, "--json").json["changes"] == []
    (wrong,) = compactor("status", client, "--json").json["problems"]
    assert f"no `{CLIENTS[client].command}` is on the PATH" in wrong["what"]
    assert compactor("uninstall", client, "--yes").code == 0
    assert held(home) == set()
    place.mkdir(parents=True)
    (place / "index.js").write_text("an extension of the person's own")
    for command in ("install", "uninstall"):
        assert compactor(command, client, "--yes").code == 2
    assert held(place) == {"index.js"}


def test_an_entry_that_is_not_ours_is_left_alone(compactor, folder, monkeypatch):
    monkeypatch.setenv("OPENCODE_CONFIG_DIR", str(folder / "config"))
    entry = folder / "config/plugins/compactor.js"
    entry.parent.mkdir(parents=True)
    entry.write_text("export default async () => ({})")
    for command in ("install", "uninstall"):
        ran = compactor(command, "opencode", "--yes")
        assert (ran.code, str(entry) in ran.err) == (2, True)
    assert held(folder / "config") == {"plugins", "plugins/compactor.js"}


def test_others_in_the_folder_of_skills_are_left_alone(compactor, config):
    other = config / "skills" / "mine" / "SKILL.md"
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    for command in ("install", "uninstall"):
        assert compactor(command, CLIENT, "--yes").code == 0
        assert other.read_text() == "mine"
    assert held(config) == {"skills", "skills/mine", "skills/mine/SKILL.md"}


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_not_ours_is_neither_overwritten_nor_taken_away(compactor, config, kind):
    place = config / "skills" / "compactor"
    place.parent.mkdir(parents=True)
    if kind == "folder":
        place.mkdir()
        (place / "SKILL.md").write_text("a skill of the person's own")
    elif kind == "file":
        place.write_text("x")
    else:
        place.symlink_to(config)
    before = held(config)
    for command in ("install", "uninstall", "status"):
        ran = compactor(command, CLIENT, *(["--yes"] if command != "status" else []))
        assert (ran.code, str(place) in ran.err) == (2, True)
    assert held(config) == before


FILES = sorted(plugin_files(["x"], {}))


@given(st.sets(st.sampled_from(FILES)), st.sets(st.sampled_from(FILES)), st.booleans())
def test_whatever_is_damaged_is_repaired_by_the_next_install(tmp_path_factory, gone, cut, left_over):
    folder = tmp_path_factory.mktemp("config")
    place = folder / "skills" / "compactor"
    environment = {**os.environ, "CLAUDE_CONFIG_DIR": str(folder), "PATH": str(folder)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        assert install() == 0
        for path in gone:
            (place / path).unlink()
        for path in cut - gone:
            (place / path).write_bytes((place / path).read_bytes()[: len(path)])
        if left_over:
            (place.parent / ".compactor-install-x" / "old").mkdir(parents=True)
        assert install() == 0
    assert {path: (place / path).read_bytes() for path in FILES} == plugin_files(program("mod"), {})
    assert not (gone or cut) or os.listdir(place.parent) == ["compactor"]


def install():
    return run(["install", CLIENT, "--yes", "--json"])


@pytest.mark.real
def test_status_says_what_is_wrong_and_the_cure(compactor, config, folder):
    bare = compactor("status", CLIENT)
    assert (bare.code, "not installed" in bare.out, "compactor install claude-code" in bare.out) == (1, True, True)
    assert compactor("install", CLIENT, "--yes", "--store", "mine.db").code == 0
    place = config / "skills" / "compactor"
    assert compactor("status", CLIENT, "--json").json["store"] == str(folder / "mine.db")
    assert "last:" not in compactor("status", CLIENT).out
    with open_store(folder / "mine.db") as store:
        for client, time in (("Claude Code", 60.0), ("Pi", 90.0)):
            note = {"kind": "mod", "client": client, "session": "s", "time": time, "message": "passed: time up"}
            store.record_event(note)
    assert "last:    1970-01-01 00:01:00 UTC, passed: time up\n" in compactor("status", CLIENT).out
    named = json.loads((place / "program.json").read_text())
    named["argv"][0] = str(folder / "gone" / "python")
    (place / "program.json").write_text(json.dumps(named))
    assert any("interpreter" in what and "gone" in what for what in problems(compactor))
    (place / "hooks" / "register.js").write_text("")
    assert any("damaged" in what for what in problems(compactor))
    assert compactor("install", CLIENT, "--yes").code == 0


@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
@pytest.mark.parametrize("is_project", [True, False])
def test_settings_that_turn_the_mod_off_in_silence_are_reported(compactor, config, folder, name, is_project):
    """The project's too: Claude Code reads them in the folder in which it is started."""
    assert compactor("install", CLIENT, "--yes").code == 0
    place = (folder / ".claude" if is_project else config) / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps({"disableAllHooks": True}))
    reported = [] if not is_project and "local" in name else [f"{place}: disableAllHooks turns mods off"]
    assert problems(compactor) == reported


@pytest.mark.real
def test_the_password_of_a_store_is_in_the_mods_own_file_alone(compactor, config):
    address = "postgresql://bob:hunter22@127.0.0.1:1/db"
    ran = [compactor("install", CLIENT, "--yes", "--store", address, *how) for how in ((), ("--json",))]
    ran += [compactor("status", CLIENT, *how) for how in ((), ("--json",))]
    assert all("hunter22" not in one.out + one.err for one in ran)
    assert ran[-1].json["store"] == "postgresql://127.0.0.1:1/db"
    place = config / "skills" / "compactor"
    assert "hunter22" in (place / "program.json").read_text()
    assert place.stat().st_mode & 0o077 == 0


def test_a_client_of_the_project_is_not_run(compactor, config, folder, monkeypatch):
    (folder / "bin").mkdir()
    (folder / "bin" / "claude").write_text("#!/bin/sh\ntouch ran\necho 2.1.330\n")
    (folder / "bin" / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join(("bin", ".", "", "/usr/bin", "/bin")))
    assert compactor("status", CLIENT, "--json").json["client"] in ("", shutil.which("claude", path="/usr/bin:/bin"))
    assert not (folder / "ran").exists()


@pytest.mark.real
@pytest.mark.parametrize("home", ["there", "gone"])
def test_the_mods_program_reads_no_settings_of_the_project(folder, home):
    (folder / "there").mkdir()
    (folder / "work").mkdir()
    (folder / "work" / "compactor.toml").write_text("nonsense = 1\n")
    environment = {**os.environ, "HOME": str(folder / home), "USERPROFILE": str(folder / home)}
    run = subprocess.run(program("mod", "describe"), cwd=folder / "work", env=environment, capture_output=True)
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.parametrize(
    "managed",
    [
        {"disableAllHooks": True},
        {"allowManagedHooksOnly": True},
        {"strictKnownMarketplaces": []},
        {"strictKnownMarketplaces": [{"source": "github", "repo": "a/b"}]},
        {"blockedMarketplaces": [{"source": "skills-dir"}]},
        {"pluginConfigs": {"cc-plugin-sec-default@builtin": {"options": {"allowManagedModsOnly": True}}}},
    ],
)
def test_settings_of_the_machine_that_forbid_mods_are_told(managed):
    assert len([*settings_problems("managed-settings.json", managed, managed=True)]) == 1


@pytest.mark.parametrize(
    "managed",
    [
        {},
        {"disableAllHooks": False, "permissions": {"deny": ["WebFetch"]}},
        {"strictKnownMarketplaces": [{"source": "skills-dir"}], "blockedMarketplaces": [{"source": "github"}]},
        {"pluginConfigs": {"cc-plugin-sec-default@builtin": {"options": {"allowManagedModsOnly": False}}}},
        {"pluginConfigs": 3, "blockedMarketplaces": "all"},
    ],
)
def test_other_settings_are_not(managed):
    assert [*settings_problems("managed-settings.json", managed, managed=True)] == []


@pytest.mark.parametrize(
    ("printed", "told"),
    [("2.1.330 (Claude Code)", False), ("2.1.287", False), ("2.1.286 (Claude Code)", True), ("claude of mine", True)],
)
def test_a_client_that_is_too_old_or_another_is_reported(printed, told):
    assert (version_problem(CLIENTS[CLIENT], printed) is not None) is told


OWN = {"id": "compactor@skills-dir", "enabled": True, "installPath": "/c/skills/compactor"}


@pytest.mark.parametrize(
    ("listing", "cures"),
    [
        ([OWN, {"id": "other@market", "enabled": True}], []),
        ([], ["manages"]),
        ([{**OWN, "enabled": False}], ["claude plugin enable compactor@skills-dir"]),
        ([{**OWN, "errors": ["Path not found: hooks/register.js"]}], ["compactor install claude-code"]),
        (
            [{**OWN, "enabled": False, "errors": ["name taken"]}, {"id": "compactor@mine", "enabled": True}],
            ["claude plugin uninstall compactor@mine"],
        ),
        ([OWN, {"id": "compactor@mine", "enabled": False}], []),
    ],
)
def test_what_the_client_says_of_its_plugins_is_told_with_the_cure(listing, cures):
    told = [problem.cure for problem in listing_problems(listing, "/c/skills/compactor")]
    assert len(told) == len(cures)
    assert all(cure in own for cure, own in zip(cures, told, strict=True))


needs_client = pytest.mark.skipif(
    shutil.which("claude") is None, reason="needs npm install -g @anthropic-ai/claude-code"
)
QUIET = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")
LONG = [use("Bash", f"toolu_{number}", command=f"seq {number} {number + 900}") for number in range(6)]


@pytest.fixture
def person(folder, monkeypatch):
    """Runs the real client and this program as somebody does who has nothing yet, in a project that is a stranger's."""
    home, work = folder / "a home", folder / "work"
    home.mkdir()
    work.mkdir()
    for name in ("click", "planner", "applier", "sitecustomize", "json"):
        (work / f"{name}.py").write_text("open(__file__ + '.ran', 'w').close()\n")
    (work / "compactor.toml").write_text("nonsense = 1\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)

    def run(server, *arguments):
        own = {"HOME": home, "PATH": os.environ["PATH"], "PYTHONPATH": ".", "ANTHROPIC_API_KEY": "sk-ant-none"}
        ours = {"ANTHROPIC_BASE_URL": server.url, "COMPACTOR_STORE": folder / "store.db", "COMPACTOR_PLANNER": "rules"}
        environment = {name: str(value) for name, value in {**own, **ours, **dict.fromkeys(QUIET, "1")}.items()}
        return subprocess.run(
            ["claude", "-p", "--output-format", "stream-json", "--verbose", *arguments, "--allowedTools", "Bash"],
            cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip

    run.home, run.work = home, work
    return run


@pytest.mark.real
@needs_client
def test_the_real_client_loads_what_is_installed_and_nothing_of_the_project(compactor, person):
    assert compactor("install", CLIENT, "--yes").code == 0
    status = compactor("status", CLIENT)
    assert (status.code, "No problem found" in status.out) == (0, True), status.out
    with Loopback([*([call] for call in LONG), "Counted."]) as server:
        first = person(server, "Count, and never delete a file")
        asked = len(server.requests)
        shown = person(server, "--continue", "/compactor preview")
        compacted = person(server, "--continue", "/compact")
        assert len(server.requests) == asked  # neither asks a model
    assert [ran.returncode for ran in (first, shown, compacted)] == [0, 0, 0], first.stderr
    assert "A compaction now" in shown.stdout
    assert "Still in sight: 1 of 1 demands" in shown.stdout
    assert "compactor restore h" in compacted.stdout
    assert sorted(path.name for path in person.work.glob("*.ran")) == []
    assert compactor("uninstall", CLIENT, "--yes").code == 0
    assert [path for path in (person.home / ".claude").rglob("*compactor*") if "projects" not in path.parts] == []


@pytest.mark.real
@needs_client
def test_status_asks_the_real_client_for_a_second_mod_and_for_one_that_it_does_not_take(compactor, person):
    assert compactor("install", CLIENT, "--yes").code == 0
    place = person.home / ".claude" / "skills" / "compactor"
    market = person.home / "market"
    shutil.copytree(place, market / "compactor")
    (market / ".claude-plugin").mkdir()
    plugins = [{"name": "compactor", "source": "./compactor"}]
    listed = {"name": "market", "owner": {"name": "somebody"}, "plugins": plugins}
    (market / ".claude-plugin" / "marketplace.json").write_text(json.dumps(listed))
    for command in (["marketplace", "add", str(market)], ["install", "compactor@market"]):
        subprocess.run(["claude", "plugin", *command], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    assert "claude plugin uninstall compactor@market" in compactor("status", CLIENT).out
    shim = place / "hooks" / "register.js"
    shim.write_text(shim.read_text() + "\nlet unfinished = (\n")
    assert "refuses the mod" in compactor("status", CLIENT).out


@pytest.mark.parametrize("stream", ["1", "2"])
def test_the_version_of_a_client_is_read_wherever_it_prints_it(compactor, config, monkeypatch, tmp_path, stream):
    client = tmp_path / "pi"
    client.write_text(f"#!/bin/sh\necho 0.74.2 >&{stream}\n")
    client.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "agent"))
    said = compactor("status", "pi", "--json").json
    assert said["version"] == "0.74.2"
    assert "Pi 0.74.2 is too old" in said["problems"][0]["what"]
