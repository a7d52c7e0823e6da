"""The bed of faults: real DDP training into which one cause of trouble is injected, and what the report says of it.

`causes` lists what is injected and what is true then; `jobs` what is trained, and which half of the seeds and models
is kept for the final measurement; `runner` makes one run and has it reported; `judge` compares the report with the
truth; `page` writes docs/accuracy.md. `python3 dev.py accuracy` does it all (`__main__`).
"""
