"""What is redacted, what is not, and how rarely anything is in real transcripts."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.store.secrets import redact, redact_data
from planner.reading.history import read_history
from planner.reading.lines import join_lines, turn_lines
from tests.conftest import SHARED

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
        "-----BEGIN PRIVATE KEY-----\nMIIEow\ncut off here",
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
        "password=$PASSWORD token=${TOKEN} secret=<your secret> api_key={{key}} pwd=********",
        "api_key=os.environ['KEY'] token=process.env.TOKEN",
        "OPENAI_API_KEY=sk-... python run.py",
        "http://localhost:3000/a@b https://user@host/x git@github.com:a/b.git",
        "sk-estimator-doc-link-is-a-css-class task-ant-hill",
        "src/token_store.ts:212 AKIA eyJ.eyJ",
    ],
)
def test_code_names_and_placeholders_stay(text):
    assert redact(text) == text


@given(st.text(st.characters(), max_size=200))
def test_redacting_again_changes_nothing(text):
    assert redact(redact(text)) == redact(text)


def test_data_is_redacted_by_text_and_by_name():
    data = {"token": "t", "tokens": "12", "a": [f"ghp_{LETTERS[:36]}", 5, None], "password": 7, "n": {"pwd": ""}}
    assert redact_data(data) == {
        "token": "[secret]",
        "tokens": "12",
        "a": ["[secret]", 5, None],
        "password": 7,
        "n": {"pwd": ""},
    }


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared transcripts are not here")
def test_real_transcripts_are_left_nearly_untouched():
    redacted = 0
    for path in sorted(Path(SHARED).glob("*.json"))[::9]:
        history = read_history(json.loads(path.read_text())["messages"])
        texts = (join_lines(turn_lines(history, turn)) for turn in history.turns)
        redacted += sum(redact(text).count("[secret]") for text in texts)
    assert redacted <= 1  # of the 9 million characters of all of them, one key of an example
