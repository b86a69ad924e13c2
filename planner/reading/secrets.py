"""Removes secrets (passwords, keys, tokens) from facts, plans and events that are stored; on request from originals.

There are three searches. The first is for secrets in the forms of known vendors, mostly by rules of the package
kingfisher. The second is for tokens of any vendor: a prefix and a long random part. The third is for values after a
name, an option, a header or a program: ``password=…``. Names, placeholders and code stay. Each rule lists words that
its lines contain, so that most lines are not searched by a pattern. `Secrets` recognises pieces of secrets where a text
was cut. Time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import dropwhile, groupby, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from propcache.api import cached_property

from planner.reading.lazy import lazy_pattern

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner


_ESCAPED = r"(?<=\\[nrt])|(?<=\\u[0-9a-f]{4})|(?<=[0-9]m)"
"""Place after an escape, ``\\n`` or ``\\u2192`` in JSON or ``\\x1b[32m`` for a terminal, where a secret may begin."""
_START = rf"(?:\b|{_ESCAPED})"
"""Beginning of a word, also right after an escape."""
_QUOTE = r"(?:\\{0,15}[\"'])"
"""Quotation mark, also with the backslashes that it has in a text within up to four levels of JSON."""
_WORDS_OF_FORMS = (
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
"""Patterns of vendors' secrets, each with the words in lower case that its line contains (see `SecretRule.words`)."""
_HEX_FORMS = (
    r"(?:AC|SK)[0-9a-f]{32}\b",  # Twilio
    r"[0-9]{8,10}:[\w-]{35}(?![\w-])",  # Telegram
    r"[01]/[0-9]{16}:[0-9a-f]{32}\b",  # Asana
    r"(?:[sp]k|key|token|secret|api)[_-](?:[a-z]{2,4}[_-])?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",  # a UUID
)
"""Patterns of vendors' secrets without a typical word, by the vendors' documentation. kingfisher finds fewer."""
HEX_FORM = lazy_pattern(rf"{_START}(?:{'|'.join(_HEX_FORMS)})")
"""Secret that matches one of the `_HEX_FORMS`."""
_HASH = lazy_pattern(
    rf"(?:(?<!\w)|{_ESCAPED})\$(?:[1-9]|[1-9a-z]{{2,10}})\$(?:[\w=,./-]{{1,40}}\$){{0,3}}[./A-Za-z0-9]{{20,}}"
)
"""Hash of a password: ``$2b$12$…``."""
_PLACEHOLDER = r"(?![$<{%\[*]|(?i:xxx|your[_-]|example|changeme|redacted|process\.|os\.|env[.:(\[]|(?:bearer|basic)\b))"
"""Condition that a value is not ``${TOKEN}``, ``<your-key>``, ``os.environ`` or the like, which are no secrets."""
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
"""Names of a password, such as ``passwd``."""
_NAME = (
    rf"(?i:{_PASS}|secret|token|credential|api[_-]?key|(?:access|account|auth|private|secret|signing|encryption|master"
    r"|client|shared|license|service)[_-]?(?:access[_-]?)?key(?:[_-]data)?)"
)
"""Name of a secret, or the end of one: ``api_key`` in ``openai_api_key``."""
_VALUE = rf"{_PLACEHOLDER}[^\s\"'`,;\x1b&()\[\]{{}}<>|\\]{{6,}}+"
"""Value without quotes, brackets and blanks that is no placeholder."""
_QUOTED = rf"({_NAME}{_QUOTE}?\s?(?:[:=]\s?|[ ])({_QUOTE})){_PLACEHOLDER}[^\s\"'\\]{{6,}}(?=\2)"
"""Value in quotes after a name: ``"client_secret": "p8~xyzzy"``, ``PASSWORD 'q1w2e3r4'``; not a value with blanks."""
_BARE = rf"({_NAME}(?i:_base|_value)?(?:=|:[ ])){_VALUE}(?![(\[])"
"""Value without quotes after a name: ``DB_PASSWORD=hunter22``; not ``token=get_token()``. A name in code matches, too,
but is not replaced, as it matches `CODE`."""
_ASSIGNED = rf"({_NAME}[ ]{{1,9}}[=:][ ]{{1,9}})(?=[A-Za-z+/]{{0,99}}[0-9])[A-Za-z0-9+/]{{16,}}+={{0,2}}(?![\w.(\[])"
"""Value in letters of base64 after a name and blanks: ``secret_access_key = wJalr/K7…``; not ``token = token2``."""
_MIXED = r"(?=[^\s\"']{0,99}(?:[0-9]|[a-z][A-Z]|[A-Z]{2}[a-z]))"
"""Condition that a value has a digit, or letters of both cases other than one capital at its start, as words have."""
_SHORT_NAME = (
    rf"((?:[_.-](?i:pass|auth|key|pat)|\b(?:pass|auth)){_QUOTE}?\s?[=:]\s?{_QUOTE}?"
    rf"|(?i:auth|credentials?){_QUOTE}?\s?[=:]\s?[(\[]\s?{_QUOTE}?[^\s,\"']{{1,60}}{_QUOTE}?,\s{{0,3}}{_QUOTE}?){_MIXED}{_VALUE}"
)
"""Value after a short name: ``SMTP_PASS=q1w2e3r4``, ``auth=("bob", "q1w2e3r4")``; not ``cache_key=rows``."""
_ELEMENT = (
    rf"(<(?:[\w.-]{{0,40}}[.:-])?{_NAME}>\s?|{_NAME}{_QUOTE}\s{{1,9}}value={_QUOTE})"
    rf"{_PLACEHOLDER}[^\s<\"]{{4,}}(?=\s?[<\"])"
)
"""Value in XML: ``<password>q1w2e3r4</password>``, ``<add key="Password" value="q1w2e3r4"/>``."""
_SPOKEN = (
    rf"((?i:{_PASS}|api key|secret|token)[ ](?:is|was)[ ][\"'`]?"
    rf"|(?i:{_PASS})[ ](?:(?=\S{{0,40}}[0-9])(?=\S{{0,40}}[A-Z])|(?=(?:\S{{0,20}}[a-z][A-Z]){{2}}))){_VALUE}"
)
"""Value in a sentence: ``The password is q1w2e3r4``, ``password Q1w2e3r4``, ``password qWeRtYuI``. ``The password is
incorrect`` matches, too, but is not replaced, as ``incorrect`` matches `CODE`."""
_OPTION = rf"((?:(?<![\w.-])|{_ESCAPED})--?[\w.-]{{0,40}}{_NAME}(?:[ ]{{1,9}}|=)[\"']?){_VALUE}"
"""Value of an option: ``--password q1w2e3r4``; not ``--token-file path/to``."""
_GAP = r"(?:[^A-Za-z\\]|\\{1,15}(?:[nrt]|u[0-9a-f]{4})|(?<=[0-9])m){1,24}"
"""White space, and characters that tools, diffs, terminals and JSON put around a line break."""
NETRC = lazy_pattern(rf"(\blogin\s{{1,9}}\S{{1,99}}{_GAP}password\s{{1,9}}){_VALUE}")
"""Password in a netrc file, on the line of its login or after it."""
_USER = rf"((?<!\S)(?:-[uU]|--user|--proxy-user)[ =]?[\"']?(?:[\w.@+-]{{1,99}}|\[secret\])[:%]){_VALUE}"
"""Password after a user's name: ``curl -u admin:q1w2e3r4``. ``docker run -u 1000:100000`` matches, too, but is not
replaced, as a number matches `CODE`."""
_PROGRAM = (
    rf"({_START}(?:(?:mysql|mysqldump|mariadb|mysqladmin)\b[^\n|;&]{{0,99}}?\s-p|sshpass\s{{1,9}}-p\s?[\"']?"
    rf"|login\b[^\n|;&]{{0,99}}?\s-p\s{{1,9}}[\"']?|IDENTIFIED\s(?:WITH\s\w{{1,40}}\s)?BY\s(?:PASSWORD\s)?[\"']"
    rf"|htpasswd\s-\w{{0,5}}b\w{{0,5}}\s\S{{1,99}}\s\S{{1,99}}\s|vault\slogin\s)"
    rf"|(?<!\S)-pass(?:in|out)?\spass:|AUTH\s(?=\S{{0,99}}[0-9])"
    rf"|echo\s[\"']?(?=\S{{6,200}}\s?\|[^\n]{{0,60}}--password-stdin)){_VALUE}"
)
"""Password as the argument of a program: ``mysql -u root -pq1w2e3r4``, ``IDENTIFIED BY 'q1w2e3r4'``."""
_WORD = lazy_pattern(
    rf"({_NAME}=)(?!(?i:undefined|string)\b)(?!\w{{0,99}}{_NAME})(?:[A-Za-z]{{6,}}|[0-9]{{6,}})(?=[\s&;\"'`<]|$)"
)
"""Password that is a plain word or number: ``password=correcthorse``; not code: ``f(token=value)``."""
_COOKIE = lazy_pattern(
    rf"((?i:cookie){_QUOTE}?\s?[:=]\s?{_QUOTE}?)(?=[\w.-]{{1,60}}=|[^\n\"'\\]{{0,400}};\s?[\w.-]{{1,60}}=)[^\n\"'\\]{{8,}}"
)
"""Cookie in a header, as a whole: ``Cookie: theme=dark; session=…``; not ``cookie: string``."""
_SIGNED = lazy_pattern(
    r"((?:[?&;](?i:sig|code|client_assertion)|\b(?i:(?:x-amz-)?signature|x-amz-security-token))=)"
    r"(?=[\w%+/=.-]{0,99}[0-9])[\w%+/=.-]{20,}"
)
"""Signature or code that gives access, in a URL: ``…&sig=…``."""
_SCHEME = lazy_pattern(
    rf"((?i:authorization){_QUOTE}?\s?[:=]\s?{_QUOTE}?(?i:aws4-hmac-sha256|digest|hawk|oauth|signature)\s)"
    rf"(?:[\w-]{{1,40}}=(?:{_QUOTE}[^\n\"'\\]{{0,400}}{_QUOTE}|[^\s\"'\\,]{{1,400}}),?\s{{0,3}}){{1,20}}+"
)
"""Fields of an authorization header, all of them: ``Authorization: Digest username="…", response="…"``."""
_LOGIN = lazy_pattern(
    rf"({_START}[a-z][\w.-]{{0,40}}:){_PLACEHOLDER}(?=[^\s@]{{0,99}}[0-9])[^\s@/:\"']{{8,99}}(?=@(?!sha\d)[a-z])"
)
"""Password between a user's name and a host: ``bob:q1w2e3r4@host``; not ``image:tag@sha256:…``."""
_USERINFO = lazy_pattern(rf"({_START}[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}://)(?=[\w.~%-]{{0,99}}[0-9])[\w.~%-]{{16,}}(?=@)")
"""Token in a URL: ``https://TOKEN@host``; not ``https://user@host``."""
_JWK = lazy_pattern(rf"((?<!\\){_QUOTE}(?:d|k|p|q|dp|dq|qi){_QUOTE}\s?:\s?{_QUOTE})[\w-]{{30,}}(?={_QUOTE})")
"""Private parts of a JSON Web Key."""
KEY_LINE = lazy_pattern(
    r"((?:^|(?<=\\[nr]))(?:[\w./-]{1,99}[:-]\d{1,7}[:-])?"
    rf"(?:[^A-Za-z\n\\\x1b]|(?:\x1b|\\+u001b)\[[\d;]{{0,9}}m|\\+(?:u[0-9a-f]{{4}}|t)){{0,40}}(?:(?<![A-Za-z0-9/=])|{_ESCAPED}))"
    r"(?=(?:[a-z0-9+/]{0,40}[A-Z]){4})(?=(?:[A-Z0-9+/]{0,40}[a-z]){4})(?=[A-Za-z+/]{0,99}[0-9])"
    r"(?:[A-Za-z0-9+/]{64}(?:[A-Za-z0-9+/]{6}){0,2}|[A-Za-z0-9+/]{20,98}={1,2})(?=[^\w\n\\\x1b]{0,40}(?:[\\\x1b]|$))",
    re.M,
)
"""Line of base64 that is a piece of a private key: padded, or as long as PEM, OpenSSH and MIME make lines (64, 70 or 76
characters). It may be in quotes or in JSON, after a line number, a mark of a diff, a bar or ``key.pem:12:``. Neither
``sha512-…`` after a name nor a digest, which has letters of one case, matches, nor the id of a document."""
SECRET_NAME = lazy_pattern(rf".*(?:{_NAME}|(?i:authorization|cookie))", re.DOTALL)
"""Name of a JSON field whose value is a secret, such as ``client_secret``."""
_WORDS = r"(?:[A-Z]+|[A-Z]{0,3}[a-z]+(?:[A-Z]{1,3}[a-z]{2,})*)"
CODE = lazy_pattern(
    rf"(?![a-z][A-Z][a-z]+[A-Z])_*{_WORDS}(?:[_.]++{_WORDS})*[_.]*|[0-9.]+|[./~].*|.*\.\.\..*|.*[_.-]{_NAME}s?",
    re.DOTALL,
)
"""Value that is no secret, although it follows a name such as ``token``: a word or name in code, a number, a path, or a
text with an ellipsis. ``qWertYuiop`` is no name in code, as the part before its first capital is no word."""


_NAME_WORDS = (
    "passw", "passphrase", "passcode", "storepass", "requirepass", "pwd", "psk", "secret", "token", "credential", "key",
)  # fmt: skip
"""Words in lower case of which every name of a secret contains one, so that other lines need no search."""


class SecretRule(NamedTuple):
    """Rule for one kind of secret: the match of `pattern` in a line is replaced, except its first group, which is the
    name before the secret."""

    pattern: re.Pattern[str]
    words: tuple[str, ...]
    """Words in lower case, one of which is in every line that matches. Lines without them are not searched."""
    also: tuple[str, ...] = ("",)
    """Further words; one of them must be in the line, too."""
    is_form: bool = False
    """True if the secret has the form of a vendor; such rules run before the search for random tokens."""
    spares_code: bool = False
    """True if a match whose value is a name in code, a number or a path (`CODE`) is not replaced."""


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
_RULES = (*_FORMS, *_NAMED)
_RULES_BY_WORD = {
    word: [at for at, rule in enumerate(_RULES) if word in rule.words] for rule in _RULES for word in rule.words
}
"""Rules that may match a line, by each word that it contains; as indexes in `_RULES`."""


MARK = "[secret]"
"""Text that replaces a secret."""

_RUN = lazy_pattern(r"[\w.~/+-]{17}", re.ASCII)
"""Run of characters as long as the shortest token that is recognised by its random part. Lines without such a run need
no search for tokens."""
_LONG = lazy_pattern(
    r"(?<![A-Za-z0-9_])(?:(?<=\\)(?:[nrt]|u[0-9a-fA-F]{4})|(?<=\[)[\d;]{1,9}m)?([A-Za-z0-9][\w.~-]{17,})", re.ASCII
)
"""Word, the group, that is long enough for a token with its prefix. An escape before it (``\\n``, ``\\u2192``, that
of a colour) is no part of it."""
_PARTS = lazy_pattern(r"[_.~-]+")
"""Separator between the prefix and the random part of a token: ``_`` in ``ghp_x8Kq…``."""
_SPOKEN_PARTS = lazy_pattern(r"[A-Z][a-z]{2,}|[a-z]{3,}|[A-Z]{4,}(?![a-z])|[0-9]{5,}")
"""Piece that looks like a word or number, as in names that people choose. Random text has few such pieces."""
_LEAST_OF_BOTH_CASES = 16
"""Smallest length of the random part of a token, if it has letters of both cases, with or without digits."""
_LEAST_OF_ONE_CASE = 19
"""Smallest length of the random part of a token, if it has letters of one case and digits."""
_ID_PREFIXES = (
    "acct asst batch call card ch chatcmpl cmpl cus doc evt file id img in inv item msg node order ord org pi pm po"
    " pr price prod prrc proj re req resp rs run sess session sha256 sha384 sha512 src sub task thread toolu tx user"
)
"""Prefixes of ids with a random part that are no secrets: ``toolu_01…``, ``pi_3Mt…``, ``sha256-…``."""
_REST = re.compile(rb"[A-Za-z0-9_]*")
"""Characters after the match of a kingfisher rule that still belong to the secret, as it is longer than expected."""
_WORD_ENDS = bytes.maketrans(b"<>" + bytes(range(128, 256)), b" " * 130)
"""Table that replaces ``<``, ``>`` and all bytes outside of ASCII by blanks, because many of kingfisher's rules need a
blank or quote before and after a secret. ``12→AIza…`` has none."""
_ESCAPE = re.compile(rb"(?:\x1b|\\{1,15}u001b)\[[0-9;]{0,9}m|\\{1,15}(?:u[0-9a-fA-F]{4}|[nrt\"'])")
"""Escape of a terminal or of JSON, replaced by blanks for the same reason: ``\\u2192AIza…``, ``\\"AIza…\\"``."""
_KEY_MARK = lazy_pattern(r"(-----(?:BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)")
"""First or last line of a private key."""
_MARKS = lazy_pattern(r"(?:\[secret\]){2,}")
"""Several ``[secret]`` next to each other, which become one."""
_LONGEST_KEY = 2**15
"""Largest number of characters from the first to the last line of a private key; a signed PGP key has a third of it."""
_KEY_PIECE = lazy_pattern(
    r"(?<![\w./-])[\w./-]{1,99}[:-]\d{1,7}[:-]|(?:\x1b|\\u001b)\[[\d;]{0,9}m|\\(?:u[0-9a-f]{4}|[a-z])|([A-Za-z0-9+/]+={0,2})"
)
"""Piece of text inside a private key: base64 (the group), or characters that a tool, a terminal or JSON put there."""
_NO_KEY = lazy_pattern(r"[A-Z]?[a-z]*|[A-Z]+|[+/=]+")
"""Word at which a private key without a last line ends: ``done``; not ``MIIEow``, a piece of base64."""
_MOST_FIELDS = 40
"""Largest number of pieces, such as names of JSON fields, before the rest of a private key begun in an earlier text."""
_FAR_PIECE = lazy_pattern(r"(?=[^A-Z]*[A-Z])(?=[^a-z]*[a-z])(?=[^0-9]*[0-9]).{16}")
"""Beginning of the continuation of a private key that began in an earlier text: letters of both cases and digits; not
``text``, nor ``toolu_01…`` (base64 has no underscore)."""

_PIECE_CHARACTERS = 8
"""Length of the shortest piece of a secret that is recognised in a text that was cut."""
_MOST_KNOWN = 2**18
"""Number of characters of the last secrets whose pieces are recognised, which limits the memory."""
_MOST_QUOTED = 10_000
"""Number of characters of a value that are searched for secrets before an error quotes it; the rest is not quoted."""
_BETWEEN_PIECES = lazy_pattern(r"[^A-Za-z0-9+]+")
"""Text between the words of a secret."""
_BETWEEN_TEXTS = "\n\x00\n"
"""Line between texts that are joined to search them together. No text contains it, and it has no blanks."""
_SEALED = ("data", "signature", "encrypted_content")
"""Fields of a content block in which `secrets_in` does not search: media, and data encrypted by the provider."""


class Secrets:
    """Secrets of a conversation. It recognises them even in pieces, in texts that were cut from the conversation."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Store the secrets `values` that are to be recognised."""
        self._values = dict.fromkeys(values)

    @cached_property
    def _pieces(self) -> frozenset[str]:
        """Parts of `_PIECE_CHARACTERS` at every place of the secrets: of the last ones that have at most `_MOST_KNOWN`
        characters together."""
        pieces, left_characters = set[str](), _MOST_KNOWN
        for value in reversed(self._values):
            if len(value) <= left_characters:
                left_characters -= len(value)
                pieces |= {value[at : at + _PIECE_CHARACTERS] for at in range(len(value) - _PIECE_CHARACTERS + 1)}
        return frozenset(pieces)

    def without(self, text: str) -> str:
        """Return `text`, which may be a part of the conversation, with pieces of secrets replaced by ``[secret]``."""
        if not self._values:
            return text
        size, parts, end = _PIECE_CHARACTERS, list[str](), 0
        starts = [at for at in range(len(text) - size + 1) if text[at : at + size] in self._pieces]
        # neighbouring pieces, whose starts differ by 1, are one run of characters of a secret
        for _, run in groupby(enumerate(starts), key=lambda numbered: numbered[1] - numbered[0]):
            run_starts = [at for _, at in run]
            start, stop = run_starts[0], run_starts[-1] + size
            if self._is_secret(text[start:stop]):
                parts += text[end:start], MARK
                end = stop
        return "".join([*parts, text[end:]])

    def _is_secret(self, run: str) -> bool:
        """Return True if `run`, which a secret contains, is a whole secret, or has a part that is long enough and no
        word or number, which other texts may contain, too."""
        pieces = (piece for piece in _BETWEEN_PIECES.split(run) if len(piece) >= _PIECE_CHARACTERS - 2)
        whole = [run] if run in self._values else []
        return not all(map(CODE.fullmatch, (*whole, *pieces)))


NO_SECRETS = Secrets()
"""Secrets of a conversation that has none."""


def redact(value: Any, secrets: Secrets = NO_SECRETS) -> Any:
    """Return `value`, a text or other JSON data, with each secret in it replaced by ``[secret]``; the same object if it
    has none.

    A value under a name such as ``password`` is replaced as a whole. Private keys are recognised even if their lines
    are in several texts, such as blocks of a result or arguments of a call.

    `secrets`: secrets of the conversation from which `value` was cut. Pieces of them are replaced, too, since half of a
    token has lost its form or the name before it.
    """
    texts = [*_texts(value)]
    clean = [
        MARK if text and _is_secret_name(key) else secrets.without(redacted)
        for (key, text), redacted in zip(texts, _Redaction().of(texts), strict=True)
    ]
    return value if clean == [text for _, text in texts] else _replaced(value, iter(clean))


def quoted(value: object, most: int = 60) -> str:
    """Return `value` as it may be quoted in an error: its ``repr`` without secrets, cut to `most` characters."""
    text = value if isinstance(value, str) else repr(value)
    if len(text) < _PIECE_CHARACTERS:  # too short for a secret
        return repr(value)
    if len(text) > _MOST_QUOTED or isinstance(value, str):
        value = text[:_MOST_QUOTED]
    return repr(redact(value))[:most]


def secrets_in(messages: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Find the secrets in `messages`, to recognise them later in texts that were cut (see `Secrets`). Each is returned
    once; those too short for that are left out."""
    redaction = _Redaction()
    redaction.of([*_texts(list(messages), sealed=False)])
    return tuple(dict.fromkeys(value for value in redaction.collected if len(value) >= _PIECE_CHARACTERS))


def _texts(value: Any, *, sealed: bool = True) -> Iterator[tuple[str, str]]:
    """Yield each text in the JSON data `value` after its key. With `sealed` False, media and data encrypted by the
    provider are left out. No recursion, as data may be nested deeper than Python's stack."""
    stack: list[tuple[str, Any]] = [("", value)]  # keys and their values, the next one last
    while stack:
        name, inner_value = stack.pop()
        if isinstance(inner_value, str):
            yield name, inner_value
        elif isinstance(inner_value, list | tuple):
            stack += ((name, inner) for inner in reversed(inner_value))
        elif isinstance(inner_value, dict):
            skipped_keys = _SEALED if "type" in inner_value and not sealed else ()
            stack += ((str(key), inner) for key, inner in reversed(inner_value.items()) if key not in skipped_keys)


def _replaced(value: Any, texts: Iterator[str]) -> Any:
    """Return the JSON data `value` with its texts replaced by `texts`, in order."""
    if isinstance(value, dict):
        return {key: _replaced(inner, texts) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner, texts) for inner in value]
    return next(texts) if isinstance(value, str) else value


@lru_cache(2**10)
def _is_secret_name(name: str) -> bool:
    """Return True for the name of a JSON field with a secret: ``password``, ``api_key``."""
    return SECRET_NAME.fullmatch(name) is not None


class _Redaction:
    """Search that replaces the secrets in texts, and collects the secrets that it found."""

    def __init__(self) -> None:
        """Begin with no collected secrets."""
        self.collected: list[str] = []

    def of(self, named_texts: Sequence[tuple[str, str]]) -> list[str]:
        """Return the texts with each secret replaced. `named_texts`: pairs of a name (a JSON key) and a text."""
        self.collected += [text for name, text in named_texts if text and _is_secret_name(name)]
        texts = self._without_keys([text for _, text in named_texts])
        distinct = list(dict.fromkeys(texts))
        clean = self._clean(_BETWEEN_TEXTS.join(distinct)).split(_BETWEEN_TEXTS)  # one long search is faster
        clean = clean if len(clean) == len(distinct) else [*map(self._clean, distinct)]
        return [*map(dict(zip(distinct, clean, strict=True)).__getitem__, texts)]

    def _clean(self, text: str) -> str:
        """Return `text` with the secrets replaced that are within one line, and passwords of netrc files."""
        text = self._without_known_secrets(text)
        low = text.lower()
        rules_by_word = {word: indices for word, indices in _RULES_BY_WORD.items() if word in low}
        text = "\n".join([self._clean_line(line, rules_by_word) for line in text.split("\n")])
        return NETRC.sub(self._named, text) if "login" in text and "password" in text else text

    def _clean_line(self, line: str, rules_by_word: Mapping[str, Sequence[int]]) -> str:
        """Return `line` with its secrets replaced: first those in forms of vendors, then random tokens, then values
        after a name. `rules_by_word`: the part of `_RULES_BY_WORD` whose words are in the text with the line."""
        if len(line) < _PIECE_CHARACTERS:  # too short for a name and a secret
            return line
        low = line.lower()
        indices = {at for word, indices in rules_by_word.items() if word in low for at in indices}
        rules = [_RULES[at] for at in sorted(indices) if any(word in low for word in _RULES[at].also)]
        for rule in rules:
            line = rule.pattern.sub(self._hidden, line) if rule.is_form else line
        if _RUN.search(line):
            line = _LONG.sub(self._token, HEX_FORM.sub(self._hidden, KEY_LINE.sub(self._hidden, line)))
        for rule in rules:
            line = line if rule.is_form else rule.pattern.sub(self._named if rule.spares_code else self._hidden, line)
        return line

    def _hidden(self, match: re.Match[str]) -> str:
        """Collect the secret in a match, and return its first group, the name before the secret, and ``[secret]``."""
        name = (match[1] or "") if match.re.groups else ""
        self.collected.append(match[0][len(name) :])
        return name + MARK

    def _named(self, match: re.Match[str]) -> str:
        """Replace a match as `_hidden` does, unless its value is a name in code, a number or a path."""
        return match[0] if CODE.fullmatch(match[0], len(match[1])) else self._hidden(match)

    def _token(self, match: re.Match[str]) -> str:
        """Replace a match of `_LONG`, a long word, if a part after its prefix looks random, as in a token."""
        first, *others = _PARTS.split(match[1])
        is_prefix = first.islower() or first.isupper()  # an id in base64url begins with both cases
        if not is_prefix or f" {first.lower()} " in f" {_ID_PREFIXES} " or not any(map(_is_random, others)):
            return match[0]
        self.collected.append(match[1])
        return match[0].removesuffix(match[1]) + MARK

    def _without_known_secrets(self, text: str) -> str:
        """Return `text` with the secrets replaced that the rules of the package kingfisher find."""
        data = text.encode("utf-8", "surrogatepass")
        words = _ESCAPE.sub(lambda escape: b" " * len(escape[0]), data.translate(_WORD_ENDS))
        places = [collected.location for collected in _scanner().scan(words)]
        clean_parts: list[bytes] = []
        end_of_last = 0
        for first, last in sorted({(place["start_offset"], place["end_offset"]) for place in places}):
            if first >= end_of_last:  # if places overlap, the later one only extends the earlier one
                clean_parts += data[end_of_last:first], MARK.encode()
            rest = _REST.match(data, last)
            end = max(end_of_last, rest.end() if rest else last)
            self.collected.append(data[max(first, end_of_last) : end].decode("utf-8", "replace"))
            end_of_last = end
        return b"".join([*clean_parts, data[end_of_last:]]).decode("utf-8", "surrogatepass") if clean_parts else text

    def _without_keys(self, texts: list[str]) -> list[str]:
        """Return `texts` with private keys replaced: whole ones, cut ones, and those divided over several texts."""
        if not any("PRIVATE KEY" in text for text in texts):
            return texts
        parts_of_texts = [_KEY_MARK.split(text) for text in texts]  # each second part is a mark
        for mark, step in (("BEGIN", 1), ("END", -1)):  # forward: text after a BEGIN; then backward: text before an END
            is_in_key = False
            for parts in parts_of_texts[::step]:
                for index in range(len(parts))[::step]:
                    if index % 2:
                        is_in_key = mark in parts[index]
                    elif is_in_key:
                        before, key, after = _divided_at_key(parts, index, step)
                        self.collected += key.split()
                        parts[index] = before + (MARK if key else "") + after
        clean = ["".join(MARK if index % 2 else part for index, part in enumerate(parts)) for parts in parts_of_texts]
        return [_MARKS.sub(MARK, text) for text in clean]


def _is_random(part: str) -> bool:
    """Return True if `part` of a long word looks random, as a token does: it is long, and the share of it that looks
    like words and numbers is small; smaller for one without a digit or a short one, as people may have written it."""
    has_digit = any(map(str.isdigit, part))
    has_both_cases = not (part.islower() or part.isupper())
    least_length = _LEAST_OF_BOTH_CASES if has_both_cases else _LEAST_OF_ONE_CASE
    if part.startswith("kwDO"):  # an id of GitHub: ``PR_kwDO…``
        return False
    if len(part) < least_length or not (has_digit or has_both_cases) or part.isdigit():
        return False
    if not has_digit:
        word_share = 0.4
    elif not has_both_cases:
        word_share = 0.8
    else:
        word_share = 0.7 if len(part) < 2 * _LEAST_OF_BOTH_CASES else 0.85
    return sum(map(len, _SPOKEN_PARTS.findall(part))) <= len(part) * word_share


def _is_no_key(piece: re.Match[str]) -> bool:
    """Return True for a match of `_KEY_PIECE` that is a word, so that a private key ends before it."""
    return piece[1] is not None and _NO_KEY.fullmatch(piece[1]) is not None


def _divided_at_key(parts: list[str], index: int, step: int) -> tuple[str, str, str]:
    """Split ``parts[index]`` into the text before, in and after a piece of a private key; all is before without one.
    `parts`: a text divided at the BEGIN and END lines of keys; `step`: 1 to search from the beginning of the part,
    after a BEGIN line, which may be in another text; -1 to search from its end, before an END line."""
    part = parts[index]
    previous, following = parts[index - 1] if index else "", parts[index + 1] if index + 1 < len(parts) else ""
    if "BEGIN" in previous and "END" in following and len(part) <= _LONGEST_KEY:
        return "", part, ""
    start = max(0, len(part) - _LONGEST_KEY) if step < 0 else 0
    pieces = list(_KEY_PIECE.finditer(part, start, start + _LONGEST_KEY))[::step]
    near_mark = previous if step > 0 else following
    if not near_mark:  # the key began in another text: names of JSON fields may come before its continuation
        pieces = [*dropwhile(_is_no_key, pieces[:_MOST_FIELDS]), *pieces[_MOST_FIELDS:]]
    spans = [piece.span() for piece in takewhile(lambda piece: not _is_no_key(piece), pieces) if piece[1]]
    spans = [(first, last) for first, last in spans if not part[first:last].isdigit()]  # a number is a line number
    if not spans or not (near_mark or _FAR_PIECE.match(part, *spans[0])):
        return part, "", ""
    first, last = min(spans)[0], max(spans)[1]
    return part[:first], part[first:last], part[last:]


@cache
def _scanner() -> Scanner:
    """Return the search of the package kingfisher, which takes 0.3 seconds to make, and 3 at first use."""
    from kingfisher_sdk import Rules, Scanner

    return Scanner(Rules(), base64=False)
