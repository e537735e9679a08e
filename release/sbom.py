"""The software bill of materials of the image, in CycloneDX: `make sbom`.

Every package of requirements/runtime.lock, with what it says of its licence; nothing of the base image.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import tomllib
import uuid
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.packages import LockError, Package, described, image_environment, installed_below, locked_in, python_of
from release.version import ROOT, VersionError, current


def component_of(package: Package) -> Any:
    url = PackageURL("pypi", name=package.locked.name, version=package.locked.version)
    return Component(
        type=ComponentType.LIBRARY,
        name=package.locked.name,
        version=package.locked.version,
        purl=url,
        bom_ref=str(url),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in package.locked.digests],
        licenses=[_licence(package.licence)],
    )


def bill(packages: list[Package], project: dict[str, Any], version: str, made: datetime) -> Any:
    """The whole document; the same for the same packages, version and time."""
    direct = {canonicalize_name(Requirement(one).name) for one in project["dependencies"]}
    product = Component(
        type=ComponentType.APPLICATION,
        name=project["name"],
        version=version,
        description=project["description"],
        bom_ref=f"{project['name']}@{version}",
        licenses=[_licence(project["license"])],
    )
    components = {package.locked.name: component_of(package) for package in packages}
    content = "\n".join([version, *(repr(package) for package in packages)])
    document = Bom(components=components.values(), serial_number=uuid.uuid5(uuid.NAMESPACE_OID, content))
    document.metadata.timestamp = made
    document.metadata.component = product
    tool = this_component()
    tool.external_references.clear()
    document.metadata.tools.components.add(tool)
    document.register_dependency(product, [components[name] for name in sorted(direct)])
    for package in packages:
        document.register_dependency(components[package.locked.name], [components[name] for name in package.needs])
    return document


def _licence(said: str) -> Any:
    return LicenseFactory().make_from_string(said, license_acknowledgement=LicenseAcknowledgement.DECLARED)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.sbom", description="Writes the image's bill of materials.")
    parser.add_argument("--output", type=Path, required=True, help="file to write")
    parser.add_argument(
        "--time", type=datetime.fromisoformat, required=True, help="time of its making, with a time zone"
    )
    options = parser.parse_args(arguments)
    try:
        environment = image_environment(python_of((ROOT / "Dockerfile").read_text()))
        locked = locked_in((ROOT / "requirements" / "runtime.lock").read_text(), environment)
        packages = described(locked, installed_below(sysconfig.get_path("purelib")), environment)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        document = bill(packages, project, str(current()), options.time)
    except (LockError, VersionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = JsonV1Dot6(document).output_as_string(indent=2)
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        print(f"error: the document does not match the schema of CycloneDX 1.6: {wrong}", file=sys.stderr)
        return 1
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text + "\n")
    print(f"{options.output}: {len(packages)} packages, valid against the schema of CycloneDX 1.6")
    return 0


if __name__ == "__main__":
    sys.exit(main())
