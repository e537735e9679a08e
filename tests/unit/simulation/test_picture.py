"""The picture of a simulation."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from controller.errors import ConfigError
from controller.simulation.documents import DiskChange
from controller.simulation.picture import FREE, LOST, MOST_ROWS, NEW, OVER, TAKEN, USED, write_picture
from tests.fakes.saved import GIB
from tests.unit.simulation.asking import ask, cluster, running, stateful_set

SVG = "{http://www.w3.org/2000/svg}"


def drawn(path: Path) -> tuple[list[str], list[str]]:
    """The colours of its bars, and its texts."""
    root = ET.parse(path).getroot()
    return [one.attrib["fill"] for one in root.iter(f"{SVG}rect")], [str(one.text) for one in root.iter(f"{SVG}text")]


def test_it_shows_what_comes_what_is_lost_and_what_finds_no_place(tmp_path: Path) -> None:
    objects = [*cluster(n1=100, n2=100), *running("db-0", "n1", "n1", "n2", gib=20)]
    found = ask(objects, stateful_set("<new>", gib=70), fail=["n1"])
    write_picture(replace(found, question=["fail n1"]), str(tmp_path / "p.svg"))

    colours, texts = drawn(tmp_path / "p.svg")
    assert {USED, NEW, LOST, FREE} <= set(colours)
    assert "What if: fail n1" in texts
    assert "20 GiB lost" in texts
    assert "20 to 90 of 100 GiB" in texts


def test_bytes_over_the_limit_stand_out_and_many_disks_are_cut(tmp_path: Path) -> None:
    disk = DiskChange("n", "d", "u", 10 * GIB, 4 * GIB, 0, 10 * GIB, 9 * GIB, 3 * GIB, "closed")
    many = [replace(disk, disk=f"d{number}") for number in range(MOST_ROWS + 1)]
    found = replace(ask(cluster(n1=10)), disks=many)
    write_picture(found, str(tmp_path / "p.svg"))

    colours, texts = drawn(tmp_path / "p.svg")
    assert {TAKEN, OVER} <= set(colours)
    assert f"the {MOST_ROWS} of {MOST_ROWS + 1} disks that change most" in texts


def test_png_is_drawn_by_pillow(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    write_picture(ask(cluster(n1=10)), str(tmp_path / "p.png"))
    with image.open(tmp_path / "p.png") as read:
        assert ("PNG", 1920) == (read.format, read.width)


@pytest.mark.parametrize("name", ["p.gif", "no/such/folder/p.svg"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="--picture: "):
        write_picture(ask(cluster(n1=10)), str(tmp_path / name))
