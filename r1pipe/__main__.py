"""`python -m r1pipe` is the `r1pipe` command."""

from r1pipe.cli import main

if __name__ == "__main__":
    main()
