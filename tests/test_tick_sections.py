"""tam_tick.py can be read from the top: its table of contents, and what its sections use."""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import tam_tick
from support import ROOT

SOURCE = (ROOT / "tam_tick.py").read_text(encoding="utf-8")
BANNER = re.compile(r"# ---- (.+?) -+$")


def sections() -> dict[str, int]:
    """The line of each banner, in order."""
    found = ((BANNER.match(line), number) for number, line in enumerate(SOURCE.splitlines(), 1))
    return {match[1]: number for match, number in found if match}


def names_in(node: ast.AST) -> Iterator[ast.Name]:
    """The names that are looked up when the code runs: annotations are not."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Name):
                yield child
            if isinstance(child, ast.AST):
                yield from names_in(child)


def test_the_table_of_contents_names_every_section_in_order() -> None:
    listed = re.findall(r"^    (.{19}) .", tam_tick.__doc__, re.MULTILINE)
    assert [name.strip() for name in listed] == list(sections())


def test_banners_are_of_one_width() -> None:
    for line in SOURCE.splitlines():
        if line.lstrip().startswith("# --"):
            assert len(line) == 100 if BANNER.match(line) else re.fullmatch(" *# -- .+ --", line)


def test_a_function_has_its_name_alone() -> None:
    """The sections are one module: what a later one defines again, an earlier one would call."""
    names = [node.name for node in ast.parse(SOURCE).body if hasattr(node, "name")]
    assert [name for name in names if names.count(name) > 1] == []


def test_a_section_uses_only_what_stands_above_its_end() -> None:
    ends = [*list(sections().values())[1:], len(SOURCE.splitlines()) + 1]
    tree = ast.parse(SOURCE)
    defined: dict[str, int] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        for target in targets:
            name = getattr(target, "name", None) or getattr(
                getattr(target, "target", target), "id", None)
            for one in target.elts if isinstance(target, ast.Tuple) else ():
                defined.setdefault(one.id, node.lineno)
            if name:
                defined.setdefault(name, node.lineno)
    later = [
        f"line {name.lineno}: {name.id} of line {defined[name.id]}"
        for node in tree.body for name in names_in(node)
        if defined.get(name.id, 0) >= next(end for end in ends if end > node.lineno)
    ]
    assert later == []
