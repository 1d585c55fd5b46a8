"""NUL in files of ours: each reader refuses it, or takes it for the text that it is, in words of one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")
pytest.importorskip("scipy")

import yaml

from support.daemons import run_here
from switchsum.planning import topology
from switchsum_controller.trees import fleet_file
from switchsum_protocol.errors import SwitchsumError

FLEET = {
    "switches": {
        "root": {"p4runtime": "127.0.0.1:9559", "udp": "127.0.0.1:5000"},
        "leaf": {"p4runtime": "unix:/tmp/leaf", "udp": "127.0.0.1:5001", "ports": {"root": 4}, "above": "root"},
    }
}
TOPOLOGY = {
    "switches": ["s1", "s2"],
    "hosts": {"h1": "10.0.0.1", "h2": "10.0.0.2"},
    "mbit": 100,
    "links": [{"between": ["h1", "s1"]}, {"between": ["h2", "s2"]}, {"between": ["s1", "s2"]}],
    "jobs": {"digits": ["h1", "h2"]},
}
READERS: dict[str, tuple[Any, Callable[[Path], object], Callable[[Any], str]]] = {
    "fleet": (FLEET, lambda path: fleet_file.load(path, 256), json.dumps),
    "topology": (TOPOLOGY, topology.load, lambda document: str(yaml.safe_dump(document))),
}


def with_nul(document: Any) -> Iterator[Any]:
    """Yield a document once for each text in it, keys too, which then ends with NUL."""
    if isinstance(document, str):
        yield document + "\0"
    elif isinstance(document, list):
        for index, item in enumerate(document):
            for changed in with_nul(item):
                yield [*document[:index], changed, *document[index + 1 :]]
    elif isinstance(document, dict):
        for key, value in document.items():
            rest = {name: one for name, one in document.items() if name != key}
            yield {**rest, f"{key}\0": value}
            for changed in with_nul(value):
                yield {**rest, key: changed}


@pytest.mark.parametrize("kind", READERS)
def test_nul_in_any_text_of_a_file_is_an_error_of_ours(kind: str, tmp_path: Path) -> None:
    document, load, write = READERS[kind]
    path = tmp_path / "file"
    path.write_text(write(copy.deepcopy(document)))
    load(path)
    wrong = [write(one) for one in with_nul(document)]
    assert len(wrong) > 10
    good = write(document)
    wrong += [f"{good[:at]}\0{good[at:]}" for at in range(0, len(good), 7)]
    for text in wrong:
        path.write_text(text)
        with pytest.raises(SwitchsumError) as caught:
            load(path)
        assert all(line.isprintable() for line in str(caught.value).splitlines()), text


@pytest.mark.parametrize(
    ("arguments", "content"),
    [
        (["controller", "--fleet"], json.dumps(next(with_nul(FLEET))).encode()),
        (["controller", "--fleet"], b'{"switches": {\0}}'),
        (["replay"], b"\x0a\x0d\x0d\x0a\0\0\0\0"),
        (["replay"], bytes(64)),
    ],
)
def test_commands_say_it_in_one_line(arguments: list[str], content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    done = run_here(*arguments, str(tmp_path / "file"))
    assert done.returncode in (1, 2), done.stdout
    assert done.stderr.startswith("switchsum: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.rstrip("\n").isprintable()
