"""`python -m redrive`: the same as the `redrive` command."""

from redrive.operate.cli.main import main

if __name__ == "__main__":
    main()
