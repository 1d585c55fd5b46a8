"""The diagnosis as a table: a symptom, the share of time from which it counts, what is said of it, and what to do.

A new diagnosis is a row here, a function of the row's name in `symptoms`, and a situation in `tests/situations`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

WAITS: Final = 0.1
"""Share of the last ten seconds: where ranks wait for more of it, the first sentence says why."""
MOVES: Final = 0.1
"""Share of the last ten seconds: where sums travel for less of it, a slow link costs little."""


class Level(IntEnum):
    """What outweighs what: of several levels only the first one that has something to say is heard, and `BESIDE`."""

    AGGREGATOR = 0
    SWITCH = 1
    LOST = 2
    ABSENT = 3
    STANDS = 4
    SILENT = 5
    SLOW = 6
    FINE = 7
    BESIDE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row: `sentence`, `details`, `advice` and `command` are filled with the words of the symptom."""

    symptom: str
    """Name of the symptom: `symptoms.SYMPTOMS` has the function that measures it."""
    level: Level
    kind: str
    """Kind of the finding, see `Finding.kind`."""
    share: float = 0.0
    """Least share of the last ten seconds that the symptom must take up."""
    sentence: str
    details: str = ""
    advice: str = ""
    command: str = ""


_LOOK: Final = "See what it does, on {host}:"
_STACK: Final = "py-spy dump --pid {pid}"
SIMULATOR_ON: Final = "drop simulator is on"
_WAITED: Final = "{Others} {Have} waited {since} in collective {begun}{operation}{slots}.{behind}{places}"

