"""Does a change move a bit of any run? The same small runs with the code of two trees, compared.

    make bits BASE=COMMIT [ONLY=PATTERN] [NO_RAY=1]

`reference` and its parts list the runs, `child` carries them out with one tree's code, `comparing` says what differs.
"""
