"""One colour a method, in every plot."""

OF_METHODS = {
    "cs": "#8e4fb5", "seq-cs": "#b07cc6", "imp": "#0072b2", "imp-c": "#56b4e9", "gmp": "#009e73",
    "mp": "#999933", "str": "#d55e00", "dnw": "#e69f00", "netslim": "#882255", "l0": "#cc6677",
    "amc": "#661100", "iss": "#117733", "rigl": "#332288", "random": "#8c6d46",
    "feather": "#1b7f9e", "acdc": "#c2185b", "pilot": "#5e6ce2", "cts": "#7f3b08",
    "snip": "#4d9221", "synflow": "#35978f", "wanda": "#b8860b",
}  # fmt: skip
"""The colour of a method."""
OTHERS = ["#44aa99", "#aa4499", "#6b6b1f", "#1f5f6b"]
"""Of those from outside."""
