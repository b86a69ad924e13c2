"""Counts of tokens for the model that will read them, without a network.

Texts are counted with OpenAI's vocabulary o200k (package tiktoken), in raw tokens. For current Claude models these are
0.63 to 0.80 of the true count, for older ones 0.79 to 0.90. They are scaled by the worst case of the model's family, so
that a count is never too low. Each line, and each text as a whole, is counted once and remembered while there is room.

The vocabulary is read from tiktoken's cache folder or the ``offline`` extra. It is never downloaded: tiktoken's own
download has no time limit and hangs at a firewall. Without it the shape of a text gives an estimate, which is rather
too high than too low.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
from binascii import a2b_base64
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import SettingsError
from planner.reading.families import model_family
from planner.reading.media import (
    SEALED_CHARACTERS_PER_TOKEN,
    Medium,
    document_tokens,
    image_tokens,
    media_tokens,
    source_data,
    split_media,
)
from planner.reading.messages import Block, Message, blocks, field_of, to_json
from planner.reading.patterns import lazy_pattern

if TYPE_CHECKING:
    import regex
    import tiktoken

O200K_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
_O200K_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Digest of the file at that URL, as tiktoken checks it: a damaged cache is ignored."""

_WORD_TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPLIT = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_WORD_TAIL}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_WORD_TAIL}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""Pattern by which o200k divides text into pieces before it merges bytes; the vocabulary was trained with it."""

_LETTER = {" ": 0.02, "": 0.06, ".": 0.08, "_": 0.08}
"""Tokens for each letter of a word, in addition to one token for the word, by the character before its first letter.

After other characters it is 0.15. Fitted to agent transcripts: a word after a space is mostly one token, a word after
``/`` or ``-`` mostly two.
"""
LONG_WORD = 14
"""Length of a word above which each four letters count as one more token: few words of the vocabulary are longer."""
_PACKED = lazy_pattern(r"(?=[A-Za-z+=]{0,23}\d)[A-Za-z0-9+=]{24,}")
"""Base64 or a digest; not a long name without digits, nor a path."""
_PACKED_TOKENS = 0.7
"""Tokens for each character of base64, digests and the like."""

_WIDE = (
    (0x0, 0.4), (0x80, 2.0), (0xA0, 0.4), (0x180, 2.0), (0x370, 0.4), (0x530, 2.0), (0x590, 0.4), (0x700, 2.0),
    (0x900, 1.0), (0xE80, 3.0), (0x2000, 1.0), (0x2800, 3.0), (0x3000, 1.0), (0xA000, 3.0), (0xAC00, 1.0),
    (0xD7B0, 3.0), (0xFF00, 1.0), (0xFFF0, 4.0), (0x1F000, 2.0), (0x1FB00, 4.0),
)  # fmt: skip
"""First character of each range of Unicode, and the tokens that a character of the range counts in a word that is not
ASCII.

Latin, Greek, Cyrillic, Hebrew and Arabic words have few tokens. Indic scripts, symbols, CJK and Hangul have at most one
token a character, emoji have two. Control characters and rare scripts have one token a byte.
"""


@lru_cache(maxsize=1)
def load_vocabulary() -> tiktoken.Encoding | None:
    """Return the vocabulary o200k from a file of this machine; None if there is none."""
    import tiktoken

    for data in _candidates():
        if hashlib.sha256(data).hexdigest() == _O200K_SHA256:
            return tiktoken.Encoding("o200k_base", pat_str=_SPLIT, mergeable_ranks=_ranks(data), special_tokens={})
    return None


def _candidates() -> Iterator[bytes]:
    """Yield the contents of files that may be the vocabulary: tiktoken's cache, then the package ``bpe_openai``."""
    import gzip  # importing these two here saves a twentieth of the time of importing the package
    import tempfile

    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    name = hashlib.sha1(O200K_URL.encode(), usedforsecurity=False).hexdigest()
    cached = Path(folder or Path(tempfile.gettempdir(), "data-gym-cache"), name)
    if cached.is_file():
        yield cached.read_bytes()
    extra = importlib.util.find_spec("bpe_openai")
    if extra is not None and extra.origin is not None:
        bundled = Path(extra.origin).parent / "data" / "o200k_base.tiktoken.gz"
        if bundled.is_file():
            yield gzip.decompress(bundled.read_bytes())


