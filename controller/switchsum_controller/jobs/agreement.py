"""Who takes part in an operation that may go on without some ranks: asked by members, decided once.

An operation begins when all ranks have asked for it, or when enough have and patience has ended.  Patience is for those
who took part in the operation before: a rank that was absent there, and has not asked since, is not waited for.  So a
rank that stops for long costs the others their patience once.  For a rank that they have waited for in vain it is
halved each time, until the rank takes part in two operations in a row: one at half speed would cost every second
operation all of it.

A rank that was absent asks with the number of the latest result that it has, and takes part in the next operation that
begins.  Those who take part give it the results that it lacks, as long as they keep them, and later the model, if the
program has said what that is.  So somebody must take part who lacks none.

Nothing here knows a switch or a clock.  Whoever calls `taken` has `record` written to the switches before anybody is
told of the decision.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from switchsum_protocol.agreement_rpc import GO_ON, Terms
from switchsum_protocol.errors import NotAdmitted, OperationMismatch, WorkerLost

MOST_GROUPS: Final = 8
"""Sets of ranks that have a job of their own at a time; each has slots."""
MOST_HALVINGS: Final = 4
"""So often patience with a rank is halved at most: what is left is for ranks that come almost at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who takes part in an operation."""

    number: int = 0
    """From 1 on; 0: there was none yet."""
    absent: tuple[int, ...] = ()
    behind: tuple[tuple[int, int], ...] = ()
    """Who takes part and lacks results, with the number of the latest one that it has."""
    group: str = ""
    """The job of those who take part; empty: all do."""
    is_whole: bool = False
    """As in `AgreeReply`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """A job of some ranks."""

    ranks: frozenset[int]
    latest: int
    """The latest operation that it was for."""


