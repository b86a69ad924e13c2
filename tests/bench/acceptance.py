"""The requests and checks of `continuing`: requests at cuts of the long example, hidden tests, demands.

Each check is Python that runs in the tree, in a time zone that is not UTC, and fails by an exception. It reads the
sample log itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One request at one cut."""

    cut: int
    """Number of messages of the example before it."""
    request: str
    checks: Mapping[str, str]
    """Code by the name of the check."""


END = 384
"""Number of messages of the whole example."""

PRELUDE = r"""
import ast, bz2, gzip, importlib, inspect, json, pathlib, re, subprocess, sys, tempfile, tracemalloc
sys.path.insert(0, "")
from datetime import datetime, timezone
SAMPLE = "data/access.log"
LINES = [line.rstrip("\n") for line in open(SAMPLE, encoding="utf-8")]
SPLIT = [line.split(" ") for line in LINES if line and line[0] not in "#\t"]
MODULES = [path for path in sorted(pathlib.Path("logsift").rglob("*.py"))]
SOURCES = [*MODULES, *sorted(pathlib.Path("tests").rglob("*.py"))]
def run(*arguments):
    command = [sys.executable, "-B", "-m", "logsift", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout
def size(text):
    unit = {"B": 1, "K": 1024, "M": 1024 * 1024}
    return 0 if text == "-" else float(text[:-1]) * unit[text[-1]]
def ids(records):
    return [record["rid"] for record in records]
"""
"""Code in front of every check."""

_WITH_TESTS = """
names = [path.stem for path in pathlib.Path("tests").glob("test_*.py") if {word!r} in path.read_text("utf-8")]
assert names, "no test speaks of it"
for name in names:
    command = [sys.executable, "-B", "-m", "unittest", f"tests.{{name}}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-200:]
"""
_ALL_PASS = """
done = subprocess.run([sys.executable, "-B", "-m", "unittest"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr[-300:]
"""
_COMMITTED = """
looked = ["git", "status", "--porcelain", "--", "logsift", "tests", ":!*__pycache__*"]
left = subprocess.run(looked, capture_output=True, text=True).stdout
assert not left.strip(), left
"""

