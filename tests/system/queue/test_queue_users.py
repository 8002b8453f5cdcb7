"""Users: a daemon runs jobs of its own user only, and says so."""
import os

import pytest

from conftest import BUILD, open_to_others
from queueing import queues  # noqa: F401: fixtures


def test_jobs_of_another_user_are_refused(queues, another_user):
    queues.agent("half=0.5")
    open_to_others(queues.host)
    sock = queues.host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
    os.chmod(queues.host.env["CARVE_RUNTIME_DIR"], 0o755)
    os.chmod(sock, 0o666)
    own = queues.witnessed()
    queues.ended(own)

    def ask(method, path, body="{}"):
        return queues.host.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "curl", "-s", "-X", method, "-d",
                                body, "--unix-socket", sock, "http://localhost" + path]).stdout

    refused = ask("POST", "/v1/jobs", '{"queue": "half", "argv": ["true"], "cwd": "/"}')
    assert '"code":5' in refused.replace(" ", ""), refused
    assert '"code":5' in ask("DELETE", "/v1/agents/a-1").replace(" ", "")
    for method in ("GET", "DELETE"):
        assert '"code":5' in ask(method, f"/v1/jobs/{own}").replace(" ", ""), method
    assert ask("GET", "/v1/jobs").split() == ["[]"]
    assert '"waiting"' in ask("GET", "/v1/queues")
