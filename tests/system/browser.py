"""Debian's Chromium, driven by its chromedriver."""
import base64
import json
import re
import subprocess
import urllib.request

from conftest import PATIENCE, wait_until

ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]


class Browser:
    def __init__(self, dir):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                break
        self.base = f"http://127.0.0.1:{found[1]}/session"
        options = {"args": [*ARGUMENTS, f"--user-data-dir={dir}"]}
        self.base += "/" + self.ask("POST", "", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})["sessionId"]

    def ask(self, method, path, body=None):
        request = urllib.request.Request(self.base + path, method=method, headers={"Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=2 * PATIENCE) as answer:
            return json.load(answer)["value"]

    def devtools(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width, height, dark=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def go(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script):
        return self.ask("POST", "/execute/sync", {"script": script, "args": []})

    def text(self, selector):
        return self.run(f"return document.querySelector({json.dumps(selector)})?.innerText || ''")

    def wait(self, script):
        return wait_until(lambda: self.run(script), step=0.1)

    def press(self, keys):
        for key in keys:
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            self.devtools("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
            self.devtools("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self):
        return base64.b64decode(self.ask("GET", "/screenshot"))

    def complaints(self):
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def close(self):
        try:
            self.ask("DELETE", "")
        finally:
            self.driver.kill()
            self.driver.wait()