TASKS = {
    "command": Task(
        140,
        "Looks right. Now the output and the command. Column widths must be right for Japanese host names, too; "
        "we have some. JSON must be one line per report, the pipeline reads it with `while read`.",
        {
            "tables are aligned for wide characters": """
from logsift.output import format_table
import unicodedata
wide = lambda text: sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
lines = [line for line in format_table([{"host": "東京-1", "n": 1}, {"host": "web-1", "n": 20}]).splitlines() if line]
starts = {wide(line[: re.search(r"\\d+\\W*$", line).start()]) for line in lines[-2:]}
ends = {wide(line.rstrip(" |")) for line in lines[-2:]}
assert len(starts) == 1 or len(ends) == 1, lines
""",
            "JSON is one line": """
code, out = run(SAMPLE, "--group", "host", "--format", "json")
assert code == 0 and out.count("\\n") == 1 and out.endswith("\\n"), out[:200]
json.loads(out)
""",
            "groups and filters together": """
code, out = run(SAMPLE, "--where", "status >= 500", "--group", "host", "--format", "csv")
hosts = {parts[1] for parts in SPLIT if parts[4] == "500"}
assert code == 0 and all(host in out for host in hosts), out[:200]
assert "# shipper" not in out
""",
            "exit codes": """
assert run(SAMPLE, "--where", "status = 299")[0] == 1
assert run(SAMPLE, "--where", "status >")[0] == 2
assert run("no.log")[0] == 2
assert run(SAMPLE, "--where", "status = 500")[0] == 0
""",
            "its tests pass": _WITH_TESTS.format(word="output"),
        },
    ),
    "tidy": Task(
        270,
        "Thanks. Now tidy up: parser.py got long, split what reads files from what reads lines. And rename whatever "
        "you think is unclear, but the four public names stay importable from where they are.",
        {
            "parser.py is shorter": 'assert len(open("logsift/parser.py", encoding="utf-8").readlines()) < 60',
            "reading files and reading lines are apart": """
def defined(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)}
both = [str(path) for path in MODULES if {"parse_line", "read_log"} <= defined(path)]
assert not both, both
""",
            "all tests pass": _ALL_PASS,
        },
    ),
    "detector": Task(
        END,
        "Detector number 3 please: logsift/detectors/large_bodies.py with a function find_large_bodies(records) for "
        "answers over a million bytes. Same shape as always, tests beside it.",
        {
            "finds them all, and in order": """
from logsift.detectors.large_bodies import find_large_bodies
from logsift.parser import read_log
wanted = [re.search(r"rid=(\\w+)", " ".join(parts))[1] for parts in SPLIT if size(parts[5]) > 1_000_000]
assert wanted and ids(find_large_bodies(read_log(SAMPLE))) == wanted
""",
            "gives back what the others do": """
from logsift.detectors.large_bodies import find_large_bodies
from logsift.detectors.slow_requests import find_slow_requests
from logsift.parser import read_log
records = list(read_log(SAMPLE))
assert type(find_large_bodies(records)) is type(find_slow_requests(records))
assert ids(find_large_bodies(records)) == ids(find_large_bodies(records))
""",
            "has tests of its own that pass": _WITH_TESTS.format(word="find_large_bodies")
            + 'assert "test_large_bodies" in names',
            "is committed": _COMMITTED,
        },
    ),
    "tsv": Task(
        END,
        "The spreadsheet people want tabs: please add `--format tsv`, with a header, one line a row, and no quotes; "
        "tabs and line ends inside a value become a space.",
        {
            "lines of tabs under a header": """
code, out = run(SAMPLE, "--group", "host", "--format", "tsv")
lines = out.rstrip("\\n").split("\\n")
assert code == 0 and len(lines) == 1 + len({parts[1] for parts in SPLIT}), out[:200]
assert len({line.count("\\t") for line in lines}) == 1 and lines[0].count("\\t") >= 3
""",
            "nothing is quoted and nothing breaks a line": """
code, out = run(SAMPLE, "--where", 'status = 500 or agent ~ "Kiosk"', "--format", "tsv")
assert code == 0 and len({line.count("\\t") for line in out.rstrip("\\n").split("\\n")}) == 1, out[:300]
wanted = sum(parts[4] == "500" or "Kiosk" in " ".join(parts) for parts in SPLIT)
assert len(out.rstrip("\\n").split("\\n")) == 1 + wanted
""",
            "nothing found is exit code 1": 'assert run(SAMPLE, "--where", "status = 299", "--format", "tsv")[0] == 1',
            "the other formats are as they were": """
assert run(SAMPLE, "--group", "host", "--format", "json")[1].count("\\n") == 1
assert "," in run(SAMPLE, "--group", "host", "--format", "csv")[1].splitlines()[0]
""",
            "has tests that pass": _WITH_TESTS.format(word="tsv"),
            "is committed": _COMMITTED,
        },
    ),
    "starts": Task(
        END,
        'Please give the query language an operator `^=` for "starts with": `path ^= "/api/"`. It must work everywhere '
        "the others do.",
        {
            "finds what begins so": """
from logsift.parser import read_log
from logsift.query import run_query
found = list(run_query(read_log(SAMPLE), 'path ^= "/api/"'))
assert len(found) == sum(parts[3].startswith("/api/") for parts in SPLIT)
assert len(list(run_query(read_log(SAMPLE), 'path ^= "api"'))) == 0
""",
            "a point is a point": """
from logsift.parser import read_log
from logsift.query import run_query
assert list(run_query(read_log(SAMPLE), 'path ^= "/.pi/"')) == []
""",
            "with not, and, or, and without blanks": """
from logsift.parser import read_log
from logsift.query import run_query
found = list(run_query(read_log(SAMPLE), 'not path^="/api/" and (status = 404 or host ^= "edge")'))
wanted = sum(not p[3].startswith("/api/") and (p[4] == "404" or p[1].startswith("edge")) for p in SPLIT)
assert len(found) == wanted, (len(found), wanted)
""",
            "inside 4000 parentheses": """
from logsift.parser import read_log
from logsift.query import run_query
found = list(run_query(read_log(SAMPLE), "(" * 4000 + 'path ^= "/login"' + ")" * 4000))
assert len(found) == sum(parts[3].startswith("/login") for parts in SPLIT)
""",
            "from the command": 'assert run(SAMPLE, "--where", \'path ^= "/login"\', "--group", "host")[0] == 0',
            "has tests that pass": _WITH_TESTS.format(word="^="),
            "the README names it": 'assert "^=" in open("README.md", encoding="utf-8").read()',
        },
    ),
    "bz2": Task(
        END,
        "The archive hands in `*.log.bz2` now, too. Please let read_log and the command take them like the others.",
        {
            "reads the same records": """
from logsift.parser import read_log
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "a.log.bz2")
    path.write_bytes(bz2.compress(open(SAMPLE, "rb").read()))
    assert ids(read_log(path)) == ids(read_log(str(path))) == ids(read_log(SAMPLE))
    assert run(str(path), "--group", "host", "--format", "json") == run(SAMPLE, "--group", "host", "--format", "json")
""",
            "gzip goes on working": """
from logsift.parser import read_log
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "a.log.gz")
    path.write_bytes(gzip.compress(open(SAMPLE, "rb").read()))
    assert ids(read_log(str(path))) == ids(read_log(SAMPLE))
""",
            "holds no file in memory": """
from logsift.parser import read_log
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "a.log.bz2")
    path.write_bytes(bz2.compress(open(SAMPLE, "rb").read() * 60))
    tracemalloc.start()
    count = sum(1 for _ in read_log(str(path)))
    assert count == 60 * len(SPLIT) and tracemalloc.get_traced_memory()[1] < 3_000_000, tracemalloc.get_traced_memory()
""",
            "has tests that pass": _WITH_TESTS.format(word="bz2"),
        },
    ),
    "hours": Task(
        END,
        "On-call wants to see the load by the hour: please let `--group hour` count by the hour of the day, 0 to 23.",
        {
            "hours are those of UTC": """
code, out = run(SAMPLE, "--group", "hour", "--format", "json")
rows = json.loads(out)
counts = {}
for parts in SPLIT:
    hour = datetime.fromisoformat(parts[0].replace("Z", "+00:00")).astimezone(timezone.utc).hour
    counts[hour] = counts.get(hour, 0) + 1
key = next(name for name in rows[0] if name in ("hour", "group", "key"))
total = next(name for name in rows[0] if name in ("count", "n", "requests", "total"))
assert {int(row[key]): row[total] for row in rows} == counts, (rows[:2], counts)
""",
            "the other groups are as they were": """
assert len(json.loads(run(SAMPLE, "--group", "host", "--format", "json")[1])) == len({parts[1] for parts in SPLIT})
""",
            "filters go with it": 'assert run(SAMPLE, "--where", "status = 500", "--group", "hour")[0] == 0',
            "has tests that pass": _WITH_TESTS.format(word="hour"),
            "is committed": _COMMITTED,
        },
    ),
}
"""Requests: those at 140 and 270 are the example's own, those after its end are new."""

