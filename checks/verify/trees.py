"""What is checked of two levels of switches: tree.pml with its macros, and what each search must come to."""

from __future__ import annotations

from typing import Final

from .configurations import STUCK, WRONG, Configuration, Outcome


def _tree(
    name: str, *, outcomes: tuple[Outcome, ...] = (Outcome.HOLDS,), is_long: bool = False, **macros: int | None
) -> Configuration:
    return Configuration(name=f"tree: {name}", model="tree.pml", outcomes=outcomes, macros=macros, is_long=is_long)


TREES: Final = (
    _tree("3 rounds", ROUNDS=3),
    _tree("4 rounds", ROUNDS=4, is_long=True),
    _tree("root cleared, a worker a leaf", ROUNDS=2, ROOT_CLEARS=1, ONE_WORKER_EACH=None),
    _tree("leaf cleared, a worker a leaf", ROUNDS=2, LEAF_CLEARS=1, ONE_WORKER_EACH=None),
    _tree("both cleared, a worker a leaf", ROUNDS=2, ROOT_CLEARS=1, LEAF_CLEARS=1, ONE_WORKER_EACH=None, is_long=True),
    _tree("root cleared, a worker a leaf, 3 rounds", ROUNDS=3, ROOT_CLEARS=1, ONE_WORKER_EACH=None, is_long=True),
    _tree("leaf cleared, a worker a leaf, 3 rounds", ROUNDS=3, LEAF_CLEARS=1, ONE_WORKER_EACH=None, is_long=True),
    _tree("root cleared", ROUNDS=2, ROOT_CLEARS=1, is_long=True),
    _tree("leaf cleared", ROUNDS=2, LEAF_CLEARS=1, is_long=True),
    _tree("result from above taken twice", ROUNDS=2, ACCEPTS_TWICE=None),
    _tree("partial is not sent again", outcomes=STUCK, ROUNDS=2, BREAK_NO_RESEND=None),
    _tree(
        "a final result is not sent up",
        outcomes=STUCK,
        ROUNDS=2,
        ROOT_CLEARS=1,
        BREAK_NO_RECALL=None,
        ONE_WORKER_EACH=None,
    ),
    _tree("partial is given to workers", outcomes=WRONG, ROUNDS=2, BREAK_PARTIAL_AS_RESULT=None),
    _tree("result for another number is taken", outcomes=WRONG, BREAK_ANY_NUMBER=None),
    _tree("result for an open round is taken", outcomes=WRONG, ROUNDS=2, LEAF_CLEARS=1, BREAK_OPEN_ROUND=None),
    _tree("result from a member's port is taken", outcomes=WRONG, ROUNDS=2, BREAK_MEMBERS_PORT=None),
    _tree("a new round is born final", outcomes=WRONG, BREAK_FINAL_STAYS=None),
    _tree("moved to another root, a worker a leaf", ROUNDS=1, MOVES=None, ONE_WORKER_EACH=None),
    _tree("moved to another root", ROUNDS=1, MOVES=None, is_long=True),
    _tree("moved to another root, 2 rounds", ROUNDS=2, MOVES=None, ONE_WORKER_EACH=None, is_long=True),
    _tree("moved, a root cleared", ROUNDS=1, MOVES=None, ROOT_CLEARS=1, ONE_WORKER_EACH=None, is_long=True),
    _tree("moved, a leaf cleared", ROUNDS=1, MOVES=None, LEAF_CLEARS=1, ONE_WORKER_EACH=None, is_long=True),
    _tree("moved with a member, a worker a leaf", ROUNDS=1, MOVES_MEMBER=None, ONE_WORKER_EACH=None),
    _tree("moved with a member", ROUNDS=1, MOVES_MEMBER=None, is_long=True),
    _tree("moved with a member, 2 rounds", ROUNDS=2, MOVES_MEMBER=None, ONE_WORKER_EACH=None, is_long=True),
    _tree("moved with a member, a leaf cleared", ROUNDS=1, MOVES_MEMBER=None, LEAF_CLEARS=1, is_long=True),
    _tree("results of both roots are taken", ROUNDS=1, MOVES=None, ACCEPTS_BOTH_ROOTS=None, ONE_WORKER_EACH=None),
    _tree("a move that workers are not told", outcomes=STUCK, ROUNDS=2, MOVES=None, BREAK_MOVES_UNTOLD=None),
    _tree("a new root with old cells", outcomes=WRONG, ROUNDS=2, MOVES=None, BREAK_OLD_CELLS=None),
    _tree(
        "old cells of a switch with new members",
        outcomes=WRONG,
        ROUNDS=2,
        MOVES_MEMBER=None,
        ONE_WORKER_EACH=None,
        BREAK_KEEPS_CELLS=None,
    ),
    _tree(
        "old cookies in the new tree",
        outcomes=(*STUCK, *WRONG),
        ROUNDS=2,
        MOVES_MEMBER=None,
        ONE_WORKER_EACH=None,
        BREAK_SAME_COOKIES=None,
    ),
)
