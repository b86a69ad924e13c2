"""Files beneath a folder: what lies there is read, what a link, a second name or a race leads out of it to never is."""

import os
import threading

import pytest

from applier.store import open_beneath


@pytest.fixture
def root(tmp_path):
    """A folder with a file in it, beside one with a secret."""
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "sub" / "a.txt").write_text("mine")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_text("secret")
    return tmp_path / "root"


def content(root, path):
    with open_beneath(root, path) as file:
        return file.read()


@pytest.mark.parametrize("path", ["sub/a.txt", "./sub//a.txt", "sub/../sub/a.txt", "{root}/sub/a.txt"])
def test_what_lies_beneath_is_read(root, path):
    assert content(root, path.format(root=root)) == b"mine"


def test_a_root_may_be_a_link(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    assert content(tmp_path / "link", "sub/a.txt") == content(tmp_path / "link", root / "sub/a.txt") == b"mine"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/a.txt",
        "/etc/passwd",
        "{root}/../outside/a.txt",
        "{root}-not",
        "sub",
        "",
        ".",
        "..",
        "none",
        "a\0b",
        "\ud800",
    ],
)
def test_what_does_not_is_not(root, path):
    with pytest.raises(OSError):  # noqa: PT011 - which one is the system's to say
        content(root, path.format(root=root))


def test_links_are_not_followed(root, tmp_path):
    (root / "file").symlink_to(tmp_path / "outside" / "a.txt")
    (root / "folder").symlink_to(tmp_path / "outside")
    (root / "inner").symlink_to("sub/a.txt")
    os.link(tmp_path / "outside" / "a.txt", root / "hard")
    for path in ("file", "folder/a.txt", "inner", "hard", "folder/../sub/../file"):
        with pytest.raises(OSError):  # noqa: PT011
            content(root, path)


def test_a_pipe_is_refused_at_once(root):
    os.mkfifo(root / "pipe")
    with pytest.raises(PermissionError, match="not a regular file"):
        content(root, "pipe")


def test_a_folder_that_is_exchanged_all_the_time_leads_nowhere_else(root, tmp_path):
    stop = threading.Event()

    def exchange():
        while not stop.is_set():
            os.rename(root / "sub", root / "aside")
            os.symlink(tmp_path / "outside", root / "sub")
            os.unlink(root / "sub")
            os.rename(root / "aside", root / "sub")

    thread = threading.Thread(target=exchange)
    thread.start()
    reads = []
    try:
        while len(reads) < 300:
            try:
                reads.append(content(root, "sub/a.txt"))
            except OSError:
                continue
    finally:
        stop.set()
        thread.join()
    assert set(reads) == {b"mine"}
