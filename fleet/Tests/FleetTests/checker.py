"""Checks a recorded history of a fleet against its guarantees. Independent of Redis, the relay and the daemon.

A history is a list of dictionaries. Each has `op`, `start` and `end`: seconds of one clock, taken before a command was
sent and after its reply was received. The fleet executed the command between the two.

    login     host user outcome             LOGIN on one host
    put       host user profile text outcome    PUT of an image that contains the text; texts are unique
    logout    user status hosts live_only   thumbcachectl fleet logout; user None: all users
    purge     user profiles status hosts live_only    thumbcachectl fleet purge; profiles None: all profiles
    read      host user answer settled      GETs: "NOLOGIN", or a dictionary from profiles to texts, None for a miss
    disk      host users keys settled       the users logged in on a host, and the number of keys on its disk
    gap       host                          the host closed a gap; end None: not yet closed
    fault     kind                          an injected fault; `loses`: Redis may have lost writes
    settled   outcome why                   whether all hosts acknowledged all entries after the faults were repaired

`outcome` is "ok", "refused" (an error reply), or "unknown" (no reply). `status` is the exit status of the command: 0 if
every host, or with `live_only` every live host, has executed it; 1 if it is published but not executed by all; others
if its result is unknown. `hosts` has the state of each host in the command's output: "done", "pending" or "away".
`settled` is true for events observed after all faults were repaired and all hosts had acknowledged all entries.
"""

import bisect
from collections import defaultdict

# Seconds; timestamps in the relay's log have a resolution of milliseconds.
COARSE = 0.002


def violations(history, since=0.0):
    """Returns a sentence for each violation of a guarantee by an event that started at `since` or later."""
    return Checker(history, since).found()


