"""Where the processor time of an allreduce goes: `python -m checks.lab.where` (perf; root).

Perf samples ranks and switch (cpu-clock, which needs no counters of the hardware); samples from the begin to the end
of allreduces are counted by what the function does in which they were, by its name.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from switchsum.launch.link_options import rate_bits
from switchsum_lab.sweeps import real
from switchsum_lab.sweeps.axes import Cell
from switchsum_lab.sweeps.warm_jobs import Session

SMALL_BYTES: Final = 4096
SMALL_CALLS: Final = 200
"""Allreduces of small arrays are made one after the other."""
FREQUENCY: Final = 1999
"""Samples a second and core: no divisor of the kernel's ticks."""
CLASSES: Final = {
    "waiting: sleep, wake-up, yield": r"sched|futex|poll|wake|yield|hrtimer|dequeue|enqueue|pick_next|switch_to|"
    r"update_curr|nanosleep|eventfd|idle|select_task|ttwu|rq_|vruntime|deadline|load_avg|cpuacct|epoll",
    "copies": r"copy|memcpy|memmove|memset|clear_page|rep_movs|csum",
    "memory of frames": r"alloc|free|slab|page|kmem|skb_|fault|folio|lru|charge|mmap",
    "network in the kernel": r"net|veth|packet|qdisc|tbf|dev_|udp|tcp|ip_|inet|napi|sock|skb|bridge|br_|gro|gso|"
    r"softirq|xmit|neigh|fib|nf_|eth_|sendm|recvm|msg|qos|tc_|sch_|watchdog",
    "system calls, interrupts": r"syscall|entry|sysret|return_thunk|apic|irq|do_user|ret_from|fdget|fput|retbleed|srso|"
    r"timekeeping|clock|tick|rcu|timer|spin|mutex|lock",
}
"""Of the kernel's functions, by what their names contain; the first that fits."""
OURS: Final = {
    "conversion of floats": r"\.(scan|pack|unpack)\w*$",
    "frames on the link": r"^switch\.(wires|kernels|process|ports|daemon)|host\.links",
    "engine": r"^host\.",
    "switch's program": r"^(kernel\.\d+|ingress|egress|switch_batch|leave|parser|deparser)",
}
"""Of compiled code of our own, likewise."""
Found = dict[str, Counter[tuple[str, str]]]
"""By role, how many samples by class and function."""
ROLES: Final = {"sweeps.rank": "worker", "switchsum switch": "switch", "switchsum controller": "controller"}
_LINE: Final = re.compile(r"\s*(\d+)\s+([\d.]+):\s+([0-9a-f]+)\s+(.*?)\s+\(([^()]*|\[[^]]*\].*?)\)\s*$")


def kind(symbol: str, place: str) -> str:
    """Return the class of a function, by its name and the file that has it."""
    file = place.rsplit("/", 1)[-1]
    if "kernel" in place and place.startswith("["):
        return next((name for name, words in CLASSES.items() if re.search(words, symbol)), "other in the kernel")
    if file.startswith(("perf-", "[anon", "memfd", "[JIT")):
        return next((name for name, words in OURS.items() if re.search(words, symbol)), "our loops")
    if file.startswith(("libpython", "python")) or "cpython" in file or "numpy" in place:
        return "Python"
    if file.startswith(("[vdso]", "libc", "ld-linux")):
        return "copies" if re.search(r"mem(cpy|move|set)", symbol) else "C library"
    return f"library {file}"


def plain(symbol: str) -> str:
    """Return the dotted name of a function that numba has named, any other name as it is."""
    place, words = 3, []
    while symbol.startswith("_ZN") and (length := re.match(r"\d+", symbol[place:])):
        begin = place + len(length[0])
        place = begin + int(length[0])
        words.append(symbol[begin:place])
    return ".".join(words[1:]) if words[:1] == ["switchsum"] else symbol


