"""Locks work the same on systems where a folder cannot be locked itself: there a file beside it is locked."""

import pytest
from processes import CONTEXT

from shorthash import BucketIndex, load, save
from shorthash.errors import PersistenceError
from shorthash.persistence import files


@pytest.fixture(params=[True, False], ids=["itself", "beside"], autouse=True)
def kind(request, monkeypatch):
    if request.param and not files.LOCKS_ITSELF:
        pytest.skip("this system cannot lock a folder")
    monkeypatch.setattr(files, "LOCKS_ITSELF", request.param)
    return request.param


def try_to_lock(folder, itself, answers):
    files.LOCKS_ITSELF = itself
    try:
        with files.locked(folder, "busy"):
            answers.put("locked")
    except PersistenceError as error:
        answers.put(str(error))


def in_another_process(folder, itself):
    answers = CONTEXT.Queue()
    process = CONTEXT.Process(target=try_to_lock, args=(folder, itself, answers))
    process.start()
    answer = answers.get(timeout=60)
    process.join()
    return answer


def test_a_folder_is_locked_for_others_until_the_block_ends(tmp_path, kind):
    folder = tmp_path / "collection"
    folder.mkdir()
    with files.locked(folder, "busy"):
        assert in_another_process(folder, kind) == "busy"
        with pytest.raises(PersistenceError, match="busy"), files.locked(folder, "busy"):
            pass
    with files.locked(folder, "busy"):
        pass
    assert not list(folder.iterdir())


def test_a_folder_that_is_not_there_cannot_be_locked(tmp_path):
    with pytest.raises(PersistenceError, match="busy"), files.locked(tmp_path / "missing", "busy"):
        pass


def test_an_unfinished_save_is_kept_while_its_writer_lives(tmp_path):
    with files.temporary_path(tmp_path / "index") as unfinished:
        save(BucketIndex(n_bits=3).add([1, 2]), tmp_path / "index")
        assert unfinished.exists()
    assert not unfinished.exists()
    assert len(load(tmp_path / "index")) == 2


def test_an_unfinished_save_without_a_writer_is_removed(tmp_path):
    abandoned = tmp_path / ".index.saving-00000000"
    abandoned.write_text("half")
    (tmp_path / ".index.saving-11111111.lock").touch()
    save(BucketIndex(n_bits=3).add([1, 2]), tmp_path / "index")
    assert not abandoned.exists()
    assert not (tmp_path / ".index.saving-11111111.lock").exists()
