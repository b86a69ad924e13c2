"""The words of a customer for a call of `tau2-bench`: the full wish, and how the customer refers to it later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.bench.tau2_world import Call, World

__all__ = ["long_words", "payment_words", "short_words"]


def payment_words(user: Any, payment: str) -> str:
    """Return a payment method as its owner calls it."""
    method = user.payment_methods[payment]
    if method.source == "credit_card":
        return f"my {method.brand} card ending in {method.last_four}"
    return f"my {method.source.replace('_', ' ')} ending in {payment[-4:]}"


def long_words(world: World, user: Any, call: Call) -> str:
    """Return the wish that `call` fulfils, with every detail but the ids of new items."""
    given = call.arguments
    pay = payment_words(user, paid) if (paid := given.get("payment_method_id") or given.get("payment_id")) else ""
    match call.name:
        case "cancel_pending_order":
            return f"cancel order {given['order_id']} (reason: {given['reason']})"
        case "modify_pending_order_items" | "exchange_delivered_order_items":
            verb = "exchange" if call.name.startswith("exchange") else "change"
            return f"in order {given['order_id']} {verb} {_changes(world, given)}, and settle the difference with {pay}"
        case "return_delivered_order_items":
            items = " and ".join(f"the {_described(_item(world, given, one))}" for one in given["item_ids"])
            return f"return {items} from order {given['order_id']}, the refund goes to {pay}"
        case "modify_pending_order_address":
            return f"send order {given['order_id']} to {_address(given)}"
        case "modify_user_address":
            return f"make {_address(given)} my default address"
        case "update_reservation_flights":
            cabin = given["cabin"].replace("_", " ")
            return f"change {_trip(world, given)} to {cabin} on {_flights(given)}, settled with {pay}"
        case "update_reservation_passengers":
            return f"make {_people(given)} the passenger of {_trip(world, given)}"
        case "update_reservation_baggages":
            bags = f"{given['total_baggages']} checked bags in all, {given['nonfree_baggages']} of them to be paid"
            return f"give {_trip(world, given)} {bags}, on {pay}"
        case "cancel_reservation":
            return f"cancel {_trip(world, given)}; the reason is that I am ill"
        case "book_reservation":
            shares = ", ".join(
                f"${p['amount']} from {payment_words(user, p['payment_id'])}" for p in given["payment_methods"]
            )
            kind, cabin = given["flight_type"].replace("_", " "), given["cabin"].replace("_", " ")
            return (
                f"book a {kind} from {given['origin']} to {given['destination']} in {cabin} for {_people(given)} on "
                f"{_flights(given)}, paid with {shares}; {given['total_baggages']} bags, "
                f"insurance: {given['insurance']}"
            )
    raise ValueError(f"no words for the tool {call.name}")


def short_words(world: World, call: Call) -> str:
    """Return how the customer refers to `call` once it was agreed on: without ids, choices and payment."""
    given = call.arguments
    if call.name == "modify_user_address":
        return "my new default address"
    if call.name == "book_reservation":
        return f"the booking for {given['passengers'][0]['first_name']}"
    if "reservation_id" in given:
        kept = world.db.reservations[given["reservation_id"]]
        words = {"flights": "change", "passengers": "new passenger", "baggages": "bags"}
        word = words.get(call.name.split("_")[-1], "cancellation")
        return f"the {word} of my trip from {kept.origin} to {kept.destination} on {kept.flights[0].date}"
    items = world.db.orders[given["order_id"]].items
    if "item_ids" in given:
        names = " and the ".join(dict.fromkeys(_item(world, given, one).name for one in given["item_ids"]))
        return f"the {call.name.split('_')[0].replace('modify', 'change')} of the {names}"
    noun = "cancellation of" if call.name.startswith("cancel") else "new address for"
    return f"the {noun} the order with the {items[0].name}"


def _item(world: World, given: Mapping[str, Any], item_id: str) -> Any:
    return next(item for item in world.db.orders[given["order_id"]].items if item.item_id == item_id)


def _described(item: Any) -> str:
    return f"{item.name} ({_options(item.options)})"


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items())


def _changes(world: World, given: Mapping[str, Any]) -> str:
    return " and ".join(
        _change(world, given, *pair) for pair in zip(given["item_ids"], given["new_item_ids"], strict=True)
    )


def _change(world: World, given: Mapping[str, Any], old: str, new: str) -> str:
    item = _item(world, given, old)
    return f"the {_described(item)} for {_options(world.db.products[item.product_id].variants[new].options)}"


def _address(given: Mapping[str, Any]) -> str:
    return ", ".join(given[part] for part in ("address1", "address2", "city", "state", "zip", "country"))


def _trip(world: World, given: Mapping[str, Any]) -> str:
    kept = world.db.reservations[given["reservation_id"]]
    return f"reservation {kept.reservation_id} ({kept.origin} to {kept.destination})"


def _flights(given: Mapping[str, Any]) -> str:
    return _joined(f"{flight['flight_number']} on {flight['date']}" for flight in given["flights"])


def _people(given: Mapping[str, Any]) -> str:
    return _joined(f"{one['first_name']} {one['last_name']}, born {one['dob']}" for one in given["passengers"])


def _joined(parts: Iterable[str]) -> str:
    return " and ".join(parts)
