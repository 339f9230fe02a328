"""In programs that tests start, torchmetrics is not installed, as where Prunus is installed alone.

Lightning brings it, and Fabric would load all of it: that takes longer than to load torch.
"""

raise ImportError("see tests/support/plain")
