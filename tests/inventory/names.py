"""Public names with their signatures: what a user's own code leans on."""

import ast
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from tests.inventory.product import INNER_PATH, is_ours, plain, public_modules

CALLED = ("__init__", "__call__", "__enter__", "__iter__", "__len__", "__getitem__", "__contains__")
"""Of names with underscores, those that users call without naming them."""
LONGEST_VALUE = 100
"""Of longer ones (presets, tools) another text tells."""


def public_names() -> Iterator[str]:
    """Each public module with what it offers; what several offer is described where it comes first."""
    described: dict[int, str] = {}
    for path, module in public_modules().items():
        yield f"## {path}"
        if module is None:
            yield "is no module"
            continue
        for name in sorted(module.__all__):
            value = getattr(module, name)
            own = is_ours(value) and not isinstance(value, types.ModuleType)
            if own and id(value) in described:
                yield f"{name}: {described[id(value)]}"
                continue
            if own:
                described[id(value)] = f"as {path}.{name}"
            yield from described_name(name, value)
        yield ""


def described_name(name: str, value: Any) -> Iterator[str]:
    """A class with its fields and methods, a function with its signature, else the value."""
    if isinstance(value, type):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name}({bases})" if bases else f"class {name}"
        yield from (f"    {line}" for line in sorted({*fields(value), *methods(value)}))
    elif inspect.isroutine(value):
        yield f"def {name}{signature(value)}"
    elif typing.get_origin(value) is not None:
        yield f"{name} = {type_text(value)}"
    else:
        text = plain(value)
        yield f"{name} = {text}" if len(text) <= LONGEST_VALUE else f"{name}: {type(value).__name__}"


def fields(cls: type) -> Iterator[str]:
    """What an object of `cls` holds: ``name: type = default``."""
    if issubclass(cls, BaseModel):
        for name, field in cls.model_fields.items():
            default = "" if field.is_required() else f" = {plain(field.get_default(call_default_factory=True))}"
            yield f"{name}: {type_text(field.annotation)}{default}"
    elif dataclasses.is_dataclass(cls):
        for own in dataclasses.fields(cls):
            if own.init and not own.name.startswith("_"):
                yield f"{own.name}: {type_text(own.type)}{default_of(own)}"
    else:
        for base in (base for base in cls.__mro__ if is_ours(base)):
            for name, annotation in inspect.get_annotations(base).items():
                if not name.startswith("_"):
                    yield f"{name}: {type_text(annotation)}"


def default_of(field: dataclasses.Field) -> str:
    if field.default is not dataclasses.MISSING:
        return f" = {plain(field.default)}"
    return "" if field.default_factory is dataclasses.MISSING else f" = {plain(field.default_factory())}"


def methods(cls: type) -> Iterator[str]:
    """What can be called or read of an object of `cls`, from its own classes of this project."""
    made = dataclasses.is_dataclass(cls) or issubclass(cls, BaseModel)
    members: dict[str, Any] = {}
    for base in reversed([base for base in cls.__mro__ if is_ours(base)]):
        members |= vars(base)
    held = {line.split(":")[0] for line in fields(cls)}
    for name, member in members.items():
        if name in held or (name.startswith("_") and name not in CALLED) or name.startswith("model_"):
            continue
        if inspect.isfunction(member):
            if is_ours(member) and not (made and name == "__init__"):
                yield f"{name}{signature(member)}"
        elif isinstance(member, classmethod | staticmethod):
            yield f"{name}{signature(member.__func__)}  [{type(member).__name__}]"
        elif hasattr(member, "__get__") and not isinstance(member, types.MemberDescriptorType | type):
            yield f"{name}  [property]"
        elif not hasattr(member, "__get__"):
            yield f"{name} = {plain(member)}"


def signature(function: Callable[..., Any]) -> str:
    """Parameters and result, as they are written."""
    own = inspect.signature(function)
    parts, kinds = [], [parameter.kind for parameter in own.parameters.values()]
    for at, parameter in enumerate(own.parameters.values()):
        if parameter.kind is parameter.KEYWORD_ONLY and not {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL} & set(
            kinds[:at]
        ):
            parts.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = stars + parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {type_text(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {plain(parameter.default)}"
        parts.append(text)
    result = "" if own.return_annotation is own.empty else f" -> {type_text(own.return_annotation)}"
    return f"({', '.join(parts)}){result}"


def type_text(annotation: Any) -> str:
    """A type as a person writes it, without the modules it is from."""
    if isinstance(annotation, str):
        return ast.unparse(ast.parse(annotation, mode="eval"))
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_text(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(type_text, arguments))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is not None:
        inner = ", ".join("..." if argument is ... else type_text(argument) for argument in arguments)
        return f"{type_text(origin)}[{inner}]"
    if annotation is type(None) or annotation is None:
        return "None"
    return annotation.__name__ if isinstance(annotation, type) else INNER_PATH.sub("", repr(annotation))
