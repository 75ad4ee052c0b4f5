"""What counts as a whole artifact, and what its digest depends on."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from core_helpers import write_model, write_safetensors

from r1pipe import artifact
from r1pipe.artifact import check_artifact, check_files, check_model, digest_artifact, digest_base
from r1pipe.errors import ArtifactError
from r1pipe.manifest import FileRecord
from r1pipe.stage import ArtifactKind


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def with_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    write_safetensors(folder / "model-00002-of-00002.safetensors", b"more")
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def drop_shard(folder: Path) -> None:
    with_index(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def cut_shard(folder: Path) -> None:
    with_index(folder)
    cut(folder / "model-00002-of-00002.safetensors", 70)


def write_header(folder: Path, header: bytes, content: bytes = b"") -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + content)


def test_a_whole_model_passes_also_in_shards(tmp_path: Path) -> None:
    check_artifact(write_model(tmp_path / "one"), "model")
    check_artifact(write_model(tmp_path / "two"), "model")
    with_index(tmp_path / "two")
    check_artifact(tmp_path / "two", "model")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), r"config\.json is missing"),
        (lambda f: cut(f / "config.json", 1), r"config\.json is torn or not JSON"),
        (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors is missing"),
        (lambda f: cut(f / "model.safetensors", 0), r"model\.safetensors is torn: 0 bytes do not hold its header"),
        (lambda f: cut(f / "model.safetensors", 20), r"model\.safetensors is torn: 20 bytes do not hold its header"),
        (lambda f: cut(f / "model.safetensors", 75), r"model\.safetensors is torn: 75 bytes, where its header promises \d+"),
        (lambda f: grow(f / "model.safetensors"), r"model\.safetensors is torn: \d+ bytes, where its header promises"),
        (lambda f: write_header(f, b"{nonsense"), r"model\.safetensors is torn or not safetensors"),
        (lambda f: write_header(f, b"[1, 2]"), r"header does not describe tensors"),
        (lambda f: write_header(f, b'{"w": 3}'), r"header does not describe tensors"),
        (lambda f: write_header(f, b'{"__metadata__": {}}'), r"holds no tensors"),
        (drop_shard, r"model-00002-of-00002\.safetensors is missing"),
        (cut_shard, r"model-00002-of-00002\.safetensors is torn"),
        (lambda f: (f / "model.safetensors.index.json").write_text("{}"), r"index\.json names no weights"),
        (lambda f: (f / "tokenizer.json").unlink(), r"has no tokenizer"),
        (lambda f: (f / "tokenizer_config.json").unlink(), r"tokenizer_config\.json is missing"),
        (lambda f: (f / "tokenizer_config.json").write_text("{}"), r"has no chat template"),
        (lambda f: (f / "extra").symlink_to(f / "config.json"), r"extra is a symbolic link"),
    ],
)
def test_what_a_model_lacks_is_named(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    folder = write_model(tmp_path / "model")
    damage(folder)
    with pytest.raises(ArtifactError, match=message):
        check_artifact(folder, "model")


def test_a_base_model_may_lack_a_chat_template(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "tokenizer_config.json").write_text("{}")
    check_model(folder, chat_template=False)


def test_every_cut_of_a_weights_file_is_noticed(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", b"0123456789")
    content = (folder / "model.safetensors").read_bytes()
    for size in range(len(content)):
        (folder / "model.safetensors").write_bytes(content[:size])
        with pytest.raises(ArtifactError, match=r"model\.safetensors is torn"):
            check_artifact(folder, "model")


def write_table(folder: Path, *rows: int) -> Path:
    folder.mkdir(exist_ok=True)
    for number, count in enumerate(rows):
        pq.write_table(pa.table({"x": list(range(count))}), folder / f"part-{number:05d}.parquet")
    return folder


def test_a_table_needs_whole_parts_and_a_row(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "t", 0, 2)
    check_artifact(folder, "table")
    with pytest.raises(ArtifactError, match="has no rows"):
        check_artifact(write_table(tmp_path / "e", 0, 0), "table")
    cut(folder / "part-00001.parquet", 100)
    with pytest.raises(ArtifactError, match=r"part-00001\.parquet is torn or not Parquet"):
        check_artifact(folder, "table")
    cut(folder / "part-00001.parquet", 0)
    with pytest.raises(ArtifactError, match=r"part-00001\.parquet is torn or not Parquet"):
        check_artifact(folder, "table")
    for part in folder.iterdir():
        part.unlink()
    (folder / "other.txt").touch()
    with pytest.raises(ArtifactError, match=r"has no part-\*\.parquet"):
        check_artifact(folder, "table")


@pytest.mark.parametrize("kind", ["model", "table", "json", "folder"])
def test_a_missing_output_is_named(tmp_path: Path, kind: ArtifactKind) -> None:
    with pytest.raises(ArtifactError, match="nothing is missing"):
        check_artifact(tmp_path / "nothing", kind)


def test_a_json_output_must_be_json_and_a_folder_must_hold_something(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"x": ')
    with pytest.raises(ArtifactError, match="torn or not JSON"):
        check_artifact(tmp_path / "a.json", "json")
    (tmp_path / "a.json").write_text("[1]")
    check_artifact(tmp_path / "a.json", "json")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    with pytest.raises(ArtifactError, match="folder is empty"):
        check_artifact(tmp_path / "folder", "folder")
    with pytest.raises(ArtifactError, match="is a file, where a folder is expected"):
        check_artifact(tmp_path / "a.json", "folder")


def test_a_digest_depends_on_names_and_contents_and_on_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    (folder / "inner").mkdir(parents=True)
    (folder / "x").write_bytes(b"1")
    (folder / "inner" / "y").write_bytes(b"2")
    record = digest_artifact(folder, "folder")
    assert record.files["inner/y"].size == 1
    assert record.files["x"].sha256 == "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"  # sha256 of "1"
    assert record.size == 2
    shutil.copytree(folder, tmp_path / "b")
    os.utime(tmp_path / "b" / "x", (1, 1))
    assert digest_artifact(tmp_path / "b", "folder").digest == record.digest
    (tmp_path / "b" / "x").rename(tmp_path / "b" / "z")
    assert digest_artifact(tmp_path / "b", "folder").digest != record.digest
    (folder / "x").write_bytes(b"3")
    assert digest_artifact(folder, "folder").digest != record.digest


def test_recorded_files_are_checked_by_size_and_on_demand_by_content(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    record = digest_artifact(folder, "model")
    check_files(folder, record, contents=True)
    write_safetensors(folder / "model.safetensors", b"ABCD")
    check_files(folder, record)
    with pytest.raises(ArtifactError, match=r"model\.safetensors was altered"):
        check_files(folder, record, contents=True)
    write_model(folder)
    (folder / "added").touch()
    check_files(folder, record)
    with pytest.raises(ArtifactError, match="added is not in its manifest"):
        check_files(folder, record, contents=True)


def test_a_base_model_is_known_by_what_is_loaded_from_it(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    digest = digest_base(folder)
    (folder / "README.md").write_text("words")
    (folder / "pretraining.json").write_text("{}")
    (folder / "LICENSE.txt").write_text("words")
    (folder / ".cache").mkdir()
    assert digest_base(folder) == digest
    known = {digest}
    for name in ("chat_template.jinja", "generation_config.json", "special_tokens_map.json", "merges.txt", "modeling_own.py"):
        (folder / name).write_text("x")
        known.add(digest_base(folder))
    assert len(known) == 6


def test_a_base_model_of_links_is_followed(tmp_path: Path) -> None:
    """The hub's cache holds links to its blobs."""
    folder = write_model(tmp_path / "model")
    linked = tmp_path / "linked"
    linked.mkdir()
    for file in folder.iterdir():
        (linked / file.name).symlink_to(file)
    assert digest_base(linked) == digest_base(folder)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ArtifactError, match="no safetensors weights"):
        digest_base(folder)


def test_a_quantised_base_model_is_refused_with_its_method(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "bitsandbytes"}}))
    with pytest.raises(ArtifactError, match=r"quantised \(bitsandbytes\)"):
        digest_base(folder)


def test_a_large_base_model_is_hashed_once_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "SMALL_BASE", 1)
    hashed: list[str] = []
    real = artifact.file_record

    def counted(path: Path) -> FileRecord:
        hashed.append(path.name)
        return real(path)

    monkeypatch.setattr(artifact, "file_record", counted)
    folder, cache = write_model(tmp_path / "model"), tmp_path / "base.json"
    digest = digest_base(folder, cache)
    assert len(hashed) == 4
    assert digest_base(folder, cache) == digest
    assert len(hashed) == 4
    write_safetensors(folder / "model.safetensors", b"ABCD")
    changed = digest_base(folder, cache)
    assert changed != digest
    assert hashed[4:] == ["model.safetensors"]
    cache.write_text("{torn")
    assert digest_base(folder, cache) == changed
    assert str(tmp_path) not in cache.read_text()
