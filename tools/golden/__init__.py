"""Golden runs: 24 of the small runs of tools/bits, whose hashes are kept in tests/golden/.

    make golden

`choice` lists them, `child` carries them out in one process, `machine` says whose bits they are, `kept` reads and
writes the files, `changelog` finds the lines that name what moved, and `tolerance` compares on other machines.
"""
