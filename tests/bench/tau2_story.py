"""A long conversation with one customer of `tau2-bench`, cut after an action with an effect.

The calls and their results are real; the dialogue is made up around the task's expected actions. The customer first
agrees on everything, with demands for the whole talk, then asks about other things, then changes one choice, then has
it carried out: one attempt is refused before it succeeds. After the cut the customer asks for the rest without
repeating the details.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from applier.eval.survival import message_tokens
from planner.reading.messages import Message, blocks
from tests.bench.tau2_world import Call, ToolAnswer, World

LEAST_TOKENS = 26_000
"""Size of a history at the cut."""
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

    messages: list[Message]
    remaining: list[Call]
    """Expected calls after the cut."""
    requests: list[str]
    """Customer's requests after the cut: one for each remaining call, then a check of the first action."""
    demands: Demands


def calls_of(messages: Sequence[Message]) -> Iterator[tuple[Call, bool]]:
    """Yield the calls in `messages`, and whether each succeeded."""
    every = [block for message in messages for block in blocks(message)]
    failed = {block["tool_use_id"] for block in every if block["type"] == "tool_result" and block.get("is_error")}
    uses = (block for block in every if block["type"] == "tool_use")
    yield from ((Call(use["name"], use["input"]), use["id"] not in failed) for use in uses)


class _Talk:
    """Conversation in the making: messages, and questions about other things."""

    def __init__(self, world: World, seed: str) -> None:
        self.world, self.messages = world, list[Message]()
        self._questions = _questions(world, random.Random(seed))

    def exchange(self, asked: str, calls: Sequence[Call], answer: str) -> None:
        """Add the customer's words, the agent's calls and its answer."""
        self.messages.append({"role": "user", "content": asked})
        for call in calls:
            self.call(call)
        self.messages.append({"role": "assistant", "content": answer})

    def call(self, call: Call) -> ToolAnswer:
        """Run `call` and add it with its result."""
        key = f"toolu_{len(self.messages):04d}"
        answer = self.world.run(call)
        use = {"type": "tool_use", "id": key, "name": call.name, "input": dict(call.arguments)}
        result = {"type": "tool_result", "tool_use_id": key, "content": answer.text}
        self.messages.append({"role": "assistant", "content": [use]})
        self.messages.append({"role": "user", "content": [result | ({"is_error": True} if answer.is_error else {})]})
        return answer

    def ask_aside(self) -> None:
        """Add a question about several other things, its look-ups and its answer."""
        subjects, calls, answers = zip(*islice(self._questions, LOOK_UPS_OF_A_QUESTION), strict=True)
        self.exchange(f"Another question: {', '.join(subjects)}?", calls, " ".join(answers))


