"""Removes secrets from text that is kept for reading: facts, plans and events; on request also originals.

There are three searches. The first is for forms of vendors, mostly by rules of the package kingfisher. The second is
for tokens of any vendor: a prefix and a long random part. The third is for values after a name, an option, a header or
a program. Names, placeholders and code stay. `Secrets` recognises pieces of secrets where a text was cut. Time is
linear in the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from planner.reading.lazy_property import lazy_property
from planner.reading.patterns import lazy_pattern
from planner.reading.secret_rules import CODE, HEX_FORM, KEY_LINE, NETRC, RULES, RULES_BY_WORD, SECRET_NAME, SecretRule

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

MARK = "[secret]"
"""Text in the place of a secret."""

_RUN = lazy_pattern(r"[\w.~/+-]{17}")
"""Run of characters as long as the shortest token that is recognised by its random part."""
_LONG = lazy_pattern(r"(?<![A-Za-z0-9_])(?:(?<=\\)[nrt])?([A-Za-z0-9][\w.~-]{17,})")
"""Word (the group) that is long enough for a token with its prefix, without the ``n`` of an escape ``\\n`` before it.
"""
_PARTS = lazy_pattern(r"[_.~-]+")
"""Separator between the parts of a token, and between its prefix and its random part."""
_SPOKEN_PARTS = lazy_pattern(r"[A-Z][a-z]{2,}|[a-z]{3,}|[A-Z]{4,}(?![a-z])|[0-9]{5,}")
"""Word or number, as in names that people choose; only a small share of random text looks like this."""
_LEAST_OF_BOTH_CASES = 16
"""Smallest number of characters of a random part with letters of both cases, with or without digits."""
_LEAST_OF_ONE_CASE = 19
"""Smallest number of characters of a random part with letters of one case and digits."""
_ID_PREFIXES = (
    "acct asst batch call card ch chatcmpl cmpl cus doc evt file id img in inv item msg node order ord org pi pm po"
    " pr price prod prrc proj re req resp rs run sess session sha256 sha384 sha512 src sub task thread toolu tx user"
)
"""Prefixes of ids that are no secrets: ``toolu_01…``, ``pi_3Mt…``, ``sha256-…``."""
_NODE_ID = "kwDO"
"""Beginning of the random part of GitHub's node ids, which are no secrets: ``PR_kwDO…``."""
_REST = re.compile(rb"[A-Za-z0-9_]*")
"""End of a secret that is longer than a rule expects."""
_WORD_ENDS = bytes.maketrans(b"<>" + bytes(range(128, 256)), b" " * 130)
"""Table that replaces ``<``, ``>`` and all but ASCII by blanks. Many of kingfisher's rules want a blank or quote before
and after a secret; ``12→AIza…`` has none."""
_ESCAPE = re.compile(rb"(?:\x1b|\\{1,15}u001b)\[[0-9;]{0,9}m|\\{1,15}(?:u[0-9a-fA-F]{4}|[nrt\"'])")
"""Escape of a terminal or of JSON, which also becomes blanks: ``\\u2192AIza…``, ``\\"AIza…\\"``."""
_KEY_MARK = lazy_pattern(r"(-----(?:BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)")
"""First or last line of a private key."""
_MARKS = lazy_pattern(r"(?:\[secret\]){2,}")
"""Neighbouring marks of secrets, which become one."""
_LONGEST_KEY = 2**15
"""Largest number of characters between the first and last line of a key; a PGP key with its signatures has a third of
that."""
_KEY_PIECE = lazy_pattern(
    r"(?<![\w./-])[\w./-]{1,99}[:-]\d{1,7}[:-]|(?:\x1b|\\u001b)\[[\d;]{0,9}m|\\(?:u[0-9a-f]{4}|[a-z])|([A-Za-z0-9+/]+={0,2})"
)
"""Piece of a key without its first or last line: base64 (the group), or a mark of a viewer, a terminal or JSON."""
_NO_KEY = lazy_pattern(r"[A-Z]?[a-z]*|[A-Z]+|[+/=]+")
"""Piece of base64 characters that is a word or a mark, so that a key without its last line ends before it: ``done``;
not ``MIIEow``."""
_MOST_FIELDS = 40
"""Largest number of other pieces, such as names of fields, before a key that began in an earlier text."""
_FAR_PIECE = lazy_pattern(r"(?=[^A-Z]*[A-Z])(?=[^a-z]*[a-z])(?=[^0-9]*[0-9]).{16}")
"""Beginning of a piece of a key that began in an earlier text: letters of both cases and digits; not ``text``, nor
``toolu_01…`` (base64 has no underscore)."""

