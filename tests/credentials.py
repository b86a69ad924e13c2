"""Forms of credentials for tests of redaction; values are made at run time from a seed, and none is stored.

In a form ``a40`` is forty letters and digits, ``x32`` hexadecimal digits, ``d9`` digits, ``u16`` upper-case letters and
digits, each in angle brackets. The text outside the brackets is the vendor's own, from its documentation.
"""

import base64
import re
from random import Random
from string import ascii_letters, ascii_uppercase, digits

__all__ = ["FORMS", "made"]

ALPHABETS = {
    "a": ascii_letters + digits,
    "x": "0123456789abcdef",
    "d": digits,
    "u": ascii_uppercase + digits,
    "+": ascii_letters + digits + "+/",
}
_BLANK = re.compile(r"<([axdu+])(\d+)>")
ALONE = [
    "sk-ant-api03-<a80>AA", "sk-proj-<a48>T3BlbkFJ<a20>", "sk-<a20>T3BlbkFJ<a20>", "AKIA<u16>", "ghp_<a36>",
    "github_pat_<a22>_<a59>", "glpat-<a20>", "glrt-<a20>", "xoxb-<d12>-<d12>-<a24>",
    "https://hooks.slack.com/services/T<u8>/B<u8>/<a24>", "https://discord.com/api/webhooks/<d18>/<a68>",
    "sk_live_<a24>", "SK<x32>", "AC<x32>", "SG.<a22>.<a43>", "key-<x32>", "AIza<a35>", "GOCSPX-<a28>", "ya29.<a60>",
    "eyJ<a30>.eyJ<a60>.<a43>", "npm_<a36>", "pypi-AgEIcHlwaS5vcmc<a80>", "hf_<a34>", "dckr_pat_<a27>", "dop_v1_<x64>",
    "hvs.<a90>", "s.<a24>", "dapi<x32>", "lin_api_<a40>", "secret_<a43>", "ntn_<a46>", "shpat_<x32>", "figd_<a40>",
    "<d9>:AA<a33>", "sntrys_<a60>", "glsa_<a32>_<x8>", "gsk_<a52>", "xai-<a80>", "pplx-<a48>",
    "AGE-SECRET-KEY-1<u58>", "PMAK-<x24>-<x34>", "sbp_<x40>", "pscale_pw_<a43>",
]  # fmt: skip
BEHIND = [
    "aws_secret_access_key = <+40>",
    "AWS_SESSION_TOKEN=<a200>",
    "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=<a86>==",
    "https://acc.blob.core.windows.net/c?sv=2020-08-04&sig=<a43>%3D",
    "postgres://bob:<a16>@db/x",
    "Authorization: Basic <b14>",
    "Authorization: Bearer <a40>",
    "-----BEGIN RSA PRIVATE KEY-----\n<+64>\n<+64>\n<+64>\n<+40>==\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n<+70>\n<+70>\n<+44>=\n-----END OPENSSH PRIVATE KEY-----",
    "DB_PASSWORD=<a12>",
    "password: <a12>",
    '"password": "<a12>"',
    "curl -u admin:<a14>",
    "mysql --password <a14>",
    "mysql -p<a14>",
    "HEROKU_API_KEY=<x8>-<x4>-<x4>-<x4>-<x12>",
    "CF_API_TOKEN=<a40>",
    "DD_API_KEY=<x32>",
    "The admin password is <a14>",
    "Cookie: session=<a40>",
    "Set-Cookie: sid=<a32>",
    "x-api-key: <a32>",
    "machine github.com login bob password <a20>",
    "ALTER USER bob WITH PASSWORD '<a14>'",
    "Server=db;User Id=sa;Password=<a14>",
    "https://x.org/cb?access_token=<a40>",
    "  token: <a40>",
    "client_secret=<a32>",
]
FORMS = [*ALONE, *BEHIND]


def made(form: str, seed: int) -> tuple[str, list[str]]:
    """Return a text of that form, and its secret parts."""
    chance, secret = Random(f"{form} {seed}"), []

    def drawn(match: re.Match[str]) -> str:
        value = "".join(chance.choices(ALPHABETS[match[1]], k=int(match[2])))
        secret.append(value)
        return value

    text = _BLANK.sub(drawn, form)
    if "<b14>" in text:
        secret = [base64.b64encode(f"bob:{''.join(chance.choices(ALPHABETS['a'], k=14))}".encode()).decode()]
        text = text.replace("<b14>", secret[0])
    return text, [part for part in secret if len(part) > 8 or len(secret) == 1]
