"""Compare small runs with the code of a commit and of the working tree, bit by bit.

    make bits BASE=COMMIT [ONLY=PATTERN] [NO_RAY=1]

`reference` lists the runs, `child` carries them out with the code of one tree, and `comparing` finds differences.
"""
