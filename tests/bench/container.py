"""The steps of the container file, run in an empty root: ``python -m tests.bench.container ROOT``, as root.

ROOT is what ``debootstrap --variant=minbase bookworm ROOT`` makes, which is what the image begins from. At the end the
proxy runs in there as the user that the file names, on a loopback port, until it says that it is alive; then it is
told to stop. ``--share DIR`` (a package index, certificates) is copied in at the same place, before.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import click
import httpx

TREE = Path(__file__).parents[2]
_STEP = re.compile(r"^([A-Z]+)\s+(.*)$")
_CONFIGURATION = """port = 18787
store = "/var/lib/compactor/store.db"
[upstreams]
anthropic = "http://127.0.0.1:9"
"""


def steps_of(text: str) -> list[tuple[str, str]]:
    """Return the steps of a container file, each with its arguments."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [(found[1], found[2]) for found in map(_STEP.match, lines) if found]


def _within(root: Path, command: list[str], user: str = "root") -> list[str]:
    return ["/usr/sbin/chroot", f"--userspec={user}", str(root), *command]


@click.command
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--share", multiple=True, type=click.Path(exists=True, path_type=Path))
def _main(root: Path, share: tuple[Path, ...]) -> None:
    """Run the steps, then the proxy."""
    for place in (*share, Path("/etc/resolv.conf")):
        copy = shutil.copytree if place.is_dir() else shutil.copyfile
        inside = root / place.relative_to("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        copy(place, inside, **({"dirs_exist_ok": True} if place.is_dir() else {}))
    user, entry = "root", list[str]()
    for kind, text in steps_of((TREE / "docs" / "team" / "Containerfile").read_text()):
        started = time.perf_counter()
        if kind == "RUN":
            subprocess.run(_within(root, ["/bin/sh", "-c", text]), check=True, stdout=subprocess.DEVNULL)
        elif kind == "COPY":
            *sources, target = text.split()
            for source in sources:
                inside = root / target.lstrip("/")
                inside = inside / source if target.endswith("/") else inside
                inside.parent.mkdir(parents=True, exist_ok=True)
                if (TREE / source).is_dir():
                    shutil.copytree(TREE / source, inside, dirs_exist_ok=True)
                else:
                    shutil.copyfile(TREE / source, inside)
        elif kind == "USER":
            user = text
        elif kind in ("ENTRYPOINT", "CMD"):
            entry += json.loads(text)
        click.echo(f"{time.perf_counter() - started:6.1f} s  {kind} {text[:90]}")
    _try_out(root, user, entry)


def _try_out(root: Path, user: str, entry: list[str]) -> None:
    (root / "etc" / "compactor").mkdir(exist_ok=True)
    (root / "etc" / "compactor" / "proxy.toml").write_text(_CONFIGURATION)
    command = [*entry[:2], "token", "create", "ada", *entry[2:]]
    made = subprocess.run(_within(root, command, user), capture_output=True, text=True, env={"HOME": "/"}, check=True)
    with subprocess.Popen(_within(root, entry, user), env={"HOME": "/", "PATH": os.defpath}) as process:
        for _ in range(200):
            time.sleep(0.1)
            try:
                alive = httpx.get("http://127.0.0.1:18787/health").text.strip()
                break
            except httpx.TransportError:
                alive = ""
        token = {"x-compactor-token": made.stdout.strip()}
        metrics = httpx.get("http://127.0.0.1:18787/metrics", headers=token).status_code
        process.send_signal(signal.SIGTERM)
        code = process.wait()
    click.echo(f"alive: {alive!r}; a person's token: {metrics}; as {user}; ended by SIGTERM with {code}")


if __name__ == "__main__":
    _main()
