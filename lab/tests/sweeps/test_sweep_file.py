"""A sweep file says which cells there are, and an error names the line that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchsum_lab.sweeps.axes import COLUMNS, FIELDS, Cell, Impossible, written
from switchsum_lab.sweeps.checks import check
from switchsum_lab.sweeps.sweep_file import Sweep, SweepError, load
from switchsum_protocol.errors import UsageError


def read(tmp_path: Path, text: str) -> Sweep:
    path = tmp_path / "one.yaml"
    path.write_text(text)
    return load(path)


def wrong(tmp_path: Path, text: str) -> list[str]:
    """Return the lines of the error, without the path."""
    with pytest.raises(SweepError) as caught:
        read(tmp_path, text).check(check)
    first, *lines = str(caught.value).splitlines()
    assert first == "nothing was run:"
    return [line.removeprefix(f"{tmp_path}/one.yaml, ") for line in lines]


def test_cells_are_the_product_of_the_axes_in_their_order(tmp_path: Path) -> None:
    sweep = read(tmp_path, "workers: [2, 4]\nloss: [0, 1%]\nbytes: 64KiB\nrepetitions: 3\n")
    assert [(cell.workers, cell.loss, cell.bytes) for cell in sweep.cells] == [
        (2, 0.0, 65_536),
        (2, 0.01, 65_536),
        (4, 0.0, 65_536),
        (4, 0.01, 65_536),
    ]
    assert (sweep.repetitions, sweep.varying, sweep.title) == (3, ("workers", "loss"), "one")


def test_units_are_read_as_the_rest_of_the_command_line_reads_them(tmp_path: Path) -> None:
    [cell] = read(tmp_path, "rate: 1gbit\ndelay: 5us\ndensity: 0.5\nlanes: int8,2048\nfusion: yes\ntitle: it\n").cells
    assert cell == Cell(rate_mbit=1000.0, delay_us=5.0, density=0.5, lanes="2048,int8", fusion=True)


def test_except_leaves_cells_out(tmp_path: Path) -> None:
    text = "workers: [2, 3]\nprotocol: [switchsum, ring]\nexcept:\n  - {workers: 3, protocol: ring}\n"
    assert [(cell.workers, cell.protocol) for cell in read(tmp_path, text).cells] == [
        (2, "switchsum"),
        (2, "ring"),
        (3, "switchsum"),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("workers: 4\nlose: 1%\n", "line 2: unknown key 'lose': did you mean loss?"),
        ("workers:\n  - 4\n  - x\n", "line 3: workers: a whole number from 2 on, not 'x'"),
        ("workers: 4\nloss: []\n", "line 2: loss: this axis is empty; it needs at least one value"),
        ("workers: 4\nworkers: 8\n", "line 2: workers stands there twice"),
        ("loss: [0, 1%,\n  0.01]\n", "line 2: loss: the value 0.01 stands there twice"),
        ("loss: 1.0\n", "line 1: loss: a share such as 0.01 or 1%, not '1.0'"),
        ("bytes: [[1, 2]]\n", "line 1: bytes: a value or a list of values, and no list or mapping in it"),
        ("workers: 4\nrepetitions: 0\n", "line 2: repetitions: a whole number from 1 to 10,000"),
        ("loss: [0]\nexcept:\n  - {loss: 2%}\n", "line 3: except: the axis loss has no value 0.02"),
        ("loss: 0\nexcept:\n  - {loss: 0}\n", "line 2: every cell is left out, and none remains"),
        ("loss: 0\nexcept: ring\n", "line 2: except: a list such as `- {protocol: ring, loss: 1%}`"),
        ("a: [\n", "line 2: this is no YAML: expected the node content, but found '<stream end>'"),
        ("- workers\n", "line 1: a sweep is a mapping of axes to values, such as `workers: [4, 8]`"),
        ("loss: &a [*a]\n", "line 1: loss: a value or a list of values, and no list or mapping in it"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    assert wrong(tmp_path, text) == [line]


def test_an_empty_axis_is_said_beside_what_else_is_wrong(tmp_path: Path) -> None:
    assert wrong(tmp_path, "workerz: 4\nloss: []\nbytes: [x]\n") == [
        "line 1: unknown key 'workerz': did you mean workers?",
        "line 2: loss: this axis is empty; it needs at least one value",
        "line 3: bytes: a size is written like 100MB or 64KiB and above 0, not 'x'",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("loss: 0\nworkers: [8, 40]\n", "line 2: workers: one switch has bits for 32 workers, not 40: give a topology"),
        ("workers: 40\nlinks: shm\n", "line 1: workers: a job has 1 to 32 workers, not 40: --topology"),
        ("jobs: 2\nslots: [64,\n  600]\n", "line 3: slots: a job of 2 has 1 to 512 slots, not 600"),
        ("jobs: 2\nshared_slots: [none,\n  2000]\n", "line 3: shared_slots: a switch has 1 to 1024 slots, not 2000"),
        ("jobs: 2\naggregator: 1gbit\n", "line 2: aggregator: an aggregator is there for shared slots only"),
        ("workers: 2\nlinks: shm\nslots: 2000\n", "line 3: slots: "),
        (
            "workers: 2\nprotocol: [nccl]\n",
            "line 2: protocol: nccl has no host.py: name the folder of a protocol, ",
        ),
        ("workers: 6\nprotocol: halving-doubling\n", "line 1: workers: halving-doubling needs a power of two"),
        ("topology: nowhere.yaml\n", "line 1: topology: nowhere.yaml is neither a file nor a shape"),
        ("workers: 9\ntopology: star,8\n", "line 1: workers: a topology of 8 hosts has room for 2 to 8 workers, not 9"),
        ("workers: 2\nprotocol: switchml\nfusion: true\n", "line 3: fusion: switchml has frames of one block"),
        (
            "protocol: omnireduce\nblock: 4\nfusion: true\n",
            "line 3: fusion: omnireduce takes blocks of 8 to 256",
        ),
        (
            "links: veth\nprotocol: omnireduce\nfusion: true\n",
            "line 3: fusion: omnireduce has it on virtual",
        ),
        ("protocol: switchml\njobs: 2\n", "line 2: jobs: switchml runs one job on a switch, not 2"),
        (
            "protocol: atp\njobs: 30\nworkers: 9\n",
            "line 2: jobs: atp runs with 2 workers or more, and 253 hosts",
        ),
        ("protocol: switchml\nlanes: int8\n", "line 2: lanes: switchml takes a number of values, not int8"),
        ("lanes: 64\n", "line 1: lanes: a frame has 128, 256, 2048 lanes, not 64"),
        (
            "links: udp\nprotocol: switchml\n",
            "line 1: links: udp links carry only our own frames: switchml runs",
        ),
        ("links: shm\nrate: 1gbit\n", "line 2: rate: --rate needs --links veth"),
        ("links: shm\ndelay: 1us\n", "line 2: delay: only virtual links have it, not shm"),
        ("workers: 2\nfail: s9@1ms\n", "line 2: fail: there is no switch s9: "),
        ("links: veth\noverhead: 24\n", "line 2: overhead: only virtual links have it, not veth; 0 is what veth has"),
        ("links: udp\nprotocol: gloo\nloss: 1%\n", "line 3: loss: gloo has none of it: only switchsum has"),
        ("protocol: ring\ncollective: topk\n", "line 2: collective: ring has none of this: only switchsum has"),
        ("bytes: 1GB\nworkers: 2\ndensity: 1%\n", "line 1: overlap: these arrays are too large"),
        ("bytes: 10\n", "line 1: bytes: an array of float32 has a multiple of 4 bytes, not 10"),
        ("lanes: 2048\nmtu: 1500\n", "line 2: mtu: frames of 2048 lanes need an MTU of "),
        ("mtu: 576\n", "line 1: mtu: frames of 128 lanes need an MTU of at least"),
    ],
)
def test_a_cell_that_is_impossible_is_said_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    [found] = wrong(tmp_path, text)
    assert found.startswith(line)


def test_a_missing_peer_is_said_before_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    [found] = wrong(tmp_path, "links: shm\nprotocol: [switchsum, openmpi]\n")
    assert found == (
        "line 2: protocol: openmpi needs mpirun: apt install openmpi-bin (in 1 of 2 cells; `except` leaves cells out)"
    )


def test_an_error_of_several_values_names_each_line_once(tmp_path: Path) -> None:
    found = wrong(tmp_path, "loss: [0, 1%]\nworkers:\n  - 33\n  - 4\n  - 34\n")
    assert [line.partition(":")[0] for line in found] == ["line 3", "line 5"]


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not UTF-8 text"):
        load(path)
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "two.yaml")


def test_every_field_of_a_cell_has_an_axis_and_is_written() -> None:
    assert {*COLUMNS} == {*FIELDS}
    assert [written(name, getattr(Cell(), name)) for name in ("bytes", "density", "rate_mbit")] == [
        "1 MB",
        "100 %",
        "-",
    ]
    assert Impossible("loss", "why").axis == "loss"


def test_nothing_may_be_one_of_several_values(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("mark: [none, 24KiB]\nqueue: [none, 64f]\nfail: [none, s1@1ms]\nlinks: virtual\n")
    cells = load(path).cells
    assert {(cell.mark, cell.queue, cell.fail) for cell in cells} >= {(None, None, None), ("24KiB", "64f", "s1@1ms")}
    assert len(cells) == 8
