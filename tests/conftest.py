"""Setup of every test: no network but loopback, no key and no settings of the machine, real transcripts."""

import gc
import json
import os
import secrets
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.postgres_server import PostgresServer, initdb_program

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "transcripts"
LOOPBACK = ("127.0.0.1", "::1", "localhost", b"127.0.0.1", b"localhost", "", None)

settings.register_profile(
    "same",
    parent=settings(),
    deadline=None,
    max_examples=30,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("random", parent=settings.get_profile("same"), derandomize=False, print_blob=True)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "same")
"""Profile of Hypothesis. ``same``: every run draws the same examples. ``random``: explores, under a seed that the
header prints and ``--hypothesis-seed`` repeats."""
settings.load_profile(PROFILE)
QUICK, LEAST_EXAMPLES = 3, 3
"""Profile ``same`` draws one of so many examples that a law asks for, and never fewer than the second number: a change
that breaks a law breaks it for most histories, and the rest is searched for at random."""

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4_000_000_000
"""Free memory that a run of all tests needs there."""
if os.access(MEMORY, os.W_OK):
    _system = os.statvfs(MEMORY)
    if not _system.f_flag & os.ST_NOEXEC and _system.f_bavail * _system.f_frsize > MEMORY_BYTES:
        # a store waits for the disk at every write: half the time of the tests of sessions
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


MARKS = {
    "real": "run the tests marked `real`, too: processes, browsers, servers, what takes over a second and a half alone",
    "slow": "run all tests: those marked `real`, and those marked `slow`, which .ci/run leaves out",
}
"""Marks of tests that are skipped, each with what the option of the same name does."""


def pytest_addoption(parser):
    """Add an option for each mark."""
    parser.addoption("--real", action="store_true", default=bool(os.environ.get("CI")), help=MARKS["real"])
    parser.addoption("--slow", action="store_true", help=MARKS["slow"])


def left_out(config):
    """Return the marks of tests that the options skip."""
    return [] if config.option.slow else ["slow"] if config.option.real else ["slow", "real"]


def reason_of(mark):
    """Return the reason to skip a test with this mark."""
    return f"{mark}: pytest --{mark} runs it"


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Turn garbage collection off while tests are loaded; it takes an eighth of the time in each worker. What is loaded
    then stays, and no later collection looks through it: half a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """Skip tests marked `real` or `slow` unless the option or their own name asks for them; run their files first, so
    that no worker waits for them at the end."""
    if PROFILE == "same":
        draw_fewer_examples({item.obj for item in items if is_hypothesis_test(getattr(item, "obj", None))})
    early = {item.path for item in items if any(map(item.get_closest_marker, MARKS))}
    items.sort(key=lambda item: item.path not in early)
    named = {argument.split("[")[0].rpartition("::")[2] for argument in config.args if "::" in argument}
    for item in items:
        skipped = [mark for mark in left_out(config) if item.get_closest_marker(mark)]
        if skipped and getattr(item, "originalname", "") not in named:
            item.add_marker(pytest.mark.skip(reason=reason_of(skipped[0])))


def draw_fewer_examples(laws):
    """Let each law draw the share of its examples that the profile ``same`` has."""
    for law in laws:
        own = law._hypothesis_internal_use_settings  # Hypothesis has no public way to change a law's own number
        few = max(LEAST_EXAMPLES, own.max_examples // QUICK)
        law._hypothesis_internal_use_settings = settings(own, max_examples=min(own.max_examples, few))


def pytest_configure(config):
    """Give a random run a seed of its own, unless one was asked for; workers take over the first process's."""
    if PROFILE == "random" and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))


def pytest_report_header(config):
    """Print the profile and seed, so that a failure can be repeated."""
    seed = config.option.hypothesis_seed
    laws = f"laws: profile {PROFILE}" + (f", --hypothesis-seed={seed}" if seed is not None else "")
    return [laws, *(f"skipped: what is marked {mark}; --{mark}: {MARKS[mark]}" for mark in left_out(config))]


def pytest_terminal_summary(terminalreporter, config):
    """Print how many tests were skipped."""
    reports = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    for mark in left_out(config):
        skipped = sum(reason_of(mark) in report for report in reports)
        terminalreporter.write_line(f"{skipped} tests marked {mark} were skipped; --{mark}: {MARKS[mark]}")


class NetworkTouched(BaseException):
    """A test tried to leave this machine; no `except Exception` may hide it."""


@pytest.fixture(scope="session", autouse=True)
def only_loopback():
    """Let an accidental live call fail at once instead of hanging, or worse, succeeding."""
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def connect_here(self, address):
        if self.family != socket.AF_UNIX and address[0] not in LOOPBACK:
            raise NetworkTouched(f"connect to {address}")
        return connect(self, address)

    def resolve_here(host, *args, **kwargs):
        if host not in LOOPBACK:
            raise NetworkTouched(f"look up {host!r}")
        return resolve(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_here)
        patch.setattr(socket, "getaddrinfo", resolve_here)
        yield


@pytest.fixture(scope="session", autouse=True)
def clean_environment(tmp_path_factory):
    """Remove keys, settings, stores and certificates of the machine; reading certificates would cost each HTTP client a
    tenth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("certificates")))
        for name in [
            name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENAI_", "COMPACTOR_", "CLAUDE_"))
        ]:
            patch.delenv(name)
        rules = Path(tempfile.gettempdir(), f"compactor-rules-{os.geteuid()}")  # compiling them takes 3 s a process
        patch.setenv("KF_RULE_CACHE_DIR", str(rules))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("COMPACTOR_STORE", str(tmp_path_factory.mktemp("store") / "store.db"))
        yield


@pytest.fixture(scope="session")
def postgres():
    """Start a server; a test that stops it starts it again."""
    pytest.importorskip("psycopg", reason="PostgreSQL tests need psycopg")
    if not initdb_program():
        pytest.skip("PostgreSQL tests need its server binaries: apt-get install postgresql")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres):
    """Return the server's address."""
    return postgres.url


@pytest.fixture(scope="session")
def shared_transcripts():
    """Return the real transcripts beside this repository as (name, transcript) pairs; skip without them."""
    files = sorted(SHARED.glob("*.json"))
    if not files:
        pytest.skip("no shared transcripts beside this repository")
    return [(file.stem, json.loads(file.read_text(encoding="utf-8"))) for file in files]
