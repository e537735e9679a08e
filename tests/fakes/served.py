"""A process of the product's server that is nothing but its application."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class OnlyApplication:
    """Nothing starts with it, nothing ends with it."""

    def __init__(self, app: WSGIApplication) -> None:
        self.app = app

    def start(self) -> None:
        return

    def begin_stop(self) -> None:
        return

    def stop(self) -> None:
        return
