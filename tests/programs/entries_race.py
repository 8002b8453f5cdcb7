"""All threads come to entries for the first time at once, while the first of them replaces the pages."""
from cuda import *
from entries import *

good = 0
for _ in range(20):
    child = os.fork()
    if child == 0:
        start, results = threading.Barrier(8), []
        def work():
            start.wait()
            results.append(all(call() == (0, True) for _ in range(300)))
        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        os._exit(0 if results == [True] * 8 and kind("cuDriverGetVersion") == "direct" else 1)
    good += os.waitpid(child, 0)[1] == 0
print(json.dumps(good))
