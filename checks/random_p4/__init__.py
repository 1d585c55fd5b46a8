"""Random v1model programs through p4c, the interpreter, native code and BMv2: what they do not agree about is a fault.

    python -m checks.random_p4 --small --seconds 600     new programs of a few statements until the time is over
    python -m checks.random_p4 --seed 17 --programs 1    one program again
    python -m checks.random_p4.seeds                     the programs that run in each test, with what BMv2 sent
    python -m checks.random_p4.faults                    faults of the compiler, and whether the programs find them

`generate.py` makes a program of a seed as a tree (`tree.py`), of which statements can be left out.  So a program that
shows a difference is cut down to the statements that it needs, and then the packets are.  `layout.py` draws what the
program declares, `statements.py` and `expressions.py` what it does.
"""
