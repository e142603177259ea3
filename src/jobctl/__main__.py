"""`python -m jobctl` is `jobctl`."""

from jobctl.cli import main

main()
