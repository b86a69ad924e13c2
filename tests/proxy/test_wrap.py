"""`compactor wrap` and `compactor proxy`, as a user runs them; with the real client where it is installed."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import anthropic
import pytest

from applier.adapters.wrapped_client import wrapped_client
from applier.testing import say, use
from tests import http_client
from tests.bench.client_run import run_client
from tests.openai_server import OpenAIServer
from tests.patience import PATIENCE_SECONDS
from tests.server.agent import Script, Tools, one_call, work

pytestmark = pytest.mark.real

COMPACTOR = [sys.executable, "-m", "applier.cli"]
MODEL = "claude-opus-5-5"
ROOT = str(Path(__file__).parents[2])

CLIENT = """
import json, os, sys, urllib.request
body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
headers = {"content-type": "application/json", "x-api-key": "any", "anthropic-version": "2023-06-01"}
asked = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
answer = json.load(urllib.request.urlopen(asked))
print(answer["content"][0]["text"], os.environ["COMPACTOR_SESSION"].split("-")[0], sys.argv[1:])
sys.exit(7)
"""


def environment(tmp_path, **more):
    return {**os.environ, "PYTHONPATH": ROOT, "HOME": str(tmp_path), **more}


def test_a_client_is_run_with_its_own_arguments_and_code(tmp_path):
    with OpenAIServer("hello") as server:
        command = [*COMPACTOR, "wrap", "--upstream", server.url, sys.executable, "-c", CLIENT, "--flag", "x"]
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("hello wrap ['--flag', 'x']\n", 7)
    assert done.stderr.startswith("compactor: 0 compactions; ")


def test_where_the_environment_already_points_is_the_provider_and_the_report_may_be_json(wrap):
    with OpenAIServer("hello") as server:
        done = wrap("--json", sys.executable, "-c", CLIENT, ANTHROPIC_BASE_URL=server.url)
    told = json.loads(done.err)
    assert done.code == 7
    assert (told["compactions"], told["saved_tokens"], told["compacted"]) == (0, 0, [])
    assert (told["waited_seconds"], told["removed_reasoning"]) == ([], 0)
    assert [told["prompt_tokens"]] == [exchange.usage.prompt_tokens for exchange in server.exchanges]


class Proxy:
    """`compactor proxy` in a process of its own."""

    def __init__(self, upstream, port, tmp_path, most_bytes=resource.RLIM_INFINITY):
        options = ["--port", str(port), "--upstream", upstream, "--window", "24000", "--planner", "rules"]
        env = environment(tmp_path, COMPACTOR_STORE=str(tmp_path / "store.db"))
        self.process = subprocess.Popen(
            [*COMPACTOR, "proxy", *options],
            env=env,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY)),
        )
        self.url = self.process.stderr.readline().strip().removeprefix("ANTHROPIC_BASE_URL=")

    def end(self, how):
        self.process.send_signal(how)
        code = self.process.wait()
        self.process.stderr.close()
        return code


def test_a_proxy_that_is_killed_goes_on_where_it_was(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    tools = Tools(tmp_path)
    with OpenAIServer(Script(one_call, rounds=12), window_tokens=24_000) as server:
        proxy = Proxy(server.url, port, tmp_path)
        messages = []

        def send(**given):
            """Every 15 requests the proxy is killed and started anew."""
            nonlocal proxy, messages
            if len(server.exchanges) % 15 == 14:
                proxy.end(signal.SIGKILL)
                proxy = Proxy(server.url, port, tmp_path)
            messages = given["messages"]
            return client.messages.create(model=MODEL, max_tokens=2048, thinking={"type": "adaptive"}, **given)

        with anthropic.Anthropic(base_url=proxy.url, api_key="any", max_retries=0) as client:
            whole = work(send, tools, turns=2)
        compactions = http_client.get(proxy.url + "/metrics").text
        code = proxy.end(signal.SIGTERM)
    assert server.violations == []
    assert len(whole) == 48
    assert "compactor_requests_total" in compactions
    assert code in (0, -signal.SIGTERM)
    assert max(exchange.usage.prompt_tokens for exchange in server.exchanges) < 24_000


def test_a_full_store_costs_no_request(tmp_path):
    """Nothing can be stored, so nothing is removed; the provider's window is larger here."""
    with OpenAIServer(Script(one_call, rounds=30)) as server:
        proxy = Proxy(server.url, 0, tmp_path, most_bytes=8_192)
        with anthropic.Anthropic(base_url=proxy.url, api_key="any", max_retries=0) as client:
            messages = work(
                lambda **given: client.messages.create(model=MODEL, max_tokens=2048, **given), Tools(tmp_path), turns=1
            )
        proxy.end(signal.SIGTERM)
    assert server.violations == []
    assert len(server.exchanges[-1].request.messages) == len(messages) - 1


@pytest.mark.skipif(shutil.which("claude") is None, reason="needs the client: npm install -g @anthropic-ai/claude-code")
def test_the_real_client():
    done = run_client("claude", 20, window_tokens=40_000)
    assert (done.exit_code, done.rounds, done.violations) == (0, 20, ())
    assert "compactions" in done.report


