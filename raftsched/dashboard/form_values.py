"""Hold what the fields of a form show."""

from __future__ import annotations

from collections.abc import Mapping


class FormValues(dict[str, str]):
    """The texts of a form's fields; a template reads "" for a field that has none."""

    def __missing__(self, name: str) -> str:
        return ""


def form_values(*given: Mapping[str, str]) -> FormValues:
    """Return the fields of all `given`; the later ones replace the earlier ones."""
    values = FormValues()
    for fields in given:
        values.update(fields)
    return values
