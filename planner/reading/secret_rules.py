"""Rules for secrets within a line: forms of vendors, and values after a name, an option, a header or a program.

Each rule lists words that its lines contain, so that most lines are not searched by a pattern.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from planner.reading.patterns import lazy_pattern

_ESCAPED = r"(?<=\\[nrt])|(?<=\\u[0-9a-f]{4})|(?<=[0-9]m)"
"""End of an escape: of ``\\n`` or ``\\u2192`` in JSON, or of ``\\x1b[32m`` for a terminal."""
_START = rf"(?:\b|{_ESCAPED})"
"""Beginning of a word, also right after an escape."""
_QUOTE = r"(?:\\{0,15}[\"'])"
"""Quote in a text, or with the backslashes that it has within up to four levels of JSON."""
_WORDS_OF_FORMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"eyJ[\w-]{8,8000}\.[\w-]{8,}(?:\.[\w-]+)*", ("eyj",)),  # a JSON Web Token
    (r"(?:AKIA|ASIA)[A-Z0-9]{16}\b", ("akia", "asia")),  # Amazon
    (r"1//0[\w-]{20,}", ("1//0",)),  # Google
    (r"EAA[A-Za-z0-9]{90,}", ("eaa",)),  # Meta
    (r"xprv[A-Za-z0-9]{100,120}|AKID[A-Za-z0-9]{32}\b", ("xprv", "akid")),  # wallets, Tencent
    (r"oy2[a-z0-9]{43}\b|re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}\b", ("oy2", "re_")),  # NuGet, Resend
    (r"[0-9a-f]{32}-us[0-9]{1,2}\b", ("-us",)),  # Mailchimp
    (r"access_token\$[a-z]{4,12}\$\w{16}\$[0-9a-f]{32}", ("token$",)),  # Braintree
    (r"https://hooks\.slack\.com/[a-z]{1,20}/[\w/-]{20,}", ("hooks.slack",)),
    (r"(?<=/webhooks/)\d{5,30}/[\w-]{40,}", ("/webhooks/",)),  # Discord
)
"""Forms of vendors' secrets, each with `SecretRule.words`."""
_HEX_FORMS = (
    r"(?:AC|SK)[0-9a-f]{32}\b",  # Twilio
    r"[0-9]{8,10}:[\w-]{35}(?![\w-])",  # Telegram
    r"[01]/[0-9]{16}:[0-9a-f]{32}\b",  # Asana
    r"(?:[sp]k|key|token|secret|api)[_-](?:[a-z]{2,4}[_-])?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",  # a UUID
)
"""Forms of digits and letters, from each vendor's documentation; kingfisher finds them in fewer places."""
HEX_FORM = lazy_pattern(rf"{_START}(?:{'|'.join(_HEX_FORMS)})")
"""Secret in one of the `_HEX_FORMS`."""
_HASH = lazy_pattern(
    rf"(?:(?<!\w)|{_ESCAPED})\$(?:[1-9]|[1-9a-z]{{2,10}})\$(?:[\w=,./-]{{1,40}}\$){{0,3}}[./A-Za-z0-9]{{20,}}"
)
"""Hash of a password: ``$2b$12$…``."""
_PLACEHOLDER = r"(?![$<{%\[*]|(?i:xxx|your[_-]|example|changeme|redacted|process\.|os\.|env[.:(\[]|(?:bearer|basic)\b))"
"""Beginning of a value that is no secret: a variable, a blank to fill in, or code that looks it up."""
_URL = lazy_pattern(
    rf"({_START}[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}://[^\s/:@'\"]{{0,100}}:){_PLACEHOLDER}[^\s/@'\"]{{1,200}}(?=@)"
)
"""Password in an address: ``postgres://bob:s3@db``; not ``http://localhost:3000/a@b``."""
_HEADER = lazy_pattern(
    rf"((?i:authorization|x-api-key){_QUOTE}?\s?[:=]\s?{_QUOTE}?(?i:(?:bearer|basic|token|apikey)\s{{1,9}})?"
    rf"|{_START}[Bb]earer\s{{1,9}}(?=[\w.~+/-]{{0,99}}[0-9]))({_PLACEHOLDER}[\w.~+/=-]{{6,}})"
)
"""Token in a header: ``Authorization: Bearer abcdefgh``, ``Bearer a1b2c3…``; not ``bearer of news``."""
_PASS = r"pass(?:word|wd|phrase|code)|pwd|storepass|requirepass|psk"
"""Name of a password."""
_NAME = (
    rf"(?i:{_PASS}|secret|token|credential|api[_-]?key|(?:access|account|auth|private|secret|signing|encryption|master"
    r"|client|shared|license|service)[_-]?(?:access[_-]?)?key(?:[_-]data)?)"
)
"""Name of a secret, or its end: ``api_key`` in ``openai_api_key``."""
_VALUE = rf"{_PLACEHOLDER}[^\s\"'`,;\x1b&()\[\]{{}}<>|\\]{{6,}}+"
"""Value without quotes, brackets and blanks that is no placeholder."""
_QUOTED = rf"({_NAME}{_QUOTE}?\s?(?:[:=]\s?|[ ])({_QUOTE})){_PLACEHOLDER}[^\s\"'\\]{{6,}}(?=\2)"
"""Value in quotes after a name: ``"client_secret": "p8~xyzzy"``, ``PASSWORD 'q1w2e3r4'``; not a value with blanks."""
_BARE = rf"({_NAME}(?i:_base|_value)?(?:=|:[ ])){_VALUE}(?![(\[])"
"""Value without quotes after a name: ``DB_PASSWORD=hunter22``; not ``token=get_token()``. A name in code matches, too,
but is not replaced, as it matches `CODE`."""
_ASSIGNED = rf"({_NAME}[ ]{{1,9}}[=:][ ]{{1,9}})(?=[A-Za-z+/]{{0,99}}[0-9])[A-Za-z0-9+/]{{16,}}+={{0,2}}(?![\w.(\[])"
"""Value in the letters of base64 after a name and blanks: ``aws_secret_access_key = wJalr/K7…``; not
``token = first_token2``."""
_MIXED = r"(?=[^\s\"']{0,99}(?:[0-9]|[a-z][A-Z]|[A-Z]{2}[a-z]))"
"""Beginning of a value with a digit, or with letters of both cases other than one capital at its start."""
_SHORT_NAME = (
    rf"((?:[_.-](?i:pass|auth|key|pat)|\b(?:pass|auth)){_QUOTE}?\s?[=:]\s?{_QUOTE}?"
    rf"|(?i:auth|credentials?){_QUOTE}?\s?[=:]\s?[(\[]\s?{_QUOTE}?[^\s,\"']{{1,60}}{_QUOTE}?,\s{{0,3}}{_QUOTE}?){_MIXED}{_VALUE}"
)
"""Value after a short name: ``SMTP_PASS=q1w2e3r4``, ``auth=("bob", "q1w2e3r4")``; not ``PASS: TestX`` or
``cache_key=rows``."""
_ELEMENT = (
    rf"(<(?:[\w.-]{{0,40}}[.:-])?{_NAME}>\s?|{_NAME}{_QUOTE}\s{{1,9}}value={_QUOTE})"
    rf"{_PLACEHOLDER}[^\s<\"]{{4,}}(?=\s?[<\"])"
)
"""Value in XML: ``<password>q1w2e3r4</password>``, ``<add key="Password" value="q1w2e3r4"/>``."""
_SPOKEN = (
    rf"((?i:{_PASS}|api key|secret|token)[ ](?:is|was)[ ][\"'`]?"
    rf"|(?i:{_PASS})[ ](?:(?=\S{{0,40}}[0-9])(?=\S{{0,40}}[A-Z])|(?=(?:\S{{0,20}}[a-z][A-Z]){{2}}))){_VALUE}"
)
"""Value in a sentence: ``The password is q1w2e3r4``, ``password Q1w2e3r4``, ``password qWertYuiop``. ``The password is
incorrect`` matches, too, but is not replaced, as ``incorrect`` matches `CODE`."""
_OPTION = rf"((?:(?<![\w.-])|{_ESCAPED})--?[\w.-]{{0,40}}{_NAME}(?:[ ]{{1,9}}|=)[\"']?){_VALUE}"
"""Value of an option: ``--password q1w2e3r4``; not ``--token-file path/to``."""
_GAP = r"(?:[^A-Za-z\\]|\\{1,15}(?:[nrt]|u[0-9a-f]{4})|(?<=[0-9])m){1,24}"
"""White space, and the marks of viewers, diffs, terminals and JSON around a line break."""
NETRC = lazy_pattern(rf"(\blogin\s{{1,9}}\S{{1,99}}{_GAP}password\s{{1,9}}){_VALUE}")
"""Password in a netrc file, on the line of its login or after it."""
_USER = rf"((?<!\S)(?:-[uU]|--user|--proxy-user)[ =]?[\"']?(?:[\w.@+-]{{1,99}}|\[secret\])[:%]){_VALUE}"
"""Password after a user: ``curl -u admin:q1w2e3r4``. ``docker run -u 1000:100000`` matches, too, but is not replaced,
as a number matches `CODE`."""
_PROGRAM = (
    rf"({_START}(?:(?:mysql|mysqldump|mariadb|mysqladmin)\b[^\n|;&]{{0,99}}?\s-p|sshpass\s{{1,9}}-p\s?[\"']?"
    rf"|login\b[^\n|;&]{{0,99}}?\s-p\s{{1,9}}[\"']?|IDENTIFIED\s(?:WITH\s\w{{1,40}}\s)?BY\s(?:PASSWORD\s)?[\"']"
    rf"|htpasswd\s-\w{{0,5}}b\w{{0,5}}\s\S{{1,99}}\s\S{{1,99}}\s|vault\slogin\s)"
    rf"|(?<!\S)-pass(?:in|out)?\spass:|AUTH\s(?=\S{{0,99}}[0-9])"
    rf"|echo\s[\"']?(?=\S{{6,200}}\s?\|[^\n]{{0,60}}--password-stdin)){_VALUE}"
)
"""Argument of a program: ``mysql -u root -pq1w2e3r4``, ``docker login -u bob -p q1w2e3r4``, ``IDENTIFIED BY
'q1w2e3r4'``."""
_WORD = lazy_pattern(
    rf"({_NAME}=)(?!(?i:undefined|string)\b)(?!\w{{0,99}}{_NAME})(?:[A-Za-z]{{6,}}|[0-9]{{6,}})(?=[\s&;\"'`<]|$)"
)
"""Plain word or number outside of code: ``password=correcthorse``; not ``f(token=value)``, as a bracket follows."""
_COOKIE = lazy_pattern(
    rf"((?i:cookie){_QUOTE}?\s?[:=]\s?{_QUOTE}?)(?=[\w.-]{{1,60}}=|[^\n\"'\\]{{0,400}};\s?[\w.-]{{1,60}}=)[^\n\"'\\]{{8,}}"
)
"""Whole cookie: ``Cookie: theme=dark; session=…``; not ``cookie: string``."""
_SIGNED = lazy_pattern(
    r"((?:[?&;](?i:sig|code|client_assertion)|\b(?i:(?:x-amz-)?signature|x-amz-security-token))=)"
    r"(?=[\w%+/=.-]{0,99}[0-9])[\w%+/=.-]{20,}"
)
"""Signature or code in an address: ``…&sig=…``."""
_SCHEME = lazy_pattern(
    rf"((?i:authorization){_QUOTE}?\s?[:=]\s?{_QUOTE}?(?i:aws4-hmac-sha256|digest|hawk|oauth|signature)\s)"
    rf"(?:[\w-]{{1,40}}=(?:{_QUOTE}[^\n\"'\\]{{0,400}}{_QUOTE}|[^\s\"'\\,]{{1,400}}),?\s{{0,3}}){{1,20}}+"
)
"""All fields of a header: ``Authorization: Digest username="…", response="…"``."""
_LOGIN = lazy_pattern(
    rf"({_START}[a-z][\w.-]{{0,40}}:){_PLACEHOLDER}(?=[^\s@]{{0,99}}[0-9])[^\s@/:\"']{{8,99}}(?=@(?!sha\d)[a-z])"
)
"""Password in a login: ``bob:q1w2e3r4@host``; not ``image:tag@sha256:…``."""
_USERINFO = lazy_pattern(rf"({_START}[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}://)(?=[\w.~%-]{{0,99}}[0-9])[\w.~%-]{{16,}}(?=@)")
"""Token in an address: ``https://TOKEN@host``; not ``https://user@host``."""
_JWK = lazy_pattern(rf"((?<!\\){_QUOTE}(?:d|k|p|q|dp|dq|qi){_QUOTE}\s?:\s?{_QUOTE})[\w-]{{30,}}(?={_QUOTE})")
"""Private parts of a JSON Web Key."""
KEY_LINE = lazy_pattern(
    r"((?:^|(?<=\\[nr]))(?:[\w./-]{1,99}[:-]\d{1,7}[:-])?"
    rf"(?:[^A-Za-z\n\\\x1b]|(?:\x1b|\\+u001b)\[[\d;]{{0,9}}m|\\+(?:u[0-9a-f]{{4}}|t)){{0,40}}(?:(?<![A-Za-z0-9/=])|{_ESCAPED}))"
    r"(?=(?:[a-z0-9+/]{0,40}[A-Z]){4})(?=(?:[A-Z0-9+/]{0,40}[a-z]){4})(?=[A-Za-z+/]{0,99}[0-9])"
    r"(?:[A-Za-z0-9+/]{40,100}={0,2}|[A-Za-z0-9+/]{20,98}={1,2})(?=[^\w\n\\\x1b]{0,40}(?:[\\\x1b]|$))",
    re.M,
)
"""Line of base64 from a key that was split into lines, in quotes or in JSON.

A line number, a mark of a diff, a bar or ``key.pem:12:`` may be before it. Does not match ``sha512-…`` after a name, or
a digest, which has letters of one case.
"""
SECRET_NAME = lazy_pattern(rf".*(?:{_NAME}|(?i:authorization|cookie))", re.DOTALL)
"""Name of a field that contains a secret."""
_WORDS = r"(?:[A-Z]+|[A-Z]{0,3}[a-z]+(?:[A-Z]{1,3}[a-z]{2,})*)"
CODE = lazy_pattern(rf"_*{_WORDS}(?:[_.]++{_WORDS})*[_.]*|[0-9.]+|[./~].*|.*\.\.\..*|.*[_.-]{_NAME}s?", re.DOTALL)
"""Value that is no secret: a word or name in code, a number, a path, or a text with an ellipsis."""


_NAME_WORDS = (
    "passw", "passphrase", "passcode", "storepass", "requirepass", "pwd", "psk", "secret", "token", "credential", "key",
)  # fmt: skip
"""Words in lower case; every `_NAME` contains one of them."""


class SecretRule(NamedTuple):
    """Rule for one kind of secret: what `pattern` matches in a line is replaced, except its first group, the name."""

    pattern: re.Pattern[str]
    words: tuple[str, ...]
    """Words in lower case, one of which is in each line that matches."""
    also: tuple[str, ...] = ("",)
    """Further words, one of which is also in each line that matches."""
    is_form: bool = False
    """True if the value has a specific form; such rules run before the search for random tokens."""
    spares_code: bool = False
    """True if a value that matches `CODE` is left alone."""


_FORMS = (
    *(SecretRule(lazy_pattern(rf"{_START}(?:{form})"), words, is_form=True) for form, words in _WORDS_OF_FORMS),
    SecretRule(_HASH, ("$",), is_form=True),
)
_NAMED = (
    SecretRule(_URL, ("://",), ("@",)),
    SecretRule(_USERINFO, ("://",), ("@",)),
    SecretRule(_LOGIN, ("@",), (":",)),
    SecretRule(_SCHEME, ("authorization",)),
    SecretRule(_HEADER, ("authorization", "x-api-key", "bearer")),
    SecretRule(_COOKIE, ("cookie",)),
    SecretRule(_SIGNED, ("sig=", "code=", "assertion=", "signature=", "token=")),
    SecretRule(_JWK, ('"d', '"k', '"p', '"q', "'d", "'k", "'p", "'q")),
    SecretRule(_WORD, _NAME_WORDS, ("=",)),
    SecretRule(lazy_pattern(_QUOTED), _NAME_WORDS, ('"', "'"), spares_code=True),
    SecretRule(lazy_pattern(_BARE), _NAME_WORDS, ("=", ": "), spares_code=True),
    SecretRule(lazy_pattern(_ASSIGNED), _NAME_WORDS, ("= ", ": "), spares_code=True),
    SecretRule(lazy_pattern(_SHORT_NAME), ("pass", "auth", "key", "pat", "credential"), ("=", ":"), spares_code=True),
    SecretRule(lazy_pattern(_ELEMENT), _NAME_WORDS, ("<", "value="), spares_code=True),
    SecretRule(lazy_pattern(_SPOKEN), _NAME_WORDS, (" ",), spares_code=True),
    SecretRule(lazy_pattern(_OPTION), _NAME_WORDS, ("-",), spares_code=True),
    SecretRule(lazy_pattern(_USER), ("-u", "proxy-user"), spares_code=True),
    SecretRule(
        lazy_pattern(_PROGRAM),
        ("mysql", "mariadb", "sshpass", "login", "identified", "htpasswd", "pass:", "auth", "password-stdin"),
        spares_code=True,
    ),
)
RULES = (*_FORMS, *_NAMED)
RULES_BY_WORD = {
    word: [at for at, rule in enumerate(RULES) if word in rule.words] for rule in RULES for word in rule.words
}
"""Indices in `RULES` of the rules that may match a line, for each word of `SecretRule.words` that it contains."""
