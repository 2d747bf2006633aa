/* A fleet: two hosts whose relays follow a stream on a server with a replica. README.md explains how to read the
 * models. Ids and identities are moments of one clock, which never shows a moment twice; a set of them is a byte. */

#define HOSTS 2
#define SERVER 0     /* databases: the server's, and one that it had earlier: of a backup or of a former master */
#define EARLIER 1

#define bit(n) (1 << (n))
#define upTo(moment) ((bit(moment) << 1) - 2)
#define after(moment) (254 & ~upTo(moment))
#define lowest(set) ((set) & -(set))

mtype = { Idle, Name, Close, Execute, Save }

/* The databases: the identities that the stream has had, the ids ever added to it, those that are not trimmed; whether
 * they have a relay's acknowledgment of the position on its disk. */
byte names[2], added[2], kept[2], now = 1;
bit isAcknowledged[4], isHealing;
#define row(database, h) (2 * (database) + (h))

/* The relays: their step, whether its connection was lost, the position on disk, and the one to save next. */
mtype at[HOSTS] = Idle;
bit isCut[HOSTS], waits[HOSTS];
byte identity[HOSTS], id[HOSTS], count[HOSTS], nextIdentity[HOSTS], nextID[HOSTS], nextCount[HOSTS];

/* What clients know: entries that a host has executed, and those that a row in the table of hosts has shown as
 * processed; whether the stream has lost writes since its identity was set. */
byte done[HOSTS], promised;
bit isLossy;

/* What a relay reads: identity, last id, numbers of entries added and removed, the entries after its position. */
byte name, lastID, total, removed, unread, unreadTotal, i;

/* step: FleetStream.snapshot */
inline look(h) {
    d_step {
        i = 1; unread = kept[SERVER] & after(id[h]);
        do
        :: i <= now ->
            name = (names[SERVER] & bit(i) -> i : name); lastID = (added[SERVER] & bit(i) -> i : lastID);
            total = total + (added[SERVER] >> i & 1);
            removed = removed + ((added[SERVER] & ~kept[SERVER]) >> i & 1);
            unreadTotal = unreadTotal + (unread >> i & 1); i++
        :: else -> break
        od
    }
}
inline forget() { d_step { name = 0; lastID = 0; total = 0; removed = 0; unread = 0; unreadTotal = 0; i = 0 } }

/* Mutation 3: another identity is accepted. Mutation 4: trimming is not noticed. Mutation 5: the entry at the position
 * is not checked. Mutation 6: an earlier identity is accepted like a later one. Mutation 9: a position without an
 * acknowledgment is no gap.
 * step: Gap.init */
#define isOther(h) (identity[h] != name)
#define latest(h) (identity[h] > id[h] -> identity[h] : id[h])
#define isLost(h) (id[h] && !(added[SERVER] & bit(id[h])))
#define loses(h) (identity[h] && (isOther(h) -> name <= latest(h) && MUTATION != 6 : (!added[SERVER] -> id[h] != 0 \
    : lastID < id[h] || total < count[h] || removed <= count[h] && MUTATION != 5 \
    && (total == count[h] && lastID != id[h] || id[h] && !(kept[SERVER] & bit(id[h])) && removed < count[h]))))
#define isUnproven(h) (count[h] && removed == count[h] && total > count[h] && !(kept[SERVER] & bit(id[h])) \
    && !isAcknowledged[row(SERVER, h)])
#define misses(h) (!identity[h] || isOther(h) && MUTATION != 3 || removed > count[h] && MUTATION != 4 \
    || isUnproven(h) && MUTATION != 9)

/* Fault 2: both relays have the same name, so that a row speaks for both hosts.
 * step: FleetStream.acknowledge, HostState.hasProcessed */
