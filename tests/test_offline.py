"""Nothing but `data prepare` uses a network: the whole suite runs without one (tests/offline)."""

import json
import shutil
import socket
import subprocess
import sys

import pytest

ELSEWHERE = ("192.0.2.1", 443)  # an address that nobody has
SMALL = ["--set", "rounds=2", "--set", "data.limit=400", "--set", "model.name=mlr", "--quiet"]


def test_nothing_is_looked_up_or_connected_to():
    with pytest.raises(OSError, match="no network in tests: socket"):
        socket.getaddrinfo("example.invalid", 443)
    for event in ("socket.connect", "socket.sendto"):
        with pytest.raises(OSError, match=f"no network in tests: {event} of 192"):
            sys.audit(event, None, ELSEWHERE)


def test_nor_by_a_python_that_a_test_starts():
    program = f"import sys; sys.audit('socket.connect', None, {ELSEWHERE})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("no network in tests: socket.connect of 192.0.2.1\n")


def test_this_machine_may_be_talked_to():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
        socket.create_connection(("localhost", server.getsockname()[1])).close()


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_run_and_its_report_need_no_interface_at_all(tmp_path):
    alone = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not lend network namespaces")
    flamejax = [*alone, sys.executable, "-m", "flamejax"]
    for command in (["run", "--out", "one", *SMALL], ["report", "one", "--out", "page"]):
        subprocess.run([*flamejax, *command], cwd=tmp_path, check=True, capture_output=True)
    assert json.loads((tmp_path / "one" / "summary.json").read_text())["rounds"] == 2
    assert list((tmp_path / "page").glob("*.html"))
