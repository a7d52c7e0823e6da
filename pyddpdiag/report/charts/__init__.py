"""Charts, for all commands: one description of each (`chart`), drawn by Plotly on a page and by matplotlib as a PNG."""
