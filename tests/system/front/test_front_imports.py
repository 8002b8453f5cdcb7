"""Memory that another process exported is paid by the exporter, once; and comes and goes with nobody else."""
import json

from programs import python

MIB = 1 << 20
SIZE = 256 * MIB


def test_exporter_pays_once(host):
    done = host.carve("run", "--vram", "4", "--", *python("exporter", *python("importer")))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    before, exported, imported, after = said["steps"]
    assert before - exported == 2 * SIZE
    importer = said["importer"]
    assert importer == [importer[0]] * 4, "importing costs the importer nothing, nor does letting go"
    context = exported - imported
    assert 0 < context < 1024 * MIB, "the child's context alone"
    # The child is gone, and its context; the exporter freed what it had.
    assert after >= before - context
