"""Checksums made before a folder is complete are those of the complete folder."""

import json
import os
import time

import pytest

from jaxrl_fast.files import checksums


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "d").mkdir()
    for name, size in (("d/a", 100_000), ("d/b", 3), ("meta", 10)):
        (tmp_path / name).write_bytes(os.urandom(size))
    return tmp_path


def written(folder):
    return json.loads((folder / checksums.NAME).read_text())


def test_early_checksums_are_those_of_the_files(folder, monkeypatch):
    checksums.write_checksums(folder)
    whole = written(folder)
    (folder / checksums.NAME).unlink()
    early = checksums.early_checksums(sorted(folder.glob("d/*")))
    checksum, read = checksums.checksum, []
    monkeypatch.setattr(checksums, "checksum", lambda x: read.append(x.name) or checksum(x))
    folder = folder.rename(folder.with_name("named"))
    checksums.write_checksums(folder, early)
    assert written(folder) == whole and read == ["meta"]


def test_a_file_that_changed_since_is_summed_again(folder):
    early = checksums.early_checksums(folder.glob("d/*"))
    (folder / "d" / "b").write_bytes(b"other")
    checksums.write_checksums(folder, early)
    checksums.verify_checksums(folder)
    assert written(folder)["d/b"][0] == 5


def test_files_are_summed_as_they_appear(folder, monkeypatch):
    monkeypatch.setattr(checksums, "POLL", 0.001)
    expected = checksums.early_checksums(folder.glob("d/*"))
    early = checksums.EarlyChecksums(folder.parent, f"{folder.name}/d/*")
    until = time.monotonic() + 20
    while len(early._sums) < 2 and time.monotonic() < until:
        time.sleep(0.001)
    assert early.finish() == expected and not early._thread.is_alive()


def test_a_file_that_grows_is_summed_when_it_rests(folder, monkeypatch):
    monkeypatch.setattr(checksums, "POLL", 0.001)
    grows = folder / "d" / "b"
    early = checksums.EarlyChecksums(folder.parent, f"{folder.name}/d/b")
    for _ in range(50):
        with open(grows, "ab") as file:
            file.write(b"more")
        time.sleep(0.005)
    expected, until = checksums.early_checksums([grows]), time.monotonic() + 20
    while not expected.items() <= early._sums.items() and time.monotonic() < until:
        time.sleep(0.001)
    assert expected.items() <= early.finish().items()


def test_a_file_that_goes_does_not_hide_the_others(folder):
    found = checksums._versions([folder / "d" / "a", folder / "gone", folder / "d" / "b"])
    assert [file.name for _, file in found] == ["a", "b"]


@pytest.mark.parametrize("left", [(), ("state/d/a",)], ids=["none", "one of two"])
def test_a_table_without_a_file_is_damage(left, tmp_path):
    (tmp_path / "state" / "d").mkdir(parents=True)
    for name in ("a", ".b"):
        (tmp_path / "state" / "d" / name).write_bytes(os.urandom(9))
    checksums.write_checksums(tmp_path)
    table = {name: value for name, value in written(tmp_path).items() if name in left}
    (tmp_path / checksums.NAME).write_text(json.dumps(table))
    with pytest.raises(ValueError, match=r"checksums.json lacks state/d/" + (r"\.b" * len(left))):
        checksums.verify_checksums(tmp_path)


def test_files_that_a_user_adds_are_no_damage(folder):
    checksums.write_checksums(folder)
    (folder / "state" / "d").mkdir(parents=True)
    for name in ("README.md", "state/.DS_Store", "state/._manifest.ocdbt", "state/d/.nfs0000a1",
                 "state/d/Thumbs.db", "desktop.ini"):
        (folder / name).write_bytes(b"of a person or a file manager")
    checksums.verify_checksums(folder)
