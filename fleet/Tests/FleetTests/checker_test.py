"""The checker sees what is wrong, and nothing that is not: histories that must fail beside their neighbours that hold.

python3 -m unittest discover -s fleet/Tests/FleetTests -p '*_test.py'
"""

import unittest

from checker import violations


class Story:
    """A history, told in seconds: what happens at T starts at T and ends half a second later."""

    def __init__(self):
        self.events = []

    def add(self, op, at, lasts=0.5, **more):
        self.events.append({"op": op, "start": at, "end": None if lasts is None else at + lasts, **more})
        return self

    def login(self, at, host="one", user="alice", outcome="ok", **more):
        return self.add("login", at, host=host, user=user, outcome=outcome, **more)

    def put(self, at, text, host="one", user="alice", profile="bob", outcome="ok", **more):
        return self.add("put", at, host=host, user=user, profile=profile, text=text, outcome=outcome, **more)

    def logout(self, at, user="alice", status=0, **more):
        more = {"hosts": {"one": "done", "two": "done"}, "live_only": True, **more}
        return self.add("logout", at, user=user, status=status, **more)

    def purge(self, at, user="alice", profiles=None, status=0, **more):
        more = {"hosts": {"one": "done", "two": "done"}, "live_only": True, **more}
        return self.add("purge", at, user=user, profiles=profiles, status=status, **more)

    def look(self, at, answer, host="one", user="alice", settled=False):
        return self.add("look", at, host=host, user=user, answer=answer, settled=settled)

    def gone(self, at, **more):
        return self.look(at, "NOLOGIN", **more)


AWAY = {"one": "away", "two": "done"}
OWED = {"one": "owed", "two": "owed"}


