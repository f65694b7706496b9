"""`raysim report`: read finished runs, group them into settings, and write tables, plots and published figures.

There is one file per format of a report.
"""
