"""A real PostgreSQL server on a socket in a temporary folder, that tests and benchmarks may stop and start again."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any


def initdb_program() -> str:
    """Return the path of the server's programs, or nothing."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return shutil.which("initdb") or (str(installed[-1]) if installed else "")


def _user() -> dict[str, Any]:
    """Return the user that runs the server, which refuses root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    name = next(name for name in ("postgres", "nobody") if name in names)
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


class PostgresServer:
    """Server as a context manager, running from its start."""

    def __init__(self) -> None:
        """Make its files."""
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))
        self.url = f"postgresql://store@/postgres?host={self.folder}"
        if user := _user():
            shutil.chown(self.folder, user["user"])
        self._run("initdb", "--auth=trust", "--username=store", "--no-sync", "--encoding=UTF8", "--locale=C")

    @property
    def socket(self) -> Path:
        """Path of its socket."""
        return self.folder / ".s.PGSQL.5432"

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off"
        self._run("pg_ctl", "start", "-w", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        """Stop it as in a crash, without closing connections."""
        self._run("pg_ctl", "stop", "-m", "immediate")

    def _run(self, program: str, *arguments: str) -> None:
        command = [Path(initdb_program()).with_name(program), "-D", self.folder / "data", *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **_user())

    def __enter__(self) -> PostgresServer:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it, if it runs, and remove its files."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.folder)
