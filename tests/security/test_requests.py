"""Requests whose answer takes long, again and again, by one user: the loop has one budget for all kinds of work, and each
request a bound. Another user's requests take no longer for it."""
import json

import pytest

from .lab import MALLORY
from .test_budgets import COMMON
from .test_jobs import Jobs
from .test_loop import attack_beside

GOAL_MS = 50

# Four threads that each send the request that `make` says, as fast as it is answered. The first answers must be right.
AGAIN = COMMON + """
import itertools, threading
WORDS = 9900
def ask(s, method, path, body=None):
    call(s, method, path, json.dumps(body, separators=(',', ':')).encode() if body is not None else b'')
    head, text = answer(s)
    return int(head.split()[1]), text
def job(**more):
    return {'queue': 'half', 'argv': ['true'], 'cwd': '/', 'hold': True, **more}
def enqueued(**more):
    status, text = ask(http(), 'POST', '/v1/jobs', job(**more))
    assert status == 201, text[:500]
    return json.loads(text)['id']
def again(make, expected, threads=4):
    def run():
        s = http()
        for i in itertools.count():
            for method, path, body in make():
                status, text = ask(s, method, path, body)
                assert status in expected, (method, path, status, text[:500])
    make_first = make()
    s = http()
    for method, path, body in make_first:
        status, text = ask(s, method, path, body)
        assert status in expected, (method, path, status, text[:500])
    for i in range(threads): threading.Thread(target=run, daemon=True).start()
"""

REQUESTS = {
    "a job of many words is shown": """
id = enqueued(argv=['true'] + ['%05d' % i for i in range(WORDS)])
again(lambda: [('GET', f'/v1/jobs/{id}', None)], [200])
""",
    "a job with many variables is shown": """
id = enqueued(env=['A%05d=1' % i for i in range(9900)])
again(lambda: [('GET', f'/v1/jobs/{id}', None)], [200])
""",
    "jobs of many words are enqueued": """
words = ['true'] + ['%05d' % i for i in range(WORDS)]
again(lambda: [('POST', '/v1/jobs', job(argv=words))], [201, 409, 429])
""",
    "jobs of many words are refused": """
words = ['true'] + ['%05d' % i for i in range(WORDS)]
again(lambda: [('POST', '/v1/jobs', job(argv=words, nonsense=1))], [400, 429])
""",
    "a job of many words is edited": """
id = enqueued(argv=['true'] + ['%05d' % i for i in range(WORDS)])
again(lambda: [('PATCH', f'/v1/jobs/{id}', {'name': 'other'})], [200, 409])
""",
    "a job of many words is run again": """
id = enqueued(argv=['true'] + ['%05d' % i for i in range(WORDS)])
again(lambda: [('POST', f'/v1/jobs/{id}', {})], [201, 409])
""",
    "long arrays are enqueued and cancelled": """
def make():
    id = enqueued(array='0-99999')
    yield 'DELETE', f'/v1/jobs/{id}', None
again(make, [200])
""",
    "long arrays are held and released": """
id = enqueued(array='0-99999')
again(lambda: [('PATCH', f'/v1/jobs/{id}', {'hold': hold}) for hold in (False, True)], [200])
""",
    "lists of many indexes": """
indexes = ','.join(str(2 * i) for i in range(40000))
def make():
    status, text = ask(http(), 'POST', '/v1/jobs', job(array=indexes))
    assert status in (201, 409), text[:500]
    if status == 201: yield 'DELETE', '/v1/jobs/' + json.loads(text)['id'], None
again(make, [200])
""",
    "a list of many indexes is shown": """
id = enqueued(array=','.join(str(2 * i) for i in range(40000)))
again(lambda: [('GET', f'/v1/jobs/{id}_2', None), ('GET', f'/v1/jobs/{id}?part=', None)], [200])
""",
    "jobs of many queues are explained": """
for i in range(3000): enqueued(queue=f'q{i}', hold=False)
again(lambda: [('GET', '/v1/queues', None), ('GET', '/v1/agents', None), ('GET', '/v1/jobs', None)], [200])
""",
    "agents of many queues are shown": """
size = 3000
for i in range(4):
    status, text = ask(http(), 'POST', '/v1/agents', {'queues': [f'q{j}' for j in range(size)], 'pods': {'namespace': 'default'}})
    if status != 201: print(status, text[:300], file=sys.stderr)
for i in range(400): enqueued(queue=f'q{i}', hold=False)
again(lambda: [('GET', '/v1/queues', None), ('GET', '/v1/agents', None), ('GET', '/v1/jobs', None)], [200])
""",
    "a sweep of many parameters": """
params = {'a': ['%04d' % i for i in range(300)], 'b': ['%04d' % i for i in range(300)]}
def make():
    id = enqueued(argv=['true', '{a}', '{b}'], params=params)
    yield 'GET', f'/v1/jobs/{id}_7', None
    yield 'DELETE', f'/v1/jobs/{id}', None
again(make, [200])
""",
}


@pytest.mark.timed
@pytest.mark.long
@pytest.mark.alone
@pytest.mark.once("it judges the time that the daemon takes")
@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.attack("8", "requests whose answer takes long, again and again")
def test_requests_that_take_long_delay_nobody(lab, kind):
    Jobs(lab)
    under = attack_beside(lab, AGAIN + REQUESTS[kind], count=300)
    print(f"{kind}: {under}")
    assert under.served_p(99) <= GOAL_MS
