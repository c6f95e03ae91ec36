"""SIGINT and SIGTERM: while the service starts they end the start, then they ask it to finish, and a second time at once."""

import asyncio
import signal


class Stop:
    """What the signals do to the command that runs in the current asyncio task."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        """Set when the service should finish what is in hand."""
        self._is_up = False
        self._command = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)

    def is_up(self) -> None:
        """Say that the service has started, so that it can be asked to finish."""
        self._is_up = True

    def _on_signal(self) -> None:
        if self._is_up and not self.asked.is_set():
            self.asked.set()
        elif self._command:
            self._command.cancel()
