"""What the tests let other processes do to a store; run as ``python worker.py STORE ACTION…``.

Each action exits 0 when the store kept its promises, and dies of an assertion otherwise.
"""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from applier.store import collect_garbage, history_key, open_store
from applier.store.archive import back_up, export_conversation
from applier.store.backend import SqlBackend
from planner.errors import StoreError
from planner.reading.messages import read_history
from tests.store.archives import import_records

NOBODY = 65534


def user(text):
    return {"role": "user", "content": text}


def grown(name, length=10):
    """Histories of one growing session of its own."""
    messages = [user(f"I am {name}"), *(user(f"message {n}, {'and so on ' * n * 20}") for n in range(1, length))]
    return [read_history(messages[:n]) for n in range(1, len(messages) + 1)]


def spawn(action):
    """Run `action` in a forked process that ends with it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return child


def kill(name):
    """Kill a process while it saves, again and again."""
    for round_number in range(6):
        kill_once(name, round_number, 3 * round_number)


def kill_once(name, round_number, saves):
    """Kill a process some `saves` after its first: all it said it saved is there, the rest whole or absent."""
    reading, writing = os.pipe()

    def save():
        with open_store(name) as store:
            for turn in range(10**6):
                for history in grown(f"{round_number}-{turn}"):
                    key = store.save_history(history)
                    os.write(writing, f"{key} {len(history.messages)}\n".encode())

    child = spawn(save)
    os.close(writing)
    with open(reading, encoding="ascii") as pipe:
        lines = [pipe.readline() for _ in range(1 + saves)]
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines += pipe.read().splitlines()
    with open_store(name) as store:
        for key, length in map(str.split, lines):
            assert len(store.load_history(key).messages) == int(length)
        assert store.verify() == []
        for found in store.histories():
            assert store.load_history(found.digest).digest == found.digest


def together(name):
    """Processes with threads make, open and write one new store at the same time."""

    def work(number):
        def save(thread):
            with open_store(name) as store:
                for history in grown(f"{number}-{thread}"):
                    store.load_history(store.save_history(history))
                    store.record_event({"time": 1, "by": [number, thread]})
                    store.set_state("shared", [number, thread])

        threads = [threading.Thread(target=save, args=(n,)) for n in range(2)]
        errors = []
        threading.excepthook = errors.append
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors

    children = [spawn(lambda number=n: work(number)) for n in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
    with open_store(name) as store:
        assert store.verify() == []
        assert len(store.histories()) == 3 * 2 * len(grown("x")) == len(store.events())


def opened_again(name):
    """A store stays whole that is opened twice here, then opened and closed by another process."""
    with open_store(name) as store:
        store.save_history(read_history([user("before")]))
        open_store(name).close()
        subprocess.run([sys.executable, __file__, name, "look"], check=True)
        key = store.save_history(read_history([user("after")]))
        subprocess.run([sys.executable, __file__, name, "look"], check=True)
        assert saved_in_another_process(name, key)


def look(name):
    with open_store(name) as store:
        assert store.verify() == []


def saved_in_another_process(name, key):
    program = "import sys; from applier.store import open_store; open_store(sys.argv[1]).load_history(sys.argv[2])"
    return subprocess.run([sys.executable, "-c", program, name, key], check=False).returncode == 0


def fork(name):
    """A store that was open before a fork works on both sides of it, whoever closes it first."""
    store = open_store(name)
    before = store.save_history(read_history([user("before")]))
    reading, writing = os.pipe()

    def in_child():
        assert store.load_history(before).messages == (user("before"),)
        os.read(reading, 1)
        store.save_history(read_history([user("child")]))
        store.close()

    child = spawn(in_child)
    for history in grown("parent"):
        store.save_history(history)
    store.close()
    os.write(writing, b".")
    assert os.waitpid(child, 0)[1] == 0
    with open_store(name) as store:
        assert store.load_history(read_history([user("child")]).digest).messages == (user("child"),)
        assert store.load_history(grown("parent")[-1].digest)
        assert store.verify() == []


def fork_in_transaction(name):
    """A fork while a transaction is open hangs neither side, whichever thread has it open, and harms nothing."""
    with open_store(name) as store:
        before = store.save_history(read_history([user("before")]))
        begun, ended = threading.Event(), threading.Event()

        def hold():
            with store.backend.transaction(write=True):
                store.backend.remove(store.backend.keys("history/"))
                begun.set()
                ended.wait()

        def in_child():
            assert store.load_history(before).messages == (user("before"),)

        holder = threading.Thread(target=hold)
        holder.start()
        begun.wait()
        assert os.waitpid(spawn(in_child), 0)[1] == 0
        ended.set()
        holder.join()
        assert store.histories() == ()

        child = -1
        try:
            with store.backend.transaction(write=True):
                store.backend.remove(store.backend.keys("state/"))
                child = os.fork()
        except StoreError as error:
            os._exit(child or "the process was forked in mid-transaction; do it again" not in str(error))
        if child == 0:
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert store.save_history(read_history([user("after")]))


def killed_in_upkeep(name):
    """Killed at any step of a backup, an import or a collection: it is done or not begun, and the store is whole."""
    old, new, theirs = keys(grown("old", 4)), keys(grown("new", 4)), keys(grown("theirs", 4)[-1:])
    with TemporaryDirectory() as folder:
        backup, one = Path(folder, "backup"), Path(folder, "one")
        with open_store(Path(folder, "theirs.db")) as other:
            other.set_state("session:theirs", {"key": other.save_history(grown("theirs", 4)[-1])})
            export_conversation(other, *theirs, one)
        with open_store(name) as store:
            for age, who in ((10**7, "old"), (0, "new")):
                store.clock = lambda age=age: 10**9 - age
                for history in grown(who, 4):
                    store.set_state(f"session:{who}", {"key": store.save_history(history)})
        ended = {
            lambda store: back_up(store, backup, overwrite=True): old | new,
            lambda store: import_records(store, one): old | new | theirs,
            lambda store: collect_garbage(store, older_than_seconds=10**6): new | theirs,
        }
        before = old | new
        for work, after in ended.items():
            steps = 0
            while is_killed(name, steps, work):
                assert held(name) in (before, after)
                assert not backup.exists() or held(backup) == old | new
                steps += 1
            assert steps > 3
            assert held(name) == after
            before = after
        assert held(backup) == old | new


def backed_up_meanwhile(name):
    """A backup that is made while another process saves holds what was there at one moment, whole."""
    reading, writing = os.pipe()
    every = [grown(f"writer {number}") for number in range(30)]

    def save():
        with open_store(name) as store:
            for session in every:
                for history in session:
                    store.set_state("session:one", {"key": store.save_history(history)})
                    os.write(writing, b".")

    child = spawn(save)
    order = [history_key(history.digest) for session in every for history in session]
    with TemporaryDirectory() as folder, open_store(name) as store:
        for round_number in range(4):
            os.read(reading, 1)
            backup = Path(folder, f"backup{round_number}")
            back_up(store, backup)
            there = held(backup)
            assert there == set(order[: len(there)])
            with open_store(backup) as copy:
                last = (copy.get_state("session:one") or {"key": ""})["key"]
                assert last in order[max(len(there) - 2, 0) : len(there)] or len(there) == 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert held(name)


def keys(histories):
    return {history_key(history.digest) for history in histories}


def held(name):
    with open_store(name) as store:
        assert store.verify() == []
        assert all(store.load_history(one.key).digest == one.digest for one in store.histories())
        return {one.key for one in store.histories()}


def is_killed(name, steps, work):
    """True if a process that does `work` was killed at that step of it; False if it came to its end before."""

    def act():
        left = iter(range(steps))

        def counted(plain):
            def run(*arguments):
                if next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return plain(*arguments)

            return run

        with open_store(name) as store:
            store.clock = lambda: 10**9
            for method in ("keys", "get", "add", "remove"):
                setattr(SqlBackend, method, counted(getattr(SqlBackend, method)))
            work(store)

    status = os.waitpid(spawn(act), 0)[1]
    assert status in (0, signal.SIGKILL)
    return status != 0


def full(name):
    """The disk is full in the middle of a save: the old content is there, nothing of the new."""
    noise = read_history([user(os.urandom(40_000).hex()) for _ in range(40)])
    with open_store(name) as store:
        kept = [store.save_history(history) for history in grown("kept")]
        room = store.size().file_bytes + 2**16
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        with pytest.raises(StoreError):
            store.save_history(noise)
        assert [found.key for found in store.histories()] == kept
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert store.verify() == []
        assert store.load_history(store.save_history(noise)).digest == noise.digest


def full_and_opened_anew(name):
    """The disk was full before the store is opened: what is stored is read, by two at once, too."""
    with open_store(name) as store:
        key = store.save_history(read_history([user("first")]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    with open_store(name) as store, open_store(name) as other:
        for each in (store, other, store):
            assert each.load_history(key).messages == (user("first"),)
        with pytest.raises(StoreError, match="the disk"):
            store.save_history(read_history([user("second")]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert store.load_history(store.save_history(read_history([user("second")]))).messages == (user("second"),)
        assert len(other.histories()) == 2


def read_only(name):
    """A folder, and then a file, that may not be written."""
    folder = Path(name).parent
    folder.mkdir()
    folder.chmod(0o777)
    if os.geteuid() == 0:
        os.setuid(NOBODY)
    with open_store(name) as store:
        key = store.save_history(read_history([user("first")]))
    os.chmod(name, 0o400)
    with open_store(name) as store:
        assert store.load_history(key).messages == (user("first"),)
        with pytest.raises(StoreError, match=re.escape(f"{name}: it cannot be written; check its permissions")):
            store.save_history(read_history([user("second")]))
    os.chmod(name, 0o600)
    refused(str(folder.parent / "elsewhere" / "store.db"), "the store cannot be made here: Permission denied")
    with open_store(name) as store:
        assert store.load_history(key).messages == (user("first"),)


def refused(name, text):
    with pytest.raises(StoreError, match=re.escape(f"{name}: {text}")):
        open_store(name)


if __name__ == "__main__":
    known = (
        together,
        opened_again,
        look,
        fork,
        fork_in_transaction,
        kill,
        killed_in_upkeep,
        backed_up_meanwhile,
        full,
        full_and_opened_anew,
        read_only,
    )
    actions = {action.__name__: action for action in known}
    for named in sys.argv[2:]:
        actions[named](sys.argv[1])
