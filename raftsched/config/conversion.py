"""Convert plain values to a struct of settings, and find every fault in them, not only the first.

`msgspec.convert` stops at its first fault, so each field is converted by itself. Faults of fields between each other are
found by the struct (`__post_init__`), as far as its other fields are right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from raftsched.config.toml_lines import Path
from raftsched.environment import nearest

_PLACE: Final = re.compile(r" - at `\$(?:\[(?P<item>\d+)\])?`$")
_WORDS: Final = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "a table",
}
_TYPE: Final = re.compile(r"`(\w+)`")
_S = TypeVar("_S", bound=msgspec.Struct)


class Fault(NamedTuple):
    """A fault in a value, which is at `path`."""

    path: Path
    text: str


class Conflicts(ValueError):
    """Faults of fields between each other; each begins with the whole name of a setting."""

    def __init__(self, *texts: str) -> None:
        super().__init__("; ".join(texts))
        self.texts = texts


def convert(
    values: Mapping[str, Any], kind: type[_S], *, rules: Mapping[str, str], stand_ins: Mapping[str, Any]
) -> tuple[_S | None, list[Fault]]:
    """Return the struct, or None and all faults; `rules` tells in words what a pattern asks for.

    `stand_ins` are values of required fields, which are used in place of wrong ones while the others are compared.
    """
    found = list(_faults_of_table(values, kind, (), rules))
    wrong = {str(fault.path[0]) for fault in found}
    right = {name: value for name, value in values.items() if name not in wrong}
    right |= {name: _right_items(values, name, found) or stand_ins[name] for name in wrong & stand_ins.keys()}
    made, conflicts = _made(right, kind)
    found += [each for each in conflicts if not _names_any(each.text, wrong)]
    return (None if found else made), found


def _right_items(values: Mapping[str, Any], name: str, faults: Sequence[Fault]) -> list[Any]:
    """Return the items of a list that have no fault."""
    items = values.get(name)
    wrong = {fault.path[:2] for fault in faults}
    return [each for number, each in enumerate(items if isinstance(items, list) else ()) if (name, number) not in wrong]


def _names_any(text: str, settings: Iterable[str]) -> bool:
    """Return whether a message names one of the settings as a whole."""
    return any(re.search(rf"(?<![\w.]){name}(?![\w.])", text) for name in settings)


def _made(values: Mapping[str, Any], kind: type[_S]) -> tuple[_S | None, list[Fault]]:
    """Return the struct of values that are right each for itself, or the faults between them."""
    try:
        return msgspec.convert(values, kind, strict=False), []
    except msgspec.ValidationError as error:
        texts = error.__cause__.texts if isinstance(error.__cause__, Conflicts) else (str(error),)
        return None, [Fault((), text) for text in texts]


def _faults_of_table(
    table: Mapping[str, Any], kind: type[msgspec.Struct], path: Path, rules: Mapping[str, str]
) -> Iterator[Fault]:
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in table.keys() - fields.keys():
        yield Fault((*path, name), f"no setting of that name{nearest(name, sorted(fields))}")
    for name, field in fields.items():
        if name in table:
            yield from _faults_of(table[name], hints[field.name], (*path, name), rules)
        elif field.required:
            yield Fault((*path, name), "not set, and needed")


def _faults_of(value: Any, annotation: Any, path: Path, rules: Mapping[str, str]) -> Iterator[Fault]:
    """Return the faults of a value that should fit `annotation`."""
    if (struct := _struct_of(annotation)) is not None:
        if not isinstance(value, dict):
            yield Fault(path, f"expected a table, as [{path[-1]}]")
            return
        found = list(_faults_of_table(value, struct, path, rules))
        yield from found
        if not found:
            yield from (Fault(path, fault.text) for fault in _made(value, struct)[1])
    elif get_origin(annotation) is tuple and (item := _struct_of(get_args(annotation)[0])) is not None:
        if not isinstance(value, list):
            yield Fault(path, f"expected a list of tables, as [[{path[-1]}]]")
            return
        for number, each in enumerate(value):
            yield from _faults_of(each, item, (*path, number), rules)
    else:
        yield from _faults_of_value(value, annotation, path, rules)


def _faults_of_value(value: Any, annotation: Any, path: Path, rules: Mapping[str, str]) -> Iterator[Fault]:
    try:
        msgspec.convert(value, annotation, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        place = _PLACE.search(text)
        if place is not None:
            text = text[: place.start()]
            if place["item"] is not None:
                path, value = (*path, int(place["item"])), value[int(place["item"])]
                annotation = get_args(annotation)[0]
        yield Fault(path, _in_words(text, value, annotation, rules))


def _in_words(text: str, value: Any, annotation: Any, rules: Mapping[str, str]) -> str:
    plain, *extra = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if get_origin(plain) is Literal:
        known = [str(each) for each in get_args(plain)]
        return f"{value!r:.60} is none of {', '.join(known)}{nearest(str(value), known)}"
    for meta in extra:
        if isinstance(value, str) and isinstance(meta, msgspec.Meta) and meta.pattern and meta.pattern in rules:
            return f"expected {rules[meta.pattern]}"
    said = _TYPE.sub(lambda found: _WORDS.get(found[1], found[0]), text[:1].lower() + text[1:])
    return said if plain is str else f"{said}: {value!r:.60}"  # a text may be a secret


def _struct_of(annotation: Any) -> type[msgspec.Struct] | None:
    """Return the struct that an annotation is, or allows; None if there is none."""
    for each in get_args(annotation) if isinstance(annotation, UnionType) else (annotation,):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None
