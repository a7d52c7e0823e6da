"""Makes the pictures of docs/gallery.md: runs each kind of trouble of examples/troubles.py and photographs its page.

Run: python docs/pictures.py [trouble ...]
Needs `chromium` (Debian's package) on the path and Pillow. A picture is the top of the page that `pyddpdiag report
--html` writes, in 96 colours, so that it stays below 60 kB.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parent / "examples" / "troubles.py"
MOST_BYTES = 60_000
WIDTH, HEIGHT = 960, 720


def picture(trouble: str, target: Path) -> None:
    """Runs one kind of trouble and writes the top of its page to `target`."""
    with tempfile.TemporaryDirectory() as work:
        # In its own folder, so that the page names the run as a user would.
        command = [sys.executable, "-m", "pyddpdiag"]
        run = [*command, "run", "--nproc", "2", "--trace", trouble, str(SCRIPT), trouble]
        subprocess.run(run, cwd=work, check=True, timeout=300)
        page, photo = Path(work, "page.html"), Path(work, "page.png")
        subprocess.run(
            [*command, "report", trouble, "--html", str(page)],
            cwd=work,
            check=False,
            timeout=120,
            stdout=subprocess.DEVNULL,
        )
        browser = [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            f"--user-data-dir={work}/browser",
        ]
        shot = [f"--screenshot={photo}", f"--window-size={WIDTH},{HEIGHT}", page.as_uri()]
        subprocess.run([*browser, *shot], check=True, timeout=120, stderr=subprocess.DEVNULL)
        with Image.open(photo) as image:
            image.convert("RGB").quantize(96, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
                target, optimize=True
            )
    if target.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{target} has {target.stat().st_size} bytes, more than {MOST_BYTES}.")


if __name__ == "__main__":
    (HERE / "images").mkdir(exist_ok=True)
    shown = re.findall(r"images/([\w-]+)\.png", (HERE / "gallery.md").read_text(encoding="utf-8"))
    for name in sys.argv[1:] or (each.replace("-", "_") for each in shown):
        picture(name, HERE / "images" / f"{name.replace('_', '-')}.png")
        print(name, flush=True)
