"""`python -m switchsum` and the console script: the command line, without tracebacks from the very start."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line; an interrupt that comes while it is imported ends the process without a traceback."""
    try:
        import signal  # noqa: PLC0415

        previous = signal.getsignal(signal.SIGINT)
        if previous is signal.default_int_handler:
            # Python ignores a signal that comes while its handler is replaced; one that is blocked comes afterwards.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except KeyboardInterrupt:
        os._exit(130)  # nothing is there yet that could be cleaned up
    from switchsum.cli.app import main as run  # noqa: PLC0415

    signal.signal(signal.SIGINT, previous)
    run()


if __name__ == "__main__":
    main()