_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
"""Table that changes only ASCII capitals to lower case, so that the length of a text stays."""
_PIECE_CHARACTERS = 8
"""Shortest piece of a secret that is recognised where a text was cut."""
_MOST_KNOWN = 2**18
"""Largest number of characters of the secrets that are recognised in pieces, to bound the memory; the last secrets are.
"""
_MOST_QUOTED = 10_000
"""Number of characters of a value that are searched for secrets before an error quotes it; the rest is not quoted."""
_BETWEEN_PIECES = lazy_pattern(r"[^A-Za-z0-9+]+")
"""Separator of the words in a run of pieces of secrets."""
_BETWEEN_TEXTS = "\n\x00\n"
"""Line between texts that are searched together; it occurs in no text and contains no white space."""
_SEALED = ("data", "signature", "encrypted_content")
"""Fields of a block that nobody reads: media, and data sealed by a provider."""

_Span = tuple[int, int]
"""Start and end of a part of a text."""


class NamedText(NamedTuple):
    """Text in JSON data, with its key, which may be the name of a secret."""

    key: str
    text: str


class _KeyPart(NamedTuple):
    """Text that is divided at a piece of a private key."""

    before: str
    key: str
    after: str


class Secrets:
    """Secrets of a conversation, recognised even in pieces in texts cut from it."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Recognise the secrets `values`."""
        self._values = tuple(values)

    @lazy_property
    def _wholes(self) -> frozenset[str]:
        """Secrets that do not look like names in code."""
        return frozenset(value for value in self._values if not CODE.fullmatch(value))

    @lazy_property
    def _pieces(self) -> frozenset[str]:
        """All pieces of `_PIECE_CHARACTERS` in the last secrets that have at most `_MOST_KNOWN` characters together."""
        pieces, left = set[str](), _MOST_KNOWN
        for value in reversed(self._values):
            if len(value) <= left:
                left -= len(value)
                pieces |= {value[at : at + _PIECE_CHARACTERS] for at in range(len(value) - _PIECE_CHARACTERS + 1)}
        return frozenset(pieces)

    def without(self, text: str) -> str:
        """Return `text` with each piece of a secret replaced by ``[secret]``."""
        if not self._values:
            return text
        parts, end = list[str](), 0
        for start, stop in self._runs(text):
            if self._is_secret(text[start:stop]):
                parts += text[end:start], MARK
                end = stop
        return "".join([*parts, text[end:]])

    def _runs(self, text: str) -> Iterator[_Span]:
        """Yield each run of overlapping or adjoining pieces of secrets in `text`."""
        pieces, size = self._pieces, _PIECE_CHARACTERS
        run_start = last_start = -1
        for index in [index for index in range(len(text) - size + 1) if text[index : index + size] in pieces]:
            if run_start < 0 or index > last_start + 1:
                if run_start >= 0:
                    yield run_start, last_start + size
                run_start = index
            last_start = index
        if run_start >= 0:
            yield run_start, last_start + size

    def _is_secret(self, run: str) -> bool:
        """Return True if `run` is a whole secret, or has a part that is neither short, nor a word or number."""
        return run in self._wholes or any(
            len(piece) >= _PIECE_CHARACTERS - 2 and not CODE.fullmatch(piece) for piece in _BETWEEN_PIECES.split(run)
        )


