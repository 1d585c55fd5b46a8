"""Print the sentences of pages and public docstrings that are hard to read: long ones, and those without a verb.

Run as `python -m tools.prose`, with files to look at them alone.  It is a guide for the eye: a long sentence may be
right, a short one wrong.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MOST_WORDS: Final = 35
PAGES: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/**/*.md",
    "switch/docs/**/*.md",
    "lab/docs/**/*.md",
    "*/README.md",
    "exercises/**/README.md",
)
LEFT_OUT: Final = {
    "docs/cli.md",
    "docs/results/pytorch-tests.md",
    "docs/results/tree-rates.md",
    "docs/citing.md",
} | {
    "docs/glossary.md",
}
"""Pages that a program writes, titles of papers, and definitions, which need no verb."""
DOCSTRINGS: Final = (
    "host/switchsum_host/connect.py",
    "host/switchsum_host/api/communicator.py",
    "host/switchsum_host/api/operation_queue.py",
    "host/switchsum_host/api/sparse.py",
    "host/switchsum_host/api/statistics.py",
    "host/switchsum_host/compress/*.py",
    "protocol/switchsum_protocol/errors.py",
    "src/switchsum/testing/__init__.py",
    "src/switchsum/testing/local.py",
    *(
        f"src/switchsum/torch/{name}.py"
        for name in ("averaging", "compression", "elastic", "hooks", "lane_choice", "lanes_of_models")
    ),
    *(f"src/switchsum/torch/{name}.py" for name in ("outer", "scheduled", "group", "groups", "layers")),
    "switch/src/switchsum_switch/api/switch.py",
    "switch/src/switchsum_switch/names/*.py",
    "switch/src/switchsum_switch/queues/queue_views.py",
    "switch/src/switchsum_switch/state/clock.py",
)
"""Modules whose public names the API page shows."""
VERBS: Final = """
accept add agree answer appear apply ask average be bear become begin belong bid bind block break bring build call can
cannot carry change check choose clear clone close combine come compare compile compress compute connect contain
continue copy cost could count create cross cut decide define deliver depend describe destroy differ divide do draw
drive drop end enter exchange expect explain fail fall fill find finish fit fix follow forget form forward gain gather
get give go grow halve handle happen have hear help hold import insert install interpret join keep know last lead
learn leave let lie limit link list listen load look lose make mark match may mean measure meet might move multiply
must name need note number offer open oust overflow overlap own pass pause pay plan play point post prepare print
process prove put raise reach read receive record recover reduce refuse register remember remove repeat replace replay
report require reserve reset restore return round run save say scale see select send serve set share should show
shrink skip sleep speak split stand start state stay stop store sum support switch take talk tell test think time
train travel trust try turn type understand use verify visit wait want warn will work would write yield
"""
IRREGULAR: Final = """
am are aren't been began begun broke broken came chose chosen did does doesn't don't done fell found gave given goes
gone got grew had has held is isn't it's kept knew known lay led left lies lost made met paid put ran read rose said
sat saw says seen sent set shown spent split stood stuck taken thought told took was went were won written wrote
"""
FENCE: Final = re.compile(r"^ *(`{3,}).*?^ *\1", re.MULTILINE | re.DOTALL)
COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
NOT_PROSE: Final = re.compile(r"^>>>(?:.+\n)*|^ *(?:\||#|!\[).*$", re.MULTILINE)
"""Prompts with what they print, rows of tables, headings, pictures."""
LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM: Final = re.compile(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+")
RECORD: Final = re.compile(r"easured on .+, load \d")
"""Of where and when a table was measured: a list of versions, no sentence."""
END: Final = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!etc)[.?!](?:\*\*|\)|\")*\s+")


def prose_of(markdown: str) -> str:
    """Return a page without code, tables, headings and addresses."""
    text = COMMENT.sub("\n\n", FENCE.sub("\n\n", markdown))
    return LINK.sub(r"\1", NOT_PROSE.sub("\n\n", text))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text: paragraphs and items of lists are apart."""
    for paragraph in ITEM.split("\n" + text):
        for one in END.split(" ".join(paragraph.split()) + " "):
            if words(one) and not RECORD.search(one):
                yield one.strip()


