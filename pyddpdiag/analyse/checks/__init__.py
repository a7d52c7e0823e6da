"""One file per cause, or per family of related causes; `analyse/catalog.py` takes the check of each.

To add one: a row for each of its kinds in the table (`model/kinds`), in the position that its findings should have
among those of equal weight; a file with a function that takes a `RunView` and yields findings, which ends with a
`CHECK`; and a row on its family's page in docs/findings (a test keeps them in step). If it needs something from the
records, add a table to the view.
"""
