"""`python -m switchsum`, the same as the console script."""

from __future__ import annotations

from switchsum.cli import main

if __name__ == "__main__":
    main()
