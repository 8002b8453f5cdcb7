"""What the programs of test_slice_windows.py have in common. WINDOWS has their settings."""
from cuda import *

SET = json.loads(os.environ["WINDOWS"])
def until_it_fits(take_it):
    "Racers have some of the room now and then, for a moment; where there are none, it fits at once."
    end = time.monotonic() + (0 if SET.get("at_once") else 150)
    while True:
        result, value = take_it()
        if result == 0: return value
        assert result == OOM and time.monotonic() < end, result
def churn(size, stop):
    "Takes and gives all the time; how often it was refused, and how often not."
    cuda.cuCtxSetCurrent(context)
    counts = [0, 0]
    while not stop or sum(counts) < 50:
        result, pointer = take(size)
        assert result in (0, OOM), result
        if result == 0: cuda.cuMemFree_v2(pointer)
        counts[result == 0] += 1
    return counts
