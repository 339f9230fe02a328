"""Text of others on a terminal."""

LONGEST = 2000
"""Characters of a line. A kilobyte of a file can stand for a megabyte of text."""


def printable(text: str, longest: int = LONGEST) -> str:
    """`text` on one line, with whatever would move the cursor, colour or hide something spelled
    out, and cut where it is longer than a person reads.

    For what comes from a file: anybody may have written it.
    """
    # Spelled out it gets longer, never shorter.
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
