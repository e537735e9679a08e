"""Which parts of libraries we use that they do not promise to keep, and that no newer release comes by itself.

To raise a bound of pyproject.toml: install the release, run these tests and `make test`, and read in the library what
its part of the list below does now.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from release.version import ROOT

# By library: a module, and behind its colon a name in it; behind a space what stands in the source of that name.
INTERNALS: dict[str, tuple[str, ...]] = {
    "gunicorn": (  # controller/serving: the worker's loop and its connections are ours
        *(f"gunicorn.workers.gthread:TConn.{name}" for name in ("init", "close", "set_timeout")),
        *(f"gunicorn.workers.gthread:TConn self.{name} =" for name in ("sock", "timeout", "parser", "data_ready")),
        *(
            f"gunicorn.workers.gthread:ThreadWorker.{name}"
            for name in (
                "accept",
                "enqueue_req",
                "finish_request",
                "get_thread_pool",
                "handle",
                "handle_exit",
                "handle_quit",
                "init_process",
                "murder_pending",
                "on_client_socket_readable",
                "on_pending_socket_readable",
                "run",
            )
        ),
        *(
            f"gunicorn.workers.gthread:ThreadWorker self.{name} ="
            for name in ("keepalived_conns", "nr_conns", "pending_conns", "poller")
        ),
        "gunicorn.http.unreader:Unreader.take_buffered",
        "gunicorn.http.parser:Parser self.unreader =",
        "gunicorn.http.wsgi:Response.force_close",
        "gunicorn.http.errors:ParseException",
        "gunicorn.app.base:BaseApplication.load_config",
        "gunicorn.glogging:Logger self.error_log =",
        'gunicorn.arbiter:Arbiter self.log.info("Listening at',
        "gunicorn.arbiter:Arbiter self.cfg.when_ready(self)",
    ),
    "kubernetes": (  # controller/kube/api.py: its pool of connections, without its models
        "kubernetes.client:ApiClient self.rest_client =",
        "kubernetes.client.rest:RESTClientObject self.pool_manager =",
        "kubernetes.client:Configuration.auth_settings",
        "kubernetes.config:load_kube_config persist_config",
    ),
    "urllib3": (  # controller/kube/line_stream.py: a watch that has to end is shut down by its socket
        "urllib3.response:HTTPResponse self._connection =",
        "urllib3.connection:HTTPConnection self.sock =",
    ),
    "grpcio": ("grpc._server:_select_thread_pool_for_behavior experimental_thread_pool",),  # controller/rpc/calls.py
    "grpcio-reflection": ("grpc_reflection.v1alpha.reflection:ReflectionServicer.ServerReflectionInfo",),
    "prometheus-client": ("prometheus_client.exposition:ThreadingWSGIServer",),  # controller/process/status_port.py
    "pyyaml": ("yaml.constructor:SafeConstructor.bool_values", "yaml:SafeLoader.get_event"),  # controller/plan
    "ruamel-yaml": (  # controller/scheduler_config/tree.py: comments and layout
        *(f"ruamel.yaml.comments:CommentedMap.{name}" for name in ("ca", "fa", "lc")),
        *(f"ruamel.yaml.comments:Format.{name}" for name in ("flow_style", "set_block_style", "set_flow_style")),
        "ruamel.yaml.comments:LineCol self.col =",
        "ruamel.yaml.comments:Comment.items",
    ),
    "protobuf": ("google.protobuf.internal.builder:BuildMessageAndEnumDescriptors",),  # what protoc generates
    "pytest": ("_pytest.python:Function self._fixtureinfo",),  # tests/conftest.py: who uses the cluster
    "pytest-xdist": ("xdist.scheduler:LoadFileScheduling._split_scope",),  # tests/conftest.py: which files go together
}
# Classes that are meant to be subclassed.
MEANT = {
    "click.Command",
    "grpc_health.v1.health_pb2_grpc.HealthServicer",
    "msgspec.Struct",
    "prometheus_client.registry.Collector",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS: dict[str, Requirement] = {
    canonicalize_name(one.name): one
    for one in map(Requirement, (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]))
}


@pytest.mark.parametrize("name", INTERNALS)
def test_the_next_minor_release_comes_only_when_somebody_has_looked(name: str) -> None:
    bound, installed = REQUIREMENTS[name].specifier, Version(version(name))
    assert installed in bound
    assert f"{installed.major + 1}.0" not in bound
    if name not in ("kubernetes", "protobuf", "pyyaml", "urllib3"):  # these change such things in major releases alone
        assert f"{installed.major}.{installed.minor + 1}" not in bound


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in INTERNALS.items() for part in parts])
def test_what_is_used_is_there(name: str, part: str) -> None:
    where, _, text = part.partition(" ")
    module, _, path = where.partition(":")
    found: Any = importlib.import_module(module)
    for step in path.split("."):
        found = getattr(found, step)
    if text:
        assert text in inspect.getsource(found)


def bases(path: Path) -> Iterator[str]:
    """The full names of imported classes that the file's classes are made of."""
    tree = ast.parse(path.read_text())
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            known |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            known |= {one.asname or one.name: one.name for one in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                first, _, rest = ast.unparse(base).partition(".")
                if first in known:
                    yield ".".join(filter(None, (known[first], rest)))


def test_no_class_of_another_library_is_subclassed() -> None:
    distributions = packages_distributions()
    of_ours = [
        path for folder in ("controller", "extender", "webhook", "certs") for path in (ROOT / folder).rglob("*.py")
    ]
    found = {name for path in of_ours for name in bases(path)} - MEANT
    libraries = {canonicalize_name(one) for name in found for one in distributions.get(name.partition(".")[0], ())}
    assert set() == libraries - set(INTERNALS) - {canonicalize_name(PROJECT["name"])}
    assert {"gunicorn", "grpcio-reflection", "prometheus-client"} <= libraries


def test_what_the_product_imports_is_asked_for() -> None:
    """Not only by way of another library, which may cease to need it."""
    distributions, imported = packages_distributions(), set[str]()
    for folder in ("controller", "extender", "webhook", "certs"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
                imported |= {name.partition(".")[0] for name in names}
    needed = {canonicalize_name(one) for name in imported for one in distributions.get(name, ())[:1]}
    listed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["png"]]
    asked = {canonicalize_name(Requirement(one).name) for one in listed}
    assert asked == needed - {canonicalize_name(PROJECT["name"])}