RULES: Final = (
    Rule(
        symptom="aggregator is away",
        level=Level.AGGREGATOR,
        kind="switch",
        sentence="The aggregator {fallback} does not answer; {members} for it.",
        details="Without it no collective on shared slots ends.",
        advice="See whether its process is stopped (state T). Else start it again; the ranks go on where they were.",
    ),
    Rule(
        symptom="switch is away",
        level=Level.SWITCH,
        kind="switch",
        sentence="{Switches} {do} not answer the controller; {members} for {it}.",
        details="{trouble}",
        advice="See whether its process has ended or is stopped (state T). Start it again within 20 s: the ranks go on "
        "where they were.",
    ),
    Rule(
        symptom="ranks have made different calls",
        level=Level.LOST,
        kind="mismatch",
        sentence="The ranks made different calls, which has ended the job: {issued}.",
        details="{places}",
        advice="All ranks must make the same calls in the same order, on arrays of one shape and dtype. Correct the "
        "program, and start all ranks again.",
    ),
    Rule(
        symptom="the job has ended with lost ranks",
        level=Level.LOST,
        kind="lost",
        sentence="The job has ended, because {who} {were} lost: the process ended, or its machine could not be "
        "reached.",
        advice="Read the last lines that it printed. Then start all ranks again.",
    ),
    Rule(
        symptom="ranks are lost",
        level=Level.LOST,
        kind="lost",
        sentence="{Who} {are} lost: the process has ended, or its machine cannot be reached.",
        details="{places}",
        advice="Read the last lines that it printed. Then start the job, or that rank, again.",
    ),
    Rule(
        symptom="the job has ended",
        level=Level.ABSENT,
        kind="nobody",
        sentence="All ranks have left, and the job has ended: it waits for {who} to be started again.",
        advice="Start the workers again, or remove the job:",
        command="switchsum job remove {job}",
    ),
    Rule(
        symptom="nobody has joined",
        level=Level.ABSENT,
        kind="nobody",
        sentence="No rank has joined: the job waits for {who}.",
        advice="Start the workers: switchsum agent --help.",
    ),
    Rule(
        symptom="ranks are starting",
        level=Level.ABSENT,
        kind="starting",
        sentence="The job starts: {here} of {members} ranks have joined within {since}; {who} {are} still to come.",
        details="Python, numpy and the first collective take a while where many ranks start on one machine.",
        advice="Wait: from the first minute on it is said who is missing.",
    ),
    Rule(
        symptom="ranks have not joined",
        level=Level.ABSENT,
        kind="missing",
        sentence="{Who} {have} not joined; {waits} for {it}.",
        advice="Start {it}, with the same job and world size. To make the job smaller, and have all ranks join again:",
        command="switchsum job resize {job} --workers {here} --force",
    ),
    Rule(
        symptom="ranks that a launcher starts have not joined",
        level=Level.ABSENT,
        kind="missing",
        sentence="{Who} {have} not joined; {waits} for {it}.",
        advice="The job's launcher (torchrun, mpirun, srun) has chosen its size: read there why {it} did not start, or "
        "start the job again.",
    ),
    Rule(
        symptom="no frame has come",
        level=Level.ABSENT,
        kind="missing",
        sentence="{Who} {have} joined, but no frame of {it} has come to the switch.",
        details="{places}",
        advice="Check that their link leads to one of this switch's ports:",
        command="switchsum ports",
    ),
    Rule(
        symptom="all have come",
        level=Level.ABSENT,
        kind="switch",
        sentence="All ranks have come, and wait for {switches}.",
        advice="This says what is wrong with it:",
        command="switchsum switch list",
    ),
    Rule(
        symptom="switch has all and answers nobody",
        level=Level.STANDS,
        kind="switch",
        sentence="The switch has all contributions, and all ranks have waited {since} for its sums.",
        advice="Look at the links below, and twice at the counters:",
        command="switchsum stats",
    ),
    Rule(
        symptom="link is dead",
        level=Level.STANDS,
        kind="link",
        sentence="The link of {who} is dead: {it_is} in the collective{and_asks}, but nothing has come through for "
        "{since}{others_wait}.",
        details=_WAITED,
        advice="The process works. See whether the interface, the cable or the route to the switch is down, on {host}, "
        "and at the switch's port:",
        command="ip -s link show",
    ),
    Rule(
        symptom="ranks report nothing",
        level=Level.STANDS,
        kind="straggler",
        sentence="{Who} {have} reported nothing for {silent}{others_wait}.",
        details=_WAITED,
        advice="See whether the process is stopped (state T), or its machine is overloaded, on {host}:",
        command="ps -o pid,stat,pcpu,args -p {pid}",
    ),
    Rule(
        symptom="ranks are outside collectives",
        level=Level.STANDS,
        kind="straggler",
        sentence="{Who} {have} been outside collectives for {idle}{others_wait}.",
        details=_WAITED,
        advice=_LOOK,
        command=_STACK,
    ),
    Rule(
        symptom="ranks are missing in a collective",
        level=Level.STANDS,
        kind="straggler",
        sentence="{Who} {have} been missing in a collective for {since}{others_wait}.",
        details=_WAITED,
        advice=_LOOK,
        command=_STACK,
    ),
    Rule(
        symptom="ranks are silent",
        level=Level.SILENT,
        kind="silent",
        sentence="{Who} {have} reported nothing for {least} or more.",
        details="{places}",
        advice="See whether the process is stopped (state T), or its machine is overloaded:",
        command="ps -o pid,stat,pcpu,args -p {pid}",
    ),
    Rule(
        symptom="a port is congested",
        level=Level.SLOW,
        kind="congested",
        share=0.01,
        sentence="The way from {port} to {who} is congested: its queue marks {marked} of the results{drops}{effect}.",
        details="{counted}{places}",
        advice="See what else uses that way, and the rate and length of the port's queue: --queue-rate and "
        "--queue-depth of switchsum switch, or the counters of the device:",
        command="switchsum ports",
    ),
    Rule(
        symptom="a port drops",
        level=Level.SLOW,
        kind="congested",
        sentence="The way from {port} to {who} is congested: its queue drops {lost} of the frames{effect}.",
        details="{counted}. All of these ranks are behind that port, and what they send arrives.",
        advice="See what else uses that way, and the rate and length of the port's queue: --queue-rate and "
        "--queue-depth of switchsum switch, or the counters of the device:",
        command="switchsum ports",
    ),
    Rule(
        symptom="the way to the switch is congested",
        level=Level.SLOW,
        kind="congested",
        share=0.01,
        sentence="The way to the switch, or between switches, is congested: {marked} of the results are marked for all "
        "{members} ranks{effect}.",
        details="{counted}",
        advice="See which queue is long on the ranks' interfaces and on the devices between:",
        command="tc -s qdisc show",
    ),
    Rule(
        symptom=SIMULATOR_ON,
        level=Level.SLOW,
        kind="link",
        sentence="The drop simulator{port} is on: {who} {lose} {lost}{effect}.",
        details="{counted}. {simulated}{places}",
        advice="Switch it off:",
        command="switchsum drop-probability 0",
    ),
    Rule(
        symptom="links of interfaces lose",
        level=Level.SLOW,
        kind="link",
        sentence="{Who} {lose} {lost}{effect}.",
        details="{counted}.{places}",
        advice="See what the card{s} {have} dropped, on {host}, and at the switch's port{s}:",
        command="ip -s link show",
    ),
    Rule(
        symptom="links of sockets lose",
        level=Level.SLOW,
        kind="link",
        sentence="{Who} {lose} {lost}{effect}.",
        details="{counted}.{places}",
        advice="See what {its} socket{s} {have} dropped (d in skmem), on {host}, and then the devices on the way:",
        command="ss -uam",
    ),
    Rule(
        symptom="a rank is late",
        level=Level.SLOW,
        kind="late",
        sentence="{said}",
        details="{more}{places}",
        advice="See what it does for {profile_s} s, on {host}:",
        command="py-spy record --pid {pid} --duration {profile_s} --output rank{rank}.svg",
    ),
    Rule(
        symptom="a link is slower than the others",
        level=Level.SLOW,
        kind="link",
        share=MOVES,
        sentence="The link of {who} is slower than the others: {sign}, "
        "although it begins in time; sums travel {moving} of the time.",
        details="It carries {rate} while sums travel, and the shortest collective takes {round_trip}.{places}",
        advice="Measure its rate and round trip beside another rank's (iperf3, ping), and look for a limit, on {host}:",
        command="tc -s qdisc show",
    ),
    Rule(
        symptom="a rank sends late",
        level=Level.SLOW,
        kind="late",
        share=MOVES,
        sentence="{Who} sends more slowly than the others: {sign}, "
        "although it begins in time; sums travel {moving} of the time.",
        details="It carries {rate} while sums travel. Its link is memory: its process gets too little of a core."
        "{places}",
        advice="See who else uses its cores, on {host}:",
        command="ps -eo pid,psr,pcpu,args --sort -pcpu",
    ),
    Rule(
        symptom="ranks wait and nobody is to blame",
        level=Level.SLOW,
        kind="waits",
        share=WAITS,
        sentence="Ranks waited {waiting} of the last {seconds}, and no single rank is to blame{wander}.",
        details="{shares}",
        advice="Look at what all ranks do now and then: garbage collection, checkpoints, data that come unevenly, "
        "machines with too few cores.",
        command="switchsum explain {job} --shares",
    ),
    Rule(
        symptom="nothing is wrong",
        level=Level.FINE,
        kind="fine",
        sentence="No rank waits for another for long{limit}.{known}",
        details="{shares}",
    ),
    Rule(
        symptom="operations left ranks out",
        level=Level.BESIDE,
        kind="left out",
        sentence="{agreed} operations could go on without ranks that are late. {each}. {patience} of the operations "
        "waited until patience ended.{given}",
        advice="See docs/slow-ranks.md.",
    ),
    Rule(
        symptom="a rank asked on other terms",
        level=Level.BESIDE,
        kind="left out",
        sentence="{Who} asked {often} on other terms than the other ranks, or than the job allows.",
        advice="Give all ranks the same quorum.",
    ),
    Rule(
        symptom="an operation cannot begin",
        level=Level.BESIDE,
        kind="left out",
        sentence="An operation with a quorum cannot begin yet: {why}.",
    ),
    Rule(
        symptom="slots were taken",
        level=Level.BESIDE,
        kind="taken",
        sentence="{taken} of its {sent} contributions came to a slot that another job held. They went on to "
        "the aggregator {fallback}, which took longer.",
        details="{held}",
        advice="Give the job slots of its own, or share more of them.",
    ),
)
"""All rows; of one level, those that take up more of the time come first."""
