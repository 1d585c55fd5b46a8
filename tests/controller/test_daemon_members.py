"""Members of a job come, say hello, compare, are lost, replaced and cut off, on a running controller."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from support.timing import patience
from switchsum_protocol import member_rpc, rpc
from switchsum_protocol.errors import NotAdmitted, RankTaken, UsageError
from switchsum_protocol.frame import Kind, Reason

from .conftest import Start
from .rig import (
    LONG_S,
    SLOTS,
    AnySwitch,
    Worker,
    admit,
    answers,
    count,
    create,
    eventually,
    following,
    join_all,
    show,
    sum_of_round,
)

pytestmark = pytest.mark.timeout(120)


def test_ready_answers_as_soon_as_the_last_hello_has_come(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    found: list[member_rpc.ReadyReply] = []
    waiting = [threading.Thread(target=lambda w=worker: found.append(w.ready())) for worker in workers]
    for thread in waiting:
        thread.start()
    started = time.monotonic()
    for worker in workers:
        worker.hello()
    for thread in waiting:
        thread.join()
    assert [reply.admitted for reply in found] == [True, True]
    assert time.monotonic() - started < LONG_S / 2


def test_a_killed_member_is_lost_and_can_be_replaced(switch: AnySwitch, start: Start) -> None:
    running = start()
    epoch = create(running, timeout_s=patience(0.6)).epoch
    workers = join_all(running, switch)
    admit(workers)
    alive = workers[0]
    eventually(lambda: running.client.heartbeat(alive.request).lost == [1])
    assert running.client.heartbeat(alive.request).epoch == epoch
    with pytest.raises(NotAdmitted, match=r"declared rank \d lost"):
        workers[1].ready()
    [replacement] = [Worker(running.client, switch, 1)]
    assert running.client.heartbeat(alive.request).epoch == replacement.joined.epoch == following(epoch)
    with pytest.raises(RankTaken):
        Worker(running.client, switch, 0)
    running.client.leave(alive.request)
    again = Worker(running.client, switch, 0)
    ready = admit([again, replacement])
    assert sum_of_round([again, replacement], ready.first_number) == [3, 3]


def test_who_joins_with_the_rank_of_a_killed_process_waits_until_that_is_lost(switch: AnySwitch, start: Start) -> None:
    running = start()
    epoch = create(running, timeout_s=patience(60)).epoch
    workers = join_all(running, switch)
    admit(workers)
    connections: list[Callable[[], None]] = []

    def note(end: Callable[[], None]) -> bool:
        connections.append(end)
        return True

    for worker in workers:
        next(running.controller.members.attend(worker.request, note))
    with pytest.raises(RankTaken):  # its process lives
        Worker(running.client, switch, 1)
    connections[1]()
    eventually(lambda: not running.controller.reconciler.jobs.member(workers[1].request.nonce)[2].connections)
    replacement = Worker(running.client, switch, 1)
    assert replacement.joined.epoch == following(epoch)
    assert running.client.heartbeat(workers[0].request).lost == [1]


def test_a_job_takes_the_place_of_one_of_its_name_and_of_its_slots(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    assert sum_of_round(workers, admit(workers).first_number) == [3, 3]
    request = rpc.CreateJobRequest(job="a", workers=2, slots=SLOTS, timeout_s=LONG_S, replaces=True)
    with pytest.raises(UsageError, match="there is a job 'a' already"):
        running.client.create_job(replace(request, replaces=False))
    running.client.heartbeat(workers[0].request)
    running.client.create_job(request)
    with pytest.raises(NotAdmitted, match="removed"):
        running.client.heartbeat(workers[0].request)
    workers = join_all(running, switch)
    assert sum_of_round(workers, admit(workers).first_number) == [3, 3]
    running.client.create_job(replace(request, job="b", part_of_free=0.5))
    free = running.client.info().free_slots
    running.client.create_job(replace(request, job="c", slots=free, part_of_free=0.5))
    assert running.client.info().free_slots == free - free // 2
    with pytest.raises(UsageError, match="a part of the free slots is above 0 and at most 1, not 0"):
        running.client.create_job(replace(request, job="d", part_of_free=0.0))


@pytest.mark.parametrize("action", ["remove", "resize"])
def test_members_are_cut_off_when_their_job_is_removed_or_resized(switch: AnySwitch, start: Start, action: str) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    ready, ready_epoch = admit(workers), workers[0].joined.epoch
    with pytest.raises(UsageError, match="has 2 members, which would be cut off: add --force"):
        running.client.remove_job(rpc.RemoveJobRequest(job="a"))
    with pytest.raises(UsageError, match="has 2 members, which would be cut off: add --force"):
        running.client.resize_job(rpc.ResizeJobRequest(job="a", workers=3))
    with pytest.raises(UsageError, match="--workers or --slots"):
        running.client.resize_job(rpc.ResizeJobRequest(job="a"))
    same = running.client.resize_job(rpc.ResizeJobRequest(job="a", workers=2))
    assert (same.epoch, same.state) == (ready_epoch, "running")
    running.client.heartbeat(workers[0].request)
    if action == "remove":
        running.client.remove_job(rpc.RemoveJobRequest(job="a", force=True))
    else:
        resized = running.client.resize_job(rpc.ResizeJobRequest(job="a", workers=3, slots=8, force=True))
        assert (resized.workers, resized.slot_count, resized.epoch) == (3, 8, following(ready_epoch, 2))
    switch.collect()
    workers[0].contribute(ready.first_number, 1)
    [answer] = answers(switch, 1)
    assert answer.header.reason == Reason.NOT_ADMITTED
    with pytest.raises(NotAdmitted, match=f"was {action}"):
        running.client.heartbeat(workers[0].request)
    if action == "resize":
        assert admit(join_all(running, switch, size=3)).slot_count == 8


OPERATION = "all_reduce (SUM) of float32[262656], gradient bucket 1 (layers.2.bias to layers.2.weight), call"


def test_members_hear_what_each_of_them_has_issued(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running, workers=3)
    workers = join_all(running, switch, size=3)
    admit(workers)

    def compare(rank: int, wait_s: float = LONG_S) -> list[str]:
        nonce = workers[rank].request.nonce
        request = member_rpc.CompareRequest(job="a", nonce=nonce, operation=f"{OPERATION} {rank}", wait_s=wait_s)
        return running.client.compare(request).operations

    assert compare(0, wait_s=0.0) == [f"{OPERATION} 0", "", ""]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(compare, range(3))) == [[f"{OPERATION} {rank}" for rank in range(3)]] * 3
    differ = "; ".join(f"rank {rank} issued {OPERATION} {rank}" for rank in range(3))  # all of it, however long
    assert (show(running).broken, show(running).broken_text) == ("mismatch", differ)
    for worker in workers:
        assert not show(running).has_ended
        running.client.leave(worker.request)
    ended = show(running)  # which those are told who look at the job afterwards
    assert (ended.has_ended, ended.broken, ended.broken_text) == (True, "mismatch", differ)
    admit(join_all(running, switch, size=3))
    assert (show(running).has_ended, show(running).broken) == (False, "")


def test_survivors_form_a_job_of_their_own(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running, workers=3, timeout_s=patience(4.0))
    workers = join_all(running, switch, size=3)
    admit(workers)

    def ask(worker: Worker) -> member_rpc.ReformReply:
        request = member_rpc.ReformRequest(job="a", nonce=worker.request.nonce, wait_s=0.1)
        while (reply := running.client.reform(request)).rank < 0:
            assert set(reply.missing) <= {0, 1, 2}
        return reply

    # Rank 1 says nothing any more, and after a while it is not waited for.
    with ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(ask, [workers[0], workers[2]]))
    assert replies == [member_rpc.ReformReply(rank=0, world_size=2), member_rpc.ReformReply(rank=1, world_size=2)]
    with pytest.raises(NotAdmitted):
        running.client.heartbeat(workers[0].request)
    again = join_all(running, switch)
    assert [worker.joined.epoch for worker in again] == [following(workers[0].joined.epoch, 2)] * 2
    ready = admit(again)
    assert sum_of_round(again, ready.first_number) == [3, 3]
    # The dead incarnation's frames are refused.
    refused = count(running, Reason.NOT_ADMITTED)
    workers[1].contribute(ready.first_number + 1, 100)
    workers[0].contribute(ready.first_number + 1, 100)
    eventually(lambda: count(running, Reason.NOT_ADMITTED) == refused + 2)
    assert sum_of_round(again, ready.first_number + 1) == [3, 3]


def test_short_hellos_show_that_long_ones_get_lost(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    first, second = join_all(running, switch)
    second.hello()
    first.hello(whole=False)
    eventually(lambda: first.ready(wait_s=0.0).hello_cut)
    assert not first.ready(wait_s=0.0).hello_seen
    assert second.ready(wait_s=0.0).missing == [0]
    assert admit([first]).admitted
    assert not second.ready(wait_s=0.0).hello_cut


@pytest.mark.parametrize(("part", "said"), [("mac", "Ethernet address, .* at ports 1 and 2"), ("ip", "IP address")])
def test_two_hosts_of_one_address_are_refused(switch: AnySwitch, start: Start, part: str, said: str) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    workers[1].address = replace(workers[1].address, **{part: getattr(workers[0].address, part)})
    for worker in workers:
        worker.hello()
    with pytest.raises(NotAdmitted, match=f"ranks 0 and 1 have the same {said}"):
        workers[0].ready()
    again = join_all(running, switch)
    assert sum_of_round(again, admit(again).first_number) == [3, 3]


def test_ranks_of_one_host_have_its_addresses(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    workers = join_all(running, switch)
    workers[1].address = replace(workers[0].address, port=workers[1].address.port)
    workers[1].port = workers[0].port
    ready = admit(workers)
    assert sum_of_round(workers, ready.first_number) == [3, 3]


def test_hellos_of_strangers_are_ignored(switch: AnySwitch, start: Start) -> None:
    running = start()
    create(running)
    first, second = join_all(running, switch)
    switch.send(3, first.frame(Kind.HELLO, number=1, digest=2))
    switch.send(3, second.frame(Kind.HELLO, rank=0))
    assert first.ready(wait_s=0.2).missing == [0, 1]
    assert admit([first, second]).admitted
    assert {member.ingress_port for member in show(running).members} == {1, 2}
