"""Draw the processes of a job, a tree of switches, a frame's way through the P4 program, and the worker's loop.

Run as `python -m tools.draw_pictures`; it writes docs/images/*.svg.  A test compares what it makes with what is
committed, and the names in the drawings with the code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.svg import WIDTH, Drawing

IMAGES: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
WAY: Final = (
    ("SwitchParser", "parser.p4", ("headers, as far as the switch looks",)),
    ("Loss", "loss.p4", ("lose this frame on purpose?",)),
    ("Validate", "validate.p4", ("what is the frame, and is it whole?",)),
    ("Admission", "admission.p4", ("a contribution: whose is it?",)),
    ("Dispatch", "dispatch.p4", ("to the slot, or to be forwarded",)),
    ("Cells", "cells.p4", ("reads and writes the slot's registers",)),
    ("Slot", "slot.p4", ("decides: first, repeated, last of the round?",)),
    ("Lanes", "lanes.p4", ("adds 64 lanes at a time",)),
    ("Reply", "reply.p4", ("who gets an answer; counts the reason",)),
    ("SwitchEgress", "egress.p4", ("one copy for each member, with its address",)),
)
"""Controls of the P4 program in the order in which a contribution meets them, and what each does."""
LOOP: Final = (
    ("take", "frames that have come, from the link"),
    ("_feed_engine", "results into the array, next contributions out"),
    ("poll", "what has waited too long is sent again"),
    ("_send_queued", "contributions, to the link"),
    ("wait", "until a frame comes or a time-out is due"),
)
"""Steps of `run` in host/switchsum_host/engine/loop.py."""


def processes() -> str:
    """Draw who talks to whom in a job."""
    drawing = Drawing("A controller, workers and a switch: workers send frames to the switch")
    drawing.box(85, 12, 260, "controller", ("jobs, members, slots",))
    drawing.arrow((120, 61), (120, 128), both=True)
    drawing.arrow((310, 61), (310, 128), both=True)
    for number, line in enumerate(("gRPC: a rank", "joins, gets slots")):
        drawing.text(112, 88 + 16 * number, line, "note", anchor="end")
    for number, line in enumerate(("P4Runtime:", "who is a member")):
        drawing.text(318, 88 + 16 * number, line, "note")
    drawing.box(10, 130, 165, "workers", ("rank 0, 1, 2, ...", "your training;", "floats to lanes"))
    drawing.box(255, 130, 165, "switch", ("the P4 program;", "each slot adds a block", "of all ranks' values"))
    drawing.arrow((177, 170), (253, 170), both=True)
    drawing.text(215, 162, "frames", "note", anchor="middle")
    drawing.text(WIDTH / 2, 236, "over shared memory, UDP or Ethernet", "note", anchor="middle")
    return drawing.svg(252)


def tree() -> str:
    """Draw an allreduce over two leaves and a spine."""
    drawing = Drawing(
        "A tree: workers send to their leaf, leaves send sums to the spine, results come back the same way"
    )
    drawing.box(125, 12, 180, "spine", ("adds the leaves' sums",))
    for x, name, ranks in ((10, "leaf 1", (0, 1)), (240, "leaf 2", (2, 3))):
        drawing.box(x, 120, 180, name, ("adds its workers' values",))
        drawing.arrow((x + 90, 118), (190 if x < WIDTH / 2 else 240, 63), both=True)
        for number, rank in enumerate(ranks):
            left = x + 95 * number
            drawing.box(left, 228, 85, f"rank {rank}")
            drawing.arrow((left + 42, 226), (left + 42, 171), both=True)
    drawing.text(WIDTH / 2, 282, "The array passes every link once in each direction.", "note", anchor="middle")
    return drawing.svg(294)


def way() -> str:
    """Draw the controls that a contribution passes."""
    drawing = Drawing("A contribution's way through the P4 program")
    y = 12.0
    for number, (control, file, lines) in enumerate(WAY):
        if number:
            drawing.arrow((215, y), (215, y + 14))
            y += 16
        end = drawing.box(10, y, WIDTH - 20, control, lines)
        drawing.text(WIDTH - 20, y + 21, file, anchor="end")
        y = end
    return drawing.svg(y + 12)


def loop() -> str:
    """Draw the steps of the loop between a worker's engine and its link."""
    drawing = Drawing("The worker's loop: take, feed, poll, send, wait")
    y, top = 12.0, 28.0
    for number, (step, does) in enumerate(LOOP):
        if number:
            drawing.arrow((200, y), (200, y + 14))
            y += 16
        end = drawing.box(10, y, WIDTH - 60, step, (does,))
        last, y = y, end
    drawing.arrow((WIDTH - 50, last + 25), (WIDTH - 20, last + 25), (WIDTH - 20, top), (WIDTH - 48, top))
    drawing.text(20, y + 20, "It ends when a collective has ended, or its caller's time is over.", "note")
    return drawing.svg(y + 34)


def drawings() -> dict[str, str]:
    """Return all drawings, by file name."""
    return {"processes.svg": processes(), "tree.svg": tree(), "frames-way.svg": way(), "loop.svg": loop()}


if __name__ == "__main__":
    for name, made in drawings().items():
        (IMAGES / name).write_text(made)
