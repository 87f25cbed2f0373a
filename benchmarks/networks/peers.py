"""Makes an environment for each real framework: `python -m benchmarks peers [NAME ...]`.

They go beside the networks, in `peers/`, and the suite finds them there. Each needs a Python of its own version, as
`python3.7` on the path, or below `$PYENV_ROOT`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks import networks

PACKAGES = {
    "mindspore": ("3.11", ["mindspore==2.10.0", "mindcv==0.3.0"]),
    "mindspore_lite": ("3.7", ["mindspore-lite==2.0.0"]),
    "megengine": ("3.10", ["megengine==1.13.0", "numpy<2"]),
}


def main(names: list[str]) -> None:
    """Make those that are named, or all."""
    for name in names or PACKAGES:
        if name not in PACKAGES:
            raise SystemExit(f"there is no peer {name!r}; there are: {', '.join(PACKAGES)}")
        print(f"{networks.PEERS[name]}={make(name)}")


def make(name: str) -> Path:
    """The Python of an environment with this framework, made if it is not there."""
    version, packages = PACKAGES[name]
    home, done = networks.made(name).parent.parent, networks.made(name).parent.parent / "installed"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([_interpreter(version), "-m", "venv", home], check=True)
        subprocess.run([networks.made(name), "-m", "pip", "install", "--quiet", *packages], check=True)
        done.touch()
    return networks.made(name)


def _interpreter(version: str) -> str:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for found in (shutil.which(f"python{version}"), *map(str, sorted(root.glob(f"versions/{version}.*/bin/python")))):
        if found and subprocess.run([found, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return found
    raise SystemExit(f"there is no Python {version} here; install one and call it python{version}")


if __name__ == "__main__":
    main(sys.argv[1:])