@dataclass(slots=True)
class Agreement:
    """The operations of one incarnation of a job that may go on without some ranks."""

    latest: Decision = Decision()
    terms: Terms | None = None
    """Those of whoever asked first."""
    first: int = -1
    """The rank that asked first; -1: that was before this controller."""
    groups: OrderedDict[str, Subset] = field(default_factory=OrderedDict)
    """By name, the one that was used last at the end."""
    made: int = 0
    """How many groups there were so far, for their names."""
    left_out: dict[int, int] = field(default_factory=dict)
    """By rank, how many operations went on without it."""
    given_model: dict[int, int] = field(default_factory=dict)
    """By rank, how often it lacked more results than are kept, and was given the model."""
    waits: int = 0
    """How many of them have waited until patience ended."""
    refused: dict[int, int] = field(default_factory=dict)
    """By rank, how often it has asked on other terms, or for less than the job allows."""
    mismatch: str = ""
    """How ranks differ in what they call, in words: nobody gets a decision any more.  Empty: they do not, so far."""
    begun: dict[int, int] = field(default_factory=dict)
    """By rank that asks, how many collectives of the job it had begun."""
    asking: dict[int, int] = field(default_factory=dict)
    """Who waits for the next operation, with the number of the latest result that it has."""
    whole: set[int] = field(default_factory=set)
    """Who of them waits for all."""
    since_s: float | None = None
    """When the first one asked that lacks no result."""
    closes_s: float = -math.inf
    """When patience ends with those who have not asked."""
    in_vain: dict[int, int] = field(default_factory=dict)
    """By rank, how often it was waited for in vain since it took part in two operations in a row."""
    answered: dict[int, int] = field(default_factory=dict)
    """By rank, the latest operation in which it takes part; it asks for the next one when it has that result."""
    finished: dict[int, int] = field(default_factory=dict)
    """By rank, the latest result that it is known to have."""
    held_up: str = ""
    """Why a decision could not be written."""
    retry_s: float = 0.0
    """When it may be tried again."""
    looked_s: float = -math.inf
    """When it was last looked whether a decision can be made."""

    def ask(self, rank: int, after: int, terms: Terms, *, is_whole: bool, now: float, begun: int = 0) -> None:
        """Note that a rank waits for an operation after the one whose result it has.

        Raises OperationMismatch, WorkerLost if it lacks more results than are kept, or NotAdmitted.
        """
        self.check_alike()
        if self.terms is None:
            self.terms, self.first = terms, rank
        if terms != self.terms:
            self.refused[rank] = self.refused.get(rank, 0) + 1
            who = f", as rank {self.first} asked first" if self.first >= 0 else ""
            self.mismatch = f"rank {rank} asks with {terms}, and the job goes on with {self.terms}{who}"
            self.check_alike()
        if after > self.latest.number:
            raise NotAdmitted(
                f"rank {rank} has the result of operation {after}, of which the controller knows nothing: connect again"
            )
        # The second: of a call that came late.
        if self.answer(rank, after) is not None or after < self.answered.get(rank, 0):
            return
        if self.latest.number - after > terms.keep and not terms.gives_model:
            raise WorkerLost(
                f"rank {rank} lacks the results of {self.latest.number - after} operations, and members keep "
                f"{terms.keep}: with comm.quorums.share(model) on all ranks it would be given the model",
                rank,
            )
        self.finished[rank] = self.asking[rank] = after
        self.begun[rank] = begun
        if is_whole:
            self.whole.add(rank)
        if after == self.latest.number and self.since_s is None:
            self.since_s = now

    def check_alike(self) -> None:
        """Raise OperationMismatch if ranks differ in what they call."""
        if self.mismatch:
            raise OperationMismatch(self.mismatch)

    def note_elsewhere(self, inside: Mapping[int, tuple[int, str]], workers: int, gone: Iterable[int]) -> str:
        """Note a mismatch if all ranks are there, and some of them wait in another collective of the job; return it.

        `inside` has the ranks that wait in one: how many they have begun, and which one it is.  A rank that asks has to
        begin it, too, and cannot before it has an answer.  Ranks that only compute are no sign of anything.
        """
        if not self.asking:
            return ""
        most = max(self.begun.get(rank, 0) for rank in self.asking)
        elsewhere = {rank: name for rank, (begun, name) in inside.items() if rank not in self.asking and begun > most}
        if elsewhere and {*elsewhere, *self.asking, *gone} >= set(range(workers)):
            rank, name = min(elsewhere.items())
            ask = ", ".join(map(str, sorted(self.asking)))
            self.mismatch = (
                f"rank {rank} waits in {name or 'another collective'}, and rank {ask} in an operation with a quorum "
                f"({self.terms}): all ranks call the same, and Quorums.end() before they call other collectives"
            )
        return self.mismatch

    def answer(self, rank: int, after: int) -> Decision | None:
        """Return what was decided on the operation that a rank has asked for, as often as it asks; None: not yet."""
        latest = self.latest
        return latest if after < latest.number and rank not in latest.absent else None

    def due_s(self) -> float | None:
        """Return when patience ends, or something is to be tried again; None: time alone changes nothing."""
        if self.since_s is None or self.terms is None:
            return None
        due_s = self.retry_s if self.held_up else self.closes_s
        return due_s if due_s > self.looked_s else None

    def outcome(self, workers: int, gone: Iterable[int], now: float) -> Decision | None:
        """Return who takes part in the next operation, if that can be said now; `gone` have left or are lost, in order.

        Raises WorkerLost if too few are left, or none that has the latest result.
        """
        order, self.looked_s = list(gone), now
        gone, first = set(order), order[0] if order else -1
        for rank in gone & self.asking.keys():
            del self.asking[rank]
        self.whole &= self.asking.keys()
        if not self.asking or self.terms is None or (self.held_up and now < self.retry_s):
            return None
        least, number = self.terms.least(workers), self.latest.number
        lacking = set(range(workers)) - self.asking.keys()
        knows = number in self.asking.values()
        self.closes_s = self._closes(lacking - gone - {*self.latest.absent})
        if gone and workers - len(gone) < least:
            raise WorkerLost(
                f"rank {first} is gone, and {workers - len(gone)} of {workers} ranks are less than a quorum: "
                f"{self.terms}",
                first,
                GO_ON,
            )
        if gone >= lacking and not knows:
            raise WorkerLost(
                f"rank {first} is gone, and nobody else has the result of operation {number}", first, GO_ON
            )
        if self.since_s is None or len(self.asking) < least or not knows:
            return None
        if now < self.closes_s or (self.whole and lacking - gone):
            return None
        behind = tuple(sorted((rank, after) for rank, after in self.asking.items() if after < number))
        return Decision(number=number + 1, absent=tuple(sorted(lacking)), behind=behind, is_whole=bool(self.whole))

    def _closes(self, ranks: Iterable[int]) -> float:
        """Return when patience ends with these; there may be none."""
        if self.since_s is None or self.terms is None:
            return -math.inf
        halvings = [min(self.in_vain.get(rank, 0), MOST_HALVINGS) for rank in ranks]
        return max((self.since_s + self.terms.patience_s / 2**one for one in halvings), default=-math.inf)

    def taken(self, decision: Decision, gone: Iterable[int]) -> Agreement:
        """Return what follows from a decision: it is the latest one, and nobody asks for another yet.

        Ranks that are newly absent have been waited for until patience with them ended (see `outcome`).
        """
        assert self.terms is not None
        groups, newly = self.groups.copy(), {*decision.absent} - {*self.latest.absent, *gone}
        steady = {rank for rank, after in self.asking.items() if after == self.latest.number}
        too_late = [rank for rank, after in decision.behind if self.latest.number - after > self.terms.keep]
        if decision.group:
            groups[decision.group] = Subset(ranks=groups[decision.group].ranks, latest=decision.number)
            groups.move_to_end(decision.group)
        return replace(
            self,
            latest=decision,
            groups=groups,
            left_out=self.left_out | {rank: self.left_out.get(rank, 0) + 1 for rank in decision.absent},
            given_model=self.given_model | {rank: self.given_model.get(rank, 0) + 1 for rank in too_late},
            in_vain={rank: count for rank, count in self.in_vain.items() if rank not in steady}
            | {rank: self.in_vain.get(rank, 0) + 1 for rank in newly},
            waits=self.waits + bool(newly),
            answered=self.answered | dict.fromkeys(self.asking, decision.number),
            asking={},
            whole=set(),
            since_s=None,
            held_up="",
        )

    def group_of(self, ranks: frozenset[int]) -> str:
        """Return the job of a set of ranks; empty: it has none."""
        return next((name for name, group in self.groups.items() if group.ranks == ranks), "")

    def unused(self, gone: Iterable[int]) -> str | None:
        """Return the group that was used longest ago of those in which nobody can be in the midst of an operation.

        None: there is none.  A rank is through with an operation when it has asked for a later one, or is gone.
        """
        gone = set(gone)
        for name, group in self.groups.items():
            if all(self.finished.get(rank, 0) >= group.latest for rank in group.ranks - gone):
                return name
        return None

    # --- in the switches' entries -------------------------------------------------------------------------------------

    def record(self, workers: int) -> dict[str, Any]:
        """Return what a controller that comes after this one must know; of sets of ranks, those who are not in them."""
        everybody = set(range(workers))
        return {
            "decision": [
                self.latest.number,
                list(self.latest.absent),
                [list(one) for one in self.latest.behind],
                self.latest.group,
                self.latest.is_whole,
            ],
            "groups": {name: [sorted(everybody - group.ranks), group.latest] for name, group in self.groups.items()},
            "made": self.made,
            "terms": _written_terms(self.terms),
            "left_out": {str(rank): count for rank, count in self.left_out.items()},
            "given_model": {str(rank): count for rank, count in self.given_model.items()},
            "waits": self.waits,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any], workers: int) -> Agreement:
        """Return what a record tells; raises ValueError and the like for what is none."""
        number, absent, behind, group, is_whole = record["decision"]
        terms = record["terms"]
        latest = Decision(
            number=int(number),
            absent=tuple(int(rank) for rank in absent),
            behind=tuple((int(rank), int(after)) for rank, after in behind),
            group=str(group),
            is_whole=bool(is_whole),
        )
        groups = {
            str(name): Subset(ranks=frozenset(range(workers)) - {*map(int, others)}, latest=int(last))
            for name, (others, last) in record["groups"].items()
        }
        return cls(
            latest=latest,
            terms=_read_terms(terms) if terms else None,
            groups=OrderedDict(sorted(groups.items(), key=lambda item: item[1].latest)),
            made=int(record["made"]),
            left_out={int(rank): int(count) for rank, count in record["left_out"].items()},
            given_model={int(rank): int(count) for rank, count in record["given_model"].items()},
            waits=int(record["waits"]),
        )


def _written_terms(terms: Terms | None) -> list[Any]:
    return [] if terms is None else [terms.quorum, terms.patience_s, terms.keep, terms.gives_model, terms.model]


def _read_terms(values: Sequence[Any]) -> Terms:
    quorum, patience_s, keep, gives_model, model = values
    return Terms(
        quorum=float(quorum),
        patience_s=float(patience_s),
        keep=int(keep),
        gives_model=bool(gives_model),
        model=str(model),
    )
