"""`python -m raftsched` is the command line."""

from raftsched.cli.main import main

if __name__ == "__main__":
    main()
