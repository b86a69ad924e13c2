"""Counts tokens for the model that will read them, without a network; and finds a model's family and window.

Texts are counted with OpenAI's vocabulary o200k (package tiktoken), in *raw* tokens. For current Claude models these
are 0.63 to 0.80 of the true count, for older ones 0.79 to 0.90. They are scaled by the worst case of the model's
family, so that a count is never too low. Each line, and each text as a whole, is counted once and then remembered.

The vocabulary is read from tiktoken's cache folder or the ``offline`` extra. It is never downloaded: tiktoken's own
download has no time limit and hangs at a firewall. Without it, tokens are estimated by the shape of a text, too high
rather than too low.

An unknown model counts as a current Claude, the strictest case. Published data of single models (window, prices) come
from the table of the package ``genai-prices``, which is loaded at first use.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import re
from binascii import a2b_base64
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import SettingsError
from planner.reading.lazy import lazy_pattern
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

if TYPE_CHECKING:
    import regex
    import tiktoken
    from genai_prices.types import ModelInfo


_GPT_VERSION = lazy_pattern(r"\bgpt-(\d{1,2})(?:\.(\d{1,2}))?(?![\d.])")
"""Version in the name of a GPT model: ``gpt-6.2-sol``, ``openai/gpt-7``; not ``gpt-3.5.1``."""
_VERSION = lazy_pattern(r"claude\D{0,40}?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
"""Version in the name of a Claude model, ``claude-3.5-sonnet``; not the date in ``claude-opus-4-20250514``."""
_SMALL_LINE = lazy_pattern(r"sonnet|haiku")
"""Lines of Claude models for `ModelFamily.is_small_line`."""
_BARE_NAME = lazy_pattern(r"(?:.*/|.*\banthropic\.|[a-z-]+:)?([^/@\[]+?)(?:-v\d+(?::\d+)?)?(?:[@\[][^/]*)?", re.S)
"""Name of a model, the group, without what providers add to it: ``openai/gpt-6-sol``, ``openai:gpt-6-sol``,
``us.anthropic.claude-opus-5-5-v1:0``, ``claude-opus-5-5@20261101``, ``claude-opus-5-5[1m]``."""
_OPENAI = ("gpt-", "chatgpt", "o1", "o3", "o4", "openai/", "openai:")
"""Beginnings of the names of OpenAI's models."""
_CURRENT = (99, 0)
"""Version that is assumed for a model whose name has none: later than all others."""
_UNLISTED_WINDOWS = {"chatgpt-4o": 128_000, "gpt-5-chat": 128_000}
"""Context windows that the package ``genai-prices`` lacks or has wrong, in tokens, by the beginning of the model's name
(OpenAI, "Models")."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Properties of a model that decide which messages its API accepts, and how many tokens they cost."""

    is_claude: bool
    version: tuple[int, int]
    """``(4, 6)`` for ``claude-opus-4-6``; `_CURRENT` for a name without a version, ``(0, 0)`` for OpenAI's models."""
    is_small_line: bool = False
    """True for Claude's Sonnet and Haiku, which got some features later than Opus, Fable and Mythos."""

    @property
    def accepts_prefill(self) -> bool:
        """True if the list of messages may end with an assistant's one, which the model continues: Claude up to 4.5,
        and other providers."""
        return not self.is_claude or self.version < (4, 6)

    @property
    def thinks_manually(self) -> bool:
        """True for Claude up to 4.5: in a request with a token budget for thinking, thinking must be the first block of
        a message. Later models think adaptively, anywhere in a message. (A request's own setting is not tested.)"""
        return self.is_claude and self.version < (4, 6)

    @property
    def preserves_thinking(self) -> bool:
        """True if a thinking block is only valid after exactly the messages that it was made for: Fable and Mythos 5.1,
        the 5.5 models, and later. Source: Anthropic, "Prefix checks on thinking blocks", supported models."""
        return self.is_claude and self.version >= (5, 1)

    @property
    def takes_system_messages(self) -> bool:
        """True if ``system`` messages may be in the middle of a conversation: Opus from 4.8, Sonnet and Haiku from 5.5,
        every Fable and Mythos (these begin with 5), and other providers. Source: Anthropic, "Mid-conversation system
        messages"."""
        return not self.is_claude or self.version >= ((5, 5) if self.is_small_line else (4, 8))

    @property
    def token_scale(self) -> float:
        """Factor by which a count with OpenAI's vocabulary o200k is multiplied, so that it is never below the model's.
        It is the largest ratio measured: 1.6 for Claude models from 4.7 on and for unknown models, 1.27 for older
        Claude models, 1 for OpenAI's models."""
        if not self.is_claude:
            return 1.0
        return 1.27 if self.version < (4, 7) else 1.6

    @property
    def image_tokens(self) -> int:
        """Largest number of tokens that one image costs. Claude scales larger images down, and less so from 4.7 on."""
        return 1_600 if self.version < (4, 7) else 4_784


