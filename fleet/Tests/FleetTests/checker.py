"""Decides whether what a fleet showed is what it promises. Pure: a recorded history goes in, what contradicts the
promise comes out. It knows no Redis, no relay and no daemon.

A history is a list of dictionaries. All have `op`, `start` and `end`: seconds of one clock, taken before a command was
sent and after its answer came. What the fleet did with a command, it did between the two.

    login     host user outcome             LOGIN on one host
    put       host user profile text outcome    an image that is recognised by its text; texts are unlike each other
    logout    user status hosts live_only   thumbcachectl fleet logout; user None is everybody
    purge     user profiles status hosts live_only    thumbcachectl fleet purge; profiles None are all of them
    look      host user answer settled      GETs: "NOLOGIN", or for each profile its text, or None
    disk      host users keys settled       who is logged in on a host, and how many keys lie on its disk
    gap       host                          the host made up for what it may have missed; end None is not yet
    fault     kind                          what was done to the fleet; `loses` where Redis may have lost writes
    settled   outcome why                   whether every host had done everything, some time after all was healed

`outcome` is "ok", "refused", or "unknown" for a command whose answer was lost. `status` is that of the command: 0 where
every host has done it, or with `live_only` every live host; 1 where it is published and not all have, else nobody knows. `hosts` is what it said of
each: "done", "owed" or "away". `settled` is true for what was seen when all was healed and every host said that it had
done everything.
"""

import bisect
from collections import defaultdict

# The log of a relay has milliseconds.
COARSE = 0.002


def violations(history, since=0.0):
    """Sentences, one for each contradiction; none where the history is as it should be.

    Only what was seen from `since` on is judged, by all that had happened until then."""
    return Checker(history, since).found()


