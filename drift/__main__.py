"""`python -m drift` is the `drift` command."""

from drift_command import main

main()
