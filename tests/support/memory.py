"""How much memory a process takes."""

import re
from pathlib import Path


def peak() -> int:
    """Megabytes that this process has taken at most.

    Unlike `ru_maxrss`, which a program inherits from the process that started it: that of the tests
    is larger, and what the program takes would not show.
    """
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) // 1024
