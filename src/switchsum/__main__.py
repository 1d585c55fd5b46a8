"""`python -m switchsum` and the console scripts: the command lines, without tracebacks from the very start."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line; an interrupt that comes while it is imported ends the process without a traceback."""
    try:
        import signal  # noqa: PLC0415

        previous = signal.getsignal(signal.SIGINT)
        if previous is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        os._exit(130)  # nothing is there yet that could be cleaned up
    from switchsum.cli.app import main as run  # noqa: PLC0415

    signal.signal(signal.SIGINT, previous)
    run()


def bmv2() -> None:
    """Run `switchsum-bmv2`; an interrupt that comes before there is a switch ends the process without a traceback."""
    try:
        import signal  # noqa: PLC0415

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        os._exit(130)
    from switchsum_switch.__main__ import main as run  # noqa: PLC0415

    run()  # which takes the signal over when there is a switch to stop


if __name__ == "__main__":
    main()
