"""The situations: what is done to a job of four ranks, what `explain` must say first, and whom it must not blame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

NOBODY: Final = (r"[Rr]ank \d.*(late|paused|outside)", r"link of", r"loses", r"congested", r"does not answer")
"""What must not be said where nothing, or nobody in particular, is to blame."""
OTHER_RANKS: Final = (r"^(The link of )?[Rr]anks? (0|1|3)\b", r"^The links of", r"does not answer")
"""What must not be said where rank 2, its link, or its port is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One row of the table."""

    name: str
    what: str
    """What is wrong, for people."""
    says: str
    """Regular expression of the first sentence."""
    blames_not: tuple[str, ...] = ()
    """What no sentence says: parts that work."""
    fault: str = ""
    """Fault of the ranks' program (`job.py`)."""
    size: int = 200_000
    """Values in the array of a step."""
    proxy: dict[str, float] = field(default_factory=dict)
    """Conditions of rank 2's link: `loss`, `loss_down`, `delay_ms`, `rate_mbit`."""
    everywhere: bool = False
    """The links of all ranks have these conditions."""
    during: str = ""
    """What is done to a part after some seconds: `kill switch`, `stop rank`, and so on."""
    wait_s: float = 14.0
    """Seconds from there until `explain` is asked."""
    switch: tuple[str, ...] = ()
    """Further options of the switch."""
    missing: int = 0
    """Number of ranks that are not started."""
    system: str = "udp"
    """`udp`, `shm`, `tree`, `aggregator`; empty: made up only, in the tests."""
    source: str = "explain"
    """Where the sentence is read: `explain`, or `output` of the ranks."""


