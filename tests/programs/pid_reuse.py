"""Two processes that get the same PID, the second as soon as the first is dead."""

import json
import os
import subprocess
import sys
import time

carve, program = sys.argv[1:]
# Whether the kernel has a number of its own for each process.
TELLS = len({os.fstat(os.pidfd_open(p)).st_ino for p in (os.getpid(), os.getppid())}) == 2
def said(*argv): return json.loads(subprocess.check_output([carve, *argv, "--json"]))
def start(pid):
    # Somebody else (a thread of the daemon) may get it first.
    for attempt in range(100):
        with open("/proc/sys/kernel/ns_last_pid", "w") as f: f.write(str(pid - 1))
        p = subprocess.Popen([program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if p.pid == pid: return p if int(p.stdout.readline()) == pid else None
        p.kill(); p.wait()
def say(p, line):
    p.stdin.write(line + "\n"); p.stdin.flush()
    return int(p.stdout.readline().split()[0])
session = said("session", "request", "--vram", "2")["id"]
text = subprocess.check_output([carve, "run", "--isolation", "preload", "--session", session, "--", "env", "-0"], text=True)
env = dict(e.split("=", 1) for e in text.split("\0") if e)
pid = os.getpid() + 20000
for i in range(20):
    p = start(pid)
    # Refused at most until the last one's memory is back.
    end = time.monotonic() + 30
    while say(p, "device 0") != 0: assert time.monotonic() < end
    assert say(p, f"take linear {(100 + 2 * i) << 20}") == 0
    if not TELLS: time.sleep(0.02)  # then by when they started, in ticks of 10 ms
    p.kill(); p.wait()
last = start(pid)
end = time.monotonic() + 30
while say(last, "device 0") != 0: assert time.monotonic() < end
time.sleep(1)
print(json.dumps({"room": say(last, "room"), "used": said("session", "show", session)["gpus"][0]["used_bytes"],
                  "driver": said("sim", "stat")["gpus"][0]["memory_used_bytes"],
                  "pids": said("session", "show", session)["pids"], "pid": pid}))
last.kill()
