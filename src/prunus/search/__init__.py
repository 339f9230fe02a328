"""Search: rounds, re-training, pruning and transfer, as runs that can be resumed."""

from prunus.search.settings import RunSettings, resolve
from prunus.search.stages import execute
from prunus.search.transfer import Transfer, transfer

__all__ = ["RunSettings", "Transfer", "execute", "resolve", "transfer"]
