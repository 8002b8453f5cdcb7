"""Takes and gives what it is told there is room for."""
from cuda import *
from windows import *

begin()
stop = []
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=lambda: (sys.stdin.read(), stop.append(True)), daemon=True).start()
print(json.dumps(churn(int(sys.argv[1]), stop)))