DEMANDS = {
    "data/ is as it was": (0, """
changed = subprocess.run(["git", "status", "--porcelain", "data"], capture_output=True, text=True).stdout
first = subprocess.run(["git", "rev-list", "--max-parents=0", "HEAD"], capture_output=True, text=True).stdout.strip()
since = subprocess.run(["git", "diff", "--stat", first, "--", "data"], capture_output=True, text=True).stdout
assert not changed and not since, changed + since
"""),
    "four public names": (60, """
from logsift.parser import parse_line, read_log
from logsift.query import run_query
assert callable(parse_line) and callable(read_log) and callable(run_query)
if pathlib.Path("logsift/output.py").exists():
    from logsift.output import format_table
"""),
    "standard library alone": (50, """
own = {"logsift", "tests", *sys.stdlib_module_names}
for path in SOURCES:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        assert all(name.split(".")[0] in own for name in names), (str(path), names)
"""),
    "read_log takes a path": (108, """
from logsift.parser import read_log
wanted = [p for p in inspect.signature(read_log).parameters.values()]
assert [p.name for p in wanted] == ["path"], wanted
"""),
    "lines of 100, docstrings": (0, """
for path in MODULES:
    text = path.read_text("utf-8")
    assert all(len(line) <= 100 and line == line.rstrip() for line in text.splitlines()), str(path)
    tree = ast.parse(text)
    assert path.name == "__init__.py" or ast.get_docstring(tree), str(path)
    public = [n for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    assert all(map(ast.get_docstring, public)), str(path)
"""),
    "4000 parentheses": (108, """
from logsift.parser import read_log
from logsift.query import run_query
found = list(run_query(read_log(SAMPLE), "(" * 4000 + "status = 500" + ")" * 4000))
assert len(found) == sum(parts[4] == "500" for parts in SPLIT)
"""),
    "gzip, and no record held": (270, """
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "a.log.gz")
    path.write_bytes(gzip.compress(open(SAMPLE, "rb").read() * 60))
    from logsift.parser import read_log
    from logsift.__main__ import main
    import contextlib, io
    tracemalloc.start()
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([str(path), "--group", "host"]) == 0
    assert tracemalloc.get_traced_memory()[1] < 12_000_000, tracemalloc.get_traced_memory()
"""),
    "exit codes and one line of JSON": (270, """
assert [run(SAMPLE, "--where", where)[0] for where in ("status = 500", "status = 299", "status >")] == [0, 1, 2]
assert run(SAMPLE, "--group", "host", "--format", "json")[1].count("\\n") == 1
"""),
    "all tests pass": (0, _ALL_PASS),
}  # fmt: skip
"""Demands of the example by the index of their message; no later request breaks them."""
