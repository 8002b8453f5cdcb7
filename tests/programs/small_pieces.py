"""A full slice but for one block, and small pieces in it, half of which a stream frees: the driver gives the place of one away
as soon as the stream is there, which the front hears of later."""
import random

from cuda import *

begin()
big, size = [], 1 << 29
while size >= 2 * MIB:
    result, pointer = take(size)
    if result: size //= 2
    else: big.append(pointer)
cuda.cuMemFree_v2(big.pop())
random.seed(int(sys.argv[1]))
live, frees = [], [cuda.cuMemFree_v2, lambda pointer: cuda.cuMemFreeAsync(pointer, None)]
for _ in range(1500):
    if random.random() < 0.55 or not live:
        result, pointer = take(random.randint(1, 15) * 128 * 1024)
        assert result in (0, OOM), result
        if result == 0: live.append(pointer)
    else:
        assert random.choice(frees)(live.pop(random.randrange(len(live)))) == 0
print(json.dumps(len(live)))
