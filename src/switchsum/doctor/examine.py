"""All checks, in the order in which a new user needs the things that they are about."""

from __future__ import annotations

from switchsum.doctor.bmv2 import check_bmv2
from switchsum.doctor.finding import Finding
from switchsum.doctor.namespaces import check_rate, check_veth
from switchsum.doctor.python import (
    check_compiler,
    check_interpreter,
    check_packages,
    check_scikit_learn,
    check_torch,
)
from switchsum.doctor.running import check_namespaces, check_ports, check_sockets
from switchsum.doctor.shell import check_shell
from switchsum.doctor.system import (
    check_cores,
    check_leftovers,
    check_program,
    check_raw_sockets,
    check_shared_memory,
    programs,
)


def examine() -> list[Finding]:
    """Run all checks; none of them leaves anything changed."""
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
