"""Search: rounds, re-training, pruning and transfer, as runs that can be resumed."""

from prunus.search.bisection import Found, bisect_runs, find_mask_init
from prunus.search.controls import Control, control_of
from prunus.search.rates import rates_of
from prunus.search.settings import RunSettings, resolve
from prunus.search.stages import execute
from prunus.search.transfer import Transfer, transfer

__all__ = [
    "Control",
    "Found",
    "RunSettings",
    "Transfer",
    "bisect_runs",
    "control_of",
    "execute",
    "find_mask_init",
    "rates_of",
    "resolve",
    "transfer",
]
