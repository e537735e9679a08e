"""The command line of `render-scheduler-config`: reads the files that it names, and hands out text."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from controller.errors import ConfigError
from controller.scheduler_config.config import Rendered, merged_config, new_config
from controller.scheduler_config.fragments import fragments_of, header_of
from controller.scheduler_config.options import (
    DEFAULT_BURST,
    DEFAULT_PORT,
    DEFAULT_QPS,
    LONGEST_TIMEOUT_MILLISECONDS,
    PLATFORMS,
    SECOND_SCHEDULER,
    Certificates,
    Options,
    parse_timeout,
    require,
)
from controller.scheduler_config.second import manifest

NAME: Final = "render-scheduler-config"
PARTS: Final = ("all", "config", "wiring")
_FILES: Final = ("ca_file", "cert_file", "key_file")


def add_parser(commands: Any) -> None:
    """Adds the command to what `add_subparsers` returned. Absent numbers and switches stay None: see `Options`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        NAME, help="print the configuration that has kube-scheduler ask this extender"
    )
    add = parser.add_argument
    add("--for", dest="platform", required=True, choices=tuple(PLATFORMS), help="how kube-scheduler is run")
    add("--part", choices=PARTS, default="all", help="the configuration, what makes it be used, or both (default)")
    add("--merge", metavar="FILE", help="a KubeSchedulerConfiguration to add to; what is in it stays")
    add(
        "--service-address",
        metavar="HOST",
        default="",
        help="ClusterIP, DNS name or another address of the Service (default: its name; on a host's network none)",
    )
    add("--port", type=int, default=DEFAULT_PORT, metavar="N", help=f"of the Service (default: {DEFAULT_PORT})")
    add("--namespace", default=Options.__dataclass_fields__["namespace"].default, help="of the Service")
    add("--scheme", choices=("http", "https"), default="", help="default: https where certificates are given")
    add("--ca-file", metavar="FILE", help="PEM: the extender's authority; put into the file, like the next two")
    add("--cert-file", metavar="FILE", help="PEM: the certificate that kube-scheduler shows")
    add("--key-file", metavar="FILE", help="PEM: its private key")
    longest = f"{LONGEST_TIMEOUT_MILLISECONDS // 1000}s"
    add("--http-timeout", default=longest, metavar="TIME", help=f"of one call, such as 3500ms (default: {longest})")
    add("--allow-long-timeout", action="store_true", help=f"accept more than {longest}")
    add(
        "--ignorable",
        action=argparse.BooleanOptionalAction,
        help="schedule without a check while the extender is away (default: wait)",
    )
    add("--large-cluster", action="store_true", help="look at a quarter of the nodes for each pod")
    add("--qps", type=int, metavar="N", help=f"requests a second to the API server (default: {DEFAULT_QPS})")
    add("--burst", type=int, metavar="N", help=f"of them at once (default: {DEFAULT_BURST})")
    add("--scheduler-name", default="", metavar="NAME", help=f"a profile's (second: default {SECOND_SCHEDULER})")
    add("--kubeconfig", default="", metavar="PATH", help="kube-scheduler's (default: that of the distribution)")
    add("--config-path", default="", metavar="PATH", help="where the file will be (default: by distribution)")
    add("--leader-elect", action=argparse.BooleanOptionalAction, help="one of several copies schedules (default)")
    add("--image", default="", help="second: kube-scheduler's image, of the cluster's version")
    add("--no-managed-resources", action="store_true", help="second: send every pod of it to the extender")


def render(arguments: argparse.Namespace, read: Callable[[str], bytes] | None = None) -> Rendered:
    """What to print, and notes for the person. ConfigError names the option, or the field of the merged file."""
    read = read or _read
    options = _options(arguments, read).checked()
    require(
        not (arguments.merge and options.is_second),
        "--merge",
        "is not for a second kube-scheduler: its file is its own",
    )
    merge, part = arguments.merge, arguments.part
    if part == "wiring":
        require(
            options.platform.on_host_network, "--part", f"wiring is nothing that there is for {options.platform.title}"
        )
        return Rendered(_stream(fragment.text for fragment in fragments_of(options)))
    header = header_of(options, is_merged=bool(merge)) if not options.is_second else ""
    if merge:
        rendered = merged_config(_text(read, "--merge", merge), merge, options)
    else:
        rendered = new_config(options, header)
    if part == "config":
        return rendered
    if options.is_second:
        return Rendered(manifest(options, rendered.text))
    pieces = [rendered.text, *(fragment.text for fragment in fragments_of(options))]
    return Rendered(_stream(pieces), rendered.notes)


def _stream(pieces: Any) -> str:
    return "---\n".join(pieces)


def _options(arguments: argparse.Namespace, read: Callable[[str], bytes]) -> Options:
    return Options(
        platform=PLATFORMS[arguments.platform],
        service_address=arguments.service_address,
        port=arguments.port,
        namespace=arguments.namespace,
        scheme=arguments.scheme,
        certificates=_certificates(arguments, read),
        timeout_milliseconds=parse_timeout(arguments.http_timeout),
        allow_long_timeout=arguments.allow_long_timeout,
        ignorable=arguments.ignorable,
        large_cluster=arguments.large_cluster,
        qps=arguments.qps,
        burst=arguments.burst,
        scheduler_name=arguments.scheduler_name,
        kubeconfig=arguments.kubeconfig,
        config_path=arguments.config_path,
        leader_elect=arguments.leader_elect,
        manages_resource=not arguments.no_managed_resources,
        image=arguments.image,
    )


def _certificates(arguments: argparse.Namespace, read: Callable[[str], bytes]) -> Certificates | None:
    """All three or none; each is what it should be, and key and certificate belong together."""
    given = {name: getattr(arguments, name) for name in _FILES}
    if not any(given.values()):
        return None
    for name in _FILES:
        require(bool(given[name]), _option(name), "is needed too: the three certificate files go together")
    content = {name: _content(read, _option(name), path) for name, path in given.items()}
    _certificate(content["ca_file"], "--ca-file", given["ca_file"])
    leaf = _certificate(content["cert_file"], "--cert-file", given["cert_file"])
    try:
        key = serialization.load_pem_private_key(content["key_file"], password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        # The library's own words may quote what is in the file.
        raise ConfigError(f"--key-file: {given['key_file']}: holds no private key in the clear, in PEM") from error
    require(key.public_key() == leaf.public_key(), "--key-file", f"{given['key_file']}: is not the key of --cert-file")
    return Certificates(content["ca_file"], content["cert_file"], content["key_file"])


def _certificate(data: bytes, option: str, path: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(data)[0]
    except ValueError as error:
        raise ConfigError(f"{option}: {path}: holds no certificate in PEM") from error


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _content(read: Callable[[str], bytes], option: str, path: str) -> bytes:
    try:
        return read(path)
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror or error}") from error


def _text(read: Callable[[str], bytes], option: str, path: str) -> str:
    try:
        return _content(read, option, path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option}: {path}: is not UTF-8 text") from error


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
