"""`python -m drift.cli` is the `drift` command."""

from drift.cli import main

if __name__ == "__main__":
    main()
