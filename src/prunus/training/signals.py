"""Ctrl-C and SIGTERM: finish the step, then stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from prunus.errors import PrunusError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(PrunusError):
    """A signal ended the run after it wrote a checkpoint."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"stopped by {signal.Signals(number).name} after writing a checkpoint; the same "
            "command resumes from here"
        )
        self.status = 128 + number


class StopRequests:
    """While entered, remembers the first signal instead of obeying it; obeys a second Ctrl-C."""

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequests:
        # Python allows handlers only in the main thread.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = self.received or number
