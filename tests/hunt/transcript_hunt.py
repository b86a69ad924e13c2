"""Hunts for a broken law of planning in long lists: pieces of real transcripts, mutated as nobody would write them."""

import json
from collections import Counter
from importlib.resources import files
from itertools import count
from random import Random

from tests.conftest import SHARED
from tests.hunt.odd_histories import FRAME_TEXTS, UNICODE
from tests.hunt.planning_checks import check_planning

LENGTHS = 8, 8, 20, 20, 60, 60, 150, 400
"""Messages of a piece."""
MUTATIONS_AT_MOST = 8
TWICE_SHARE = 0.2
NAMES = ("rules",), ("one word",), ("liar",), ("answer",), ("edited",), ("rules", "edited")
HUGE = 10_000, 100_000, 400_000
"""Characters of a line."""
PATTERNS = "x", "a b ", "<", "&lt;", "Error: ", "/src/a.ts:1 ", "{", "９", "\u0301", "never ", '\\"', "`", "1e9 ", "t1 "


def rounds(seed):
    """What one list after another came to, as `Counter`s, without end.

    Raises AssertionError, with the seed of the one list, at the first broken law.
    """
    transcripts = list(known_transcripts())
    yield from (check_one(f"{seed}:{number}", transcripts) for number in count())


def known_transcripts():
    """The messages of the example that ships, and of what stands beside this repository."""
    example = files("applier.eval").joinpath("transcript.json").read_text("utf-8")
    beside = (path.read_text("utf-8") for path in sorted(SHARED.glob("*.json")))
    yield from (json.loads(text)["messages"] for text in (example, *beside))


def check_one(seed, transcripts):
    """One list, by its own seed; of a find the seed is in the error."""
    chance = Random(seed)
    messages = piece(chance, transcripts)
    kinds = chance.choices(MUTATIONS, k=chance.randint(0, MUTATIONS_AT_MOST))
    for kind in kinds:
        kind(messages, chance, transcripts)
    messages = [message for message in messages if message["content"]]
    try:
        outcome = check_planning(messages, seed, twice=chance.random() < TWICE_SHARE, names=chance.choice(NAMES))
    except Exception as error:
        raise AssertionError(f"transcript_hunt.check_one({seed!r}, transcripts): {error!r}") from error
    return Counter({"histories": 1, "messages": len(messages), "mutations": len(kinds)}) + Counter(outcome)


def piece(chance, transcripts):
    """A copy of a part of a transcript that begins with words of the user."""
    whole = chance.choice(transcripts)
    starts = [at for at, message in enumerate(whole) if message["role"] == "user" and not results_of(message)]
    start = chance.choice(starts or [0])
    return json.loads(json.dumps(whole[start : start + chance.choice(LENGTHS)]))


def blocks_of(message):
    return message["content"] if isinstance(message["content"], list) else []


def results_of(message):
    return [block for block in blocks_of(message) if block["type"] == "tool_result"]


def texts_in(messages):
    """Each place of a text: what holds it, and its key."""
    for message in messages:
        if isinstance(message["content"], str):
            yield message, "content"
        for block in blocks_of(message):
            inside = block.get("content")
            holders = [block, *inside] if isinstance(inside, list) else [block]
            yield from (
                (held, key) for held in holders for key in ("text", "content") if isinstance(held.get(key), str)
            )
            if block["type"] == "tool_use" and isinstance(block["input"], dict):
                yield from ((block["input"], key) for key, value in block["input"].items() if isinstance(value, str))


# Mutations: each changes a list in one place, or does nothing where there is no such place.


def deleted(messages, chance, _):
    start = chance.randrange(len(messages))
    messages[start : start + chance.choice((1, 1, 2))] = [] if len(messages) > 2 else messages[:1]


def doubled(messages, chance, _):
    at, other = chance.randrange(len(messages)), chance.randrange(len(messages))
    messages[other:other] = json.loads(json.dumps(messages[at : at + chance.choice((1, 2))]))


def spliced(messages, chance, transcripts):
    at = chance.randrange(len(messages))
    messages[at : at + chance.choice((0, 1, 9))] = piece(chance, transcripts)[: chance.choice((1, 2, 7))]


def swapped(messages, chance, _):
    """Two texts change places, whoever's they are."""
    if places := list(texts_in(messages)):
        (one, key), (other, its_key) = chance.choice(places), chance.choice(places)
        one[key], other[its_key] = other[its_key], one[key]


def stretched(messages, chance, _):
    """A line as long as no line is."""
    line = chance.choice(PATTERNS)
    line *= chance.choice(HUGE) // len(line)
    change_text(messages, chance, lambda text: chance.choice((line + text, text + line, f"{text}\n{line}\n{text}")))


def cut(messages, chance, _):
    change_text(messages, chance, lambda text: text[: chance.randrange(len(text) + 1)])


def poisoned(messages, chance, _):
    """Frames and odd characters within a text."""
    words = chance.choice((*FRAME_TEXTS, *UNICODE, "\ud800"))

    def change(text):
        at = chance.randrange(len(text) + 1)
        return text[:at] + words + text[at:]

    change_text(messages, chance, change)


def change_text(messages, chance, change):
    if places := list(texts_in(messages)):
        holder, key = chance.choice(places)
        holder[key] = change(holder[key])


def retold(messages, chance, _):
    """A role, an id or a flag that is another's."""
    message = chance.choice(messages)
    block = chance.choice(blocks_of(message) or [message])
    if block is message:
        message["role"] = chance.choice(("user", "assistant", "system"))
    for key in {"id", "tool_use_id"} & block.keys():
        block[key] = chance.choice([other.get(key, "gone") for entry in messages for other in blocks_of(entry)])
    if block.get("type") == "tool_result":
        block["is_error"] = not block.get("is_error")


def removed(messages, chance, _):
    """A block is gone."""
    if content := blocks_of(chance.choice(messages)):
        del content[chance.randrange(len(content))]


MUTATIONS = deleted, doubled, spliced, swapped, swapped, stretched, cut, poisoned, poisoned, retold, removed
