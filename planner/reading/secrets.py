"""Takes secrets out of text that is kept for reading: facts, plans and events; originals where that is asked for.

Three readers find them: kingfisher's rules know the vendors' forms; a long random part behind a prefix is a token,
whoever made it; and a name, an option, a header or a program says that a value is secret. A name alone, a placeholder
or a piece of code stays. Time is linear in the text, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from planner.reading.messages import strings_in
from planner.reading.patterns import lazy_pattern

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

__all__ = ["MARK", "redact"]

MARK = "[secret]"
"""Text in the place of a secret."""

_ESCAPED = r"(?<=\\[nrt])|(?<=\\u[0-9a-f]{4})|(?<=[0-9]m)"
"""Behind ``\\n`` or ``\\u2192`` of JSON, or ``\\x1b[32m`` of a terminal."""
_START = rf"(?:\b|{_ESCAPED})"
_QUOTE = r"(?:\\{0,15}[\"'])"
"""A quote in a text, in JSON, and in JSON in JSON, four deep."""
_RUN = lazy_pattern(r"[\w.~/+-]{17}")
"""So many characters as a token has at least."""
_KEYWORDS = (
    "pass", "pwd", "psk", "secret", "token", "credential", "key", "auth", "bearer", "cookie", "identified", "://", "@",
    "sig", "code=", "login", "-u", "user", "mysql", "maria", '"d', '"k', '"p', '"q',
)  # fmt: skip
"""Words one of which every pattern of a named value needs, in lower case."""
_LONG = lazy_pattern(r"(?<![A-Za-z0-9_])(?:(?<=\\)[nrt])?([A-Za-z0-9][\w.~-]{17,})")
"""A word that is long enough for a token with its prefix."""
_PARTS = lazy_pattern(r"[_.~-]+")
_SPOKEN_PARTS = lazy_pattern(r"[A-Z][a-z]{2,}|[a-z]{3,}|[A-Z]{4,}(?![a-z])|[0-9]{5,}")
"""Parts of names that people give: words and numbers; a random text is mostly made of others."""
_LEAST_RANDOM, _LEAST_PLAIN = 16, 19
"""Characters of a random part: in letters of both cases with digits; in letters of one case with digits."""
_ID_PREFIXES = (
    "acct asst batch call card ch chatcmpl cmpl cus doc evt file id img in inv item msg node order ord org pi pm po"
    " pr price prod prrc proj re req resp rs run sess session sha256 sha384 sha512 src sub task thread toolu tx user"
)
"""Prefixes of ids that are no secrets: ``toolu_01…``, ``pi_3Mt…``, ``sha256-…``."""
_FORMS = (
    r"eyJ[\w-]{8,8000}\.[\w-]{8,}(?:\.[\w-]+)*",  # a JSON Web Token
    r"(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # Amazon
    r"(?:AC|SK)[0-9a-f]{32}\b",  # Twilio
    r"[0-9]{8,10}:[\w-]{35}(?![\w-])",  # Telegram
    r"1//0[\w-]{20,}",  # Google
    r"EAA[A-Za-z0-9]{90,600}|xprv[A-Za-z0-9]{100,120}|AKID[A-Za-z0-9]{32}\b",  # Meta, wallets, Tencent
    r"oy2[a-z0-9]{43}\b|re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}\b",  # NuGet, Resend
    r"[0-9a-f]{32}-us[0-9]{1,2}\b|[01]/[0-9]{16}:[0-9a-f]{32}\b",  # Mailchimp, Asana
    r"access_token\$[a-z]{4,12}\$\w{16}\$[0-9a-f]{32}",  # Braintree
    r"(?:[sp]k|key|token|secret|api)[_-](?:[a-z]{2,4}[_-])?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",  # a UUID
    r"https://hooks\.slack\.com/[a-z]{1,20}/[\w/-]{20,}",
    r"(?<=/webhooks/)\d{5,30}/[\w-]{40,}",  # Discord
)
_FORM = lazy_pattern(
    rf"{_START}(?:{'|'.join(_FORMS)})"
    r"|(?<!\w)\$(?:[1-9]|[1-9a-z]{2,10})\$(?:[\w=,./-]{1,40}\$){0,3}[./A-Za-z0-9]{20,}"  # a password's hash: $2b$12$…
)
"""Forms without a prefix, which kingfisher knows in fewer places; each vendor's own documentation shows them."""
_REST = re.compile(rb"[A-Za-z0-9_]*")
"""End of a secret that is longer than a rule expects."""
_KEY_MARK = lazy_pattern(r"(-----(?:BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)")
_LONGEST_KEY = 2**15
"""Characters between the two marks; a key of PGP with its signatures has a third of that."""
_KEY_PIECE = lazy_pattern(
    r"(?<![\w./-])[\w./-]{1,99}[:-]\d{1,7}[:-]|(?:\x1b|\\u001b)\[[\d;]{0,9}m|\\(?:u[0-9a-f]{4}|[a-z])|([A-Za-z0-9+/]+={0,2})"
)
"""Piece of a key that was cut off: base64 (the group), or what viewers, terminals and JSON put between."""
_NO_KEY = lazy_pattern(r"[A-Z]?[a-z]*|[A-Z]+|[+/=]+")
"""Where a key that was cut off has ended: at ``done``; not at ``MIIEow``."""
_FAR_PIECE = lazy_pattern(r"(?=[^A-Z]*[A-Z])(?=[^a-z]*[a-z])(?=[^0-9]*[0-9]).{16}")
"""Continuation of a key whose mark is in another text; not ``text``, nor ``toolu_01…`` (no stroke is base64)."""

_PLACEHOLDER = r"(?![$<{%\[*]|(?i:xxx|your[_-]|example|changeme|redacted|process\.|os\.|env[.:(\[]|(?:bearer|basic)\b))"
"""Beginning that no secret has: a variable, a blank to fill in, or code that looks it up."""
_URL = lazy_pattern(
    rf"({_START}[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}://[^\s/:@'\"]{{0,100}}:){_PLACEHOLDER}[^\s/@'\"]{{1,200}}(?=@)"
)
"""``postgres://bob:s3@db``; not ``http://localhost:3000/a@b``."""
_HEADER = lazy_pattern(
    rf"((?i:authorization|x-api-key){_QUOTE}?\s?[:=]\s?{_QUOTE}?(?i:(?:bearer|basic|token|apikey)\s{{1,9}})?"
    rf"|{_START}[Bb]earer\s{{1,9}}(?=[\w.~+/-]{{0,99}}[0-9]))({_PLACEHOLDER}[\w.~+/=-]{{6,}})"
)
"""``Authorization: Bearer abcdefgh``, ``Bearer a1b2c3…``; not ``bearer of news``."""
_PASS = r"pass(?:word|wd|phrase|code)|pwd|storepass|requirepass|psk"
_NAME = (
    rf"(?i:{_PASS}|secret|token|credential|api[_-]?key|(?:access|account|auth|private|secret|signing|encryption|master"
    r"|client|shared|license|service)[_-]?(?:access[_-]?)?key(?:[_-]data)?)"
)
_VALUE = rf"{_PLACEHOLDER}[^\s\"'`,;\x1b&()\[\]{{}}<>|\\]{{6,}}+"
_QUOTED = rf"({_NAME}{_QUOTE}?\s?(?:[:=]\s?|[ ])({_QUOTE})){_PLACEHOLDER}[^\s\"'\\]{{6,}}(?=\2)"
"""``"client_secret": "p8~xyzzy"``, ``PASSWORD 'q1w2e3r4'``; not ``token = "…"`` with blanks in it."""
_BARE = rf"({_NAME}(?i:_base|_value)?(?:=|:[ ])){_VALUE}(?![(\[])"
"""``DB_PASSWORD=hunter22``; not ``token=get_token()``. What it finds in code is let go by `_CODE`."""
_ASSIGNED = rf"({_NAME}[ ]{{1,9}}[=:][ ]{{1,9}})(?=[A-Za-z+/]{{0,99}}[0-9])[A-Za-z0-9+/]{{16,}}+={{0,2}}(?![\w.(\[])"
"""``aws_secret_access_key = wJalr/K7…``; not ``token = first_token2``."""
_MIXED = r"(?=[^\s\"']{0,99}(?:[0-9]|[a-z][A-Z]|[A-Z]{2}[a-z]))"
_SHORT_NAME = (
    rf"((?:[_.-](?i:pass|auth|key|pat)|\b(?:pass|auth)){_QUOTE}?\s?[=:]\s?{_QUOTE}?"
    rf"|(?i:auth|credentials?){_QUOTE}?\s?[=:]\s?[(\[]\s?{_QUOTE}?[^\s,\"']{{1,60}}{_QUOTE}?,\s{{0,3}}{_QUOTE}?){_MIXED}{_VALUE}"
)
"""``SMTP_PASS=q1w2e3r4``, ``auth=("bob", "q1w2e3r4")``; not ``PASS: TestX``, ``cache_key=rows``: no word is meant."""
_ELEMENT = (
    rf"(<(?:[\w.-]{{0,40}}[.:-])?{_NAME}>\s?|{_NAME}\"\s{{1,9}}value=\")"
    rf"{_PLACEHOLDER}[^\s<\"]{{4,}}(?=\s?[<\"])"
)
"""``<password>q1w2e3r4</password>``, ``<add key="Password" value="q1w2e3r4"/>``."""
_SPOKEN = (
    rf"((?i:{_PASS}|api key|secret|token)[ ](?:is|was)[ ][\"'`]?"
    rf"|(?i:{_PASS})[ ](?=\S{{0,40}}[0-9])(?=\S{{0,40}}[A-Z])){_VALUE}"
)
"""``The password is q1w2e3r4``, ``password Q1w2e3r4``; not ``the password is wrong``."""
_OPTION = rf"(--?[\w.-]{{0,40}}{_NAME}(?:[ ]{{1,9}}|=)[\"']?){_VALUE}"
"""``--password q1w2e3r4``; not ``--token-file path/to``."""
_NETRC = lazy_pattern(rf"(\blogin\s{{1,9}}\S{{1,99}}\s{{1,9}}password\s{{1,9}}){_VALUE}")
"""A password of netrc, in one line or several."""
_USER = rf"((?<!\S)(?:-[uU]|--user|--proxy-user)[ =]?[\"']?(?:[\w.@+-]{{1,99}}|\[secret\])[:%]){_VALUE}"
"""``curl -u admin:q1w2e3r4``; not ``docker run -u 1000:1000``."""
_PROGRAM = (
    rf"({_START}(?:(?:mysql|mysqldump|mariadb|mysqladmin)\b[^\n|;&]{{0,99}}?\s-p|sshpass\s{{1,9}}-p\s?[\"']?"
    rf"|login\b[^\n|;&]{{0,99}}?\s-p\s{{1,9}}[\"']?|IDENTIFIED\s(?:WITH\s\w{{1,40}}\s)?BY\s(?:PASSWORD\s)?[\"']"
    rf"|htpasswd\s-\w{{0,5}}b\w{{0,5}}\s\S{{1,99}}\s\S{{1,99}}\s|vault\slogin\s)"
    rf"|(?<!\S)-pass(?:in|out)?\spass:|AUTH\s(?=\S{{0,99}}[0-9])"
    rf"|echo\s[\"']?(?=\S{{6,200}}\s?\|[^\n]{{0,60}}--password-stdin)){_VALUE}"
)
"""``mysql -u root -pq1w2e3r4``, ``docker login -u bob -p q1w2e3r4``, ``IDENTIFIED BY 'q1w2e3r4'``."""
_NAMED = tuple(map(lazy_pattern, (_QUOTED, _BARE, _ASSIGNED, _SHORT_NAME, _ELEMENT, _SPOKEN, _OPTION, _USER, _PROGRAM)))
"""Values that a name, an option or a program calls secret."""
_WORD = lazy_pattern(
    rf"({_NAME}=)(?!(?i:undefined|string)\b)(?!\w{{0,99}}{_NAME})(?:[A-Za-z]{{6,}}|[0-9]{{6,}})(?=[\s&;\"'`]|$)"
)
"""A plain word or number, where no code has it: ``password=correcthorse``; not ``f(token=given)``, which goes on with
a bracket or comma."""
_COOKIE = lazy_pattern(
    rf"((?i:cookie){_QUOTE}?\s?[:=]\s?{_QUOTE}?)(?=[\w.-]{{1,60}}=|[^\n\"'\\]{{0,400}};\s?[\w.-]{{1,60}}=)[^\n\"'\\]{{8,}}"
)
"""``Cookie: theme=dark; session=…`` to its end; not ``cookie: string``."""
_SIGNED = lazy_pattern(
    r"((?:[?&;](?i:sig|code|client_assertion)|\b(?i:(?:x-amz-)?signature|x-amz-security-token))=)"
    r"(?=[\w%+/=.-]{0,99}[0-9])[\w%+/=.-]{20,}"
)
"""``…&sig=…`` of a signed address."""
_SCHEME = lazy_pattern(
    rf"((?i:authorization){_QUOTE}?\s?[:=]\s?{_QUOTE}?(?i:aws4-hmac-sha256|digest|hawk|oauth|signature)\s)[^\n'\\]{{8,}}"
)
"""``Authorization: Digest username="…", response="…"`` to its end."""
_LOGIN = lazy_pattern(
    rf"({_START}[a-z][\w.-]{{0,40}}:){_PLACEHOLDER}(?=[^\s@]{{0,99}}[0-9])[^\s@/:\"']{{8,99}}(?=@(?!sha\d)[a-z])"
)
"""``bob:q1w2e3r4@host``; not ``image:tag@sha256:…``."""
_USERINFO = lazy_pattern(rf"({_START}[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}://)(?=[\w.~%-]{{0,99}}[0-9])[\w.~%-]{{16,}}(?=@)")
"""``https://TOKEN@host``; not ``https://user@host``."""
_JWK = lazy_pattern(rf"((?<!\\){_QUOTE}(?:d|k|p|q|dp|dq|qi){_QUOTE}\s?:\s?{_QUOTE})[\w-]{{30,}}(?={_QUOTE})")
"""The private parts of a JSON Web Key."""
_KEY_LINE = lazy_pattern(
    r"((?:^|(?<=\\[nr]))(?:[\w./-]{1,99}[:-]\d{1,7}[:-])?"
    rf"(?:[^A-Za-z\n\\\x1b]|(?:\x1b|\\+u001b)\[[\d;]{{0,9}}m|\\+(?:u[0-9a-f]{{4}}|t)){{0,40}}(?:(?<![A-Za-z0-9/=])|{_ESCAPED}))"
    r"(?=(?:[a-z0-9+/]{0,40}[A-Z]){4})(?=(?:[A-Z0-9+/]{0,40}[a-z]){4})(?=[A-Za-z+/]{0,99}[0-9])"
    r"(?:[A-Za-z0-9+/]{40,100}={0,2}|[A-Za-z0-9+/]{20,98}={1,2})(?=[^\w\n\\\x1b]{0,40}(?:[\\\x1b]|$))",
    re.M,
)
"""A line of a key that was split into its lines, behind its number, a mark of a diff, a bar or ``key.pem:12:``, in
quotes or in JSON: base64 and no word; not ``sha512-…`` behind a name, nor a digest, which has letters of one case."""
_KEY = lazy_pattern(rf".*(?:{_NAME}|(?i:authorization|cookie))", re.DOTALL)
_WORDS = r"(?:[A-Z]+|[A-Z]{0,3}[a-z]+(?:[A-Z]{1,3}[a-z]{2,})*)"
_CODE = lazy_pattern(rf"_*{_WORDS}(?:[_.]++{_WORDS})*[_.]*|[0-9.]+|[./~].*|.*\.\.\..*|.*[_.-]{_NAME}s?", re.DOTALL)
"""A bare value of this form is a name in code, a number, a path or an ellipsis, rather than a secret."""


def _without_others(text: str) -> str:
    """Return `text` without the secrets that are in one line, and the passwords of netrc."""
    return _clean_text_often(text) if len(text) <= _OFTEN else _clean_text(text)


def _clean_text(text: str) -> str:
    text = "\n".join(map(_clean_line, _without_known(text).split("\n")))
    return _NETRC.sub(_hidden, text) if "login" in text and "password" in text else text


def _clean_line(line: str) -> str:
    """Return `line` without its secrets; most lines have no word that one needs."""
    if _RUN.search(line):
        line = _LONG.sub(_without_token, _FORM.sub(MARK, _KEY_LINE.sub(rf"\1{MARK}", line)))
    low = line.lower()
    if any(word in low for word in _KEYWORDS):
        for pattern in (_URL, _USERINFO, _LOGIN, _SCHEME, _HEADER, _COOKIE, _SIGNED, _JWK, _WORD):
            line = pattern.sub(rf"\1{MARK}", line)
        for pattern in _NAMED:
            line = pattern.sub(_hidden, line)
    return line


def _without_token(match: re.Match[str]) -> str:
    """Return a long word, or the mark in its place if a part behind its prefix is random."""
    first, *others = _PARTS.split(match[1])
    is_token = f" {first.lower()} " not in f" {_ID_PREFIXES} " and any(
        _is_random(part) for part in others if not part.startswith("kwDO")
    )
    return match[0].removesuffix(match[1]) + MARK if is_token else match[0]


def _is_random(part: str) -> bool:
    """True if `part` is long, has a digit or both cases, and is made of no words and numbers."""
    has_digit = any(map(str.isdigit, part))
    is_mixed = not (part.islower() or part.isupper())
    least = _LEAST_RANDOM if is_mixed else _LEAST_PLAIN
    if len(part) < least or not (has_digit or is_mixed) or part.isdigit():
        return False
    most = 0.4 if not has_digit else 0.8 if not is_mixed else 0.7 if len(part) < 2 * _LEAST_RANDOM else 0.85
    return sum(map(len, _SPOKEN_PARTS.findall(part))) <= len(part) * most


_OFTEN = 1_000
"""Most characters of a text that is remembered: facts are in a plan, by themselves, and in a session's next plan."""


def redact(value: Any) -> Any:
    """A text or other JSON data with each secret in it replaced by ``[secret]``, and what has a secret's name whole.

    A key is one, too, where its lines stand in several texts: blocks of a result, arguments of a call. Names stay.
    """
    return _replaced(value, "", iter(_without_keys(list(strings_in(value)))))


def _replaced(value: Any, name: str, texts: Iterator[str]) -> Any:
    """`value`, which stands under `name`, with the next of `texts` for each of its own."""
    if isinstance(value, dict):
        return {key: _replaced(inner, str(key), texts) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner, name, texts) for inner in value]
    if not isinstance(value, str):
        return value
    text = next(texts)
    if value and _KEY.fullmatch(name):
        return MARK
    return _without_others(text)