def _ranks(data: bytes) -> dict[bytes, int]:
    """Return the rank of each token in a vocabulary's file."""
    words = data.split()  # a token in base64 and its rank, by turns
    return dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


@lru_cache(maxsize=1)
def _pieces() -> regex.Pattern[str]:
    """Return the compiled pattern of `_SPLIT`."""
    import regex

    return regex.compile(_SPLIT)


def estimate_tokens(text: str) -> int:
    """Return the approximate number of o200k tokens in `text`; measured 1.03 to 1.22 of the true count on agent
    transcripts."""
    packed = sum(map(len, _PACKED.findall(text)))
    return math.ceil(_PACKED_TOKENS * packed + sum(map(_piece_tokens, _pieces().findall(_PACKED.sub("", text)))))


@lru_cache(maxsize=65536)
def _piece_tokens(piece: str) -> float:
    """Return the approximate tokens of one piece of `_SPLIT`. If it is not ASCII, ranges of Unicode decide, else its
    length and whether it is blank, a word, digits or signs."""
    if not piece.isascii():
        ranges = (bisect_right(_WIDE, ord(char), key=itemgetter(0)) - 1 for char in piece)
        return max(1.0, sum(_WIDE[index][1] for index in ranges))
    if piece.isspace():
        return 1 + len(piece) / 16
    lead = "" if piece[0].isalpha() else piece[0]
    word = piece[len(lead) :].replace("'", "")
    if word.isalpha():
        return 1 + _LETTER.get(lead, 0.15) * len(word) + max(0, len(word) - LONG_WORD) / 4
    if piece.isdigit():
        return 1
    signs = piece.strip()
    if not signs.isprintable():  # control characters: one token each
        return len(piece)
    is_one_sign = len(set(signs)) == 1  # repeated, as in a ruler: ``-----``
    return 1 + len(piece) / 16 if is_one_sign else max(1.0, len(piece) / 2.6)


MESSAGE_OVERHEAD = 3
"""Tokens of a block in addition to its content, for role, type and id; providers add 3 to 4 for a chat message."""
_SLICE_CHARACTERS = 65_536
"""Length of the slices in which longer texts are encoded: tiktoken's splitter overflows its stack on megabytes of
blanks."""
MOST_REMEMBERED = 2**18
"""Largest number of remembered counts, of about 100 bytes each: more than the lines that fit a window."""
_REGISTERED: dict[str, Callable[[str], int]] = {}
"""Tokenizers that the user registered, by the name of the model."""