@lru_cache(maxsize=256)
def binds_reasoning(model: str) -> bool:
    """Return True if the provider of `model` removes the model's reasoning as soon as messages before it have changed:
    GPT-6.2 and later (OpenAI, "Keep the prefix unchanged"). For Claude, see `ModelFamily.preserves_thinking`."""
    match = _GPT_VERSION.search(model.lower())
    return match is not None and (int(match[1]), int(match[2] or 0)) >= (6, 2)


@lru_cache(maxsize=256)
def model_family(model: str) -> ModelFamily:
    """Return the properties of `model`, which may be spelled as any provider does. An empty or unknown name counts as a
    current Claude, the strictest case."""
    name = model.lower()
    if name.startswith(_OPENAI):
        return ModelFamily(False, (0, 0))
    match = _VERSION.search(name)
    version = (int(match[1]), int(match[2] or 0)) if match else _CURRENT
    return ModelFamily(True, version, bool(_SMALL_LINE.search(name)))


def names_provider(model: str | None) -> bool:
    """Return True if the name `model` contains its provider, as ``anthropic/claude-haiku-5-5`` does."""
    return model is not None and "/" in model


@lru_cache(maxsize=256)
def published_model(model: str) -> ModelInfo | None:
    """Return what the package ``genai-prices`` knows about `model`, such as its prices and context window; None without
    an entry. The name may be spelled as any provider does."""
    bare = _BARE_NAME.fullmatch(model.lower())
    if bare is None:
        return None
    from genai_prices.data_snapshot import get_snapshot  # loads an HTTP client: only where a model is named

    for name in (bare[1], bare[1].replace(".", "-")):
        try:
            _, model_info = get_snapshot().find_provider_model(name, None, None, None)
        except LookupError:
            continue
        return model_info
    return None


def known_window_tokens(model: str) -> int | None:
    """Return the size of the context window of `model` in tokens; None if it is not known."""
    bare = _BARE_NAME.fullmatch(model.lower())
    unlisted = (size for start, size in _UNLISTED_WINDOWS.items() if bare and bare[1].startswith(start))
    published = published_model(model)
    return next(unlisted, None) or (published.context_window if published else None)


O200K_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
_O200K_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Digest of the vocabulary file at that URL, so that a damaged copy is not used."""

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
"""Pattern of the pieces into which text is divided before its tokens are looked up; a part of the vocabulary o200k."""

_LETTER = {" ": 0.02, "": 0.06, ".": 0.08, "_": 0.08}
"""Estimated tokens for each letter of a word, added to one for the word itself, by the character before the word; 0.15
after other characters. Fitted to agent transcripts: a word after a space is mostly one token, one after ``/`` two."""
LONG_WORD = 14
"""Length of a word from which each further four letters count as a token, as the vocabulary has few longer words."""
_PACKED = lazy_pattern(r"(?=[A-Za-z+=]{0,23}\d)[A-Za-z0-9+=]{24,}")
"""Base64 or a digest, which is estimated as 0.7 tokens a character; not a long name without digits, nor a path."""

_WIDE = (
    (0x0, 0.4), (0x80, 2.0), (0xA0, 0.4), (0x180, 2.0), (0x370, 0.4), (0x530, 2.0), (0x590, 0.4), (0x700, 2.0),
    (0x900, 1.0), (0xE80, 3.0), (0x2000, 1.0), (0x2800, 3.0), (0x3000, 1.0), (0xA000, 3.0), (0xAC00, 1.0),
    (0xD7B0, 3.0), (0xFF00, 1.0), (0xFFF0, 4.0), (0x1F000, 2.0), (0x1FB00, 4.0),
)  # fmt: skip
"""Estimated tokens of a character that is not in ASCII, by ranges of Unicode: the first character of each range, and
the tokens that a character of the range counts.

