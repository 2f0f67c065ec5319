"""Plain technical English: no banned word in docstrings, comments, texts and documentation."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BANNED = re.compile(
    r"\b(?:anew|in\s+vain|for\s+want\s+of|c[oa]mes?\s+to|stands?|stood|ma(?:kes?|de)\s+of|told|hears?|come\s+what\s+may|so\s+long"
    r"|as\s+ever|mend(?:s|ed|ing)?|circles?|(?:can't|cannot)\s+be\s+helped|go(?:es)?\s+on|went\s+on"
    r"|where\s+there|(?:None|True|False|0|empty)\s+where)\b|[,;]\s+where\b|(?:^|[.:(]\s)\s*Where\s+(?!to\b)",
    re.IGNORECASE,
)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
NOUN_CLAUSE = re.compile(r"\s*(?:What|Who|Whose|How|Where|When|Which|Why)\b")


def test_texts_are_plain_technical_english() -> None:
    places = [f"{place}: {found!r}" for place, found in _faults()]
    assert not places, f"{len(places)} places have a word that STYLE bans:\n" + "\n".join(places)


def _faults() -> Iterator[tuple[str, str]]:
    for path in [*sorted((ROOT / "raftsched").rglob("*.py")), *sorted((ROOT / "chaos").rglob("*.py"))]:
        for line, text, is_docstring in _texts(path.read_text(encoding="utf-8")):
            place = f"{path.relative_to(ROOT)}:{line}"
            yield from ((place, found[0]) for found in BANNED.finditer(text))
            if is_docstring and (found := NOUN_CLAUSE.match(text)):
                yield place, found[0]
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        prose = CODE.sub(lambda code: re.sub(r".+", "", code[0]), path.read_text(encoding="utf-8"))
        for found in BANNED.finditer(prose):
            yield f"{path.relative_to(ROOT)}:{prose.count(chr(10), 0, found.start()) + 1}", found[0]


def _texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the line, the text and "is it a docstring" of every string with a space and every comment."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value, id(node) in docstrings
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.removeprefix("# "), False
