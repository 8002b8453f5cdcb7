"""What tests of carve-metrics and carve-web share: ports, certificates, and clients that believe them."""
import socket
import ssl

from conftest import run


def free_port(family=socket.AF_INET, host="127.0.0.1"):
    with socket.socket(family) as s:
        s.bind((host, 0))
        return s.getsockname()[1]


def openssl(*words):
    done = run(["openssl", *words])
    assert done.returncode == 0, done.stderr


class Authority:
    """Certificates by the openssl command: Authority(dir).issue("server") -> (cert, key)."""

    def __init__(self, dir, name="ca"):
        dir.mkdir(exist_ok=True)
        self.dir, self.cert, self.key = dir, dir / f"{name}.crt", dir / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", self.key, "-out", self.cert)

    def issue(self, name):
        cert, key, request = (self.dir / f"{name}.{ending}" for ending in ("crt", "key", "csr"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        names = self.dir / "names"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-days", "2", "-extfile", names,
                "-out", cert)
        return str(cert), str(key)


def context_of(authority, client=None):
    context = ssl.create_default_context(cafile=authority.cert)
    if client:
        context.load_cert_chain(*client)
    return context
