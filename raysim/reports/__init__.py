"""`raysim report`: finished runs read and grouped into settings, their tables and plots, published figures beside
them, and one file per format that a report is written in.
"""