inline acknowledge(h, until) {
    if
    :: !isCut[h] && name == identity[h] ->
        assert(!(added[SERVER] & upTo(until) & ~(FAULT == 2 -> done[0] & done[1] : done[h])));
        promised = promised | added[SERVER] & upTo(until); isAcknowledged[row(SERVER, h)] = until == id[h]
    :: else
    fi
}

inline setNext(h, toID, toCount) { nextIdentity[h] = name; nextID[h] = toID; nextCount[h] = toCount }
inline save(h) {
    identity[h] = nextIdentity[h]; id[h] = nextID[h]; count[h] = nextCount[h];
    isAcknowledged[row(SERVER, h)] = 0; isAcknowledged[row(EARLIER, h)] = 0
}
inline finish(h) { at[h] = Idle; isCut[h] = 0; nextIdentity[h] = 0; nextID[h] = 0; nextCount[h] = 0 }

/* Forgets entries that are in no database and that no row has shown. */
inline forget_unused() {
    done[0] = done[0] & (promised | added[SERVER] | added[EARLIER]);
    done[1] = done[1] & (promised | added[SERVER] | added[EARLIER])
}

active [HOSTS] proctype relay() {
end:
    do
    /* The daemon executes the entries in the same step, since a kill between the two changes nothing.
     * Mutation 2: the position is saved first. Mutation 7: a loss is a gap of this host only.
     * Fault 1: a lost entry looks like a trimmed one once as many entries are trimmed as the relay has read.
     * step: Decision.init, Position.init, Relay.execute, DaemonSink.execute */
    :: atomic { at[_pid] == Idle && !waits[_pid] ->
        look(_pid);
        if
        :: !name || loses(_pid) && MUTATION != 7 -> nextIdentity[_pid] = name; at[_pid] = Name
        :: name && (!loses(_pid) || MUTATION == 7) && (loses(_pid) || misses(_pid)) ->
            assert(!identity[_pid] || isOther(_pid) || isLost(_pid) || added[SERVER] & ~kept[SERVER] & after(id[_pid])
                || isUnproven(_pid));
            if
            :: FAULT != 1 && !isOther(_pid) && isLost(_pid) && !loses(_pid) ->
                promised = promised & (added[SERVER] | ~done[_pid])
            :: else
            fi;
            done[_pid] = upTo(now); isAcknowledged[row(SERVER, _pid)] = 0; forget_unused();
            setNext(_pid, lastID, total); at[_pid] = Close
        :: name && !loses(_pid) && !misses(_pid) && !unread -> acknowledge(_pid, id[_pid]); waits[_pid] = isHealing
        :: name && !loses(_pid) && !misses(_pid) && unread -> setNext(_pid, lastID, total); at[_pid] = Execute
        :: name && !loses(_pid) && !misses(_pid) && unreadTotal > 1 ->
            i = 1; do :: unread & bit(i) -> break :: else -> i++ od;
            setNext(_pid, i, count[_pid] + 1); at[_pid] = Execute
        fi;
        if
        :: at[_pid] == Execute && MUTATION != 2 -> done[_pid] = done[_pid] | unread & upTo(nextID[_pid])
        :: at[_pid] == Execute && MUTATION == 2 -> save(_pid)
        :: else
        fi;
        forget() }
    /* Mutation 8: the identity is set although it has changed.
     * step: FleetStream.nameStream, StreamIdentity.name */
    :: atomic { at[_pid] == Name && (now < MOMENTS || isHealing) ->
        look(_pid);
        if
        :: name == nextIdentity[_pid] || MUTATION == 8 ->
            assert((!name || isLossy) && now < 7);
            now++; names[SERVER] = names[SERVER] | bit(now); isLossy = 0; waits[0] = 0; waits[1] = 0
        :: else
        fi;
        finish(_pid); forget() }
    /* step: Relay.close */
    :: atomic { at[_pid] == Close ->
        look(_pid); save(_pid); acknowledge(_pid, id[_pid]); finish(_pid); forget() }
    /* Mutation 1: the entries are acknowledged before the position is durable.
     * step: Relay.save, PositionFile.save, Relay.acknowledge */
    :: atomic { at[_pid] == Execute ->
        look(_pid);
        if
        :: MUTATION == 1 -> acknowledge(_pid, nextID[_pid]); at[_pid] = Save
        :: MUTATION == 2 -> done[_pid] = done[_pid] | upTo(nextID[_pid]); finish(_pid)
        :: MUTATION != 1 && MUTATION != 2 -> save(_pid); acknowledge(_pid, id[_pid]); finish(_pid)
        fi;
        forget() }
    :: atomic { at[_pid] == Save -> save(_pid); finish(_pid) }
    od
}

