"""The file of a daemon's processes, by which the next one finds survivors."""

from __future__ import annotations

from pgflowd.host.process_tree import SurvivorFile


def test_what_could_not_be_written_down_is_tried_again(tmp_path):
    survivors = SurvivorFile(tmp_path / "t.processes")
    in_the_way = tmp_path / "t.new"
    in_the_way.mkdir()

    survivors.write()
    in_the_way.rmdir()
    survivors.write()

    assert (tmp_path / "t.processes").exists()
