"""One file per cause, or per family of related causes; `analyse/catalog.py` lists them.

To add one: write a file with a function that takes a `RunView` and yields findings, end it with a `CHECK`,
list it in the catalog in the position that its findings should have among those of equal weight, and add its
kinds to the table in docs/metrics.md (a test keeps the two in step). If it needs something from the records,
add a table to the view.
"""
