"""`python -m fedslice` is `fedslice`."""

from fedslice.cli import main

main()