SITUATIONS: Final = (
    Situation(
        name="healthy",
        what="nothing is wrong",
        says=r"^No rank waits for another for long",
        blames_not=NOBODY,
        size=50_000,
    ),
    Situation(
        name="late 5 ms",
        what="rank 2 computes 5 ms longer in each step",
        says=r"^Rank 2 .*is \d+(\.\d)? ms late in \d+ of the last",
        blames_not=OTHER_RANKS,
        fault="late5",
        size=50_000,
    ),
    Situation(
        name="pauses of one rank",
        what="rank 2 pauses 0.5 s in each 25th step",
        says=r"^Rank 2 .*paused for \d+ ms in \d+ of the last \d+ (steps|calls), about every",
        blames_not=OTHER_RANKS,
        fault="gc",
        size=20_000,
    ),
    Situation(
        name="pauses that wander",
        what="each rank pauses 0.5 s in each 25th step, in turn",
        says=r"^Ranks waited \d+ % of the last 10 s, and no single rank is to blame: pauses of \d+ ms wander",
        blames_not=NOBODY[1:],
        fault="gcall",
        size=20_000,
    ),
    Situation(
        name="compiles",
        what="rank 2 computes for 25 s",
        says=r"^Rank 2 .*has been outside collectives for \d+ s; ranks 0, 1 and 3 wait for it",
        blames_not=OTHER_RANKS,
        fault="compile",
    ),
    Situation(
        name="other dtype",
        what="rank 2 adds int32 where the others add float32",
        says=r"rank 2 (has issued|issued|differs)",
        blames_not=(r"rank (0|1|3) (issued|differs)",),
        fault="dtype",
        source="output",
    ),
    Situation(
        name="other size",
        what="rank 2 adds an array of another length",
        says=r"^The ranks made different calls, which has ended the job: rank 2 issued",
        blames_not=(r"No rank has joined", r"call.*: rank (0|1|3) issued"),
        fault="size",
    ),
    Situation(
        name="a slow bucket",
        what="rank 2 is 15 ms late before the third of four calls",
        says=r"^Rank 2 .*is \d+ ms late in \d+ of the last \d+ steps",
        blames_not=OTHER_RANKS,
        fault="bucket",
        size=50_000,
    ),
    Situation(
        name="a rank dies",
        what="rank 2's process ends in the midst",
        says=r"rank 2 of job 'training' is gone: its process has ended",
        blames_not=(r"rank (0|1|3) of job 'training' is gone", r"switch"),
        fault="exit",
        wait_s=25,
        source="output",
    ),
    Situation(
        name="a link loses",
        what="rank 2's link loses 3 % each way",
        says=r"^The link of rank 2 .*loses \d",
        blames_not=OTHER_RANKS,
        proxy={"loss": 0.03},
        size=50_000,
    ),
    Situation(
        name="a rank is not started",
        what="rank 3 is missing, for longer than a minute",
        says=r"^Rank 3 has not joined; ranks 0, 1 and 2 wait for it",
        missing=1,
        wait_s=62,
    ),
    Situation(
        name="the controller is stopped",
        what="SIGSTOP to the controller",
        says=r"controller .*(did not answer|does not answer|not answer)",
        blames_not=(r"[Rr]ank \d", r"switch does not"),
        during="stop controller",
        wait_s=3,
    ),
    Situation(
        name="the switch is killed",
        what="SIGKILL to the only switch",
        says=r"^The switch at \S+ does not answer the controller; 4 ranks wait for it",
        blames_not=(r"aggregator", r"[Rr]ank \d is", r"link of"),
        during="kill switch",
        wait_s=6,
    ),
    Situation(
        name="the switch is stopped",
        what="SIGSTOP to the only switch",
        says=r"^The switch( at \S+)? does not answer the controller; 4 ranks wait for it",
        blames_not=(r"aggregator", r"[Rr]ank \d is", r"link of"),
        during="stop switch",
        wait_s=6,
    ),
    Situation(
        name="a congested port",
        what="the queue of the switch's port to rank 2 is long: it marks, and drops",
        says=r"^The way from port 3 of the switch to rank 2 .*is congested: its queue marks \d+ % of the results",
        blames_not=(*OTHER_RANKS, r"^The link of", r"late in"),
        system="",
    ),
    Situation(
        name="a port that drops",
        what="a device between the switch's port and all ranks drops a fifth of what comes down",
        says=r"^The way from port 1 of the switch to ranks 0-3 is congested: its queue drops \d+ % of the frames",
        blames_not=(r"link", r"late in", r"does not answer"),
        proxy={"loss_down": 0.2},
        everywhere=True,
        size=50_000,
    ),
    Situation(
        name="a rank is stopped",
        what="SIGSTOP to rank 2's process",
        says=r"^Rank 2 .*has reported nothing for \d+ s; ranks 0, 1 and 3 wait for it",
        blames_not=OTHER_RANKS,
        during="stop rank",
        wait_s=9,
    ),
    Situation(
        name="a slow link",
        what="rank 2's link carries 20 Mbit/s, the others far more",
        says=r"^The link of rank 2 .*is slower than the others",
        blames_not=OTHER_RANKS,
        proxy={"rate_mbit": 20},
        size=500_000,
    ),
    Situation(
        name="all compute",
        what="all ranks compute 0.1 s in each step",
        says=r"^No rank waits for another for long",
        blames_not=NOBODY,
        fault="computeall",
        size=50_000,
    ),
    Situation(
        name="a healthy tree",
        what="eight ranks on two leaves below a spine, and nothing is wrong",
        says=r"^No rank waits for another for long",
        blames_not=NOBODY,
        system="tree",
        size=20_000,
    ),
    Situation(
        name="the aggregator is stopped",
        what="SIGSTOP to the aggregator of shared slots",
        says=r"^The aggregator 'spare' does not answer; 4 ranks wait for it",
        blames_not=(r"[Rr]ank \d is", r"link of"),
        during="stop aggregator",
        system="aggregator",
        wait_s=9,
    ),
    # Nine more than the audit tried.
    Situation(
        name="a dead link",
        what="rank 2's link carries nothing any more, either way",
        says=r"^The link of rank 2 .*is dead: the rank is in the collective",
        blames_not=(*OTHER_RANKS, r"py-spy", r"process has ended"),
        proxy={"loss": 0.0},
        during="stop proxy2",
        wait_s=8,
    ),
    Situation(
        name="a long way",
        what="rank 2's link has 20 ms each way, the others none",
        says=r"^The link of rank 2 .*is slower than the others",
        blames_not=OTHER_RANKS,
        proxy={"delay_ms": 20},
        size=50_000,
    ),
    Situation(
        name="all links lose",
        what="the links of all ranks lose 2 % each way",
        says=r"^The links of ranks 0-3, all at host \S+, lose \d",
        blames_not=(r"late in", r"does not answer"),
        proxy={"loss": 0.02},
        everywhere=True,
        size=50_000,
    ),
    Situation(
        name="the drop simulator",
        what="switchsum drop-probability 0.02",
        says=r"^The drop simulator is on: the links of ranks 0-3",
        blames_not=(r"late in", r"does not answer"),
        during="drop simulator",
        size=50_000,
    ),
    Situation(
        name="ranks are starting",
        what="two of four ranks have joined within ten seconds",
        says=r"^The job starts: 2 of 4 ranks have joined within \d+ s; ranks 2 and 3 are still to come",
        blames_not=(r"job resize",),
        missing=2,
        wait_s=4,
    ),
    Situation(
        name="a rank of torchrun is missing",
        what="a job that a launcher made lacks a rank for two minutes",
        says=r"^Rank 3 has not joined; ranks 0, 1 and 2 wait for it",
        blames_not=(r"job resize",),
        system="",
    ),
    Situation(
        name="a congested way that all share",
        what="contributions of all ranks meet one long queue before the switch",
        says=r"^The way to the switch, or between switches, is congested: \d+ % of the results are marked for all 4",
        blames_not=(r"^The link of", r"late in", r"port \d"),
        system="",
    ),
    Situation(
        name="a spine is away",
        what="one of two spines of a fleet is lost",
        says=r"^Switch spine2 at \S+ does not answer the controller; 4 ranks wait for it",
        blames_not=(r"aggregator", r"[Rr]ank \d is", r"link of"),
        system="",
    ),
    Situation(
        name="64 ranks, one late",
        what="rank 37 of 64 computes 20 ms longer in each step",
        says=r"^Rank 37 .*is \d+ ms late in \d+ of the last \d+ steps",
        blames_not=(r"^The link of", r"does not answer"),
        system="",
    ),
)
