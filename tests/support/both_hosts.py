"""One command that starts a script's ranks on several hosts (network namespaces), as mpirun does.

python -m support.both_hosts PORT HOST,HOST SCRIPT [ARGUMENTS...]: one rank on each. SIGTERM ends them all.
"""

import os
import signal
import subprocess
import sys

from support.links import inside


def main(port: str, hosts: list[str], script: list[str]) -> int:
    """The first exit code that is not 0."""
    ranks = []
    for rank, host in enumerate(hosts):
        place = {"RANK": str(rank), "WORLD_SIZE": str(len(hosts)), "LOCAL_RANK": "0"}
        env = {**os.environ, **place, "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": port}
        # The tool replaces itself by the rank, which so gets the signals.
        ranks.append(subprocess.Popen(inside(host, sys.executable, *script), env=env))

    def end(*_: object) -> None:
        for each in ranks:
            each.terminate()

    signal.signal(signal.SIGTERM, end)
    codes = [each.wait() for each in ranks]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2].split(","), sys.argv[3:]))
