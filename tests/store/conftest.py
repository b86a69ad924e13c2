"""A store on each kind of database: SQLite, and a real PostgreSQL server started for the tests."""

from pathlib import Path

import pytest

from applier.store import open_store

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
