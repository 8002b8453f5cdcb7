"""The daemon's soak (scripts/soak-daemon) for a moment: fifty kills under load, and pairs enough to see a leak."""
import pytest

from conftest import ON_GPU
import soak_daemon
from build_options import sanitized


@pytest.mark.skipif(ON_GPU, reason="needs a simulated host")
@pytest.mark.long
def test_fifty_kills_at_any_moment_under_load():
    soak = soak_daemon.kills(50)
    assert soak.kills >= 50 and soak.early > 0 and sum(c.repeats for c in soak.clients) > 0


@pytest.mark.skipif(sanitized(), reason="an instrumented build keeps what is freed for a while")
@pytest.mark.long
def test_memory_and_files_do_not_grow_with_pairs(tmp_path):
    """A short history, so that it is full soon; a KiB lost in each pair would be 8 MiB."""
    config = tmp_path / "config.json"
    config.write_text('{"history_sessions": 500}')
    seen = soak_daemon.pairs(8000, warm=4000, args=["--config", config])
    first, last = seen[0], seen[-1]
    assert last[1] - first[1] < 2 << 20 and last[2] - first[2] < 2 << 20, seen
    assert last[3] <= first[3] + 2
