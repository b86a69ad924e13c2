"""A team's proxy as an operator runs it: in a process of its own, behind nginx, by systemd, from a container file."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from applier import open_store
from applier.adapters.proxy.configuration import read_team
from applier.adapters.proxy.entrance import create_token, revoke_token
from applier.testing import Answer, MessagesServer, say
from tests import http_client
from tests.bench.container import steps_of
from tests.bench.proxy_load import conversation
from tests.cli.conftest import interruptible
from tests.openai_server import OpenAIServer
from tests.patience import PATIENCE_SECONDS
from tests.proxy.test_team import ENVIRONMENT, HELLO, team, written

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
FILES = ROOT / "docs" / "team"
COMPACTOR = [sys.executable, "-m", "applier.cli"]
SECRET_WORDS = "nobody-elses-words"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def token_of(name, config):
    """A new token of a team's store."""
    with open_store(read_team(config).store) as store:
        return create_token(store, name, 0.0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Process:
    """`compactor proxy --config FILE`; what it says on standard error is kept."""

    def __init__(self, config, folder):
        self.log = folder / f"log-{time.monotonic_ns()}"
        env = {**os.environ, "PYTHONPATH": str(ROOT), **ENVIRONMENT}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*COMPACTOR, "proxy", "--config", config], env=env, stderr=log, cwd=folder, preexec_fn=interruptible
            )
        self.url = wait_for(lambda: re.search(r"ANTHROPIC_BASE_URL=(\S+)", self.log.read_text()))[1]
        wait_for(lambda: answers(f"{self.url}/health"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(PATIENCE_SECONDS)


def wait_for(look):
    """What `look` gives, once it gives something."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (seen := look()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return seen


def answers(url, **more):
    try:
        return http_client.get(url, **more)
    except httpx.TransportError:
        return None


@pytest.fixture
def upstream():
    with MessagesServer("ok", window_tokens=10**6) as server:
        yield server


@pytest.mark.slow
def test_people_come_and_go_while_it_runs(upstream, tmp_path):
    config = written(tmp_path, upstream, "[limits]\ntokens_a_day = 60\n")
    token = token_of("ada", config)

    def status(url):
        return http_client.post(f"{url}/v1/messages", json=HELLO, headers={"x-api-key": token}).status_code

    with Process(config, tmp_path) as first, Process(config, tmp_path) as second:
        assert [status(first.url), status(second.url)] == [200, 200]
        wait_for(lambda: status(first.url) == 429)
        first.end(signal.SIGKILL)
        wait_for(lambda: status(second.url) == 429), "it counts what the other has spent"
        with open_store(read_team(config).store) as store:
            revoke_token(store, "ada", 1.0)
        wait_for(lambda: status(second.url) == 401)


def test_an_open_stream_ends_within_the_grace_and_the_log_quotes_nobody(tmp_path):
    gate = threading.Event()
    whole = {**HELLO, "messages": [*conversation(SECRET_WORDS, 30)]}
    held = Answer([say(f"{SECRET_WORDS} " * 20)], hold=gate.wait)
    with MessagesServer(["ok", held], window_tokens=10**6) as server:
        config = written(tmp_path, server, 'grace_seconds = 20\nlog_level = "debug"')
        token = token_of("ada", config)
        headers = {"authorization": f"Bearer {token}"}
        with Process(config, tmp_path) as proxy, http_client.Client() as client:
            client.post(f"{proxy.url}/v1/messages?note={SECRET_WORDS}", json=whole, headers=headers)
            assert client.get(f"{proxy.url}/ready").json()["ready"]
            body = {**whole, "stream": True}
            with client.stream("POST", f"{proxy.url}/v1/messages", json=body, headers=headers) as answer:
                chunks = answer.iter_raw()
                read = next(chunks)
                proxy.process.send_signal(signal.SIGTERM)
                wait_for(lambda: answers(f"{proxy.url}/ready") is None)
                gate.set()
                read += b"".join(chunks)
        assert b"message_stop" in read
        assert proxy.process.wait(PATIENCE_SECONDS) in (0, -signal.SIGTERM)
        log = proxy.log.read_text()
    assert len(re.findall(r"INFO applier.proxy: ada POST /v1/messages 200 \d+\.\d+s", log)) == 2
    assert re.search(r"INFO applier.session: \S+ post_compact \S* \d+ -> \d+ tokens", log)
    for secret in (SECRET_WORDS, token, *ENVIRONMENT.values()):
        assert secret not in log


@contextmanager
def running_nginx(folder, proxy_url):
    """The example, with ports and certificate of this test; gives a client of it."""
    port, certificate, key = free_port(), folder / "tls.crt", folder / "tls.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run([*command, *names], check=True, capture_output=True)
    site = (FILES / "nginx.conf").read_text()
    changes = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "server 127.0.0.1:8787": f"server {proxy_url.removeprefix('http://')}",
        "compactor.example.org": "localhost",
        "/etc/compactor/tls.crt": str(certificate),
        "/etc/compactor/tls.key": str(key),
    }
    for shown, here in changes.items():
        assert shown in site
        site = site.replace(shown, here)
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    top = f"daemon off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
    whole = f"{top}http {{\naccess_log off;\n{temporary}{site}}}\n"
    (folder / "nginx.conf").write_text(whole)
    command = [NGINX, "-p", folder, "-e", "stderr", "-c", folder / "nginx.conf"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            url, trust = f"https://localhost:{port}", ssl.create_default_context(cafile=certificate)
            wait_for(lambda: process.poll() is not None or answers(f"{url}/health", verify=trust))
            assert process.poll() is None, process.stderr.read()
            with http_client.Client(verify=trust, base_url=url) as client:
                yield client
        finally:
            process.terminate()


@pytest.mark.skipif(not (NGINX and shutil.which("openssl")), reason="needs nginx and openssl")
def test_the_example_of_nginx_passes_a_stream_on_as_it_comes(tmp_path):
    gate = threading.Event()
    held = Answer([say("word " * 200)], hold=gate.wait)
    with MessagesServer([held, "ok"], window_tokens=10**7) as server:
        config = written(tmp_path, server)
        token = {"authorization": f"Bearer {token_of('ada', config)}"}
        with Process(config, tmp_path) as proxy, running_nginx(tmp_path, proxy.url) as client:
            with client.stream("POST", "/v1/messages", json={**HELLO, "stream": True}, headers=token) as answer:
                chunks = answer.iter_raw()
                first = next(chunks)
                assert not gate.is_set()
                gate.set()
                whole = first + b"".join(chunks)
            assert b"message_start" in first
            assert b"message_stop" not in first
            assert b"message_stop" in whole
            large = {**HELLO, "messages": [{"role": "user", "content": "x " * 2_000_000}]}
            assert client.post("/v1/messages", json=large, headers=token).status_code == 200
            assert client.post("/v1/messages", json=HELLO).status_code == 401
            assert client.get("/metrics").status_code == 401, "from here, but without a token"
            assert client.get("/ready").json()["ready"]


CODEX_SETTINGS = """model_provider = "team"
model = "gpt-5.5"
[model_providers.team]
name = "team"
base_url = "{url}/v1"
env_key = "COMPACTOR_TOKEN"
wire_api = "responses"
"""


@pytest.mark.parametrize(
    ("command", "variable", "told"),
    [
        (["claude", "-p", "Say done"], "ANTHROPIC_AUTH_TOKEN", "has spent the quota of this day"),
        (["codex", "exec", "--skip-git-repo-check", "Say done"], "COMPACTOR_TOKEN", "usage limit"),
    ],
    ids=["claude", "codex"],
)
def test_real_clients_come_in_by_a_token_and_are_told_of_a_quota(command, variable, told, tmp_path):
    if shutil.which(command[0]) is None:
        pytest.skip("needs the client")
    with OpenAIServer("All done here.") as server, team(tmp_path, server, "[limits]\ntokens_a_day = 5\n") as of:
        (tmp_path / ".codex").mkdir()
        (tmp_path / ".codex" / "config.toml").write_text(CODEX_SETTINGS.format(url=of.proxy.url))
        switches = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")
        ours = {"HOME": str(tmp_path), "ANTHROPIC_BASE_URL": of.proxy.url, variable: of.tokens["ada"]}
        env = {"PATH": os.environ["PATH"], **dict.fromkeys(switches, "1"), **ours}
        options = {"env": env, "cwd": tmp_path, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        first, second = (subprocess.run(command, timeout=PATIENCE_SECONDS, **options) for _ in range(2))
    assert (first.returncode, "All done here." in first.stdout) == (0, True)
    assert (second.returncode, told in second.stdout + second.stderr) == (1, True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_the_unit_is_one(tmp_path):
    unit = (FILES / "compactor-proxy.service").read_text()
    assert "/opt/compactor/bin/compactor" in unit
    (tmp_path / "compactor-proxy.service").write_text(unit.replace("/opt/compactor/bin/compactor", sys.executable))
    command = ["systemd-analyze", "verify", str(tmp_path / "compactor-proxy.service")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_container_file_s_steps_name_what_is_there():
    """They are run in an empty root by ``python -m tests.bench.container``."""
    steps = steps_of((FILES / "Containerfile").read_text())
    assert [kind for kind, _ in steps].count("FROM") == 1
    sources = [name for kind, text in steps if kind == "COPY" for name in text.split()[:-1]]
    assert sources
    assert all((ROOT / name).exists() for name in sources)
    (run_by,) = (json.loads(text) for kind, text in steps if kind == "ENTRYPOINT")
    (options,) = (json.loads(text) for kind, text in steps if kind == "CMD")
    assert run_by[1:] + options == ["proxy", "--config", "/etc/compactor/proxy.toml"]


@pytest.mark.parametrize("held", ["answer", pytest.param("planner", marks=pytest.mark.slow)])
def test_ctrl_c_ends_it_at_once_whatever_it_waits_for(held, tmp_path):
    """By SIGTERM this one would wait an hour for the answers under way."""
    asked, gate = threading.Event(), threading.Event()

    def answering(request):
        if held == "answer" or "system" in request.body:  # as a planner's question
            asked.set()
            gate.wait()
        return "ok"

    body = {**HELLO, "messages": conversation("ada", 8 if held == "answer" else 30)}
    with OpenAIServer(answering, window_tokens=10**6) as server:
        config = written(tmp_path, server, "grace_seconds = 3600\n")
        config.write_text(config.read_text().replace('planner = "rules"', 'planner = "model"'))
        token = {"x-compactor-token": token_of("ada", config)}
        with Process(config, tmp_path) as proxy:

            def ask():
                with suppress(httpx.HTTPError):
                    http_client.post(f"{proxy.url}/v1/messages", json=body, headers=token)

            threading.Thread(target=ask, daemon=True).start()
            assert asked.wait(PATIENCE_SECONDS)
            assert proxy.end(signal.SIGINT) != 0
        gate.set()


@pytest.mark.slow
def test_a_proxy_that_listens_has_loaded_what_a_first_plan_needs(tmp_path):
    """A first request beside a large one would wait for both."""
    code = f"""
import sys
from applier.adapters.proxy import ProxyServer, ProxySettings
ProxyServer(ProxySettings(store={str(tmp_path / "s.db")!r}))
before = set(sys.modules)
from applier.adapters.proxy import load
load()
print("kingfisher_sdk" in before, sorted(set(sys.modules) - before))
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert shown.stdout == "True []\n"