NO_SECRETS = Secrets()
"""Secrets of a conversation without any."""


def redact(value: Any, secrets: Secrets = NO_SECRETS) -> Any:
    """Return a text or other JSON data with each secret in it replaced by ``[secret]``; the same object without any.

    A value under a secret's name is replaced whole, its name stays. Private keys are recognised even if their lines are
    in several texts, such as blocks of a result or arguments of a call.

    `secrets`: those of the conversation that `value` was cut from. Pieces of them are replaced as well: a token that
    was cut in half has lost its form, or the name before it.
    """
    texts = [*_texts(value)]
    clean = [
        MARK if named.text and _is_secret_name(named.key) else secrets.without(redacted)
        for named, redacted in zip(texts, _Redaction().of(texts), strict=True)
    ]
    return value if clean == [named.text for named in texts] else _replaced(value, iter(clean))


def quoted(value: object, most: int = 60) -> str:
    """Return `value` as an error quotes it: its ``repr`` without secrets, at most `most` characters."""
    text = value if isinstance(value, str) else repr(value)
    if len(text) < _PIECE_CHARACTERS:  # too short for a secret
        return repr(value)
    if len(text) > _MOST_QUOTED or isinstance(value, str):
        value = text[:_MOST_QUOTED]
    return repr(redact(value))[:most]


def secrets_in(messages: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the distinct secrets in `messages` that are long enough to be recognised in pieces, for `Secrets`."""
    redaction = _Redaction()
    redaction.of([*_texts(list(messages), sealed=False)])
    return tuple(dict.fromkeys(value for value in redaction.collected if len(value) >= _PIECE_CHARACTERS))


def _texts(value: Any, *, sealed: bool = True) -> Iterator[NamedText]:
    """Yield each text in JSON data, in order. With `sealed` False, media and data sealed by a provider are left out.
    Does not recurse: arguments of a call may be deeper than Python's stack."""
    stack: list[tuple[str, Any]] = [("", value)]  # keys and their values
    while stack:
        name, inner_value = stack.pop()
        if isinstance(inner_value, str):
            yield NamedText(name, inner_value)
        elif isinstance(inner_value, list | tuple):
            stack += ((name, inner) for inner in reversed(inner_value))
        elif isinstance(inner_value, dict):
            skipped_keys = _SEALED if "type" in inner_value and not sealed else ()
            stack += ((str(key), inner) for key, inner in reversed(inner_value.items()) if key not in skipped_keys)


def _replaced(value: Any, texts: Iterator[str]) -> Any:
    """Return JSON data `value` with each of its texts replaced by the next of `texts`."""
    if isinstance(value, dict):
        return {key: _replaced(inner, texts) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner, texts) for inner in value]
    return next(texts) if isinstance(value, str) else value


@lru_cache(2**10)
def _is_secret_name(name: str) -> bool:
    """Return True for the name of a secret: ``password``, ``api_key``."""
    return SECRET_NAME.fullmatch(name) is not None


