"""The page of one run: one file per view, each of which makes charts and tables of a report and its details."""
