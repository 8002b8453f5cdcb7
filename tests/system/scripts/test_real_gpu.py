"""The surroundings in which scripts/test --gpu runs tests: figures that are nearly right, and a GPU that each test leaves as it found it."""
import pathlib
import sys

from conftest import BUILD
from real_gpu import AtLeast, Measured

MIB = 1 << 20


def test_a_measured_figure_is_about_that():
    figure = Measured(1000 * MIB)
    for near in (940 * MIB, 1000 * MIB, 1060 * MIB):
        assert figure == near == figure and near <= figure <= near and near < figure and figure < near and not figure != near
    assert figure != 900 * MIB and 1100 * MIB != figure and not figure < 900 * MIB and not 1100 * MIB <= figure
    assert (figure, 1) == (990 * MIB, 1) and not (figure, 1) == (990 * MIB, 2)
    assert figure - 500 * MIB == 510 * MIB and figure + MIB == MIB + figure and 2000 * MIB - figure != 900 * MIB
    assert Measured(7, 1) == 8 and Measured(7, 1) != 9


def test_the_highest_that_was_seen_refutes_only_what_is_lower():
    seen = AtLeast(1000 * MIB)
    assert seen == 3000 * MIB and 3000 * MIB < seen <= 1000 * MIB
    assert seen != 900 * MIB and not seen <= 900 * MIB


def test_nothing_of_a_test_stays_on_the_gpu(make_host):
    host = make_host("h100-80gb")
    done = host.run([sys.executable, pathlib.Path(__file__).with_name("left_on_gpu.py")], env={"CARVE_BUILD": str(BUILD)})
    assert done.returncode == 0, done.stderr