class _Redaction:
    """One search of texts that replaces secrets, and collects them."""

    def __init__(self) -> None:
        """Begin with no collected secrets."""
        self.collected: list[str] = []

    def of(self, named_texts: Sequence[NamedText]) -> list[str]:
        """Return the texts with each secret in them replaced."""
        self.collected += [named.text for named in named_texts if named.text and _is_secret_name(named.key)]
        texts = self._without_keys([named.text for named in named_texts])
        distinct = list(dict.fromkeys(texts))
        clean = self._clean(_BETWEEN_TEXTS.join(distinct)).split(_BETWEEN_TEXTS)  # one scan costs less than thousands
        clean = clean if len(clean) == len(distinct) else [*map(self._clean, distinct)]
        return [*map(dict(zip(distinct, clean, strict=True)).__getitem__, texts)]

    def _clean(self, text: str) -> str:
        """Return `text` with secrets replaced that are within one line, and passwords of netrc files. Lines are
        searched in this order: forms of vendors, random tokens, then values after a name."""
        text = self._without_known(text)
        low = text.lower()
        if len(low) != len(text):  # a letter such as İ becomes two: indices in `low` would be wrong in `text`
            low = text.translate(_LOWER)
        rules, runs = _rules_by_line(text, low), _lines_with_runs(text)
        parts, end_of_last = list[str](), 0
        for start, end in sorted(rules.keys() | runs):
            line = text[start:end]
            line_rules = [RULES[at] for at in sorted(rules.get((start, end), ()))]
            line = self._by_rules(line, low[start:end], [rule for rule in line_rules if rule.is_form])
            if (start, end) in runs:
                line = self._without_tokens(line)
            line = self._by_rules(line, low[start:end], [rule for rule in line_rules if not rule.is_form])
            parts += text[end_of_last:start], line
            end_of_last = end
        text = "".join([*parts, text[end_of_last:]])
        return NETRC.sub(self._named, text) if "login" in text and "password" in text else text

    def _without_tokens(self, line: str) -> str:
        """Return `line` with a line of a key, secrets of `HEX_FORM` and random tokens replaced."""
        return _LONG.sub(self._token, HEX_FORM.sub(self._hidden, KEY_LINE.sub(self._hidden, line)))

    def _by_rules(self, line: str, low: str, rules: Iterable[SecretRule]) -> str:
        """Return `line` with the values that `rules` match replaced; `low`: the line in lower case."""
        for rule in rules:
            if any(word in low for word in rule.also):
                line = rule.pattern.sub(self._named if rule.spares_code else self._hidden, line)
        return line

    def _hidden(self, match: re.Match[str]) -> str:
        """Return the first group of a match, which is a name or absent, and a mark instead of the rest; collect the
        rest."""
        name = (match[1] or "") if match.re.groups else ""
        self.collected.append(match[0][len(name) :])
        return name + MARK

    def _named(self, match: re.Match[str]) -> str:
        """Return the same as `_hidden`; or the match unchanged if its value is a name in code."""
        return match[0] if CODE.fullmatch(match[0], len(match[1])) else self._hidden(match)

    def _token(self, match: re.Match[str]) -> str:
        """Return a match of `_LONG` with a mark instead of the word if a part after its prefix is random; else
        unchanged."""
        first, *others = _PARTS.split(match[1])
        if f" {first.lower()} " in f" {_ID_PREFIXES} " or not any(map(_is_random, others)):
            return match[0]
        self.collected.append(match[1])
        return match[0].removesuffix(match[1]) + MARK

    def _without_known(self, text: str) -> str:
        """Return `text` without the secrets that kingfisher's rules find."""
        data = text.encode("utf-8", "surrogatepass")
        words = _ESCAPE.sub(lambda escape: b" " * len(escape[0]), data.translate(_WORD_ENDS))
        places = [collected.location for collected in _scanner().scan(words)]
        parts: list[bytes] = []
        at = 0
        for first, last in sorted({(place["start_offset"], place["end_offset"]) for place in places}):
            if first >= at:  # places may overlap: the later one then only extends the earlier
                parts += data[at:first], MARK.encode()
            rest = _REST.match(data, last)
            end = max(at, rest.end() if rest else last)
            self.collected.append(data[max(first, at) : end].decode("utf-8", "replace"))
            at = end
        return b"".join([*parts, data[at:]]).decode("utf-8", "surrogatepass") if parts else text

    def _without_keys(self, texts: list[str]) -> list[str]:
        """Return `texts` without private keys: whole ones, cut ones, and ones divided over several texts."""
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
                        divided = _divided_at_key(parts, index, step)
                        self.collected += divided.key.split()
                        parts[index] = divided.before + (MARK if divided.key else "") + divided.after
        clean = ["".join(MARK if index % 2 else part for index, part in enumerate(parts)) for parts in parts_of_texts]
        return [_MARKS.sub(MARK, text) for text in clean]


