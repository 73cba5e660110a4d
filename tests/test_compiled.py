"""Compiled loops work where compiled code cannot be kept."""

import numba

from shorthash._arrays import njit


def double(x):
    return 2 * x


def test_without_a_folder_to_write_to_code_is_compiled_in_memory(monkeypatch):
    usual = numba.njit

    def no_locator(*functions, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function 'double': no locator available for file 'a.py'")
        return usual(*functions, **options)

    monkeypatch.setattr(numba, "njit", no_locator)
    assert njit(cache=True, nogil=True)(double)(3) == 6


def test_a_full_disk_while_compiled_code_is_kept_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    kept = numba.njit(cache=True)(double)
    saves = []

    def full(*_):
        saves.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(kept._cache), "save_overload", full)
    assert njit(cache=True)(double)(3) == 6
    assert saves
