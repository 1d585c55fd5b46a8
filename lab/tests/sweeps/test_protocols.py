"""Other systems' protocols: each adds right, without and with loss, in virtual time."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

from switchsum.launch.options import RunOptions
from switchsum.planning.sources import read
from switchsum.shipped import shipped
from switchsum_lab import baselines
from switchsum_lab.protocols.seam import Array, Peer, Steps, digest, load
from switchsum_lab.protocols.timing import RoundTrips
from switchsum_lab.protocols.virtual import VirtualRun, simulate
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.scenario import Scenario
from switchsum_lab.sweeps import others, simulated
from switchsum_lab.sweeps.axes import Cell, Impossible
from switchsum_protocol.errors import LocalError, UsageError
from tools.compile_baselines import builds

ROOT = Path(__file__).parents[3]
NAMES = sorted(path.parent.name for path in baselines.FOLDER.glob("*/host.py"))
FEW_CELLS = 1024
"""Cells of ATP's 20,000 that hosts use, so that packets meet."""
LANES = {name: min(builds(baselines.FOLDER / name).values()) for name in NAMES}
"""Values in a frame of the smallest build of each."""


def started(
    name: str, workers: int = 3, *, seed: int = 1, slots: int = 16, loss: float = 0.0, delay_s: float = 1e-6
) -> VirtualRun:
    protocol = load(name)
    world = protocol.world(workers=workers, lanes=LANES[name], slots=slots, seed=seed)
    return VirtualRun(protocol, world, CableConditions(rate_bps=1e9, loss=loss, delay_s=delay_s))


def own(arrays: list[Array], peer: Peer, rank: int) -> Steps:
    return peer.allreduce(arrays[rank])


def drawn(workers: int, size: int) -> tuple[list[Array], Array]:
    random = np.random.default_rng(workers + size)
    arrays = [random.standard_normal(size).astype(np.float32) for _ in range(workers)]
    return arrays, np.sum(arrays, axis=0, dtype=np.float64)


@pytest.mark.parametrize("name", NAMES)
def test_every_sum_is_right_without_and_with_loss(name: str) -> None:
    for loss in (0.0, 0.02):
        run = started(name, loss=loss)
        # Last frames are not full, and slots are used again by the next arrays.  Of the largest one some frame is lost.
        for size in (1, 1000, 777, 20_000):
            arrays, total = drawn(3, size)
            assert run.together(partial(own, arrays)) is not None
            for array in arrays:
                np.testing.assert_allclose(array, total, rtol=1e-4, atol=1e-4)
                assert array.tobytes() == arrays[0].tobytes()
        assert run.together(lambda peer, rank: peer.barrier()) is not None
        lost = sum(link.lost for link in run.network.links.values())
        assert (lost > 0) == (loss > 0)
        if loss:
            assert run.statistics()["repeats"] > 0


def test_a_job_of_atp_that_is_alone_has_a_cell_for_each_packet_in_flight() -> None:
    run, (arrays, total) = started("atp", 4, slots=256, delay_s=200e-6), drawn(4, 40_000)
    assert run.together(partial(own, arrays)) is not None
    np.testing.assert_allclose(arrays[0], total, atol=1e-4)
    assert run.statistics()["fallbacks"] == 0
    with pytest.raises(UsageError, match="integers hold up to"):
        run.together(partial(own, [np.full(4, 1e6, np.float32)] * 4))


def test_omnireduce_sends_no_block_that_is_zero_on_all_workers_and_skips_those_of_one() -> None:
    size, random, sent = 100 * LANES["omnireduce"] - 5, np.random.default_rng(7), []
    for density in (1.0, 0.3, 0.02):
        for loss in (0.0, 0.02):
            run = started("omnireduce", 4, loss=loss)
            arrays = [
                (np.repeat(random.random(100) < density, LANES["omnireduce"])[:size] * (rank + 0.5)).astype(np.float32)
                for rank in range(4)
            ]
            total, blocks = np.sum(arrays, axis=0), [np.count_nonzero(array) for array in arrays]
            assert run.together(partial(own, arrays)) is not None
            for array in arrays:
                np.testing.assert_array_equal(array, total)
        values = [host.bytes for host in run.hosts[:4]]
        sent.append(sum(values))
        assert all(4 * count <= bytes_sent for count, bytes_sent in zip(blocks, values, strict=True))
    assert sent[0] > 2.5 * sent[1] > 10 * sent[2]


