"""What a daemon remembers of its processes, for the next one to find survivors by."""

from __future__ import annotations

from pgflowd.host.sessions import Remembered


def test_what_could_not_be_written_down_is_tried_again(tmp_path):
    remembered = Remembered(tmp_path / "t.processes")
    in_the_way = tmp_path / "t.new"
    in_the_way.mkdir()

    remembered.write()
    in_the_way.rmdir()
    remembered.write()

    assert (tmp_path / "t.processes").exists()
