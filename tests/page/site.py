"""The status port with documents that a check sets: the product's server, answers and page; all may fail."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from controller.errors import NotFoundError
from controller.page.app import create_page
from controller.process.status_app import Asked, Sees, StatusApp, StatusRefusedError, admit_all
from controller.process.status_port import LOOPBACK, StatusServer
from controller.views.documents import DecisionEntry, Overview
from tests.fakes import view_documents as documents

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

PREFIX = "/api/v1/proxy"  # what stands before the path behind a proxy


class PageSite:
    """`asked` counts requests by path, `sent` has the bytes of the first answer to each, as they went out.

    Threads: any. Blocks: `close`. I/O: listens on loopback.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the fields below
        self._documents: dict[str, Any] = {}
        self._decisions: Sequence[DecisionEntry] = ()
        self._refusal = ""
        self.asked: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        answers = {
            "/overview": self._document,
            "/capacity": self._document,
            "/explain/": self._document,
            "/decisions": self._decided,
        }
        self._app = StatusApp(answers, admit=self._admit, page=create_page("0.1.0"))
        self._server = StatusServer("page", self._measured, LOOPBACK, 0)
        self._server.start()

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self._server.port}"

    def show(self, overview: Overview, decisions: Sequence[DecisionEntry] = ()) -> None:
        """From now on."""
        with self._lock:
            self._documents["/overview"] = overview
            if overview.disks:
                self._documents["/capacity"] = documents.capacity(overview.disks)
            self._decisions = decisions or self._decisions

    def explain(self, path: str, document: Any) -> None:
        with self._lock:
            self._documents[f"/explain/{path}"] = document

    def document(self, path: str) -> Any:
        with self._lock:
            return self._documents[path]

    def refuse(self, status: str) -> None:
        """Answer all documents with that status, as in "503 Service Unavailable"; "": no longer."""
        with self._lock:
            self._refusal = status

    def close(self) -> None:
        self._server.stop()

    def _admit(self, authorization: str, path: str) -> Sees:
        with self._lock:
            refusal = self._refusal
        if refusal and path != "/" and not path.startswith("/page/"):
            raise StatusRefusedError(refusal, "not now")
        return admit_all(authorization, path)

    def _document(self, asked: Asked) -> Any:
        with self._lock:
            found = self._documents.get(asked.path)
        if found is None:
            raise NotFoundError("not found")
        return found

    def _decided(self, asked: Asked) -> Sequence[DecisionEntry]:
        with self._lock:
            return [entry for entry in self._decisions if entry.serial > asked.number("after")][-asked.number("last") :]

    def _measured(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = str(environ["PATH_INFO"])
        body = b"".join(self._app(environ | {"PATH_INFO": path.removeprefix(PREFIX)}, start_response))
        with self._lock:
            self.asked[path] = self.asked.get(path, 0) + 1
            self.sent.setdefault(path, len(body))
        return [body]
