"""The command line of `render-scheduler-config`: reads the cluster, or the files that it names, and hands out text."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from controller.errors import ConfigError
from controller.kube.resources import Resource
from controller.model.names import SCHEDULER_NAMES
from controller.process.flags import add_access
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
    NAMESPACE,
    PLATFORMS,
    CertificateData,
    CertificateDirectory,
    Options,
    parse_timeout,
    require,
)

NAME: Final = "render-scheduler-config"
PARTS: Final = ("all", "config", "wiring")
CLIENT_SECRET: Final = "longhorn-scheduler-extender-client"
WAIT_SECONDS: Final = 60
Tell = Callable[[str], None]
Check = Callable[[Mapping[str, bytes]], Iterable[str]]
_OWN: Final = "kube-scheduler's own one is --scheduler-kubeconfig"


def add_parser(commands: Any) -> None:
    """Adds the command to what `add_subparsers` returned. Absent numbers and switches stay None: see `Options`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        NAME, help="print the configuration that makes kube-scheduler ask this extender"
    )
    add = parser.add_argument
    how = "how kube-scheduler runs in this cluster"
    add("--for", dest="platform", required=True, choices=tuple(PLATFORMS), help=how)
    parts = "config: the configuration; wiring: what makes kube-scheduler use it; all: both (default)"
    add("--part", choices=PARTS, default="all", help=parts)
    add("--merge", metavar="FILE", help="a KubeSchedulerConfiguration to extend; its own settings are kept")
    address = (
        "ClusterIP, DNS name or another address of the extender's Service (default: its DNS name; where "
        "kube-scheduler uses the host's network, its ClusterIP, read from the cluster)"
    )
    add("--service-address", metavar="HOST", default="", help=address)
    add("--port", type=int, default=DEFAULT_PORT, metavar="N", help="port of the Service (default: %(default)s)")
    add("--namespace", default=NAMESPACE, help="namespace of the Service (default: %(default)s)")
    add("--output", metavar="FILE", help="write the configuration to a file that only its owner can read")
    _add_transport(parser)
    _add_scheduler_flags(parser)


def _add_transport(parser: argparse.ArgumentParser) -> None:
    """TLS with what the cluster holds, unless something else is asked for."""
    add = parser.add_argument
    secret = "Secret with kube-scheduler's client certificate (default: %(default)s)"
    add("--client-secret", metavar="NAME", default=CLIENT_SECRET, help=secret)
    add_access(parser)
    wait = "how long to wait for the Secret (default: %(default)s)"
    add("--wait", type=int, default=WAIT_SECONDS, metavar="SECONDS", help=wait)
    authority = (
        "PEM file with the extender's certificate authority; with --cert-file and --key-file instead of the Secret"
    )
    add("--ca-file", metavar="FILE", help=authority)
    add("--cert-file", metavar="FILE", help="PEM file with kube-scheduler's client certificate")
    add("--key-file", metavar="FILE", help="PEM file with the certificate's private key")
    directory = (
        f"directory on kube-scheduler's machine with {CA}, {CERTIFICATE} and {KEY}; the configuration then names "
        "these files, holds no secret, and may be kept in Git"
    )
    add("--certificate-dir", metavar="PATH", default="", help=directory)
    plain_http = (
        "no TLS, for a controller with --tls-mode insecure-plain-http: whoever reaches the extender's port is "
        "taken for kube-scheduler"
    )
    add("--insecure-plain-http", action="store_true", help=plain_http)


def _add_scheduler_flags(parser: argparse.ArgumentParser) -> None:
    """What the configuration says about kube-scheduler itself, and about its calls."""
    add = parser.add_argument
    longest = f"{LONGEST_TIMEOUT_MILLISECONDS // 1000}s"
    timeout = "timeout of a call, such as 3500ms (default: %(default)s)"
    add("--http-timeout", default=longest, metavar="TIME", help=timeout)
    add("--allow-long-timeout", action="store_true", help=f"accept an --http-timeout above {longest}")
    ignorable = "schedule pods unchecked while the extender is unavailable (default: let them wait)"
    add("--ignorable", action=argparse.BooleanOptionalAction, help=ignorable)
    add("--large-cluster", action="store_true", help="consider a quarter of the nodes for each pod, not all of them")
    add("--qps", type=int, metavar="N", help=f"requests per second to the API server (default: {DEFAULT_QPS})")
    add("--burst", type=int, metavar="N", help=f"requests to the API server in one burst (default: {DEFAULT_BURST})")
    profile = "name of the profile that asks the extender (default: that of kube-scheduler)"
    add("--scheduler-name", default="", metavar="NAME", help=profile)
    listed = "the controller's --scheduler-names: other profiles are told of (default: %(default)s)"
    add("--scheduler-names", default=SCHEDULER_NAMES, metavar="NAMES", help=listed)
    kubeconfig = "kube-scheduler's own kubeconfig (default: that of the distribution)"
    add("--scheduler-kubeconfig", default="", metavar="PATH", help=kubeconfig)
    path = "where the file will be on kube-scheduler's machine (default: by distribution)"
    add("--config-path", default="", metavar="PATH", help=path)
    elect = "of several kube-schedulers only an elected one schedules (default)"
    add("--leader-elect", action=argparse.BooleanOptionalAction, help=elect)


def render(arguments: argparse.Namespace, tell: Tell, check: Check, get: Get | None = None) -> Rendered:
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


def _options(arguments: argparse.Namespace, get: Get, tell: Tell, check: Check) -> Options:
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
    arguments: argparse.Namespace, get: Get | None, tell: Tell, check: Check
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


def _read(arguments: argparse.Namespace, asked: list[str], resource: Resource, namespace: str, name: str) -> Any:
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
