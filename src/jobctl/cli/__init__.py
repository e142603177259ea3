"""The command line."""


def main() -> None:
    """Placeholder until the first commands exist."""
