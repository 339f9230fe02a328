"""`python -m prunus`."""

from prunus.cli import main

main()