class Checker:
    def __init__(self, history, since):
        self.since = since
        self.by_kind = defaultdict(list)
        for event in history:
            self.by_kind[event["op"]].append(event)
        # In descending order of time.
        self.commands = sorted(self.by_kind["logout"] + self.by_kind["purge"], key=lambda command: -command["start"])
        self.logins = grouped(self.by_kind["login"], "host", "user")
        self.gaps = grouped(self.by_kind["gap"], "host")
        self.losses = [fault for fault in self.by_kind["fault"] if fault.get("loses")]
        self.settlings = defaultdict(list)
        for read in sorted(self.by_kind["read"], key=lambda read: read["start"]):
            if read["settled"]:
                self.settlings[read["host"]].append((read["start"], read["end"]))
        self.puts = {}
        self.violations = []
        for put in self.by_kind["put"]:
            if put["text"] in self.puts:
                self.violations.append(f"invalid history: {put['text']} was put twice")
            self.puts[put["text"]] = put

    def found(self):
        for read in self.recent("read"):
            if read["answer"] == "NOLOGIN":
                self.check_cause(read)
            else:
                self.check_login(read)
                self.check_images(read)
        for command in self.recent("logout") + self.recent("purge"):
            self.check_status(command)
        for disk in self.recent("disk"):
            if disk["keys"] > len(disk["users"]):
                self.report(disk, f"{disk['keys']} keys on disk for {len(disk['users'])} users who are logged in")
        for settled in self.recent("settled"):
            if settled["outcome"] != "ok":
                self.violations.append(f"at {settled['end']:.3f}: the fleet did not settle: {settled['why']}")
        return self.violations

    def recent(self, kind):
        return [event for event in self.by_kind[kind] if event["start"] >= self.since]

    def report(self, event, text):
        self.violations.append(f"at {event['start']:.3f}, {event['host']}: {text}")

    # Effects that a command must have had.

    def must_have_executed(self, command, read):
        """Whether the host must have executed the command before the read."""
        if command["end"] > read["start"]:
            return False
        if command["hosts"].get(read["host"]) == "done":
            return True
        return read["settled"] and self.is_promised(command, read)

    def is_promised(self, command, read):
        """Whether the command must take effect on every host after all faults are repaired."""
        # A host that has executed the command makes all hosts close a gap if Redis loses the entry.
        if command["status"] == 0 or "done" in command["hosts"].values():
            return True
        return command["status"] == 1 and not any(overlaps(loss, command["start"], read["end"]) for loss in self.losses)

    def check_login(self, read):
        """Checks that a user who is logged in has logged in after, or during, the last logout."""
        binding = (
            command
            for command in self.commands
            if ends_login(command, read["user"]) and self.must_have_executed(command, read)
        )
        last = next((command["start"] for command in binding), None)
        logins = [
            login
            for login in self.logins[read["host"], read["user"]]
            if login["outcome"] != "refused" and login["start"] < read["end"]
        ]
        if not logins:
            self.report(read, f"{read['user']} is logged in but never logged in there")
        elif last is not None and not any(self.may_be_after(login, last) for login in logins):
            when = "after the fleet has settled" if read["settled"] else "although the host had executed the logout"
            self.report(read, f"{read['user']} is logged in {when}: the logout of {last:.3f} had no effect")

    def check_status(self, command):
        """Checks that status 0 was returned only if every host, or every live host, was done."""
        allowed = ("done", "away") if command["live_only"] else ("done",)
        for host, state in command["hosts"].items():
            if command["status"] == 0 and state not in allowed:
                self.violations.append(
                    f"at {command['start']:.3f}: a {command['op']} returned status 0 although {host} is {state}"
                )

    def check_images(self, read):
        for profile, text in read["answer"].items():
            if text is None:
                continue
            put = self.puts.get(text)
            if put is None or (put["host"], put["user"], put["profile"]) != (read["host"], read["user"], profile):
                self.report(read, f"{read['user']} received {text} for {profile}, which was never stored there")
                continue
            for command in self.commands:
                if self.may_be_after(put, command["start"]):
                    break  # Also after all older commands.
                if ends_image(command, read["user"], profile) and self.must_have_executed(command, read):
                    ended = f"which the {command['op']} of {command['start']:.3f} deleted"
                    self.report(read, f"{read['user']} received {text}, {ended}")
                    break

    def may_be_after(self, event, moment):
        """Whether the command may have been executed after the moment."""
        return event["outcome"] == "unknown" or event["end"] > moment

    # Logouts without a cause.

    def check_cause(self, read):
        """Checks that a user is logged out only by a logout or by a host that closed a gap."""
        logins = [
            login
            for login in self.logins[read["host"], read["user"]]
            if login["outcome"] == "ok" and login["end"] <= read["start"]
        ]
        if not logins:
            return
        login = max(logins, key=lambda login: login["start"])
        for command in self.commands:
            if ends_login(command, read["user"]) and command["start"] < read["end"]:
                if not self.was_executed_before(command, read["host"], login["start"]):
                    return
        if any(overlaps(gap, login["start"] - COARSE, read["end"] + COARSE) for gap in self.gaps[read["host"],]):
            return
        self.report(read, f"{read['user']} is logged out without a cause: logged in at {login['start']:.3f}")

    def was_executed_before(self, command, host, moment):
        """Whether the host must have executed the command before the moment, so that it has no effect after it."""
        if command["end"] > moment:
            return False
        if command["hosts"].get(host) == "done":
            return True
        reads = self.settlings[host]
        first = bisect.bisect_left(reads, (command["end"],))
        return first < len(reads) and reads[first][1] <= moment


def ends_login(command, user):
    return command["op"] == "logout" and command["user"] in (None, user)


def ends_image(command, user, profile):
    if command["user"] not in (None, user):
        return False
    return command["op"] == "logout" or command["profiles"] is None or profile in command["profiles"]


def overlaps(event, start, end):
    return event["start"] <= end and (event["end"] is None or event["end"] >= start)


def grouped(events, *names):
    groups = defaultdict(list)
    for event in events:
        groups[tuple(event[name] for name in names)].append(event)
    return groups
