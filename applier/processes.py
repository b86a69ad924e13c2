"""Runs command lines of this program, other programs, and functions in worker processes.

Nothing is imported or run from the working folder or PYTHONPATH, which may be a stranger's. A worker process that dies
loses only the item it worked on. All workers end with this process, and at Ctrl-C.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import site
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent import futures  # its pools are loaded when one is opened
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TypeVar


def program(*arguments: str) -> list[str]:
    """Return a command line that runs `compactor` with these `arguments` from any folder, and imports nothing from that
    folder. It uses Python's isolated mode (``-I``). That mode does not find a package installed by ``pip install
    --user`` or ``--target``, so the command then names the package's folder."""
    try:
        place = Path(str(metadata.distribution("relevance-compactor").locate_file(""))).resolve()
    except metadata.PackageNotFoundError:  # not installed: the folder with the sources
        place = Path(__file__).resolve().parents[1]
    if any(place == Path(site_folder).resolve() for site_folder in site.getsitepackages()):
        return [sys.executable, "-I", "-m", "applier.cli", *arguments]
    folder = json.dumps(str(place), ensure_ascii=False)
    code = f"import site; site.addsitedir({folder}); site.main(); from applier.cli import main; main()"
    return [sys.executable, "-IS", "-c", code, *arguments]


def program_file(name: str) -> str:
    """Return the absolute path of the program `name`; empty if no absolute entry of PATH contains it."""
    entries = [entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(entry)]
    place = shutil.which(name, path=os.pathsep.join(entries)) or ""
    return place if os.path.isabs(place) else ""


AHEAD = 2
"""Number of items handed to each worker process at a time: enough that none waits, and few to repeat if one dies."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def all_cores() -> int:
    """Return the number of processor cores that this process may use, to start as many workers."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def in_processes(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[tuple[Item, Result | None], None, None]:
    """Yield each of `items` with its result, as soon as it is done; `workers` processes call the function `work`. If
    one dies, its items are repeated one by one. The item with which a process dies again has the result None."""
    waiting, suspects = deque(items), deque[Item]()  # suspects: items that may have ended a process
    module = (work.func if isinstance(work, partial) else work).__module__
    while waiting or suspects:
        alone = bool(suspects)
        queue, most_running = (suspects, 1) if alone else (waiting, AHEAD * workers)
        running: dict[futures.Future[Result], Item] = {}
        try:
            with _pool(1 if alone else workers, module) as pool:
                while queue or running:
                    while queue and len(running) < most_running:
                        future = pool.submit(work, queue[0])
                        running[future] = queue.popleft()
                    for future in futures.wait(running, return_when=futures.FIRST_COMPLETED).done:
                        result = future.result()
                        yield running.pop(future), result
        except futures.BrokenExecutor:
            if alone:  # it was this item
                yield from ((item, None) for item in running.values())
            else:
                suspects.extend(running.values())


@contextmanager
def _pool(workers: int, loads: str) -> Iterator[futures.ProcessPoolExecutor]:
    """Yield a pool of `workers` processes that have imported the module `loads`, and nothing from the working folder.
    After an error in the block they are ended at once, as the pool would wait for a process that was just starting."""
    earlier_children = {*multiprocessing.active_children()}
    environment = dict(os.environ)  # the processes start with a changed copy, and get this one back
    os.environ.pop("PYTHONPATH", None)
    os.environ["PYTHONSAFEPATH"] = "1"
    # not by forking this process, which may have threads
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    context.set_forkserver_preload([loads])
    pool = futures.ProcessPoolExecutor(workers, context, _prepare_worker, (environment,))
    try:
        yield pool
    except BaseException:
        for process in {*multiprocessing.active_children()} - earlier_children:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        _set_environment(environment)


def _set_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _prepare_worker(environment: Mapping[str, str]) -> None:
    """Prepare a new worker process: set its environment, and let Ctrl-C or its parent's end stop it silently."""

    def end_with_parent() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _set_environment(environment)
    threading.Thread(target=end_with_parent, daemon=True).start()
