"""The giver, the one that has it open and two racers."""
import mmap

from windows_giver import *

fd = os.memfd_create("flag")
os.ftruncate(fd, 4096)
flag = mmap.mmap(fd, 4096)
racers = [start(SET["racer"], SET["step"], fds=[fd]) for _ in range(2)]
go(*racers)
for i in range(SET["rounds"]):
    what = opened(SET["size"])
    flag[0] = 1
    time.sleep(0.005)
    giving(what)
    time.sleep(0.005)
    close()
    flag[0] = 0
for p in racers: stop(p)
end = time.monotonic() + 60
while room() < SET["room"] and time.monotonic() < end: time.sleep(0.02)
print(json.dumps(room()))
