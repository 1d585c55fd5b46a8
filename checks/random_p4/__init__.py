"""Random v1model programs through p4c, the interpreter, native code and BMv2: what they do not agree about is a fault.

    python -m checks.random_p4 --seconds 600             new programs until the time is over, or two switches differ
    python -m checks.random_p4 --seed 17 --programs 1    one program again

`generate.py` makes a program of a seed as a tree, which `text.py` prints; statements can be left out of the print.  So
a program that shows a difference is cut down to the statements that it needs, and then the packets are.
"""