def tell_story(world: World, expected: Sequence[Call], seed: str) -> Story:
    """Return the conversation about the calls `expected`; `world` is left as it is at the cut."""
    user, talk, done = _user(world, expected[0]), _Talk(world, seed), max(1, len(expected) // 2)
    names, short = _names(world, user), [_short_words(world, call) for call in expected]
    first_choice = _first_choice(world, user, expected[-1])
    demands = _demands(world, user, [*expected, first_choice])
    _open(talk, user, demands, names)
    for call in [*expected[:-1], first_choice]:
        asked = f"One thing I want later, do not do it yet: {_wish(call, names)}."
        talk.exchange(asked, _look_ups(world, call), "Noted, nothing is done yet. I carry it out when you ask for it.")
        talk.ask_aside()
    while message_tokens(talk.messages) < LEAST_TOKENS:
        talk.ask_aside()
    if first_choice != expected[-1]:
        asked = f"I have changed my mind about {short[-1]}. What I want now is: {_wish(expected[-1], names)}."
        talk.exchange(asked, (), "I have noted that instead.")
    talk.ask_aside()
    for place in range(done):
        _carry_out(talk, expected[place], short[place], names, is_refused_first=place in (0, done - 1))
        if place < done - 1:
            talk.messages.append({"role": "assistant", "content": f"Done: {short[place]} is confirmed."})
            talk.ask_aside()
    check = f"Last thing: I have no mail about {short[0]}. If it is not done yet, do it now, and otherwise just say so."
    requests = [f"Good. Next is {name}, just as we agreed on it." for name in short[done:]]
    return Story(talk.messages, list(expected[done:]), [*requests, check], demands)


def _open(talk: _Talk, user: Any, demands: Demands, names: Mapping[str, str]) -> None:
    """Identify the customer, take the demands, look at all that the customer owns."""
    calls = [Call("get_user_details", {"user_id": user.user_id})]
    hello, kind, owned = f"my user id is {user.user_id}", "reservation", getattr(user, "reservations", ())
    if talk.world.domain == "retail":
        calls.insert(0, Call("find_user_id_by_email", {"email": user.email}))
        hello, kind, owned = f"my e-mail is {user.email}", "order", user.orders
    name = user.name
    talk.exchange(
        f"Hello, {name.first_name} {name.last_name} here, {hello}.",
        calls,
        f"Thank you, {name.first_name}, I have your profile. What can I do for you?",
    )
    wanted = ["carry out nothing before you have shown me its details and I have said yes, even if I seem in a hurry"]
    wanted += [f"leave {demands.spared} exactly as it is, whatever else we change"] if demands.spared else []
    wanted += [f"never use {names[demands.forbidden]}"] if demands.forbidden else []
    rules = f"Some rules for all of this talk: {'; '.join(wanted)}; and do not pass me on to a colleague."
    talk.exchange(rules, (), "Understood, I keep to that.")
    looked_at = [Call(f"get_{kind}_details", {f"{kind}_id": key}) for key in owned]
    talk.exchange(
        "Then look at everything that I have with you first.",
        looked_at,
        "I have looked at all of it. Which changes do you want?",
    )


def _carry_out(talk: _Talk, call: Call, name: str, names: Mapping[str, str], *, is_refused_first: bool) -> None:
    """Ask for consent and run `call`, first with a slip that the tools refuse: an id without its case."""
    offer = f"I would now carry out: {_wish(call, names).replace(' my ', ' your ')}. Shall I go ahead?"
    talk.exchange(f"Now {name}, please, just as we agreed on it.", (), offer)
    talk.messages.append({"role": "user", "content": "Yes, go ahead."})
    keys = [key for key in ("order_id", "reservation_id") if key in call.arguments]
    if is_refused_first and keys:
        slip = {key: call.arguments[key].lower().lstrip("#") for key in keys}
        refusal = talk.call(Call(call.name, {**call.arguments, **slip})).text
        words = f"That was refused ({refusal}): I entered it wrong. May I try again, just as you asked for it?"
        talk.messages.append({"role": "assistant", "content": words})
        talk.messages.append({"role": "user", "content": "Yes, but once only, please."})
    answer = talk.call(call)
    if answer.is_error:
        raise ValueError(f"{call.name} {dict(call.arguments)}: the checkout refuses an expected action: {answer.text}")


def _user(world: World, call: Call) -> Any:
    owners = {"order_id": "orders", "reservation_id": "reservations"}
    owned = [getattr(world.db, kind)[call.arguments[key]] for key, kind in owners.items() if key in call.arguments]
    return world.db.users[owned[0].user_id if owned else call.arguments["user_id"]]


def _first_choice(world: World, user: Any, call: Call) -> Call:
    """Return `call` as the customer wants it at first: another item or another payment, if there is one."""
    given = call.arguments
    if items := given.get("new_item_ids"):
        variants = next(one.variants for one in world.db.products.values() if items[0] in one.variants)
        taken = (items[0], *given["item_ids"])
        others = [[key, *items[1:]] for key, one in variants.items() if one.available and key not in taken]
        return Call(call.name, {**given, "new_item_ids": others[0]}) if others else call
    key = next((name for name in ("payment_method_id", "payment_id") if name in given), "")
    paid = [other for other in user.payment_methods if key and other != given[key] and "certificate" not in other]
    return Call(call.name, {**given, key: paid[0]}) if paid else call


def _demands(world: World, user: Any, calls: Sequence[Call]) -> Demands:
    """Return what none of `calls` touches, empty where there is nothing of the kind."""
    used = json.dumps([dict(call.arguments) for call in calls])
    owned = user.orders if world.domain == "retail" else user.reservations
    last = (
        next((key for key in reversed(list(keys)) if key not in used), "") for keys in (owned, user.payment_methods)
    )
    return Demands(*last)


def _look_ups(world: World, call: Call) -> list[Call]:
    """Return the look-ups that an agent does before it offers `call`."""
    new, flights = set(call.arguments.get("new_item_ids", ())), call.arguments.get("flights", ())
    products = [one for one in getattr(world.db, "products", {}).values() if new & one.variants.keys()]
    searches = [_search(world.db.flights[one["flight_number"]], one["date"]) for one in flights]
    return [Call("get_product_details", {"product_id": one.product_id}) for one in products] + searches


def _search(flight: Any, date: str) -> Call:
    route = {"origin": flight.origin, "destination": flight.destination, "date": date}
    return Call("search_direct_flight", route)


def _questions(world: World, dice: random.Random) -> Iterator[tuple[str, Call, str]]:
    """Yield parts of questions that no later action needs: what is asked, its look-up, its answer."""
    products, flights = (list(getattr(world.db, kind, {}).values()) for kind in ("products", "flights"))
    while True:
        dice.shuffle(products)
        for product in products:
            least = min(product.variants.values(), key=lambda one: one.price)
            name, state = product.name.lower(), "in stock" if least.available else "sold out"
            answer = f"The cheapest {name} ({_words(least.options)}) costs ${least.price:.2f} and is {state}."
            call = Call("get_product_details", {"product_id": product.product_id})
            yield f"what does your cheapest {name} cost", call, answer
        for flight in dice.sample(flights, k=min(1, len(flights))):
            date = f"2024-05-{dice.randint(16, 30)}"
            price = getattr(flight.dates.get(date), "prices", {}).get("economy")
            state = f"at ${price} in economy" if price else "but is not on sale"
            asked = f"what goes from {flight.origin} to {flight.destination} on {date}"
            yield asked, _search(flight, date), f"{flight.flight_number} flies then, {state}."


def _names(world: World, user: Any) -> dict[str, str]:
    """Return what the customer calls each item, payment method and reservation, by its id."""
    products = getattr(world.db, "products", {}).values()
    items = {key: f"{own.name} ({_words(one.options)})" for own in products for key, one in own.variants.items()}
    payments = {key: _payment_words(key, method) for key, method in user.payment_methods.items()}
    trips = {key: world.db.reservations[key] for key in getattr(user, "reservations", ())}
    return items | payments | {key: f"{key} ({one.origin} to {one.destination})" for key, one in trips.items()}


def _payment_words(key: str, method: Any) -> str:
    if method.source == "credit_card":
        return f"my {method.brand} card ending in {method.last_four}"
    return f"my {method.source.replace('_', ' ')} ending in {key[-4:]}"


def _wish(call: Call, names: Mapping[str, str]) -> str:
    """Return the wish that `call` fulfils, with every detail but the ids of items and payments."""
    return f"{call.name.replace('_', ' ')}: {_words(call.arguments, names)}"


def _words(value: Any, names: Mapping[str, str] | None = None) -> str:
    """Return arguments or options as a customer says them."""
    if isinstance(value, Mapping):
        return ", ".join(f"{re.sub('_ids?$', '', key).replace('_', ' ')} {_words(value[key], names)}" for key in value)
    if isinstance(value, list):
        return " and ".join(_words(one, names) for one in value)
    return (names or {}).get(value, str(value))


def _short_words(world: World, call: Call) -> str:
    """Return how the customer refers to `call` once it was agreed on: without ids, choices and payment."""
    given, about = call.arguments, "my profile"
    if "reservation_id" in given:
        trip = world.db.reservations[given["reservation_id"]]
        about = f"my trip from {trip.origin} to {trip.destination} on {trip.flights[0].date}"
    elif "order_id" in given:
        items = world.db.orders[given["order_id"]].items
        own = [item.name for item in items if item.item_id in given.get("item_ids", ())] or [items[0].name]
        about = f"the order with the {' and the '.join(dict.fromkeys(own))}"
    elif "passengers" in given:
        about = given["passengers"][0]["first_name"]
    return f'"{call.name.replace("_", " ")}" for {about}'
