"""Checks of this machine: what works with switchsum, what is missing, and the command that mends it."""

from __future__ import annotations

from switchsum.doctor.machine import (
    check_bmv2,
    check_cores,
    check_leftovers,
    check_namespaces,
    check_ports,
    check_program,
    check_rate,
    check_raw_sockets,
    check_shared_memory,
    check_sockets,
    check_veth,
    programs,
)
from switchsum.doctor.python import (
    Finding,
    Verdict,
    check_compiler,
    check_interpreter,
    check_packages,
    check_scikit_learn,
    check_shell,
    check_torch,
    find_shell_python,
)

__all__ = ["Finding", "Verdict", "examine", "find_shell_python"]


def examine() -> list[Finding]:
    """Run all checks, in the order in which a new user needs things; none of them leaves anything changed."""
    return [
        check_interpreter(),
        check_packages(),
        check_compiler(),
        check_cores(),
        check_shared_memory(),
        check_scikit_learn(),
        check_torch(),
        check_shell(),
        check_raw_sockets(),
        check_veth(),
        check_rate(),
        *map(check_program, programs()),
        check_bmv2(),
        check_sockets(),
        check_ports(),
        check_namespaces(),
        check_leftovers(),
    ]
