"""A long conversation with one customer of `tau2-bench`, cut after an action with an effect.

The calls and their results are real; the dialogue is made up around the task's expected actions. The customer first
agrees on everything, with demands for the whole talk, then asks about other things, then changes one choice, then has
it carried out: one attempt is refused before it succeeds. After the cut the customer asks for the rest without
repeating the details.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from applier.eval.survival import message_tokens
from planner.reading.messages import Message, blocks
from tests.bench.tau2_words import long_words, payment_words, short_words
from tests.bench.tau2_world import Call, ToolAnswer, World

__all__ = ["Demands", "Story", "calls_of", "tell_story"]

LEAST_TOKENS = 26_000
"""Size of a history at the cut."""
QUESTIONS_BETWEEN = 1
"""Questions about other things between two actions."""
LOOK_UPS_OF_A_QUESTION = 3
"""Look-ups that one question about other things takes."""


@dataclass(frozen=True)
class Demands:
    """Standing demands of the customer that a log can be checked against."""

    spared: str = ""
    """Id of an order or reservation that nobody may change."""
    forbidden: str = ""
    """Payment method that nobody may use."""


@dataclass(frozen=True)
class Story:
    """Conversation up to the cut, and what follows."""

    domain: str
    messages: list[Message]
    remaining: list[Call]
    """Expected calls after the cut."""
    requests: list[str]
    """Customer's requests after the cut: one for each remaining call, then a check of the first action."""
    demands: Demands

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> Story:
        """Return the story that `asdict` made `kept` of."""
        calls = [Call(**one) for one in kept["remaining"]]
        return cls(kept["domain"], kept["messages"], calls, kept["requests"], Demands(**kept["demands"]))


def calls_of(messages: Sequence[Message]) -> Iterator[tuple[Call, bool]]:
    """Yield the calls in `messages`, and whether each succeeded."""
    every = [block for message in messages for block in blocks(message)]
    failed = {block["tool_use_id"] for block in every if block["type"] == "tool_result" and block.get("is_error")}
    uses = (block for block in every if block["type"] == "tool_use")
    yield from ((Call(use["name"], use["input"]), use["id"] not in failed) for use in uses)