def test_omnireduce_fuses_small_blocks_into_a_frame() -> None:
    size, block, random = 20_000, 32, np.random.default_rng(7)
    filled = np.repeat(random.random((4, -(-size // block))) < 0.05, block, axis=1)[:, :size]
    sent: list[int] = []
    for fused, loss in ((None, 0.0), (block, 0.0), (block, 0.02)):
        protocol = load("omnireduce")
        world = protocol.world(workers=4, lanes=256, slots=16, block=fused)
        run = VirtualRun(protocol, world, CableConditions(rate_bps=1e9, loss=loss))
        for _ in range(2):  # streams are used again by the next array
            arrays = [(filled[rank] * (rank + 0.5)).astype(np.float32) for rank in range(4)]
            total = np.sum(arrays, axis=0)
            assert run.together(partial(own, arrays)) is not None
            for array in arrays:
                np.testing.assert_array_equal(array, total)
        sent.append(sum(host.bytes for host in run.hosts[:4]))
    assert 3 * sent[1] < sent[0]


def test_servers_are_as_many_as_the_protocol_or_the_user_says() -> None:
    world = load("parameter_server").world(workers=3, lanes=256, slots=4)
    assert (world.servers, world.hosts) == (3, 6)
    seconds = {}
    for servers in (1, 3):
        protocol = load("parameter_server")
        world = protocol.world(workers=3, lanes=256, slots=32, servers=servers)
        run, (arrays, total) = VirtualRun(protocol, world, CableConditions(rate_bps=1e9)), drawn(3, 40_000)
        seconds[servers] = run.together(partial(own, arrays)) or 0.0
        np.testing.assert_allclose(arrays[0], total, atol=1e-4)
    assert 2.5 < seconds[1] / seconds[3] < 3.5  # one server's link takes what three workers send
    with pytest.raises(UsageError, match="atp has 1 servers, not 2"):
        load("atp").world(workers=3, lanes=64, slots=4, servers=2)
    with pytest.raises(UsageError, match="switchml has 0 servers"):
        load("switchml").world(workers=3, lanes=64, slots=4, servers=1)
    with pytest.raises(UsageError, match="parameter_server has 3 servers, not 0"):
        load("parameter_server").world(workers=3, lanes=256, slots=4, servers=0)
    many = Cell(protocol="parameter_server", workers=200, servers=8)
    others.load(many)
    with pytest.raises(Impossible, match="200 workers and 54 servers") as refused:
        others.load(replace(many, servers=54))
    assert refused.value.axis == "servers"


def test_a_time_out_is_as_many_mean_round_trips_as_asked_for() -> None:
    for least_rounds, expected in ((1.0, 1e-3), (3.0, 3e-3)):
        rounds = RoundTrips(1e-6, least_rounds)
        for _ in range(100):
            rounds.measured(1e-3)
        assert rounds.timeout_s == pytest.approx(expected)
        rounds.late()
        assert rounds.timeout_s == pytest.approx(2 * expected)
        for _ in range(2 * 64 - 1):
            rounds.answered(9e-3, was_repeated=True)  # no round trip: which of the two was answered nobody knows (Karn)
            assert rounds.timeout_s == pytest.approx(expected)
        rounds.answered(9e-3, was_repeated=True)  # all of two windows: the time-out is too short
        assert rounds.timeout_s == pytest.approx(2 * expected)
        rounds.answered(1e-3, was_repeated=False)
        assert rounds.timeout_s == pytest.approx(expected)


def test_a_block_of_parameter_servers_that_later_ones_have_passed_is_pushed_again_at_once() -> None:
    protocol = load("parameter_server")
    world = replace(protocol.world(workers=2, lanes=256, slots=64, seed=1), least_timeout_s=1.0)
    run = VirtualRun(protocol, world, CableConditions(rate_bps=1e9, lost_frames=(30,)))
    arrays = [np.full(51_200, rank + 1, np.float32) for rank in range(2)]
    seconds = run.together(partial(own, arrays))
    assert seconds is not None
    assert seconds < 0.1, "a time-out would take a second"
    assert (np.array(arrays) == 3).all()
    assert run.statistics()["repeats"] >= 2


def test_time_outs_grow_beyond_the_round_trip_of_a_link_whose_bucket_is_empty() -> None:
    protocol = load("ring")
    world = replace(protocol.world(workers=4, lanes=256, slots=128, seed=1), least_timeout_s=2e-3)
    # The bucket lets the first frames through at once, and then a window takes 23 ms.
    run = VirtualRun(protocol, world, CableConditions(rate_bps=50e6, bucket_bytes=256 << 10, burst_rate_bps=1e12))
    arrays = [np.full(250_000, rank, np.float32) for rank in range(4)]
    seconds = run.together(partial(own, arrays))
    assert seconds is not None
    assert seconds < 0.8  # 1.08 s, and 18,652 repeats, where an answer to a repeat changes nothing
    assert run.statistics()["repeats"] < 10_000


def test_a_worker_has_what_a_round_trip_holds_in_flight_or_what_its_authors_took() -> None:
    assert [load("switchml").window(lanes, 6) for lanes in (32, 64, 256)] == [128, 64, 16]
    assert load("switchml").window(256, 40) == 40
    assert load("atp").window(64, 6) == 200
    assert load("skeleton").window(32, 6) == 6
    assert [load("omnireduce").window(256, fitting, 8) for fitting in (6, 33, 40)] == [32, 40, 40]
    assert load("parameter_server").window(256, 65, 8) == 65


def test_a_worker_of_omnireduce_has_as_many_streams_for_each_aggregator() -> None:
    """With 33 streams one of 8 aggregators would have five, and the others four: a fifth more time."""
    default, even = (
        simulated.run(Cell(protocol="omnireduce", workers=8, bytes=1_000_000, delay_us=5.0, slots=slots), 0)
        for slots in (None, 40)
    )
    assert default == even


def test_where_nothing_is_lost_omnireduce_sends_only_blocks_that_are_asked_for() -> None:
    size, random = 100 * 256, np.random.default_rng(3)
    filled = np.repeat(random.random((4, 100)) < 0.2, 256, axis=1)
    sent = []
    for loss in (0.0, 1e-9):
        protocol = load("omnireduce")
        run = VirtualRun(
            protocol, protocol.world(workers=4, lanes=256, slots=16), CableConditions(rate_bps=1e9, loss=loss)
        )
        arrays = [(filled[rank] * (rank + 0.5)).astype(np.float32) for rank in range(4)]
        total = np.sum(arrays, axis=0)
        assert run.together(partial(own, arrays)) is not None
        for array in arrays:
            np.testing.assert_array_equal(array, total)
        sent.append(sum(host.frames for host in run.hosts[:4]))
        assert size == len(total)
    values = int(filled[:, ::256].sum())
    assert values <= sent[0] <= values + 4 * 16  # the first frame of each stream comes without its block, too
    assert sent[1] > 1.5 * sent[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    def digest_of(seed: int) -> str:
        run, (arrays, _) = started(name, 2, seed=seed, loss=0.02), drawn(2, 600)
        run.together(lambda peer, rank: peer.allreduce(arrays[rank]))
        return run.network.digest

    assert digest_of(3) == digest_of(3) != digest_of(4)


def test_a_scenario_is_simulated_by_another_protocol() -> None:
    scenario = Scenario(planned=read("star,4", 1000.0), workers=4, size=40_000)
    found = simulate(scenario, "switchml")
    assert (found.way, found.is_complete, found.is_right, found.finished) == ("switchml", True, True, 4)
    assert 40_000 * 8 / 1e9 < found.simulated_s < 1e-3
    with pytest.raises(UsageError, match="switchml runs one job on a switch, not 2"):
        simulate(Scenario(planned=read("star,4", 1000.0), workers=2, size=4000, jobs=2), "switchml")


@pytest.mark.parametrize("name", [name for name in NAMES if getattr(load(name).host, "ANY_JOBS", False)])
def test_jobs_that_share_a_switch_get_their_own_sums(name: str) -> None:
    protocol, jobs, size = load(name), 3, 3000
    world = protocol.world(workers=2, lanes=LANES[name], slots=16, jobs=jobs)
    run = VirtualRun(protocol, world, CableConditions(rate_bps=1e9, loss=0.01), job_count=jobs)
    arrays = [drawn(2, size)[0][rank] * (job + 1) for job in range(jobs) for rank in range(2)]
    totals = [arrays[2 * job] + arrays[2 * job + 1] for job in range(jobs)]
    assert run.together(partial(own, arrays)) is not None
    for number, array in enumerate(arrays):
        np.testing.assert_allclose(array, totals[number // 2], rtol=1e-4, atol=1e-4)


def test_what_finds_no_cell_of_atps_is_added_by_the_server_and_gets_another_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    protocol, jobs = load("atp"), 3
    monkeypatch.setattr(protocol.host, "CELLS", FEW_CELLS)
    world = protocol.world(workers=2, lanes=32, slots=64, jobs=jobs)  # 384 places
    run, found = VirtualRun(protocol, world, CableConditions(rate_bps=1e9, delay_s=100e-6), job_count=jobs), []
    for _ in range(4):
        arrays = [drawn(2, 8000)[0][rank] for _ in range(jobs) for rank in range(2)]
        totals = [arrays[2 * job] + arrays[2 * job + 1] for job in range(jobs)]
        before = run.statistics()["fallbacks"]
        assert run.together(partial(own, arrays)) is not None
        for number, array in enumerate(arrays):
            np.testing.assert_allclose(array, totals[number // 2], atol=1e-4)
        found.append(run.statistics()["fallbacks"] - before)
    assert found[0] > 0
    assert found[-1] < found[0] / 2  # who has collided has moved


def test_more_jobs_of_atp_find_fewer_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    for jobs in (1, 8):
        protocol = load("atp")
        monkeypatch.setattr(protocol.host, "CELLS", FEW_CELLS)
        world = protocol.world(workers=2, lanes=32, slots=128, jobs=jobs)
        run = VirtualRun(protocol, world, CableConditions(rate_bps=1e9, delay_s=100e-6), job_count=jobs)
        arrays = [drawn(2, 16_000)[0][rank] for _ in range(jobs) for rank in range(2)]
        assert run.together(partial(own, arrays)) is not None
        shares.append(run.statistics()["fallbacks"] / jobs)
    assert shares[1] > 50 + 1.5 * shares[0]


def test_a_protocol_that_waits_for_nothing_or_fails_is_named(tmp_path: Path) -> None:
    for body, error, words in (
        ("yield None", LocalError, "stands still"),
        ("yield 1 / 0", ZeroDivisionError, "division"),
        ("return None", UsageError, "generator"),
    ):
        folder = tmp_path / re.sub(r"\W", "", body)
        folder.mkdir()
        text = (baselines.FOLDER / "skeleton" / "host.py").read_text()
        start = text.index("        for start in")
        end = text.index("    def barrier")
        (folder / "host.py").write_text(f"{text[:start]}        {body}\n\n{text[end:]}")
        for end_of_name in ("json", "p4info.txtpb"):
            made = f"program.{end_of_name}"
            (folder / made).write_bytes((baselines.FOLDER / "skeleton" / made).read_bytes())
        protocol = load(folder)
        run = VirtualRun(protocol, protocol.world(workers=2, lanes=32, slots=1), CableConditions())
        with pytest.raises(error, match=words):
            run.together(lambda peer, rank: peer.allreduce(np.zeros(4, np.float32)))


def test_folders_that_hold_no_protocol_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no host\.py.*switchml"):
        load(tmp_path)
    (tmp_path / "host.py").write_text("def entries(world): return []\n")
    with pytest.raises(UsageError, match="no function peer"):
        load(tmp_path)
    (tmp_path / "host.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(UsageError, match="ModuleNotFoundError"):
        load(tmp_path)
    with pytest.raises(UsageError, match="2 workers or more"):
        load("switchml").world(workers=1, lanes=32, slots=1)
    with pytest.raises(UsageError, match="253 hosts in all, not 200 workers and 200 servers"):
        load("omnireduce").world(workers=200, lanes=256, slots=1)
    (tmp_path / "host.py").write_text("def entries(world): return []\ndef peer(world, link): return None\n")
    with pytest.raises(UsageError, match="no program for 7 values"):
        load(tmp_path).program(7)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "--links shm carries only frames of our own protocol: --baseline needs --links veth"),
        ({"links": "udp"}, "--links udp carries only frames of our own protocol: --baseline needs --links veth"),
        ({"links": "veth@200,veth@100"}, "one link for each worker, not --links veth@200,veth@100"),
        ({"links": "veth", "pcap": "x"}, "--pcap cannot be used with --baseline"),
        ({"virtual_time": True, "fail": "s1@1ms"}, "--fail cannot be used with --baseline"),
        ({"links": "veth", "servers": 0}, "--servers is a whole number"),
        ({"links": "veth", "lanes": "many"}, "--lanes of another protocol"),
    ],
)
def test_options_that_say_nothing_to_other_protocols_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        RunOptions(command=["true"], baseline="switchml", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in NAMES if (baselines.FOLDER / name / "program.p4").is_file()])
def test_compiled_programs_are_those_of_their_sources(name: str) -> None:
    folder = baselines.FOLDER / name
    assert (folder / "program.sha256").read_text().strip() == digest(folder / "program.p4"), "run make p4"
    assert {path.stem for path in folder.glob("*.json")} == builds(folder).keys()


def test_a_program_that_was_changed_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def compile_p4(source: Path, options: tuple[str, ...]) -> tuple[str, str]:
        compiled.append(options)
        return "new", "info"

    monkeypatch.setattr("switchsum_switch.program.p4c.compile_p4", compile_p4)
    mine = tmp_path / "mine"
    shutil.copytree(shipped("skeleton"), mine)
    old, _ = load(mine).program(32)
    assert old == (mine / "program.json").read_text()
    with (mine / "program.p4").open("a") as source:
        source.write("// mine\n")
    assert [load(mine).program(32)[0] for _ in range(2)] == ["new", "new"]
    assert compiled == [("-DLANES=32",)]


def test_the_skeleton_on_the_page_is_the_one_that_runs() -> None:
    page = (ROOT / "lab" / "docs" / "protocols.md").read_text()
    assert (baselines.FOLDER / "skeleton" / "host.py").read_text().partition("LANES: Final")[2] in page


def test_the_help_names_each_protocol_that_is_ours() -> None:
    option = get_type_hints(RunOptions, include_extras=True)["baseline"].__metadata__[0]
    assert {name for name in NAMES if f" {name}" in option.help} == {*NAMES} - {"skeleton"}