def shares(lines: Iterable[str], roles: Mapping[int, str], times: Sequence[tuple[float, float]]) -> Found:
    """Return how many samples of each function (class, name) the processes of each role have at some times.

    Lines are those of `perf script -F pid,time,ip,sym,dso`.
    """
    found: dict[str, Counter[tuple[str, str]]] = {}
    for match in filter(None, map(_LINE.match, lines)):
        process, at = int(match[1]), float(match[2])
        if process in roles and any(begin <= at <= end for begin, end in times):
            symbol = plain(match[4])
            found.setdefault(roles[process], Counter())[kind(symbol, match[5]), symbol] += 1
    return found


def roles_of(session: int) -> dict[int, str]:
    """Return what each process of a session is, as far as it takes part."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(path.name)) == session:
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                role = next((role for text, role in ROLES.items() if text in words), None)
                if role is not None and "nsenter" not in words.split()[0]:
                    found[int(path.name)] = role
        except OSError:  # it has ended
            continue
    return found


def table(found: Found, runs: int, most: int) -> list[str]:
    """Return a Markdown table: milliseconds of each role in each class in a run, and their `most` costly functions."""
    scale = 1e3 / FREQUENCY / runs
    classes: dict[str, Counter[str]] = {}
    for role, counts in found.items():
        for (name, _), count in counts.items():
            classes.setdefault(name, Counter())[role] += count
    order = sorted(classes, key=lambda name: -classes[name].total())
    lines = ["| ms of processor time | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    lines += [
        f"| {name} | " + " | ".join(f"{classes[name][role] * scale:.1f}" for role in found) + " |" for name in order
    ]
    lines.append("| all | " + " | ".join(f"{counts.total() * scale:.1f}" for counts in found.values()) + " |")
    for role, counts in found.items() if most else ():
        lines += ["", f"{role}:", ""]
        lines += [f"- {count * scale:.1f} ms `{symbol}` ({name})" for (name, symbol), count in counts.most_common(most)]
    return lines


def measure(cell: Cell, runs: int, most: int) -> list[str]:
    """Return the table of one job."""
    setting = real.Setting.of(cell)
    order = real.order_of(cell, setting, cell.seed)
    with (
        tempfile.TemporaryDirectory() as scratch,
        Session(lambda path: setting.command(cell, path), cell.workers) as session,
    ):
        session.ask(order)
        roles, data = roles_of(session.process.pid), Path(scratch, "perf.data")
        perf = ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock", "-F", str(FREQUENCY), "-a"]
        recording = subprocess.Popen([*perf, "-o", str(data)], stderr=subprocess.DEVNULL)
        time.sleep(1)
        taken = [session.ask(order)[0] for _ in range(runs)]
        recording.terminate()
        recording.wait()
        script = ["perf", "script", "-i", str(data), "-F", "pid,time,ip,sym,dso"]
        done = subprocess.run(script, capture_output=True, text=True, check=True)
    times = [(run["began"], run["began"] + run["seconds"] * cell.calls) for run in taken]
    return table(shares(done.stdout.splitlines(), roles, times), runs * cell.calls, most)


def main() -> None:
    """Print where the time goes, for each lane build."""
    parser = argparse.ArgumentParser(prog="python -m checks.lab.where", description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--size", type=int, default=100_000_000, help="bytes of the array")
    parser.add_argument("--lanes", type=int, nargs="+", default=[256, 2048])
    parser.add_argument("--rate", help="of links, as for tc; without: shared memory")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--functions", type=int, default=0, help="name so many of the most costly")
    parser.add_argument("--peer", default=Cell().protocol)
    options = parser.parse_args()
    os.environ["SWITCHSUM_PERF_MAP"] = "1"
    for lanes in options.lanes:
        cell = Cell(
            links="veth" if options.rate else "shm",
            protocol=options.peer,
            workers=options.workers,
            bytes=options.size,
            lanes=str(lanes),
            rate_mbit=rate_bits(options.rate) / 1e6 if options.rate else None,
            calls=SMALL_CALLS if options.size <= SMALL_BYTES else 1,
        )
        where = f"links of {options.rate}" if options.rate else "shared memory"
        sys.stdout.write(
            f"\n{options.peer}, {lanes:,} lanes, {where}, {options.workers} workers, {options.size:,} bytes\n\n"
        )
        sys.stdout.flush()
        sys.stdout.write("\n".join(measure(cell, options.runs, options.functions)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