class Checker:
    def __init__(self, history, since):
        self.since = since
        self.by_kind = defaultdict(list)
        for event in history:
            self.by_kind[event["op"]].append(event)
        # Newest first.
        self.orders = sorted(self.by_kind["logout"] + self.by_kind["purge"], key=lambda order: -order["start"])
        self.logins = grouped(self.by_kind["login"], "host", "user")
        self.gaps = grouped(self.by_kind["gap"], "host")
        self.losses = [fault for fault in self.by_kind["fault"] if fault.get("loses")]
        self.settlings = defaultdict(list)
        for look in sorted(self.by_kind["look"], key=lambda look: look["start"]):
            if look["settled"]:
                self.settlings[look["host"]].append((look["start"], look["end"]))
        self.puts = {}
        self.sentences = []
        for put in self.by_kind["put"]:
            if put["text"] in self.puts:
                self.sentences.append(f"the history is wrong: {put['text']} was put twice")
            self.puts[put["text"]] = put

    def found(self):
        for look in self.recent("look"):
            if look["answer"] == "NOLOGIN":
                self.check_reason(look)
            else:
                self.check_log_in(look)
                self.check_images(look)
        for order in self.recent("logout") + self.recent("purge"):
            self.check_status(order)
        for disk in self.recent("disk"):
            if disk["keys"] > len(disk["users"]):
                self.say(disk, f"there are {disk['keys']} keys on disk for {len(disk['users'])} users")
        for settled in self.recent("settled"):
            if settled["outcome"] != "ok":
                self.sentences.append(f"at {settled['end']:.3f}: the fleet did not heal: {settled['why']}")
        return self.sentences

    def recent(self, kind):
        return [event for event in self.by_kind[kind] if event["start"] >= self.since]

    def say(self, event, text):
        self.sentences.append(f"at {event['start']:.3f}, {event['host']}: {text}")

    # What an order obliges a host to.

    def binds(self, order, look):
        """Whether a host that is looked at must have done an order."""
        if order["end"] > look["start"]:
            return False
        if order["hosts"].get(look["host"]) == "done":
            return True
        return look["settled"] and self.is_promised(order, look)

    def is_promised(self, order, look):
        """Whether it is to be true everywhere, once all is healed."""
        # One host that has done it remembers that there was such an entry, whatever Redis loses.
        if order["status"] == 0 or "done" in order["hosts"].values():
            return True
        return order["status"] == 1 and not any(overlaps(loss, order["start"], look["end"]) for loss in self.losses)

    def check_log_in(self, look):
        """Who is logged in has logged in since the last log-out, or at least during it."""
        binding = (order for order in self.orders if ends_log_in(order, look["user"]) and self.binds(order, look))
        last = next((order["start"] for order in binding), None)
        logins = [
            login
            for login in self.logins[look["host"], look["user"]]
            if login["outcome"] != "refused" and login["start"] < look["end"]
        ]
        if not logins:
            self.say(look, f"{look['user']} is logged in and never logged in there")
        elif last is not None and not any(self.may_be_after(login, last) for login in logins):
            when = "when all was healed" if look["settled"] else "while the fleet said that it was done there"
            self.say(look, f"{look['user']} is logged in {when}: the log-out of {last:.3f} is not true there")

    def check_status(self, order):
        """Status 0 needs every host, or every live one."""
        allowed = ("done", "away") if order["live_only"] else ("done",)
        for host, state in order["hosts"].items():
            if order["status"] == 0 and state not in allowed:
                self.sentences.append(f"at {order['start']:.3f}: a {order['op']} has status 0 although {host} is {state}")

    def check_images(self, look):
        for profile, text in look["answer"].items():
            if text is None:
                continue
            put = self.puts.get(text)
            if put is None or (put["host"], put["user"], put["profile"]) != (look["host"], look["user"], profile):
                self.say(look, f"{look['user']} was given {text} for {profile}, which nobody put there")
                continue
            for order in self.orders:
                if self.may_be_after(put, order["start"]):
                    break  # and after all that are older
                if ends_image(order, look["user"], profile) and self.binds(order, look):
                    told = f"{look['user']} was given {text}, which the {order['op']} of {order['start']:.3f} ended"
                    self.say(look, told)
                    break

    def may_be_after(self, event, moment):
        """Whether a command may have been carried out later than a moment."""
        return event["outcome"] == "unknown" or event["end"] > moment

    # What nothing but an order or a gap excuses.

    def check_reason(self, look):
        """Nobody is logged out but by a log-out, or by a host that may have missed one."""
        logins = [
            login
            for login in self.logins[look["host"], look["user"]]
            if login["outcome"] == "ok" and login["end"] <= look["start"]
        ]
        if not logins:
            return
        login = max(logins, key=lambda login: login["start"])
        for order in self.orders:
            if ends_log_in(order, look["user"]) and order["start"] < look["end"]:
                if not self.was_over(order, look["host"], login["start"]):
                    return
        if any(overlaps(gap, login["start"] - COARSE, look["end"] + COARSE) for gap in self.gaps[look["host"],]):
            return
        self.say(look, f"{look['user']} is logged out without a reason: logged in at {login['start']:.3f}")

    def was_over(self, order, host, moment):
        """Whether a host was sure to have done an order by then, so that it ends nothing that came later."""
        if order["end"] > moment:
            return False
        if order["hosts"].get(host) == "done":
            return True
        looks = self.settlings[host]
        first = bisect.bisect_left(looks, (order["end"],))
        return first < len(looks) and looks[first][1] <= moment


def ends_log_in(order, user):
    return order["op"] == "logout" and order["user"] in (None, user)


def ends_image(order, user, profile):
    if order["user"] not in (None, user):
        return False
    return order["op"] == "logout" or order["profiles"] is None or profile in order["profiles"]


def overlaps(event, start, end):
    return event["start"] <= end and (event["end"] is None or event["end"] >= start)


def grouped(events, *names):
    groups = defaultdict(list)
    for event in events:
        groups[tuple(event[name] for name in names)].append(event)
    return groups
