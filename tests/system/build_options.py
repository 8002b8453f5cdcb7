"""How the build under test was made."""
import json

from conftest import BUILD


def build_option(name):
    options = json.loads((BUILD / "meson-info" / "intro-buildoptions.json").read_text())
    return next(o["value"] for o in options if o["name"] == name)


def sanitized():
    return build_option("b_sanitize") != "none"