def words(sentence: str) -> list[str]:
    """Return the words of a sentence; what has neither letter nor digit is none."""
    return [word for word in sentence.split() if re.search(r"\w", word)]


def has_verb(sentence: str) -> bool:
    """Return whether some word of a sentence may be its verb, by a list of those that the field uses."""
    for word in re.findall(r"[a-z']+", sentence.lower()):
        stems = (word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ed"), word.removesuffix("d"))
        if word in IRREGULAR.split() or {*VERBS.split()} & {*stems, f"{word[:-3]}y" if word.endswith("ies") else word}:
            return True
    return False


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a module's public names, attributes included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            is_private = getattr(node, "name", "").startswith("_") and getattr(node, "name", "") != "__init__"
            if not is_private and (text := ast.get_docstring(node)):
                yield text
            if isinstance(node, ast.ClassDef) and not is_private:
                yield from attribute_texts(node)


def attribute_texts(node: ast.ClassDef) -> Iterator[str]:
    """Yield the texts that stand below a class's attributes."""
    for before, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


def prose_of_docstring(text: str) -> str:
    """Return a docstring's sentences: without examples, and each argument's text as a paragraph of its own."""
    text = re.split(r"^Example:$", text, maxsplit=1, flags=re.MULTILINE)[0]
    text = re.sub(r"^(?:Args|Returns|Raises|Note):$", "\n", text, flags=re.MULTILINE)
    return re.sub(r"^ {4}[\w*]+(?: \([^)]*\))?: ", "\n\n", text, flags=re.MULTILINE)


def files() -> list[Path]:
    """Return the files that are looked at."""
    pages = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    return sorted(
        path
        for path in {*pages, *(path for pattern in DOCSTRINGS for path in ROOT.glob(pattern))}
        if path.relative_to(ROOT).as_posix() not in LEFT_OUT and not path.relative_to(ROOT).parts[0].startswith(".")
    )


def read(path: Path) -> list[str]:
    """Return the sentences of a file."""
    text = path.read_text()
    if path.suffix == ".md":
        return list(sentences(prose_of(text)))
    return [one for found in docstrings(text) for one in sentences(prose_of_docstring(found))]


def faults(path: Path) -> tuple[list[str], list[str]]:
    """Return the sentences of a file that are long, and those of a page that lack a verb."""
    found = read(path)
    fragments = [one for one in found if path.suffix == ".md" and len(words(one)) > 3 and not has_verb(one)]
    return [one for one in found if len(words(one)) > MOST_WORDS], fragments


def page_median() -> float:
    """Return how many words a sentence of all pages has in the median."""
    return statistics.median(len(words(one)) for path in files() if path.suffix == ".md" for one in read(path))


def show(path: Path) -> None:
    """Print what is hard to read in a file, and how long it and its sentences are."""
    found = read(path)
    long, fragments = faults(path)
    lengths = sorted(len(words(one)) for one in found) or [0]
    name = path.relative_to(ROOT).as_posix()
    size = len(path.read_text().split())
    print(f"{name}: {size} words; a sentence has {statistics.median(lengths):g} in the median, {lengths[-1]} at most")
    for one in long:
        print(f"  {len(words(one))} words: {one}")
    for one in fragments:
        print(f"  no verb? {one}")


def main() -> None:
    """Print what is hard to read, in all files or in those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    for path in [one.resolve() for one in given.files] or files():
        show(path)
    found = [faults(path) for path in files()]
    long, fragments = (sum(map(len, kind)) for kind in zip(*found, strict=True))
    print(f"a sentence of all pages has {page_median():g} words in the median")
    print(f"in all {long} sentences above {MOST_WORDS} words, {fragments} without a verb")


if __name__ == "__main__":
    main()
