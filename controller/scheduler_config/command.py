"""The command line of `render-scheduler-config`: reads the cluster, or the files that it names, and hands out text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import click

from controller.errors import ConfigError
from controller.kube.resources import Resource
from controller.model.names import SCHEDULER_NAMES
from controller.scheduler_config.config import Rendered, merged_config, new_config
from controller.scheduler_config.fragments import fragments_of, machine_patch
from controller.scheduler_config.from_cluster import Get, client_certificate, service_address
from controller.scheduler_config.options import (
    CA,
    CERTIFICATE,
    DEFAULT_BURST,
    DEFAULT_PORT,
    DEFAULT_QPS,
    FILES,
    KEY,
    LONGEST_TIMEOUT_MILLISECONDS,
    PLATFORMS,
    CertificateData,
    CertificateDirectory,
    Options,
    parse_timeout,
    require,
)

PARTS: Final = ("all", "config", "wiring")
CLIENT_SECRET: Final = "longhorn-scheduler-extender-client"
WAIT_SECONDS: Final = 60
Tell = Callable[[str], None]
Check = Callable[[Mapping[str, bytes]], Iterable[str]]
_OWN: Final = "kube-scheduler's own one is --scheduler-kubeconfig"


def parameters() -> list[click.Parameter]:
    """The command's flags; --kubeconfig, --context and --namespace are the program's. Absent numbers and switches stay
    None: see `Options`."""
    return [*_of_files(), *_of_transport(), *_of_scheduler()]


def _flag(names: str, text: str, **more: Any) -> click.Parameter:
    shows = "default" in more and bool(more["default"])
    return click.Option(names.split(), help=text, show_default=shows, **more)


def _of_files() -> Iterable[click.Parameter]:
    how = "how kube-scheduler runs in this cluster"
    yield _flag("--for platform", how, required=True, type=click.Choice(tuple(PLATFORMS)))
    parts = "config: the configuration; wiring: what makes kube-scheduler use it; all: both"
    yield _flag("--part", parts, type=click.Choice(PARTS), default="all")
    yield _flag("--merge", "a KubeSchedulerConfiguration to extend; its own settings are kept", metavar="FILE")
    address = (
        "ClusterIP, DNS name or another address of the extender's Service (default: its DNS name; where "
        "kube-scheduler uses the host's network, its ClusterIP, read from the cluster)"
    )
    yield _flag("--service-address", address, metavar="HOST", default="")
    yield _flag("--port", "port of the Service", type=int, default=DEFAULT_PORT, metavar="N")
    yield _flag("--output", "write the configuration to a file that only its owner can read", metavar="FILE")


def _of_transport() -> Iterable[click.Parameter]:
    """TLS with what the cluster holds, unless something else is asked for."""
    secret = "Secret with kube-scheduler's client certificate"
    yield _flag("--client-secret", secret, metavar="NAME", default=CLIENT_SECRET)
    yield _flag("--wait", "how long to wait for the Secret", type=int, default=WAIT_SECONDS, metavar="SECONDS")
    authority = (
        "PEM file with the extender's certificate authority; with --cert-file and --key-file instead of the Secret"
    )
    yield _flag("--ca-file", authority, metavar="FILE")
    yield _flag("--cert-file", "PEM file with kube-scheduler's client certificate", metavar="FILE")
    yield _flag("--key-file", "PEM file with the certificate's private key", metavar="FILE")
    directory = (
        f"directory on kube-scheduler's machine with {CA}, {CERTIFICATE} and {KEY}; the configuration then names "
        "these files, holds no secret, and may be kept in Git"
    )
    yield _flag("--certificate-dir", directory, metavar="PATH", default="")
    plain_http = (
        "no TLS, for a controller with --tls-mode insecure-plain-http: whoever reaches the extender's port is "
        "taken for kube-scheduler"
    )
    yield _flag("--insecure-plain-http", plain_http, is_flag=True)


def _of_scheduler() -> Iterable[click.Parameter]:
    """What the configuration says about kube-scheduler itself, and about its calls."""
    longest = f"{LONGEST_TIMEOUT_MILLISECONDS // 1000}s"
    yield _flag("--http-timeout", "timeout of a call, such as 3500ms", default=longest, metavar="TIME")
    yield _flag("--allow-long-timeout", f"accept an --http-timeout above {longest}", is_flag=True)
    ignorable = "schedule pods unchecked while the extender is unavailable (default: let them wait)"
    yield _flag("--ignorable/--no-ignorable", ignorable, default=None)
    large = "consider a quarter of the nodes for each pod, not all of them"
    yield _flag("--large-cluster", large, is_flag=True)
    qps = f"requests per second to the API server (default: {DEFAULT_QPS})"
    yield _flag("--qps", qps, type=int, metavar="N")
    burst = f"requests to the API server in one burst (default: {DEFAULT_BURST})"
    yield _flag("--burst", burst, type=int, metavar="N")
    profile = "name of the profile that asks the extender (default: that of kube-scheduler)"
    yield _flag("--scheduler-name", profile, default="", metavar="NAME")
    listed = "the controller's --scheduler-names: other profiles are told of"
    yield _flag("--scheduler-names", listed, default=SCHEDULER_NAMES, metavar="NAMES")
    kubeconfig = "kube-scheduler's own kubeconfig (default: that of the distribution)"
    yield _flag("--scheduler-kubeconfig", kubeconfig, default="", metavar="PATH")
    path = "where the file will be on kube-scheduler's machine (default: by distribution)"
    yield _flag("--config-path", path, default="", metavar="PATH")
    elect = "of several kube-schedulers only an elected one schedules (default)"
    yield _flag("--leader-elect/--no-leader-elect", elect, default=None)


def render(arguments: SimpleNamespace, tell: Tell, check: Check, get: Get | None = None) -> Rendered:
    """What to print, and notes for the person. `tell` is told at once what takes long, and what `check` finds odd about
    certificates, which it gets by their names. ConfigError names the option, or the field of the merged file."""
    asked: list[str] = []
    options = _options(arguments, get or partial(_read, arguments, asked), tell, check).checked()
    is_of_use = not arguments.kubeconfig or bool(get or asked)
    require(is_of_use, "--kubeconfig", f"is what to read the cluster with, which is not asked; {_OWN}")
    merge, is_talos = arguments.merge, options.platform.is_talos
    require(
        not (merge and is_talos),
        "--merge",
        "is not possible for Talos, which merges patches of its machine configuration itself",
    )
    wiring = _stream(fragments_of(options))
    if arguments.part == "wiring":
        require(bool(wiring), "--part", f"wiring does not exist for {options.platform.title}; leave --part out")
        return Rendered(wiring)
    rendered = merged_config(_text("--merge", merge), merge, options) if merge else new_config(options)
    return replace(
        rendered,
        text=machine_patch(options, rendered.text) if is_talos else rendered.text,
        others=wiring if arguments.part == "all" else "",
    )


def printed(rendered: Rendered, path: str) -> str:
    """What belongs on the screen, once the configuration is in the file at `path`; "" for no file: all of it.
    ConfigError when it cannot be written; the file is there whole or not at all, and only its owner may read it."""
    if not path:
        return _stream(filter(None, (rendered.text, rendered.others)))
    made = Path(f"{path}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(rendered.text)
        made.replace(path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise ConfigError(f"--output: {path}: {error.strerror or error}") from error
    return rendered.others


def _stream(pieces: Iterable[str]) -> str:
    return "---\n".join(pieces)


def _options(arguments: SimpleNamespace, get: Get, tell: Tell, check: Check) -> Options:
    platform, address = PLATFORMS[arguments.platform], arguments.service_address
    needs_cluster = arguments.part != "wiring"  # which says neither whom to ask nor with what
    if not address and needs_cluster and platform.on_host_network:
        address = service_address(get, arguments.namespace)
    found = {
        **{name: value for name, value in vars(arguments).items() if name in Options.__dataclass_fields__},
        "platform": platform,
        "service_address": address,
        "certificates": _certificates(arguments, get if needs_cluster else None, tell, check),
        "timeout_milliseconds": parse_timeout(arguments.http_timeout),
    }
    return Options(**found)


def _certificates(
    arguments: SimpleNamespace, get: Get | None, tell: Tell, check: Check
) -> CertificateData | CertificateDirectory | None:
    """Those that the options name, one way and no two; else those of the cluster, if it is to be asked."""
    paths = {f"--{name}-file": getattr(arguments, f"{name}_file") for name in FILES}
    ways = {
        "--insecure-plain-http": arguments.insecure_plain_http,
        "--certificate-dir": arguments.certificate_dir,
        "--ca-file, --cert-file and --key-file": any(paths.values()),
    }
    asked = [way for way, is_asked in ways.items() if is_asked]
    require(len(asked) < 2, " and ".join(asked), "exclude each other")
    if arguments.insecure_plain_http:
        return None
    if arguments.certificate_dir:
        return CertificateDirectory(arguments.certificate_dir)
    if asked:
        for option, path in paths.items():
            require(bool(path), option, "is missing: give all three certificate files, or none")
        files = {f"{option}: {path}": _content(option, path) for option, path in paths.items()}
        return _checked(files, check, tell)
    if get is None:
        return None
    secret = arguments.client_secret
    data = client_certificate(get, arguments.namespace, secret, arguments.wait, tell)
    return _checked({f"--client-secret: {secret}: {file}": data[file] for file in FILES.values()}, check, tell)


def _checked(files: Mapping[str, bytes], check: Check, tell: Tell) -> CertificateData:
    for note in check(files):
        tell(note)
    return CertificateData(*files.values())


def _read(arguments: SimpleNamespace, asked: list[str], resource: Resource, namespace: str, name: str) -> Any:
    """One object of the cluster, once something has to be read: all options together may do without."""
    from controller.kube.api import ClientKubeApi  # half a second, which a command without a cluster does not need

    asked.append(name)
    try:
        return ClientKubeApi.load(arguments.kubeconfig, arguments.context).get(resource, namespace, name)
    except ConfigError as error:
        raise ConfigError(f"{error}; {_OWN}") from error


def _content(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror or error}") from error


def _text(option: str, path: str) -> str:
    try:
        return _content(option, path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option}: {path}: is not UTF-8 text") from error
