"""Takes all that it can get while the flag is set, and gives it back."""
import mmap

from cuda import *
from windows import *

begin()
size, stop, flag = int(sys.argv[1]), [], mmap.mmap(int(sys.argv[2]), 4096)
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=lambda: (sys.stdin.read(), stop.append(True)), daemon=True).start()
while not stop:
    held = []
    while flag[0]:
        result, pointer = take(size)
        assert result in (0, OOM), result
        if result: break
        held.append(pointer)
    for pointer in held: assert cuda.cuMemFree_v2(pointer) == 0
    time.sleep(0.0005)
print("null")
