"""The giver, perhaps one that has it open, and a neighbour."""
from windows_giver import *

neighbour = start(SET["neighbour"], SET["step"])
go(neighbour)
for i in range(SET["rounds"]):
    what = opened(SET["size"]) if SET["opened"] else taking(SET["size"])
    if not SET["opened"]:
        for fd in what[2]: os.close(fd)
        what = what[0]
    giving(what)
    if SET["opened"]: close()
print(json.dumps(stop(neighbour)))