_clean_text_often = lru_cache(2**14)(_clean_text)


def _hidden(match: re.Match[str]) -> str:
    whole, name = match[0], match[1]
    return whole if _CODE.fullmatch(whole, len(name)) else name + MARK


def _without_keys(texts: list[str]) -> list[str]:
    """`texts` without private keys, whole ones and those that were cut off, or cut over several of them."""
    if not any("PRIVATE KEY" in text for text in texts):
        return texts
    every = [_KEY_MARK.split(text) for text in texts]  # each second part is a mark
    for mark, step in (("BEGIN", 1), ("END", -1)):  # what goes on behind a beginning, then what comes before an end
        within = False
        for parts in every[::step]:
            for index in range(len(parts))[::step]:
                if index % 2:
                    within = mark in parts[index]
                elif within:
                    parts[index] = _without_body(parts, index, step)
    clean = ["".join(MARK if index % 2 else part for index, part in enumerate(parts)) for parts in every]
    return [text.replace(MARK + MARK, MARK) for text in clean]


def _without_body(parts: list[str], index: int, step: int) -> str:
    """A part of a text without the piece of a key at its beginning; with a `step` of -1, at its end."""
    part = parts[index]
    before, behind = parts[index - 1] if index else "", parts[index + 1] if index + 1 < len(parts) else ""
    if "BEGIN" in before and "END" in behind and len(part) <= _LONGEST_KEY:
        return ""
    start = max(0, len(part) - _LONGEST_KEY) if step < 0 else 0
    pieces = list(_KEY_PIECE.finditer(part, start, start + _LONGEST_KEY))[::step]
    body = takewhile(lambda piece: not piece[1] or not _NO_KEY.fullmatch(piece[1]), pieces)
    spans = [piece.span() for piece in body if piece[1] and not piece[1].isdigit()]
    if not spans or not ((before if step > 0 else behind) or _FAR_PIECE.match(part, *spans[0])):
        return part
    return part[: min(spans)[0]] + MARK + part[max(spans)[1] :]


def _without_known(text: str) -> str:
    """Return `text` without what kingfisher's rules find."""
    data = text.encode("utf-8", "surrogatepass")
    places = [found.location for found in _scanner().scan(data)]
    parts: list[bytes] = []
    at = 0
    for first, last in sorted({(place["start_offset"], place["end_offset"]) for place in places}):
        if first >= at:
            parts += data[at:first], MARK.encode()
        rest = _REST.match(data, last)
        at = max(at, rest.end() if rest else last)
    return b"".join([*parts, data[at:]]).decode("utf-8", "surrogatepass") if parts else text


@cache
def _scanner() -> Scanner:
    """Return the scanner with all of kingfisher's rules; making it takes .3 s, the first time on a machine 3 s."""
    from kingfisher_sdk import Rules, Scanner

    return Scanner(Rules(), base64=False)
