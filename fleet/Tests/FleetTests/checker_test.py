"""Unit tests of the checker: invalid histories must be rejected, and similar valid ones accepted.

python3 -m unittest discover -s fleet/Tests/FleetTests -p '*_test.py'
"""

import unittest

from checker import violations


class History:
    """A history; the event at second T starts at T and ends half a second later."""

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

    def read(self, at, answer, host="one", user="alice", settled=False):
        return self.add("read", at, host=host, user=user, answer=answer, settled=settled)

    def logged_out(self, at, **more):
        return self.read(at, "NOLOGIN", **more)


AWAY = {"one": "away", "two": "done"}
PENDING = {"one": "pending", "two": "pending"}


class CheckerTest(unittest.TestCase):
    def accepts(self, history):
        self.assertEqual(violations(history.events), [])

    def rejects(self, history, *words):
        found = violations(history.events)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_completed_logout(self):
        history = History().login(1).put(2, "a").read(3, {"bob": "a"}).logout(4)
        self.accepts(history.logged_out(5).logged_out(9, settled=True))

    def test_login_remains_on_a_done_host(self):
        self.rejects(History().login(1).logout(2).read(3, {"bob": None}), "although the host had executed")

    def test_login_remains_on_an_away_host_until_settled(self):
        history = History().login(1).logout(2, hosts=AWAY)
        self.accepts(History().login(1).logout(2, hosts=AWAY).read(3, {"bob": None}))
        self.rejects(history.read(3, {"bob": None}, settled=True), "after the fleet has settled")

    def test_host_missing_from_the_output_must_execute_the_logout(self):
        history = History().login(1).logout(2, hosts={"two": "done"})
        self.rejects(history.read(3, {}, settled=True), "after the fleet has settled")

    def test_status_0_needs_every_host_or_every_live_host(self):
        self.rejects(History().logout(1, hosts=AWAY, live_only=False), "status 0 although one is away")
        self.accepts(History().logout(1, hosts=AWAY, live_only=True))
        self.rejects(History().purge(1, hosts={"one": "pending"}, live_only=True), "status 0 although one is pending")
        self.accepts(History().logout(1, hosts=AWAY, status=1, live_only=False))

    def test_logout_of_all_users(self):
        self.rejects(History().login(1).logout(2, user=None).read(3, {"bob": None}), "the logout of 2.000")
        self.accepts(History().login(1).logout(2, user="bob").read(3, {"bob": None}))

    def test_last_of_several_logouts(self):
        history = History().login(1).logout(2).login(3).logout(4)
        self.rejects(history.read(5, {"bob": None}), "the logout of 4.000")

    def test_login_after_a_logout(self):
        self.accepts(History().login(1).logout(2).login(3).read(4, {"bob": None}, settled=True))

    def test_login_during_a_logout_may_remain(self):
        self.accepts(History().login(2.4).logout(2).read(4, {"bob": None}))
        self.accepts(History().login(1.9).logout(2).read(4, {"bob": None}))
        self.accepts(History().login(2.4).logout(2).logged_out(4))

    def test_login_without_a_reply_may_take_effect_late(self):
        self.accepts(History().login(1, outcome="unknown").logout(2).read(3, {"bob": None}))
        self.rejects(History().login(1, outcome="refused").read(3, {"bob": None}), "never logged in")

    def test_login_on_another_host(self):
        self.rejects(History().login(1, host="two").read(2, {"bob": None}), "never logged in there")

    def test_published_logout_takes_effect_after_settling(self):
        history = History().login(1).logout(2, status=1, hosts=PENDING)
        self.rejects(history.read(3, {"bob": None}, settled=True), "after the fleet has settled")
        self.accepts(History().login(1).logout(2, status=1, hosts=PENDING).read(3, {"bob": None}))

    def test_logout_lost_by_redis_before_any_host_executed_it(self):
        history = History().login(1).logout(2, status=1, hosts=PENDING).add("fault", 3, kind="restore", loses=True)
        self.accepts(history.read(4, {"bob": None}, settled=True))
        history = History().login(1).logout(2, status=1, hosts=PENDING).add("fault", 3, kind="cut")
        self.rejects(history.read(4, {"bob": None}, settled=True), "after the fleet has settled")

    def test_logout_executed_by_one_host_reaches_all_although_redis_lost_it(self):
        history = History().login(1).logout(2, status=1, hosts={"one": "pending", "two": "done"})
        history.add("fault", 3, kind="restore", loses=True)
        self.rejects(history.read(4, {"bob": None}, settled=True), "after the fleet has settled")

    def test_logout_with_unknown_result(self):
        self.accepts(History().login(1).logout(2, status=3, hosts={}).read(3, {"bob": None}, settled=True))
        self.accepts(History().login(1).logout(2, status=3, hosts={}).logged_out(3, settled=True))

    def test_image_stored_before_a_logout(self):
        history = History().login(1).put(2, "a").logout(3).login(4)
        self.rejects(history.read(5, {"bob": "a"}), "the logout of 3.000 deleted")

    def test_image_stored_before_a_purge(self):
        history = History().login(1).put(2, "a").purge(3, profiles=["bob"])
        self.rejects(history.read(5, {"bob": "a"}), "the purge of 3.000 deleted")
        self.rejects(History().login(1).put(2, "a").purge(3).read(5, {"bob": "a"}), "the purge of 3.000 deleted")
        self.accepts(History().login(1).put(2, "a").purge(3, profiles=["carol"]).read(5, {"bob": "a"}))
        self.accepts(History().login(1).put(2, "a").purge(3, user="bob").read(5, {"bob": "a"}))
        self.accepts(History().login(1).put(2, "a").purge(3).put(4, "b").read(5, {"bob": "b"}))

    def test_purge_logs_out_no_user(self):
        self.rejects(History().login(1).purge(2).logged_out(3), "without a cause")

    def test_image_of_another_user_or_profile(self):
        history = History().login(1).login(1, user="dan").put(2, "a", user="dan")
        self.rejects(history.read(3, {"bob": "a"}), "never stored there")
        self.rejects(History().login(1).put(2, "a").read(3, {"carol": "a"}), "never stored there")
        self.rejects(History().login(1).read(3, {"bob": "a"}), "never stored there")

    def test_logout_without_a_cause(self):
        self.rejects(History().login(1).logged_out(2), "without a cause")
        self.rejects(History().login(1).logout(1.6, user="dan").logged_out(3), "without a cause")
        self.rejects(History().logout(1).login(2).logged_out(3), "without a cause")

    def test_owed_logout_may_end_a_later_login(self):
        self.accepts(History().logout(1, hosts=AWAY).login(2).logged_out(3))
        self.accepts(History().logout(1, status=3, hosts={}).login(2).logged_out(3))
        # Not after the host has acknowledged all entries.
        history = History().logout(1, hosts=AWAY).logged_out(2, settled=True)
        self.rejects(history.login(3).logged_out(4), "without a cause")

    def test_gap_is_a_cause_on_its_host_while_open(self):
        self.accepts(History().login(1).add("gap", 2, host="one").logged_out(3))
        self.accepts(History().add("gap", 0, lasts=None, host="one").login(1).logged_out(3))
        self.rejects(History().login(1).add("gap", 2, host="two").logged_out(3), "without a cause")
        self.rejects(History().add("gap", 0, host="one").login(1).logged_out(3), "without a cause")

    def test_key_without_a_login(self):
        history = History().add("disk", 1, host="one", users=["alice"], keys=2, settled=True)
        self.rejects(history, "2 keys on disk for 1")
        self.accepts(History().add("disk", 1, host="one", users=["alice"], keys=1, settled=True))

    def test_fleet_that_does_not_settle(self):
        self.rejects(History().add("settled", 1, outcome="failed", why="three has a backlog"), "three has a backlog")
        self.accepts(History().add("settled", 1, outcome="ok", why=""))

    def test_invalid_history(self):
        self.rejects(History().login(1).put(2, "a").put(3, "a"), "invalid history")


if __name__ == "__main__":
    unittest.main()
