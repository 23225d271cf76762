"""What runs in a rank for the tests of main.py."""

from lab.ranks.rank import Rank


def run_main(rank: Rank) -> None:
    """The reference's main() with the command line that the test sends."""
    main = rank.student("main")
    main.main(rank.receive())