Latin, Greek, Cyrillic, Hebrew and Arabic words have few tokens. Indic scripts, symbols, CJK and Hangul have at most one
token a character, emoji have two. Control characters and rare scripts have one token a byte.
"""


@lru_cache(maxsize=1)
def load_vocabulary() -> tiktoken.Encoding | None:
    """Return the vocabulary o200k, with which tokens are counted, from a file of this machine; None without one."""
    import tiktoken

    for data in _candidates():
        if hashlib.sha256(data).hexdigest() == _O200K_SHA256:
            words = data.split()  # a token in base64 and its rank, by turns
            ranks = dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
            return tiktoken.Encoding("o200k_base", pat_str=_SPLIT, mergeable_ranks=ranks, special_tokens={})
    return None


def _candidates() -> Iterator[bytes]:
    """Yield the vocabulary's files in tiktoken's cache folder and in the package ``bpe_openai``."""
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


@lru_cache(maxsize=1)
def _pieces() -> regex.Pattern[str]:
    """Return the compiled pattern `_SPLIT`, of the pieces in which tokens are looked up."""
    import regex

    return regex.compile(_SPLIT)


def estimate_tokens(text: str) -> int:
    """Estimate the o200k tokens in `text` without the vocabulary: 1.03 to 1.22 of the true count in sessions."""
    packed = sum(map(len, _PACKED.findall(text)))
    return math.ceil(0.7 * packed + sum(map(_piece_tokens, _pieces().findall(_PACKED.sub("", text)))))


@lru_cache(maxsize=65536)
def _piece_tokens(piece: str) -> float:
    """Estimate the tokens of a match of `_SPLIT`: by ranges of Unicode, or in ASCII by length and kind."""
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
    is_one_sign = len(set(signs)) == 1  # a repeated sign, as in ``-----``
    return 1 + len(piece) / 16 if is_one_sign else max(1.0, len(piece) / 2.6)


MESSAGE_OVERHEAD = 3
"""Tokens of a content block in addition to its text, for role, type and id; providers add 3 to 4 for a chat message."""
_SLICE_CHARACTERS = 65_536
"""Length of the slices in which long texts are counted, because tiktoken overflows its stack on megabytes of blanks."""
MOST_REMEMBERED = 2**18
"""Largest number of remembered counts, of about 100 bytes each: more than the lines that fit a context window."""
_REGISTERED: dict[str, Callable[[str], int]] = {}
"""Tokenizers that the user registered, by the name of the model that they are for."""


@dataclass
class TokenCounter:
    """Counter of tokens for one model. Raw tokens, counted with the vocabulary o200k, are multiplied by `scale`, so
    that a count is never too low."""

    scale: float = model_family("").token_scale
    vocabulary: tiktoken.Encoding | None = field(default_factory=load_vocabulary)
    image_tokens: int = model_family("").image_tokens
    """Largest number of tokens that one image costs."""
    tokenizer: Callable[[str], int] | None = None
    """User's own tokenizer, which is used instead of the vocabulary."""
    _remembered: dict[int, int] = field(default_factory=dict, repr=False, compare=False)
    """Cache of counts by the hash of the text, so that no text need be stored."""

    @classmethod
    def for_model(cls, model: str = "") -> TokenCounter:
        """Return a counter whose counts for `model` are never too low."""
        family, registered = model_family(model), _REGISTERED.get(model)
        scale = family.token_scale if registered is None else 1.0
        return cls(scale, image_tokens=family.image_tokens, tokenizer=registered)

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
        """Return the raw tokens of `text`, before `scale` is applied. They are counted line by line, so that a repeated
        line is counted once; the sum is at most one percent above a count of the whole text."""
        key, remembered = hash(text), self._remembered
        if (known := remembered.get(key)) is not None:
            return known
        tokens = 0
        for line in text.splitlines(keepends=True) if "\n" in text else (text,):
            line_key = hash(line)
            if (line_tokens := remembered.get(line_key)) is None:
                line_tokens = self._remember(line_key, self._encode(line))
            tokens += line_tokens
        return self._remember(key, tokens)

    def _remember(self, key: int, tokens: int) -> int:
        """Store the count `tokens` of the text with the hash `key`, and return it. A full cache is emptied first."""
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = tokens
        return tokens

    def _encode(self, text: str) -> int:
        """Return the raw tokens of `text`: by the user's tokenizer, the vocabulary, or an estimate, in this order."""
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
        """Count the tokens of `text`, rounded up."""
        return math.ceil(self.raw(text) * self.scale)

    def block(self, block: Block) -> int:
        """Count the tokens of one content block, including nested blocks, images and documents."""
        kind = str(block.get("type"))
        if kind == "image":
            return image_tokens(block, self.image_tokens)
        if kind == "text" and isinstance(block.get("text"), str):
            tokens = self.text(block["text"])
        elif kind in ("thinking", "redacted_thinking"):
            sealed = len(str(block.get("signature") or block.get("data") or ""))
            tokens = max(self.text(str(block.get("thinking") or "")), sealed // SEALED_CHARACTERS_PER_TOKEN)
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            tokens = self.text(f"{block.get('name', '')} {to_json(block.get('input'))}")
        elif kind.endswith("tool_result"):
            tokens = self._content(block.get("content", ""))
        elif kind == "document":
            tokens = self._document(block)
        else:
            tokens = self._data({name: value for name, value in block.items() if name != "type"}, kind)
        return tokens + MESSAGE_OVERHEAD

    def _content(self, content: object) -> int:
        """Count the tokens in the content of a tool result or document: a text, or a list of blocks."""
        if isinstance(content, str):
            return self.text(content)
        if not isinstance(content, list):
            return self._data(content)
        return sum(self.block(item) if isinstance(item, dict) else self.text(str(item)) for item in content)

    def _data(self, value: object, kind: str = "") -> int:
        """Count the tokens of JSON data of any form: of its text, and of the media in it by their size. `kind`: type of
        the block, which may show the format of the media."""
        without_media, media = split_media(value, kind)
        return self.text(to_json(without_media)) + sum(
            media_tokens(medium, self.image_tokens) if isinstance(medium, Medium) else self.block(medium)
            for medium in media
        )

    def _document(self, block: Block) -> int:
        """Count the tokens of a document: of its text or blocks, or else by the number of its pages."""
        source = block.get("source")
        kind = field_of(source, "type")
        if kind == "content":
            return self._content(field_of(source, "content"))
        return self.text(source_data(block)) if kind == "text" else document_tokens(block)

    def message(self, message: Message) -> int:
        """Count the tokens of one message."""
        return sum(map(self.block, blocks(message)))

    def messages(self, messages: Iterable[Message]) -> int:
        """Count the tokens of a list of messages."""
        return sum(map(self.message, messages))

    def request(
        self,
        messages: Iterable[Message],
        system: str | Sequence[Block] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> int:
        """Count the tokens of a whole request: messages, system prompt and tool definitions."""
        fixed = self.text(system) if isinstance(system, str) else sum(map(self.block, system or ()))
        return fixed + sum(self.text(to_json(tool)) for tool in tools or ()) + self.messages(messages)