/* The server gets an earlier state of a database; at moment 0, an empty one. Connections are lost. */
inline restore(from) {
    i = 0; do :: i < now -> i++ :: break od;
    n = names[from] & upTo(i); a = added[from] & upTo(i); k = a;
    row0 = isAcknowledged[row(from, 0)] && latest(0) <= i; row1 = isAcknowledged[row(from, 1)] && latest(1) <= i; i = 0;
    if :: row0 -> row0 = 0 :: true fi; if :: row1 -> row1 = 0 :: true fi;
    do :: k != lowest(k) && !(lowest(k) & kept[from]) -> k = k & ~lowest(k) :: break od;
    if
    :: names[SERVER] & ~n || added[SERVER] & ~a -> isLossy = 1;
        if
        :: names[EARLIER] = names[SERVER]; added[EARLIER] = added[SERVER]; kept[EARLIER] = kept[SERVER];
            isAcknowledged[2] = isAcknowledged[0]; isAcknowledged[3] = isAcknowledged[1]
        :: true
        fi
    :: else
    fi;
    names[SERVER] = n; added[SERVER] = a; kept[SERVER] = k; n = 0; a = 0; k = 0;
    isAcknowledged[0] = row0; isAcknowledged[1] = row1; row0 = 0; row1 = 0;
    cut(0); cut(1); forget_unused()
}
inline cut(h) { if :: at[h] == Name -> finish(h) :: at[h] == Execute || at[h] == Close -> isCut[h] = 1 :: else fi }

/* At first, one host has read the stream, and the other has never started. */
active proctype world() {
    byte n, a, k;
    bit row0, row1;
    atomic { names[SERVER] = bit(now); identity[0] = now };
    do
    /* XADD also trims.
     * step: FleetStream.publish */
    :: atomic { now < MOMENTS && !isHealing -> now++;
        do :: kept[SERVER] -> kept[SERVER] = kept[SERVER] & ~lowest(kept[SERVER]) :: break od;
        added[SERVER] = added[SERVER] | bit(now); kept[SERVER] = kept[SERVER] | bit(now) }
    /* A failover to a replica that lacks the last writes, a restored backup, FLUSHALL. */
    :: atomic { !isHealing -> restore(SERVER) }
    /* A later backup; a former master becomes the master again. */
    :: atomic { !isHealing && (names[EARLIER] || added[EARLIER]) -> restore(EARLIER) }
    /* kill -9 of a relay */
    :: atomic { !isHealing && at[0] != Idle -> finish(0) }
    :: atomic { !isHealing && at[1] != Idle -> finish(1) }
    /* Fault 3: a host loses its state directory. */
    :: atomic { !isHealing && FAULT == 3 -> finish(0); save(0) }
    /* From now on, there are no faults, and both hosts are live. */
    :: atomic { !isHealing -> isHealing = 1;
        names[EARLIER] = 0; added[EARLIER] = 0; kept[EARLIER] = 0; isAcknowledged[2] = 0; isAcknowledged[3] = 0;
        forget_unused() }
    /* Both relays wait for entries. */
    :: atomic { waits[0] && waits[1] -> assert(!((promised | added[SERVER]) & ~(done[0] & done[1]))); break }
    od
}