class CheckerTest(unittest.TestCase):
    def holds(self, story):
        self.assertEqual(violations(story.events), [])

    def fails(self, story, *words):
        found = violations(story.events)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_a_log_out_that_is_true(self):
        self.holds(Story().login(1).put(2, "a").look(3, {"bob": "a"}).logout(4).gone(5).gone(9, settled=True))

    def test_who_is_still_logged_in_though_the_host_has_done_it(self):
        self.fails(Story().login(1).logout(2).look(3, {"bob": None}), "while the fleet said")

    def test_who_is_still_logged_in_on_a_host_that_was_away_when_all_is_healed(self):
        story = Story().login(1).logout(2, hosts=AWAY)
        self.holds(Story().login(1).logout(2, hosts=AWAY).look(3, {"bob": None}))
        self.fails(story.look(3, {"bob": None}, settled=True), "when all was healed")

    def test_a_host_that_the_fleet_does_not_know_is_to_do_it_too(self):
        self.fails(Story().login(1).logout(2, hosts={"two": "done"}).look(3, {}, settled=True), "when all was healed")

    def test_a_success_needs_every_host_or_every_live_one(self):
        self.fails(Story().logout(1, hosts=AWAY, live_only=False), "status 0 although one is away")
        self.holds(Story().logout(1, hosts=AWAY, live_only=True))
        self.fails(Story().purge(1, hosts={"one": "owed"}, live_only=True), "status 0 although one is owed")
        self.holds(Story().logout(1, hosts=AWAY, status=1, live_only=False))

    def test_a_log_out_of_everybody(self):
        self.fails(Story().login(1).logout(2, user=None).look(3, {"bob": None}), "the log-out of 2.000")
        self.holds(Story().login(1).logout(2, user="bob").look(3, {"bob": None}))

    def test_the_last_of_several_log_outs_counts(self):
        story = Story().login(1).logout(2).login(3).logout(4)
        self.fails(story.look(5, {"bob": None}), "the log-out of 4.000")

    def test_who_logs_in_again_is_logged_in(self):
        self.holds(Story().login(1).logout(2).login(3).look(4, {"bob": None}, settled=True))

    def test_who_logs_in_during_the_log_out_may_be_or_not(self):
        self.holds(Story().login(2.4).logout(2).look(4, {"bob": None}))
        self.holds(Story().login(1.9).logout(2).look(4, {"bob": None}))
        self.holds(Story().login(2.4).logout(2).gone(4))

    def test_a_log_in_whose_answer_was_lost_may_come_late(self):
        self.holds(Story().login(1, outcome="unknown").logout(2).look(3, {"bob": None}))
        self.fails(Story().login(1, outcome="refused").look(3, {"bob": None}), "never logged in")

    def test_who_never_logged_in(self):
        self.fails(Story().login(1, host="two").look(2, {"bob": None}), "never logged in there")

    def test_what_is_published_and_done_by_nobody_is_done_when_all_is_healed(self):
        story = Story().login(1).logout(2, status=1, hosts=OWED)
        self.fails(story.look(3, {"bob": None}, settled=True), "when all was healed")
        self.holds(Story().login(1).logout(2, status=1, hosts=OWED).look(3, {"bob": None}))

    def test_what_redis_may_have_lost_before_anybody_did_it_is_not_promised(self):
        story = Story().login(1).logout(2, status=1, hosts=OWED).add("fault", 3, kind="restore", loses=True)
        self.holds(story.look(4, {"bob": None}, settled=True))
        story = Story().login(1).logout(2, status=1, hosts=OWED).add("fault", 3, kind="cut")
        self.fails(story.look(4, {"bob": None}, settled=True), "when all was healed")

    def test_what_one_host_has_done_all_do_whatever_redis_loses(self):
        story = Story().login(1).logout(2, status=1, hosts={"one": "owed", "two": "done"})
        story.add("fault", 3, kind="restore", loses=True)
        self.fails(story.look(4, {"bob": None}, settled=True), "when all was healed")

    def test_what_nobody_knows_may_be_done_or_not(self):
        self.holds(Story().login(1).logout(2, status=3, hosts={}).look(3, {"bob": None}, settled=True))
        self.holds(Story().login(1).logout(2, status=3, hosts={}).gone(3, settled=True))

    def test_a_picture_from_before_a_log_out(self):
        story = Story().login(1).put(2, "a").logout(3).login(4)
        self.fails(story.look(5, {"bob": "a"}), "the logout of 3.000 ended")

    def test_a_picture_from_before_a_purge(self):
        story = Story().login(1).put(2, "a").purge(3, profiles=["bob"])
        self.fails(story.look(5, {"bob": "a"}), "the purge of 3.000 ended")
        self.fails(Story().login(1).put(2, "a").purge(3).look(5, {"bob": "a"}), "the purge of 3.000 ended")
        self.holds(Story().login(1).put(2, "a").purge(3, profiles=["carol"]).look(5, {"bob": "a"}))
        self.holds(Story().login(1).put(2, "a").purge(3, user="bob").look(5, {"bob": "a"}))
        self.holds(Story().login(1).put(2, "a").purge(3).put(4, "b").look(5, {"bob": "b"}))

    def test_a_purge_logs_nobody_out(self):
        self.fails(Story().login(1).purge(2).gone(3), "without a reason")

    def test_somebody_elses_picture(self):
        story = Story().login(1).login(1, user="dan").put(2, "a", user="dan")
        self.fails(story.look(3, {"bob": "a"}), "nobody put there")
        self.fails(Story().login(1).put(2, "a").look(3, {"carol": "a"}), "nobody put there")
        self.fails(Story().login(1).look(3, {"bob": "a"}), "nobody put there")

    def test_who_is_logged_out_without_a_reason(self):
        self.fails(Story().login(1).gone(2), "without a reason")
        self.fails(Story().login(1).logout(1.6, user="dan").gone(3), "without a reason")
        self.fails(Story().logout(1).login(2).gone(3), "without a reason")

    def test_a_log_out_that_was_owed_may_end_what_came_later(self):
        self.holds(Story().logout(1, hosts=AWAY).login(2).gone(3))
        self.holds(Story().logout(1, status=3, hosts={}).login(2).gone(3))
        # Not once the host was known to have done everything.
        self.fails(Story().logout(1, hosts=AWAY).gone(2, settled=True).login(3).gone(4), "without a reason")

    def test_a_gap_is_a_reason_on_its_host_and_in_its_time(self):
        self.holds(Story().login(1).add("gap", 2, host="one").gone(3))
        self.holds(Story().add("gap", 0, lasts=None, host="one").login(1).gone(3))
        self.fails(Story().login(1).add("gap", 2, host="two").gone(3), "without a reason")
        self.fails(Story().add("gap", 0, host="one").login(1).gone(3), "without a reason")

    def test_a_key_that_is_left(self):
        self.fails(Story().add("disk", 1, host="one", users=["alice"], keys=2, settled=True), "2 keys on disk for 1")
        self.holds(Story().add("disk", 1, host="one", users=["alice"], keys=1, settled=True))

    def test_a_fleet_that_does_not_heal(self):
        self.fails(Story().add("settled", 1, outcome="failed", why="three is behind"), "three is behind")
        self.holds(Story().add("settled", 1, outcome="ok", why=""))

    def test_a_history_that_is_none(self):
        self.fails(Story().login(1).put(2, "a").put(3, "a"), "the history is wrong")


if __name__ == "__main__":
    unittest.main()
