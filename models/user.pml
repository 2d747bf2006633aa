/* The cache of one user: its generations and the images of one profile. README.md explains how to read the models.
 * The key file changes in one step here; key-file.pml has its protocol. At most WORKERS workers are busy, and at most
 * IMAGES images exist, at a time. */

#define bit(n) (1 << (n))
#define S 0          /* the key of the source image; R: of its rendition, which has the number of its source */
#define R 1
#define GET 0        /* workers */
#define DOWNLOAD 1
#define WRITE 2
#define PUT 3
#define RENDER 4

mtype = { Unknown, LoggedOut, Opened, Ending, BrokenPurge, BrokenLogout }   /* UserState.Phase */
mtype = { None, Login, Logout, Purge, Profile,
          Idle, Close, Drain, Gate, Commit, Done, Fence, Temporaries, Entries, SyncEntries, Removed, Receipt }

/* The daemon's memory. `current`: whether the result of a worker still counts. */
mtype phase = LoggedOut, command = None, at = Idle;
byte memory[2], storing[2], step[5], image[5], key[5], delivering, awaited, i;
bit current[5], temporary[5], lock, removing;

/* The disk: the generation in the key file, the one that the images belong to, images as programs see them and as they
 * survive a power loss, one that was replaced and not yet removed, images in temporary files that a kill has left. */
byte login, generation, entry[2], durable[2], replaced, stale, syncFailed;

/* What clients know: images older than the current invalidation or PUT, and those that a receipt forbids; whether the
 * last receipt was of LOGIN or of LOGOUT; whether the last reply was IOERR. */
byte old, ended, oldToPut, beaten;
bit loggedIn, loggedOut, isClosed;

#define inMemory (bit(memory[S]) | bit(memory[R]) | bit(storing[S]) | bit(storing[R]))
#define onDisk (bit(entry[S]) | bit(entry[R]) | bit(durable[S]) | bit(durable[R]) | stale)
#define inUse (inMemory | onDisk | bit(replaced) | bit(image[GET]) | bit(image[DOWNLOAD]) | bit(image[WRITE]) \
    | bit(image[PUT]) | bit(image[RENDER]))
#define known (inUse & ~((step[PUT] < 3) * bit(image[PUT])) & ~1)
#define halfWritten ((temporary[WRITE] && step[WRITE] == 2) * bit(image[WRITE]) \
    | (temporary[PUT] && step[PUT] == 2) * bit(image[PUT]) | (replaced != 0) * bit(replaced))
#define busy (step[GET] == 1 || step[WRITE] || step[PUT] && step[PUT] < 4)
#define isFree(worker) (!step[worker] && phase == Opened \
    && (step[GET] > 0) + (step[DOWNLOAD] > 0) + (step[WRITE] > 0) + (step[PUT] > 0) + (step[RENDER] > 0) < WORKERS)
#define mayNumber ((inUse | 1) != bit(IMAGES + 1) - 1)

/* I3, I7: the decision to serve an image. I2, I3, I4: its delivery. */
inline decide(n) { assert(!(bit(n) & (ended | beaten))) }
inline deliver(n) { assert(!(bit(n) & ended) && !loggedOut && !isClosed) }

/* I2, I3: no thread works in a generation that has ended. I3: no path leads to an image of a purged profile. */
inline receipt() {
    ended = ended | old; old = 0; isClosed = 0; forget_unused(); loggedOut = loggedOut || command == Logout;
    assert(!(inMemory & (ended | beaten)) && (command == Profile || !busy));
    assert(command != Profile || !((onDisk | halfWritten) & ended))
}

/* Numbers of images that nothing has are given again. */
inline forget_unused() {
    d_step { i = inUse; ended = ended & i; old = old & i; beaten = beaten & i; oldToPut = oldToPut & i; i = 0 }
}
inline forget_images() {
    entry[S] = 0; entry[R] = 0; durable[S] = 0; durable[R] = 0; stale = 0; syncFailed = 0; generation = login;
    forget_unused()
}
inline open() { assert(!loggedOut); phase = Opened; if :: generation != login -> forget_images() :: else fi }

