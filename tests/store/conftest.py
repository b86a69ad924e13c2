"""A store on each kind of database: SQLite, and a real PostgreSQL server started for the tests."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from applier.store import open_store

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def server_user():
    """Whom the server runs as: it refuses root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    name = next(name for name in ("postgres", "nobody") if name in names)
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


@pytest.fixture(scope="session")
def postgres_url():
    """The address of a server of its own, on a socket in a temporary folder."""
    pytest.importorskip("psycopg", reason="PostgreSQL tests need psycopg")
    initdb = shutil.which("initdb") or (POSTGRES and POSTGRES[-1])
    if not initdb:
        pytest.skip("PostgreSQL tests need its server binaries: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    user = server_user()
    if user:
        shutil.chown(folder, user["user"])

    def run(program, *arguments):
        command = [Path(initdb).with_name(program), "-D", folder / "data", *arguments]
        return subprocess.run(command, check=True, capture_output=True, cwd=folder, **user)

    try:
        run("initdb", "--auth=trust", "--username=store", "--no-sync", "--encoding=UTF8", "--locale=C")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "start", "-w", "-l", folder / "log", "-o", options)
        yield f"postgresql://store@/postgres?host={folder}"
        run("pg_ctl", "stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder)


SERVER = pytest.param("postgres", marks=pytest.mark.real)


@pytest.fixture(params=["sqlite", SERVER])
def store_url(request, tmp_path):
    """The name of a store that holds nothing yet."""
    return new_url(request, tmp_path)


def new_url(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "folder" / "store.db")
    url = request.getfixturevalue("postgres_url")
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET client_min_messages = error; DROP SCHEMA IF EXISTS compactor CASCADE")
    return url


@pytest.fixture(params=["sqlite", SERVER, "documented"])
def store(request, tmp_path):
    """A store that holds nothing yet, on each kind of database and on the backend that the documentation shows."""
    if request.param == "documented":
        page = Path(__file__).parents[2] / "docs" / "extending.md"
        names = {}
        exec(page.read_text().split("```python\n")[1].split("```")[0], names)
        yield names["store"]
        return
    with open_store(new_url(request, tmp_path)) as opened:
        yield opened


@pytest.fixture
def sqlite_path(tmp_path):
    return tmp_path / "store.db"
