"""`python -m durio` is the command line."""

from durio.cli.main import main

main()