#define begin(worker, n) step[worker] = 1; image[worker] = n; current[worker] = 1
inline begin_new(w) {
    forget_unused(); d_step { i = 1; do :: inUse & bit(i) -> i++ :: else -> break od; begin(w, i); i = 0 }
}
inline finish(w) { step[w] = 0; image[w] = 0; key[w] = 0; current[w] = 0; temporary[w] = 0; forget_unused() }
inline end_flights() {
    d_step { for (i : GET .. RENDER) { current[i] = 0 } i = 0 }
    memory[S] = 0; memory[R] = 0; storing[S] = 0; storing[R] = 0; forget_unused()
}
inline keep(which, n) { if :: memory[which] = n :: memory[which] = 0 fi }   /* the memory tier may be full */

/* Lookups that began earlier are void. Mutation 6: renditions of the earlier image are kept.
 * step: RequestCoordinator.sourceChanged */
inline replace_source(n) {
    decide(n); current[GET] = 0; current[RENDER] = current[RENDER] && (image[RENDER] == n || MUTATION == 6);
    storing[R] = (storing[R] == n || MUTATION == 6 -> storing[R] : 0);
    memory[R] = (memory[R] == n || MUTATION == 6 -> memory[R] : 0); keep(S, n)
}

/* Invalidations wait for deliveries that were decided before. */
#define deliver_later(worker) delivering = delivering | bit(worker)
inline delivered(w) { deliver(image[w]); delivering = delivering & ~bit(w); awaited = awaited & ~bit(w) }

#define place(worker) lock = 1; syncFailed = 0; replaced = entry[key[worker]]; entry[key[worker]] = image[worker]

inline crash() {
    d_step {
        phase = Unknown; command = None; at = Idle; delivering = 0; awaited = 0; lock = 0; removing = 0; replaced = 0;
        for (i : GET .. RENDER) { step[i] = 0; image[i] = 0; key[i] = 0; temporary[i] = 0 }
    }
    old = 0; oldToPut = 0; isClosed = 0; end_flights()
}

inline lose(which) {
    if :: entry[which] != durable[which] -> entry[which] = durable[which]
    :: entry[which] && durable[which] -> entry[which] = 0 :: true fi
}

