"""What a run would cost before it starts: a rehearsal, memory, speed, and where its actors would go.

Nothing here starts anything.
"""
