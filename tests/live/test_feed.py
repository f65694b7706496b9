"""A reader that asks now and then has all that the feed has, and receives no item twice without a change."""

import random

from raysim.live.feed import Feed, Seen


def test_a_reader_has_what_the_feed_has() -> None:
    """500 random changes, and a reader that asks after every third."""
    draw = random.Random(0)
    feed, seen, had = Feed(), Seen(), []
    for step in range(500):
        if (kind := draw.random()) < 0.02:
            feed.replace(feed.items[::2])
        elif kind < 0.5 or not feed.items:
            feed.append(step)
        else:
            feed.put(draw.randrange(len(feed.items)), step)
        if step % 3 == 0:
            lacking, seen = feed.since(seen)
            assert lacking is not None
            assert lacking["fresh"] or len(lacking["items"]) <= 3
            had = [] if lacking["fresh"] else had
            for place, item in lacking["items"]:
                had[place : place + 1] = [item]
            assert had == feed.items
    assert feed.since(seen)[0] is not None
    assert feed.since(feed.since(seen)[1])[0] is None


def test_the_same_item_again_is_no_change() -> None:
    feed = Feed()
    feed.append([1, 2])
    _, seen = feed.since(Seen())
    feed.put(0, [1, 2])
    assert feed.since(seen)[0] is None


def test_another_feed_is_another_edition() -> None:
    """A run that is read anew has new feeds, of which a reader has nothing."""
    one, other = Feed(), Feed()
    one.append(1)
    other.append(2)
    _, seen = one.since(Seen())
    assert other.since(seen)[0] == {"fresh": True, "items": [[0, 2]]}