def _rules_by_line(text: str, low: str) -> dict[_Span, set[int]]:
    """Return the indices in `RULES` of the rules that may match each line of `text`; `low`: `text` in lower case."""
    rules = defaultdict[_Span, set[int]](set)
    for word, indices in RULES_BY_WORD.items():
        at = low.find(word)
        while at >= 0:
            line = _line_at(text, at)
            rules[line].update(indices)
            at = low.find(word, line[1])
    return rules


def _lines_with_runs(text: str) -> set[_Span]:
    """Return the lines that contain a run as long as the shortest token."""
    lines = set[_Span]()
    run = _RUN.search(text)
    while run:
        line = _line_at(text, run.start())
        lines.add(line)
        run = _RUN.search(text, line[1])
    return lines


def _line_at(text: str, at: int) -> _Span:
    """Return the line that contains index `at`."""
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, end if end >= 0 else len(text)


def _is_random(part: str) -> bool:
    """Return True if `part` is long enough, and words and numbers are a small enough share of it.

    The largest share is lower for parts that people may have written: without a digit, or short ones. Letters of one
    case without a digit are never random.
    """
    has_digit = any(map(str.isdigit, part))
    has_both_cases = not (part.islower() or part.isupper())
    least_length = _LEAST_OF_BOTH_CASES if has_both_cases else _LEAST_OF_ONE_CASE
    if len(part) < least_length or not (has_digit or has_both_cases) or part.isdigit() or part.startswith(_NODE_ID):
        return False
    if not has_digit:
        word_share = 0.4
    elif not has_both_cases:
        word_share = 0.8
    else:
        word_share = 0.7 if len(part) < 2 * _LEAST_OF_BOTH_CASES else 0.85
    return sum(map(len, _SPOKEN_PARTS.findall(part))) <= len(part) * word_share


def _is_no_key(piece: re.Match[str]) -> bool:
    """Return True for a match of `_KEY_PIECE` that is a word, at which a key ends."""
    return piece[1] is not None and _NO_KEY.fullmatch(piece[1]) is not None


def _divided_at_key(parts: list[str], index: int, step: int) -> _KeyPart:
    """Return ``parts[index]`` divided at the piece of a private key in it; without one, all of it is `before`.

    `parts`: a text divided at the first and last lines of keys. `step`: 1 to search from the beginning of the part,
    after a BEGIN line; -1 to search from its end, before an END line. That line may be in another text.
    """
    part = parts[index]
    previous, following = parts[index - 1] if index else "", parts[index + 1] if index + 1 < len(parts) else ""
    if "BEGIN" in previous and "END" in following and len(part) <= _LONGEST_KEY:
        return _KeyPart("", part, "")
    start = max(0, len(part) - _LONGEST_KEY) if step < 0 else 0
    pieces = list(_KEY_PIECE.finditer(part, start, start + _LONGEST_KEY))[::step]
    near = previous if step > 0 else following
    if not near:  # the key began in another text: names of JSON's fields may come first
        pieces = [*dropwhile(_is_no_key, pieces[:_MOST_FIELDS]), *pieces[_MOST_FIELDS:]]
    spans = [piece.span() for piece in takewhile(lambda piece: not _is_no_key(piece), pieces) if piece[1]]
    spans = [(first, last) for first, last in spans if not part[first:last].isdigit()]
    if not spans or not (near or _FAR_PIECE.match(part, *spans[0])):
        return _KeyPart(part, "", "")
    first, last = min(spans)[0], max(spans)[1]
    return _KeyPart(part[:first], part[first:last], part[last:])


@cache
def _scanner() -> Scanner:
    """Return the scanner with all of kingfisher's rules; making it takes .3 s, the first time on a machine 3 s."""
    from kingfisher_sdk import Rules, Scanner

    return Scanner(Rules(), base64=False)