class _Talk:
    """Messages of a conversation in the making."""

    def __init__(self, world: World) -> None:
        self.world, self.messages = world, list[Message]()

    def customer(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def agent(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": text})

    def call(self, call: Call) -> ToolAnswer:
        """Run `call` and add it with its result."""
        key = f"toolu_{len(self.messages):04d}"
        answer = self.world.run(call)
        use = {"type": "tool_use", "id": key, "name": call.name, "input": dict(call.arguments)}
        result = {"type": "tool_result", "tool_use_id": key, "content": answer.text}
        self.messages.append({"role": "assistant", "content": [use]})
        self.messages.append({"role": "user", "content": [result | ({"is_error": True} if answer.is_error else {})]})
        return answer


def tell_story(world: World, expected: Sequence[Call], seed: str) -> Story:
    """Return the conversation about the calls `expected`; `world` is left as it is at the cut."""
    talk, dice = _Talk(world), random.Random(seed)
    user = _user(world, expected)
    wishes = [long_words(world, user, call) for call in expected]
    names = [short_words(world, call) for call in expected]
    done = max(1, len(expected) // 2)
    tries = {place: _refused(world, user, expected[place]) for place in {0, done - 1}}
    first_choice = _first_choice(world, user, expected[-1])
    demands = _demands(world, user, [*expected, first_choice, *(call for call in tries.values() if call)])
    first_wishes = [*wishes[:-1], long_words(world, user, first_choice)]
    questions = _questions(world, dice)
    _open(talk, user, demands)
    for call, wish in zip([*expected[:-1], first_choice], first_wishes, strict=True):
        talk.customer(f"One thing I want later, do not do it yet: {wish}.")
        for look_up in _look_ups(world, call):
            talk.call(look_up)
        talk.agent(f"Noted, nothing is done yet.{_prices(world, call)} I carry it out when you ask for it.")
        _ask(talk, questions)
    while message_tokens(talk.messages) < LEAST_TOKENS:
        _ask(talk, questions)
    if first_choice != expected[-1]:
        talk.customer(f"I have changed my mind about {names[-1]}. What I want now is: {wishes[-1]}.")
        talk.agent(f"I have noted that instead.{_prices(world, expected[-1])}")
    for _ in range(QUESTIONS_BETWEEN):
        _ask(talk, questions)
    for place in range(done):
        _carry_out(talk, user, expected[place], tries.get(place), names[place], wishes[place])
        if place < done - 1:
            talk.agent(f"Done: {names[place]} is confirmed.")
            for _ in range(QUESTIONS_BETWEEN):
                _ask(talk, questions)
    requests = [f"Good. Next is {name}, just as we agreed on it." for name in names[done:]]
    requests.append(
        f"Last thing: I have no mail about {names[0]}. If it is not done yet, do it now, and otherwise just say so."
    )
    return Story(world.domain, talk.messages, list(expected[done:]), requests, demands)


def _first_choice(world: World, user: Any, call: Call) -> Call:
    """Return `call` as the customer wants it at first: another item or another payment, if there is one."""
    given = dict(call.arguments)
    if "new_item_ids" in given:
        items = {item.item_id: item.product_id for item in world.db.orders[given["order_id"]].items}
        old, new = given["item_ids"][0], given["new_item_ids"]
        variants = world.db.products[items[old]].variants.values()
        others = [one.item_id for one in variants if one.available and one.item_id not in (old, new[0])]
        return Call(call.name, given | {"new_item_ids": [*others[:1], *new[1:]]}) if others else call
    key = next((name for name in ("payment_method_id", "payment_id") if name in given), "")
    others = [other for other in user.payment_methods if key and other != given[key] and "certificate" not in other]
    return Call(call.name, given | {key: others[0]}) if others else call


def _user(world: World, expected: Sequence[Call]) -> Any:
    for given in (call.arguments for call in expected):
        if key := given.get("user_id"):
            return world.db.users[key]
        if "order_id" in given:
            return world.db.users[world.db.orders[given["order_id"]].user_id]
        return world.db.users[world.db.reservations[given["reservation_id"]].user_id]
    raise ValueError("the task expects no action with an effect")


def _demands(world: World, user: Any, calls: Sequence[Call]) -> Demands:
    """Return what none of `calls` touches, empty where there is nothing of the kind."""
    used = {text for call in calls for text in _texts(call.arguments)}
    owned = user.orders if world.domain == "retail" else user.reservations
    spared, forbidden = ([key for key in keys if key not in used] for keys in (owned, user.payment_methods))
    return Demands(spared[-1] if spared else "", forbidden[-1] if forbidden else "")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


def _open(talk: _Talk, user: Any, demands: Demands) -> None:
    """Identify the customer, take the demands, look at all that the customer owns."""
    name = f"{user.name.first_name} {user.name.last_name}"
    retail = talk.world.domain == "retail"
    talk.customer(f"Hello, {name} here, {f'my e-mail is {user.email}' if retail else f'my user id is {user.user_id}'}.")
    if retail:
        talk.call(Call("find_user_id_by_email", {"email": user.email}))
    talk.call(Call("get_user_details", {"user_id": user.user_id}))
    talk.agent(f"Thank you, {user.name.first_name}, I have your profile. What can I do for you?")
    wanted = ["carry out nothing before you have shown me its details and I have said yes, even if I seem in a hurry"]
    wanted += [f"leave {demands.spared} exactly as it is, whatever else we change"] if demands.spared else []
    wanted += [f"never use {payment_words(user, demands.forbidden)}"] if demands.forbidden else []
    talk.customer(f"Some rules for all of this talk: {'; '.join(wanted)}; and do not pass me on to a colleague.")
    talk.agent("Understood, I keep to that.")
    talk.customer("Then look at everything that I have with you first.")
    for key in user.orders if retail else user.reservations:
        talk.call(Call("get_order_details", {"order_id": key}) if retail else _reservation(key))
    talk.agent("I have looked at all of it. Which changes do you want?")


def _reservation(key: str) -> Call:
    return Call("get_reservation_details", {"reservation_id": key})


def _look_ups(world: World, call: Call) -> list[Call]:
    """Return the look-ups that an agent does before it offers `call`."""
    given = call.arguments
    if "new_item_ids" in given:
        items = {item.item_id: item.product_id for item in world.db.orders[given["order_id"]].items}
        products = dict.fromkeys(items[one] for one in given["item_ids"])
        return [Call("get_product_details", {"product_id": one}) for one in products]
    flights = [(world.db.flights[flight["flight_number"]], flight["date"]) for flight in given.get("flights", ())]
    routes = dict.fromkeys((flight.origin, flight.destination, date) for flight, date in flights)
    return [_search(*route) for route in routes]


def _search(origin: str, destination: str, date: str) -> Call:
    return Call("search_direct_flight", {"origin": origin, "destination": destination, "date": date})


def _prices(world: World, call: Call) -> str:
    given = call.arguments
    if "new_item_ids" not in given:
        return ""
    items = {item.item_id: item for item in world.db.orders[given["order_id"]].items}
    old = [items[one] for one in given["item_ids"]]
    variants = [world.db.products[item.product_id].variants for item in old]
    new = [own[key].price for own, key in zip(variants, given["new_item_ids"], strict=True)]
    difference = sum(new) - sum(item.price for item in old)
    return f" The new price is ${sum(new):.2f}, the difference to what you paid ${difference:.2f}."


def _refused(world: World, user: Any, call: Call) -> Call | None:
    """Return `call` with a slip that the tools refuse: another payment method, or else an id without its case."""
    given = dict(call.arguments)
    key = next((name for name in ("payment_method_id", "payment_id") if name in given), "")
    others = [other for other in user.payment_methods if key and other != given[key]]
    slips = [given | {key: other} for other in others]
    slips += [
        given | {name: given[name].lower().lstrip("#")} for name in ("order_id", "reservation_id") if name in given
    ]
    return next((slip for one in slips if world.would_fail(slip := Call(call.name, one))), None)


def _carry_out(talk: _Talk, user: Any, call: Call, slip: Call | None, name: str, wish: str) -> None:
    """Ask for consent and run `call`, after `slip` was refused."""
    talk.customer(f"Now {name}, please, just as we agreed on it.")
    talk.agent(f"I would now {_turned(wish)}. Shall I go ahead?")
    talk.customer("Yes, go ahead.")
    if slip is not None:
        refusal = talk.call(slip).text
        talk.agent(f"That was refused ({refusal}): I entered it wrong. May I try again, just as you asked for it?")
        talk.customer("Yes, but once only, please.")
    answer = talk.call(call)
    if answer.is_error:
        raise ValueError(f"{call.name} {dict(call.arguments)}: the checkout refuses an expected action: {answer.text}")


def _turned(wish: str) -> str:
    """Return a wish of the customer as the agent says it."""
    return wish.replace(" my ", " your ").replace("that I am ill", "your illness")


def _ask(talk: _Talk, questions: Iterator[tuple[str, Call, str]]) -> None:
    """Add a question about several other things, its look-ups and its answer."""
    asked = list(islice(questions, LOOK_UPS_OF_A_QUESTION))
    talk.customer(f"Another question: {', '.join(subject for subject, _, _ in asked)}?")
    for _, call, _ in asked:
        talk.call(call)
    talk.agent(" ".join(answer for _, _, answer in asked))


def _questions(world: World, dice: random.Random) -> Iterator[tuple[str, Call, str]]:
    """Yield parts of questions that no later action needs: what is asked, its look-up, its answer."""
    products, flights = (
        list(getattr(world.db, "products", {}).values()),
        list(getattr(world.db, "flights", {}).values()),
    )
    while True:
        dice.shuffle(products)
        yield from map(_about_product, products)
        if flights:
            yield _about_route(dice.choice(flights), f"2024-05-{dice.randint(16, 30)}")


def _about_product(product: Any) -> tuple[str, Call, str]:
    least = min(product.variants.values(), key=lambda one: one.price)
    options = ", ".join(f"{name} {value}" for name, value in least.options.items())
    state = "in stock" if least.available else "sold out"
    answer = f"The cheapest {product.name.lower()} ({options}) costs ${least.price:.2f} and is {state}."
    call = Call("get_product_details", {"product_id": product.product_id})
    return f"what does your cheapest {product.name.lower()} cost", call, answer


def _about_route(flight: Any, date: str) -> tuple[str, Call, str]:
    day = flight.dates.get(date)
    price = getattr(day, "prices", {}).get("economy")
    answer = f"{flight.flight_number} flies then" + (f", at ${price} in economy." if price else ", but is not on sale.")
    asked = f"what goes from {flight.origin} to {flight.destination} on {date}"
    return asked, _search(flight.origin, flight.destination, date), answer
