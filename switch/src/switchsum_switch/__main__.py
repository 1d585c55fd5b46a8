"""`switchsum-bmv2`, and `python -m switchsum_switch`: the embedded switch in BMv2's place."""

from __future__ import annotations

import os


def main() -> None:
    """Run the switch; entry of the console script.  A SwitchsumError is printed as one line.

    An interrupt that comes before there is a switch ends the process without a traceback.
    """
    try:
        import signal  # noqa: PLC0415
        import sys  # noqa: PLC0415

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # Python ignores a signal that comes while its handler is replaced; one that is blocked comes afterwards.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the daemon takes it over when there is a switch to stop
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except KeyboardInterrupt:
        os._exit(130)
    from switchsum_switch.daemon.command_line import run  # noqa: PLC0415
    from switchsum_switch.errors import SwitchsumError  # noqa: PLC0415
    from switchsum_switch.ports.sampling import serve_samples  # noqa: PLC0415
    from switchsum_switch.process.ready import report_progress  # noqa: PLC0415

    report_progress()  # to Mininet, whose patience would end
    try:
        run(sys.argv[1:], services=(serve_samples,))
    except SwitchsumError as error:
        sys.exit(f"switchsum-bmv2: {error}")  # to standard error, with exit code 1


if __name__ == "__main__":
    main()