@dataclass
class TokenCounter:
    """Counter of tokens for one model family: raw tokens, of the vocabulary o200k, multiplied by `scale`."""

    scale: float = model_family("").token_scale
    vocabulary: tiktoken.Encoding | None = field(default_factory=load_vocabulary)
    image_tokens: int = model_family("").image_tokens
    """Largest number of tokens for one image."""
    tokenizer: Callable[[str], int] | None = None
    """User's own tokenizer, used instead of the vocabulary."""
    _remembered: dict[int, int] = field(default_factory=dict, repr=False, compare=False)
    """Counts by the hash of the text, so that the texts need not be kept."""

    @classmethod
    def for_model(cls, model: str = "") -> TokenCounter:
        """Return a counter that does not under-count for `model`."""
        family, own = model_family(model), _REGISTERED.get(model)
        scale = family.token_scale if own is None else 1.0
        return cls(scale, image_tokens=family.image_tokens, tokenizer=own)

    @staticmethod
    def register(model: str, tokenizer: Callable[[str], int]) -> None:
        """Use `tokenizer` for `model` wherever this process counts: plans, previews, sessions.

        It receives single lines and must not count marks for the beginning and the end of a text.

        Raises:
            SettingsError: `tokenizer` is no function, or does not return a number of tokens.
        """
        counted = tokenizer("one line\n") if callable(tokenizer) else tokenizer
        if not isinstance(counted, int) or counted < 0:
            wanted = "a function that returns the number of tokens of a text"
            raise SettingsError(f"tokenizer of {model!r}: expected {wanted}, found {counted!r:.80}")
        _REGISTERED[model] = tokenizer

    def raw(self, text: str) -> int:
        """Return the raw tokens of `text`, added up line by line, so that a repeated line is tokenized once. The sum is
        at most one percent above a count of the whole text."""
        return self._once(text, self._sum)

    def _once(self, text: str, count: Callable[[str], int]) -> int:
        """Return ``count(text)``, from memory if it was asked before."""
        key, remembered = hash(text), self._remembered
        tokens = remembered.get(key)
        if tokens is None:
            tokens = count(text)
            if len(remembered) >= MOST_REMEMBERED:
                remembered.clear()
            remembered[key] = tokens
        return tokens

    def _sum(self, text: str) -> int:
        """Return the raw tokens of all lines of `text`."""
        if "\n" not in text:
            return self._encode(text)
        return sum([self._once(line, self._encode) for line in text.splitlines(keepends=True)])

    def _encode(self, text: str) -> int:
        """Return the raw tokens of `text` by the user's tokenizer, the vocabulary, or an estimate."""
        if len(text) > _SLICE_CHARACTERS:
            return sum(self._encode(text[at : at + _SLICE_CHARACTERS]) for at in range(0, len(text), _SLICE_CHARACTERS))
        if self.tokenizer is not None:
            return self.tokenizer(text)
        if self.vocabulary is None:
            return estimate_tokens(text)
        try:
            return len(self.vocabulary.encode_ordinary(text))
        except UnicodeEncodeError:  # a lone surrogate
            return len(self.vocabulary.encode_ordinary(text.encode("utf-8", "replace").decode()))

    def text(self, text: str) -> int:
        """Count the tokens of `text`."""
        return math.ceil(self.raw(text) * self.scale)

    def block(self, block: Block) -> int:
        """Count the tokens of one content block, nested results, images and documents included."""
        kind = block.get("type")
        if kind == "image":
            return image_tokens(block, self.image_tokens)
        return self._inside(str(kind), block) + MESSAGE_OVERHEAD

    def _inside(self, kind: str, block: Block) -> int:
        """Return the tokens of a block's content, by its type `kind`."""
        if kind == "text" and isinstance(block.get("text"), str):
            return self.text(block["text"])
        if kind in ("thinking", "redacted_thinking"):
            sealed = len(str(block.get("signature") or block.get("data") or ""))
            return max(self.text(str(block.get("thinking") or "")), sealed // SEALED_CHARACTERS_PER_TOKEN)
        if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            return self.text(f"{block.get('name', '')} {to_json(block.get('input'))}")
        if kind.endswith("tool_result"):
            return self._content(block.get("content", ""))
        if kind == "document":
            return self._document(block)
        return self._data({name: value for name, value in block.items() if name != "type"}, kind)

    def _content(self, content: object) -> int:
        """Return the tokens of the content of a result or document: text, or a list of blocks."""
        if isinstance(content, str):
            return self.text(content)
        if not isinstance(content, list):
            return self._data(content)
        return sum(self.block(item) if isinstance(item, dict) else self.text(str(item)) for item in content)

    def _data(self, value: object, kind: str = "") -> int:
        """Return the tokens of JSON data of any form: of its text, and of the media in it by their size."""
        split = split_media(value, kind)
        return self.text(to_json(split.rest)) + sum(
            media_tokens(medium, self.image_tokens) if isinstance(medium, Medium) else self.block(medium)
            for medium in split.media
        )

    def _document(self, block: Block) -> int:
        """Return the tokens of a document: of its text or blocks, else by its pages."""
        source = block.get("source")
        kind = field_of(source, "type")
        if kind == "content":
            return self._content(field_of(source, "content"))
        return self.text(source_data(block)) if kind == "text" else document_tokens(block)

    def message(self, message: Message) -> int:
        """Count the tokens of one message."""
        return sum(self.block(block) for block in blocks(message))

    def messages(self, messages: Iterable[Message]) -> int:
        """Count the tokens of a list of messages."""
        return sum(self.message(message) for message in messages)

    def request(
        self,
        messages: Iterable[Message],
        system: str | Sequence[Block] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> int:
        """Count the tokens of a whole request: messages, system prompt and tool definitions."""
        fixed = self.text(system) if isinstance(system, str) else sum(map(self.block, system or ()))
        return fixed + sum(self.text(to_json(tool)) for tool in tools or ()) + self.messages(messages)
