"""Golden runs: 24 of the small runs of tools/bits. The hashes of their results are kept in tests/golden/.

    make golden

- `choice` lists the runs.
- `child` carries them out in one process.
- `machine` says which machine the bits are of.
- `kept` reads and writes the files.
- `changelog` finds the entries that name what moved.
- `tolerance` compares accuracies on other machines.
"""