AROUND = "import os, sys, urllib.request; sys.exit(5)"


def test_a_client_that_goes_around_the_proxy_is_told_of(wrap):
    done = wrap(sys.executable, "-c", AROUND)
    assert done.code == 5
    assert done.err.startswith(f"compactor: bypassed: nothing came from {sys.executable}. ")
    assert "prompt tokens" not in done.err


def test_a_store_that_cannot_be_opened_is_told_of_at_the_start_in_health_and_at_the_end(wrap, tmp_path):
    asks_health = (
        "import os, urllib.request as u; print(u.urlopen(os.environ['ANTHROPIC_BASE_URL'] + '/health').read())"
    )
    done = wrap("--store", tmp_path, sys.executable, "-c", asks_health)
    problem = "the store cannot be used, so nothing is compacted: "
    assert [problem in line for line in done.err.splitlines()] == [True, False, True]
    assert "ok, but nothing is compacted: " in done.out


CODEX = """#!{python}
import json, sys, urllib.request
option = dict(one.split("=", 1) for flag, one in zip(sys.argv, sys.argv[1:]) if flag == "-c")
places = [name for name in option if name.endswith("base_url")]
if not places:
    sys.exit("no option names a place")
url = option[places[0]]
body = json.dumps({{"model": "gpt-5.5", "input": "Hi"}}).encode()
headers = {{"content-type": "application/json", "authorization": "Bearer sk-1"}}
urllib.request.urlopen(urllib.request.Request(url.strip('"') + "/responses", body, headers)).read()
print(*places)
"""
SETTINGS = {
    'openai_base_url = "{url}/v1"': "openai_base_url",
    'model_provider = "own"\n[model_providers.own]\nbase_url = "{url}/v1/"': "model_providers.own.base_url",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_codex_is_told_by_an_option_and_its_requests_go_where_its_settings_say(wrap, tmp_path, setting):
    codex, home = tmp_path / "codex", tmp_path / ".codex"
    codex.write_text(CODEX.format(python=sys.executable))
    codex.chmod(0o755)
    home.mkdir()
    with OpenAIServer("hello") as server:
        (home / "config.toml").write_text(setting.format(url=server.url))
        done = wrap(codex, CODEX_HOME=str(home), OPENAI_BASE_URL="https://unread.example.org/v1")
    assert (done.out, done.err.count("bypassed")) == (f"{SETTINGS[setting]}\n", 0), done.err
    assert server.paths == [("POST", "/v1/responses")]


@pytest.mark.parametrize("flags", [["exec", "-pwork"], ["exec", "--profile=work"]])
def test_codex_called_with_a_profile_is_sent_where_that_says_and_its_key_nowhere_else(wrap, tmp_path, flags):
    codex, home = tmp_path / "codex", tmp_path / ".codex"
    codex.write_text(CODEX.format(python=sys.executable))
    codex.chmod(0o755)
    home.mkdir()
    with OpenAIServer("hello") as other, OpenAIServer("hello") as server:
        (home / "config.toml").write_text(f'openai_base_url = "{other.url}/v1"')
        (home / "work.config.toml").write_text(f'openai_base_url = "{server.url}/v1"')
        done = wrap(codex, *flags, CODEX_HOME=str(home))
    assert done.out == "openai_base_url\n", done.err
    assert (server.paths, other.paths) == ([("POST", "/v1/responses")], [])


def test_codex_on_a_provider_that_it_has_built_in_starts_and_is_told_to_go_around(wrap, tmp_path):
    """It refuses to start where an option names another place for one."""
    codex, home = tmp_path / "codex", tmp_path / ".codex"
    codex.write_text(CODEX.format(python=sys.executable))
    codex.chmod(0o755)
    home.mkdir()
    (home / "config.toml").write_text('model_provider = "ollama"')
    done = wrap(codex, CODEX_HOME=str(home))
    assert "no option names a place" in done.err
    assert "compactor: bypassed: nothing came from" in done.err


URL = "http://127.0.0.1:9/own-secret"
BYOK = {"COPILOT_PROVIDER_BASE_URL": "https://api.example.org/v1"}


@pytest.mark.parametrize(
    ("environment", "upstreams", "place"),
    [
        ({}, {}, None),
        (BYOK, {"openai_upstream": "https://api.example.org/v1"}, f"{URL}/v1"),
        ({**BYOK, "COPILOT_PROVIDER_TYPE": "anthropic"}, {"upstream": "https://api.example.org/v1"}, URL),
        ({**BYOK, "COPILOT_PROVIDER_TYPE": "azure"}, {}, None),
        ({"COPILOT_PROVIDER_BASE_URL": "https://api.example.org/v2"}, {}, None),
    ],
)
def test_copilot_is_sent_to_the_proxy_where_the_person_has_a_provider_that_it_serves(environment, upstreams, place):
    """With a GitHub login no variable changes where it asks, and one that is set would end that login."""
    client = wrapped_client(["copilot", "-p", "Hi"], environment)
    assert client.upstreams() == upstreams
    assert client.variables(URL).get("COPILOT_PROVIDER_BASE_URL") == place
    assert client.arguments(URL, ["python"], ["COMPACTOR_SESSION"]) == ["copilot", "-p", "Hi"]


def test_codex_gets_our_server_with_its_variables_because_it_starts_servers_without_them(tmp_path):
    client = wrapped_client(["codex", "exec", "Hi"], {"CODEX_HOME": str(tmp_path)})
    command = client.arguments(URL, ["/bin/python", "-m", "x"], ["COMPACTOR_SESSION", "COMPACTOR_PROJECT"])
    options = tomllib.loads("\n".join(command[2:-2:2]))
    server = {"command": "/bin/python", "args": ["-m", "x"], "env_vars": ["COMPACTOR_SESSION", "COMPACTOR_PROJECT"]}
    assert options == {"openai_base_url": f"{URL}/v1", "mcp_servers": {"compactor": server}}
    assert (command[0], command[1:-2:2], command[-2:]) == ("codex", ["-c"] * 4, ["exec", "Hi"])
    without = client.arguments(URL, [], [])
    assert without == ["codex", "-c", f'openai_base_url="{URL}/v1"', "exec", "Hi"]


class Restorer:
    """A model in Codex that counts, and asks for a turn once there is a view; keeps the view and the answer."""

    def __init__(self):
        self.number, self.view, self.restored = 0, "", ""

    def __call__(self, request):
        raw = request.raw.decode()
        call = "text(await tools.mcp__compactor__restore_context({reference: 't3', last_line: 3}))"
        self.number += 1
        if self.view and not self.restored:
            self.restored = json.dumps(request.body["input"][-1])
        if not self.view and "<compacted history=" in raw:
            self.view = raw
            return [use("exec", custom=call)]
        command = json.dumps({"cmd": f"seq {self.number}000 {self.number}900"})
        again = [say(f"Step {self.number}."), use("exec", custom=f"text(await tools.exec_command({command}))")]
        return "Done." if self.number > 16 else again


@pytest.mark.skipif(shutil.which("codex") is None, reason="needs the client: npm install -g @openai/codex")
def test_the_real_codex_restores_a_turn_in_its_sandbox(tmp_path):
    """Without a question to the person, by the name in the view: Codex lists no tool of a server."""
    model = Restorer()
    with OpenAIServer(model, window_tokens=10_000_000) as server:
        options = ["--window", "60000", "--planner", "rules", "--openai-upstream", server.url]
        env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "CODEX_API_KEY": "sk-none"}
        done = subprocess.run(
            [*COMPACTOR, "wrap", *options, "codex", "exec", "--skip-git-repo-check", "Count, never delete a file"],
            cwd=tmp_path, env={**env, "PYTHONPATH": ROOT}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 'mcp__compactor__restore_context(\\"t2\\") returns the whole turn' in model.view
    assert "t3 lines 1 to 3 of" in model.restored


def test_an_option_of_wrap_that_there_is_not_is_no_client(wrap):
    done = wrap("--windo", "3000", "codex")
    assert (done.code, done.err.split(".")[0]) == (2, "compactor: No such option '--windo'")


ASKS = """
import os, urllib.request
headers = {"content-type": "application/json", "authorization": "Bearer sk-1"}
body = b'{"model": "gpt-5.5", "input": "Hi"}'
urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/responses", body, headers)).read()
"""


@pytest.mark.parametrize("end", ["", "/v1/"])
def test_an_upstream_is_named_with_or_without_the_end_of_a_client_s_base_url(wrap, end):
    with OpenAIServer("hello") as server:
        done = wrap("--openai-upstream", server.url + end, sys.executable, "-c", ASKS)
    assert (done.code, server.paths) == (0, [("POST", "/v1/responses")]), done.err


WAITING = """
import os, signal, sys, time, urllib.request
def end(number, frame):
    urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"] + "/health").read()
    print("ended with the proxy still there", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGHUP, end)
print("ready", flush=True)
for _ in range(600):
    time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_to_wrap_is_the_clients_and_the_proxy_outlives_it(tmp_path, number):
    with OpenAIServer("hello") as server:
        command = [*COMPACTOR, "wrap", "--upstream", server.url, sys.executable, "-c", WAITING]
        with subprocess.Popen(
            command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (out, process.returncode) == ("ended with the proxy still there\n", 3)
    assert err.startswith("compactor: 0 compactions; ")


def test_a_bare_name_is_never_a_program_of_the_folder_it_is_run_in(wrap, tmp_path, monkeypatch):
    """Nor by an empty, a dotted or a relative entry of PATH: the folder may be an agent's project."""
    project, own = tmp_path / "project", tmp_path / "bin"
    for folder, words in ((project, "strange"), (project / "bin", "strange"), (own, "mine")):
        folder.mkdir()
        (folder / "agent").write_text(f"#!/bin/sh\necho {words}\n")
        (folder / "agent").chmod(0o755)
    monkeypatch.chdir(project)
    for path, out in ((f":.:bin:{own}", "mine\n"), (":.:bin", "")):
        done = wrap("agent", PATH=path)
        assert (done.out, done.code) == (out, 0 if out else 1)
    assert "agent: no such program in PATH" in done.err
