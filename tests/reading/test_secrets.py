"""What is redacted, what is not, and how rarely anything is in real transcripts."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reading.lines import join_lines, turn_lines
from planner.reading.messages import read_history
from planner.reading.secrets import redact
from tests.conftest import SHARED
from tests.credentials import FORMS, made
from tests.hunt.cut_secrets_hunt import WRAPPED, readable

LETTERS = "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5dE7f"


@pytest.mark.parametrize(
    "secret",
    [
        f"sk-ant-api03-{LETTERS}-_AA",
        f"sk-{LETTERS}",
        f"sk-proj-{LETTERS}_{LETTERS}",
        f"ghp_{LETTERS[:36]}",
        f"github_pat_{LETTERS}",
        f"glpat-{LETTERS[:20]}",
        "AKIA" + "IOSFODNN7EXAMPLE",
        f"xoxb-12345678901-{LETTERS[:24]}",
        f"AIza{LETTERS[:35]}",
        "sk_" + f"live_{LETTERS[:24]}",
        f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{LETTERS}",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAb+/=\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3BlbnNz\\nAAAA\\n-----END OPENSSH PRIVATE KEY-----",
        f"github_pat_{LETTERS}_{LETTERS}",
        "glptt-" + LETTERS,
        f"SG.{LETTERS[:22]}.{LETTERS}9xY",
        "xapp-1-A012-345-" + LETTERS,
        f"https://hooks.slack.com/services/T0123/B0123/{LETTERS[:24]}",
        "123456789:" + LETTERS[:35],
        "sq0csp-" + LETTERS + "9xY",
    ],
)
def test_a_secret_is_known_by_its_form(secret):
    assert redact(f"with {secret} it works") in ("with [secret] it works", "with [secret]")
    assert redact(f'{{"key": "{secret}"}}').startswith('{"key": "[secret]')


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("export DB_PASSWORD=hunter22 && run", "export DB_PASSWORD=[secret] && run"),
        ("password=correcthorse", "password=[secret]"),
        ("GET /x?token=abc123def&page=2", "GET /x?token=[secret]&page=2"),
        ("password: s3cr3t!", "password: [secret]"),
        ('"client_secret": "p8~xyzzy"', '"client_secret": "[secret]"'),
        ("api_key = 'q1w2e3r4'", "api_key = '[secret]'"),
        ("Authorization: Bearer abcdefgh", "Authorization: Bearer [secret]"),
        ("-H 'authorization: Basic dXNlcjpw'", "-H 'authorization: Basic [secret]'"),
        ("x-api-key: 0123456789", "x-api-key: [secret]"),
        ("used Bearer a1b2c3d4e5f6a7b8c9", "used Bearer [secret]"),
        ("postgres://bob:s3@db.example.org/x", "postgres://bob:[secret]@db.example.org/x"),
        ("AWS_SECRET_ACCESS_KEY=wJalr/K7MDENG", "AWS_SECRET_ACCESS_KEY=[secret]"),
        (f"AccountKey={LETTERS * 2}==", "AccountKey=[secret]"),
        ("The password is qWertYuiop", "The password is [secret]"),
        ("Use the password qWertYuiop for bob", "Use the password [secret] for bob"),
    ],
)
def test_a_secret_is_known_by_what_stands_before_it(text, clean):
    assert redact(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "the password is asked for at the prompt; a token is 4 characters",
        "max_tokens=4096, tokens: 168204, token_count=12",
        "login(user, password=password, token=args.token, secret=get_secret())",
        "token: string; password: Optional[str] = None",
        "The password resetTokenField and the password iPad; password: newPassWord, token is xAxis",
        "password=$PASSWORD token=${TOKEN} secret=<your secret> api_key={{key}} pwd=********",
        "api_key=os.environ['KEY'] token=process.env.TOKEN",
        "OPENAI_API_KEY=sk-... python run.py",
        "http://localhost:3000/a@b https://user@host/x git@github.com:a/b.git",
        "sk-estimator-doc-link-is-a-css-class task-ant-hill",
        "src/token_store.ts:212 AKIA eyJ.eyJ",
        "2.不同时段外卖消费的品类构成存在一定的差异 2023年全国餐饮外卖市场规模与用户需求分析报告第4版",
        "第3四半期の売上高は前年同期比で12パーセント増加しました",
    ],
)
def test_code_names_and_placeholders_stay(text):
    assert redact(text) == text


@given(
    st.text("abcxyzABCXYZ0123456789_-", min_size=30, max_size=60), st.sampled_from(("", "id=", "https://d.example/d/"))
)
def test_the_id_of_a_document_stays(random, before):
    text = f"{before}1aB{random}"
    assert redact([{"formId": text}]) == [{"formId": text}]


def test_all_of_a_long_secret_goes():
    """Longer than what a pattern is shown at a time, at any place in the text."""
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0" + LETTERS * 200 + "." + LETTERS
    for before in ("", "x " * 1000, "x " * 1020, "x " * 5000):
        assert redact(f"{before}{token} after. {token}.") == f"{before}[secret] after. [secret]."


def test_what_is_no_secret_stays_beside_one():
    key = f"ghp_{LETTERS[:36]}"
    assert redact(f"a {key} b AKIAIOSFODNN7EXAMPLE c {key}, d") == "a [secret] b [secret] c [secret], d"
    assert redact("--- PASS: TestShadowStrategy_MidSessionCommit_NoTrailerForUnrelated").startswith(
        "--- PASS: TestShadow"
    )
    assert redact("commit 9fceb02d0ae598e95dc970b74767f19372d61af8 from 93.184.216.34").count("[secret]") == 0


HOSTILE = (
    *("sk-", "sk-a1A-", "eyJ", "eyJa.", "xoxb-1-1-", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "Bearer "),
    *("token=", "token='", "tokentoken=", "aws'key'", "//a/:_authToken=npm_a", "://a:", "// ", ".", "-", "a", "1", " "),
    *("-eyJ", "1meyJ", "1mEAA", "xprv", "$2b$", "$1$a$", "EAA1m", "_a1B2", "a1B2c3D4-", "x_a1B2c3D4e5F6g7H8", "1//0-"),
    *("cookie: a;", "login a password ", "echo a|", "auth: (a,", "<password>", "a:", "https://a1", "user:", "sig=1"),
    *("\\", "\\\\t", "\\n1", "\x1b[3", "a/b:1:", "-----END PRIVATE KEY-----\n", "-----END PRIVATE KEY----- a1B:я"),
)


@pytest.mark.slow
def test_time_is_linear_in_hostile_lines():
    """Before, some of these lines took a quarter of a minute each; the process is killed after a minute for all."""
    code = (
        "import resource, sys; from planner.reading.secrets import redact\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"
        "for text in sys.argv[1:]: redact(text * (2**16 // len(text)))"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code, *HOSTILE], cwd=root, check=False).returncode == 0


@pytest.mark.real
def test_the_scanner_is_loaded_only_when_there_is_something_to_redact():
    code = "import sys, planner.reading.secrets; assert 'kingfisher_sdk' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True)


@given(st.text(st.characters(), max_size=200))
def test_redacting_again_changes_nothing(text):
    assert redact(redact(text)) == redact(text)


def test_data_is_redacted_by_text_and_by_name():
    data = {"token": "t", "tokens": "12", "a": [f"ghp_{LETTERS[:36]}", 5, None], "password": 7, "n": {"pwd": ""}}
    assert redact(data) == {
        "token": "[secret]",
        "tokens": "12",
        "a": ["[secret]", 5, None],
        "password": 7,
        "n": {"pwd": ""},
    }


@pytest.mark.real
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared transcripts are not here")
def test_real_transcripts_are_left_nearly_untouched():
    lines = redacted = 0
    for path in sorted(Path(SHARED).glob("*.json"))[::9]:
        history = read_history(json.loads(path.read_text())["messages"])
        texts = [join_lines(turn_lines(history, turn)) for turn in history.turns]
        lines += sum(text.count("\n") + 1 for text in texts)
        redacted += sum(redact(text).count("[secret]") for text in texts)
    assert redacted * 1_000 <= lines
    assert redacted <= 1  # of the 163,223 lines of all of them one: a key of an example


@pytest.mark.parametrize("way", WRAPPED)
def test_every_known_form_is_unreadable_in_what_agents_wrap_it(way):
    """Escapes, colours and quotes end a word just as blanks do."""
    left = []
    for form in FORMS:
        secret, parts = made(form, 2)
        wrapped = WRAPPED[way](secret, Random(form))
        inner = json.dumps({"input": {"content": wrapped}})
        shown = [redact(text) for text in (wrapped, inner, json.dumps({"arguments": inner}))]
        left += [form for text in shown if readable(parts, text)]
    assert not left