active proctype world() {
    do
    /* LOGIN, LOGOUT and PURGE, one at a time (UserEntry.lock). step: UserSessions.load */
    :: atomic { at == Idle && phase == Unknown ->
        if :: login -> open() :: else -> assert(!loggedIn); phase = LoggedOut; forget_images() fi }
    /* step: UserSessions.logIn */
    :: atomic { at == Idle && phase == LoggedOut -> command = Login; loggedOut = 0; at = Commit }
    /* step: InvalidationService.logOut */
    :: atomic { at == Idle && phase != Unknown ->
        command = Logout; loggedIn = 0; old = known; at = (phase == Opened -> Close : Commit) }
    /* step: InvalidationService.purge, InvalidationService.retryNow */
    :: atomic { at == Idle && phase != Unknown ->
        command = (phase == BrokenLogout -> Logout : Purge); old = known; at = (phase == Opened -> Close : Commit) }
    /* step: UserCache.close */
    :: atomic { at == Close -> phase = Ending; end_flights(); awaited = delivering; at = Drain }
    /* step: UserCache.drainDeliveries. Mutation 1: the key file changes before deliveries have ended */
    :: atomic { at == Drain && (!awaited || MUTATION == 1) -> at = Gate }
    /* step: DiskGenerationStore.close */
    :: atomic { at == Gate && (!busy || MUTATION == 1) -> at = Commit }
    /* Mutation 7: the user is open to reads before the purge is durable.
     * step: InvalidationService.commit, UserSessions.begin, UserState.failed */
    :: atomic { at == Commit ->
        if
        :: at = Done; if
            :: command == Logout -> login = 0
            :: command == Login || command == Purge && phase != LoggedOut -> login = (login == 1 -> 2 : 1)
            :: command == Purge && phase == LoggedOut
            fi
        :: at = Idle; if
            :: command == Login || phase == LoggedOut -> phase = Unknown; old = 0
            :: command == Purge && phase != LoggedOut -> isClosed = 1; phase = (MUTATION == 7 -> Opened : BrokenPurge)
            :: command == Logout && phase != LoggedOut -> isClosed = 1; phase = BrokenLogout
            fi;
            command = None
        fi }
    /* step: UserSessions.open */
    :: atomic { at == Done -> at = Idle;
        if
        :: command == Login -> loggedIn = 1; open()
        :: command == Purge -> if :: phase != LoggedOut -> open() :: else fi; receipt()
        :: command == Logout -> phase = LoggedOut; receipt(); forget_images()
        fi;
        command = None }

    /* step: InvalidationService.remove */
    :: atomic { at == Idle && phase == Opened -> command = Profile; old = known; at = Fence }
    /* step: UserCache.purge, RequestCoordinator.purge */
    :: atomic { at == Fence && !lock -> lock = 1; removing = 1; end_flights();
        old = (old | bit(image[PUT])) & ~1; at = Temporaries }
    /* step: ImageFiles.removeAll, TemporaryFileRegistry.files. Mutation 4: files of writers stay */
    :: atomic { at == Temporaries -> at = Entries;
        temporary[WRITE] = temporary[WRITE] && MUTATION == 4; temporary[PUT] = temporary[PUT] && MUTATION == 4 }
    /* step: ImageFiles.removeEntries, which also removes files of earlier runs */
    :: atomic { at == Entries -> at = SyncEntries;
        syncFailed = syncFailed && !entry[S] && !entry[R]; entry[S] = 0; entry[R] = 0; forget_unused() }
    /* step: Disk.sync. If it fails, the whole generation is purged. Mutation 8: the fsync is omitted */
    :: atomic { at == SyncEntries ->
        if
        :: at = Removed;
            if :: MUTATION != 8 && !syncFailed -> durable[S] = 0; durable[R] = 0; stale = 0; forget_unused() :: else fi
        :: at = Close; syncFailed = 1; lock = 0; removing = 0; command = Purge
        fi }
    :: atomic { at == Removed -> removing = 0; lock = 0; awaited = delivering; at = Receipt }
    :: atomic { at == Receipt && !awaited -> receipt(); command = None; at = Idle }

    /* step: UserCache.lookUpOnDisk */
    :: atomic { isFree(GET) && !removing && !memory[S] && entry[S] -> begin(GET, 0); key[GET] = S }
    :: atomic { isFree(GET) && !removing && !memory[R] && entry[R] -> begin(GET, 0); key[GET] = R }
    /* step: DiskGenerationStore.read */
    :: atomic { step[GET] == 1 -> image[GET] = entry[key[GET]];
        if :: image[GET] -> step[GET] = (key[GET] == R -> 2 : 3) :: else -> finish(GET) fi }
    /* step: UserCache.withCurrentSource */
    :: atomic { step[GET] == 2 ->
        if :: (memory[S] -> memory[S] : !removing * entry[S]) == image[GET] -> step[GET] = 3 :: else -> finish(GET) fi }
    /* step: UserCache.serve, RequestCoordinator.readEnded */
    :: atomic { step[GET] == 3 ->
        if
        :: current[GET] && key[GET] == S -> deliver(image[GET]); replace_source(image[GET])
        :: current[GET] && key[GET] == R -> deliver(image[GET]); decide(image[GET]); keep(R, image[GET])
        :: else
        fi;
        finish(GET) }

    /* step: ImageDownload.start */
    :: atomic { isFree(DOWNLOAD) && mayNumber -> begin_new(DOWNLOAD) }
    /* step: RequestCoordinator.downloadEnded. Mutation 2: a cancelled download ends as usual */
    :: atomic { step[DOWNLOAD] == 1 ->
        if
        :: current[DOWNLOAD] || MUTATION == 2 && phase == Opened ->
            replace_source(image[DOWNLOAD]); storing[S] = image[DOWNLOAD]; deliver_later(DOWNLOAD); step[DOWNLOAD] = 2
        :: else -> finish(DOWNLOAD)
        fi }
    /* step: UserCache.finish */
    :: atomic { step[DOWNLOAD] == 2 -> delivered(DOWNLOAD); finish(DOWNLOAD) }
    /* step: WriteBehind.writeAll, UserCache.imageToStore */
    :: atomic { isFree(WRITE) && storing[S] -> begin(WRITE, storing[S]); key[WRITE] = S }
    :: atomic { isFree(WRITE) && storing[R] -> begin(WRITE, storing[R]); key[WRITE] = R }
    /* Mutation 9: an image that a purge has removed meanwhile is written to a temporary file.
     * step: ImageFiles.prepare, TemporaryFileRegistry.register */
    :: atomic { step[WRITE] == 1 && !lock ->
        if
        :: MUTATION == 9 || phase == Opened && storing[key[WRITE]] == image[WRITE] -> temporary[WRITE] = 1; step[WRITE] = 2
        :: else -> finish(WRITE)
        fi }
    /* step: RequestCoordinator.mayStore, TemporaryFileRegistry.contains, ImageFiles.renameToFinalName. Mutation 3: a
     * write ignores the fence */
    :: atomic { step[WRITE] == 2 && !lock ->
        if
        :: temporary[WRITE] && phase == Opened && storing[key[WRITE]] == image[WRITE] || MUTATION == 3 ->
            place(WRITE); step[WRITE] = 3
        :: else -> finish(WRITE)
        fi }
    /* step: RequestCoordinator.stored */
    :: atomic { step[WRITE] == 3 -> lock = 0; replaced = 0;
        storing[key[WRITE]] = (storing[key[WRITE]] == image[WRITE] -> 0 : storing[key[WRITE]]); finish(WRITE) }
    /* step: UserCache.requestSource, UserCache.render */
    :: atomic { isFree(RENDER) && !memory[R] && (memory[S] || storing[S]) ->
        begin(RENDER, (memory[S] -> memory[S] : storing[S])) }
    /* step: RequestCoordinator.renderEnded */
    :: atomic { step[RENDER] == 1 ->
        if
        :: current[RENDER] ->
            decide(image[RENDER]); deliver(image[RENDER]); keep(R, image[RENDER]); storing[R] = image[RENDER]
        :: else
        fi;
        finish(RENDER) }
    /* step: UserCache.put */
    :: atomic { isFree(PUT) && mayNumber -> begin_new(PUT); oldToPut = known }
    /* step: ImageFiles.prepare, RequestCoordinator.putVerdict. Mutation 10: a cancelled PUT writes a temporary file */
    :: atomic { step[PUT] == 1 && !lock -> if :: current[PUT] || MUTATION == 10 -> temporary[PUT] = 1; step[PUT] = 2
        :: else -> oldToPut = 0; finish(PUT) fi }
    :: atomic { step[PUT] == 2 && !lock ->
        if :: temporary[PUT] && current[PUT] -> place(PUT); step[PUT] = 3 :: else -> oldToPut = 0; finish(PUT) fi }
    /* step: RequestCoordinator.putCommitted. Mutation 5: earlier downloads go on */
    :: atomic { step[PUT] == 3 -> lock = 0; replaced = 0; step[PUT] = 4;
        if
        :: current[PUT] -> replace_source(image[PUT]); if :: current[DOWNLOAD] -> deliver_later(PUT) :: else fi;
            current[DOWNLOAD] = current[DOWNLOAD] && MUTATION == 5; storing[S] = (MUTATION == 5) * storing[S]
        :: else
        fi }
    :: atomic { step[PUT] == 4 -> if :: delivering & bit(PUT) -> delivered(PUT) :: else fi;
        beaten = beaten | oldToPut; oldToPut = 0; forget_unused(); assert(!(inMemory & beaten)); finish(PUT) }

    /* kill -9. Fault 1: a restarted daemon does not know that an fsync has failed */
    :: atomic { CRASHES && (!syncFailed || FAULT == 1) -> stale = stale | halfWritten; crash() }
    /* power loss */
    :: atomic { CRASHES ->
        lose(S); lose(R); if :: halfWritten & ~stale -> stale = stale | halfWritten :: true fi;
        durable[S] = entry[S]; durable[R] = entry[R]; syncFailed = 0; beaten = 0; crash() }
    od
}
