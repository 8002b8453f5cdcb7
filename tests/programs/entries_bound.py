"""What entries are before and after the first call."""
from cuda import *
from entries import *

seen = [kinds(), call(), kinds(), mapping(entry("cuDriverGetVersion"))]
writable = [line for line in open("/proc/self/maps") if line.split()[1][1:3] == "wx"]
print(json.dumps([*seen, writable, call()]))
