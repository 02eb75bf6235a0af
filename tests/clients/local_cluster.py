"""Runs a command beside a real cluster: `baton serve` on the tiny model, every port the system's.

usage: local_cluster.py BATON_BINARY MODEL COMMAND [ARGUMENT...]

The command finds the cluster in its environment: BATON_TEST_URL (http://...), BATON_TEST_GRPC
(host:port), BATON_TEST_ROUTER_METRICS and BATON_TEST_DECODE_METRICS (URLs), BATON_TEST_API_KEY and
BATON_TEST_MODEL (the served name). Exits with the command's code, or 1 when the cluster did not
start or did not stop in order. Standard library only.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading

START_SECONDS = 120
STOP_SECONDS = 40
API_KEY = "sesame"
MODEL_NAME = "tiny"


class ClusterFailed(Exception):
    """The cluster did not become ready, or did not stop in order."""


class LocalCluster:
    """A context manager; `ready` holds what the processes reported: "router.http_port", ..."""

    def __init__(self, binary, model, api_key=API_KEY):
        self._arguments = [binary, "serve", f"--model={model}", f"--served-model-name={MODEL_NAME}",
                           "--host=127.0.0.1", "--port=0", "--grpc-port=0"]
        self._api_key = api_key
        self.ready = {}

    def __enter__(self):
        reader, writer = os.pipe()
        environment = dict(os.environ, BATON_READY_FD=str(writer))
        if self._api_key:
            environment["BATON_API_KEY"] = self._api_key
        self._output = tempfile.TemporaryFile("w+", errors="replace")
        self._process = subprocess.Popen(self._arguments, env=environment, pass_fds=[writer],
                                         stdout=self._output, stderr=subprocess.STDOUT)
        os.close(writer)
        # The pipe closes when the supervisor exits, so only a hang needs the timer.
        timer = threading.Timer(START_SECONDS, self._process.kill)
        timer.start()
        with os.fdopen(reader) as pipe:
            line = pipe.readline()
        timer.cancel()
        if not line.endswith("\n"):
            self._process.kill()
            self._process.wait()
            self.show_output()
            raise ClusterFailed("the cluster did not become ready; see its output above")
        self.ready = dict(pair.split("=", 1) for pair in line.split())
        return self

    def __exit__(self, *_):
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ClusterFailed(f"the cluster did not stop within {STOP_SECONDS} s") from None
        if code != 0:
            raise ClusterFailed(f"the cluster stopped with code {code}")

    def show_output(self, num_lines=60):
        self._output.seek(0)
        lines = self._output.readlines()[-num_lines:]
        print("".join(["--- the cluster's last lines ---\n", *lines]), file=sys.stderr)

    def url(self, key):
        return f"http://127.0.0.1:{self.ready[key]}"

    def environment(self):
        return {
            "BATON_TEST_URL": self.url("router.http_port"),
            "BATON_TEST_GRPC": f"127.0.0.1:{self.ready['router.grpc_port']}",
            "BATON_TEST_ROUTER_METRICS": self.url("router.http_port") + "/metrics",
            "BATON_TEST_DECODE_METRICS": self.url("decode-0.admin_port") + "/metrics",
            "BATON_TEST_API_KEY": self._api_key,
            "BATON_TEST_MODEL": MODEL_NAME,
        }


def main(arguments):
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    binary, model, *command = arguments
    try:
        with LocalCluster(binary, model) as cluster:
            code = subprocess.call(command, env=dict(os.environ, **cluster.environment()))
            if code != 0:
                cluster.show_output()
            return code
    except ClusterFailed as failure:
        print(f"local_cluster: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
