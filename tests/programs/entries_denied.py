"""With PR_SET_MDWE no page that was not executable becomes so."""
from cuda import *
from entries import *

if libc.prctl(65, 1, 0, 0, 0):
    print(json.dumps("unknown"))
else:
    print(json.dumps([call(), kinds(), mapping(entry("cuDriverGetVersion"))]))
