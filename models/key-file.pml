/* The key file of one user, which is the login: LOGIN, LOGOUT, PURGE and PURGE of a profile on disk. README.md explains
 * how to read the models. The daemon may crash after any step, and any fsync may fail, any number of times. */

#define bit(n) (1 << (n))
#define CACHE 0      /* the file system as programs see it; DISK: what a power loss leaves of it */
#define DISK 1

mtype = { Unknown, LoggedOut, Opened, BrokenPurge, BrokenLogout }   /* UserState.Phase */
mtype = { None, Login, Undo, Damaged, Logout, Purge, Profile, Sweep }
mtype = { Idle, Durable, Left, LeftGone, New, Swap, Sync, Old, EndName, EndTemporary, EndSync, Overwrite, Unlink,
          Resync, Done, Fail }

/* The daemon: the user's phase, the command in progress, its next steps. */
mtype phase = LoggedOut, command = None, at = Idle, next = Idle, then = Idle;
bit isTemporary, isBad, isChanged, isDurable, syncFailed, incomplete, swept;
byte generation, i;

/* The directory: the key file and the temporary name beside it, as numbers of generations; the files that have been
 * overwritten. fsync writes the directory only if it is dirty. */
byte name[2], temporary[2], overwritten[2];
bit isDirty;

/* What clients know: generations that were open, those that have ended; whether the last receipt was of LOGIN or of
 * LOGOUT. */
byte opened, ended;
bit loggedIn, loggedOut;

#define keyIn(file, where) (bit(file[where]) & ~overwritten[where] & ~1)

/* I2, I3, I4: no generation is opened that has ended. */
inline open() {
    assert(!loggedOut && !(ended & bit(name[CACHE])));
    generation = name[CACHE]; opened = opened | bit(generation); phase = Opened
}

/* I2, I3: no key file opens a generation that has ended. I4: also not after a power loss. */
inline receipt() {
    ended = opened & (phase == Opened -> ~bit(generation) : 255);
    assert(!((keyIn(name, CACHE) | keyIn(name, DISK)) & ended) && (phase != Opened || name[DISK] == generation));
    /* Fault 2: the receipt for a profile, or for a user who is logged out, leaves a temporary key file of an earlier
     * run to the sweep after a start.
     * Fault 3: the receipt for a user who is logged out does not repeat an fsync that has failed. */
    assert(next == Done && (FAULT != 2 && !swept || FAULT != 3 && syncFailed) ||
        !((keyIn(temporary, CACHE) | keyIn(temporary, DISK)) & ended));
    loggedOut = loggedOut || command == Logout
}

/* Numbers of generations that no file has are given again. */
inline forget_unused() {
    d_step {
        i = bit(name[CACHE]) | bit(name[DISK]) | bit(temporary[CACHE]) | bit(temporary[DISK]) | bit(generation);
        overwritten[CACHE] = overwritten[CACHE] & i; overwritten[DISK] = overwritten[DISK] & i;
        opened = opened & i; ended = ended & i; i = 0
    }
}

/* A change of the directory. The kernel may write it back at once. */
inline changed() {
    isDirty = 1; if :: name[DISK] = name[CACHE]; temporary[DISK] = temporary[CACHE] :: true fi;
    forget_unused()
}

/* After a failed fsync the kernel takes the directory for written. Mutation 2: the fsync is repeated alone.
 * step: Disk.sync */
inline sync(step) {
    isDirty = isDirty || syncFailed && MUTATION != 2;
    if
    :: true -> syncFailed = 0; at = step;
        if
        :: isDirty -> isDirty = 0; name[DISK] = name[CACHE]; temporary[DISK] = temporary[CACHE];
            overwritten[DISK] = overwritten[CACHE]; forget_unused()
        :: else
        fi
    :: isDirty = 0; syncFailed = 1; at = Fail
    fi
}

/* Mutation 4: a key file is unlinked, but not overwritten. */
#define destroy(which, step) isTemporary = which; then = step; at = (MUTATION == 4 -> Unlink : Overwrite)

inline crash() {
    d_step {
        phase = Unknown; command = None; at = Idle; next = Idle; then = Idle; generation = 0;
        isTemporary = 0; isBad = 0; isChanged = 0; isDurable = 0; syncFailed = 0; incomplete = 0; swept = 0
    }
    forget_unused()
}

active proctype world() {
    do
    /* Commands, one at a time (UserEntry.lock, LoginFiles.locks) */
    /* step: LoginFiles.load */
    :: atomic { at == Idle && phase == Unknown ->
        if
        :: incomplete -> command = Undo; next = EndName; at = Durable
        :: !incomplete && !name[CACHE] -> assert(!loggedIn); phase = LoggedOut
        :: !incomplete && name[CACHE] && !keyIn(name, CACHE) ->
            assert(!loggedIn); command = Damaged; next = EndName; at = Durable
        :: !incomplete && keyIn(name, CACHE) -> open()
        fi }
    /* step: UserSessions.logIn, DiskStore.commitLogin */
    :: atomic { at == Idle && phase == LoggedOut -> command = Login; loggedOut = 0; next = Left; at = Durable }
    /* step: InvalidationService.logOut, DiskStore.commitLogout */
    :: atomic { at == Idle && phase != Unknown -> command = Logout; loggedIn = 0;
        next = (phase == LoggedOut -> Done : EndName); at = Durable }
    /* step: InvalidationService.purge, InvalidationService.retryNow, DiskStore.commitPurge */
    :: atomic { at == Idle && phase != Unknown -> command = (phase == BrokenLogout -> Logout : Purge);
        next = (phase == LoggedOut -> Done : (phase == BrokenLogout -> EndName : Left)); at = Durable }
    /* Mutation 6: the purge of a profile leaves the key file as an earlier run did.
     * step: InvalidationService.remove */
    :: atomic { at == Idle && phase == Opened ->
        command = Profile; next = Done; at = (MUTATION == 6 -> Done : Durable) }
    /* step: LoginFiles.sweep */
    :: atomic { at == Idle && !swept -> if :: temporary[CACHE] -> command = Sweep; at = Left :: else -> swept = 1 fi }

    /* step: LoginFiles.makeDurable */
    :: atomic { at == Durable -> if :: isDurable -> at = next :: else -> sync(next); isDurable = at == next fi }
    /* Mutation 5: a leftover is destroyed before the current key file is durable.
     * step: LoginFiles.destroyLeftover */
    :: atomic { at == Left ->
        if
        :: !temporary[CACHE] -> at = New
        :: temporary[CACHE] && MUTATION == 5 -> at = LeftGone
        :: temporary[CACHE] && MUTATION != 5 -> sync(LeftGone)
        fi }
    :: atomic { at == LeftGone -> destroy(1, (command == Sweep -> Done : New)) }
    /* step: LoginFiles.renew, Disk.create */
    :: atomic { at == New ->
        forget_unused(); i = 1;
        do
        :: i == name[CACHE] || i == name[DISK] || i == temporary[DISK] || i == generation -> i++
        :: else -> break
        od;
        temporary[CACHE] = i; changed(); at = Swap }
    /* Mutation 1: the receipt comes before the new key file is durable.
     * step: LoginFiles.swap */
    :: atomic { at == Swap -> i = name[CACHE]; name[CACHE] = temporary[CACHE]; temporary[CACHE] = i; changed();
        at = (MUTATION == 1 -> Old : Sync) }
    /* step: LoginFiles.write */
    :: atomic { at == Sync -> sync(Old) }
    /* Mutation 3: the old key file is not destroyed.
     * step: LoginFiles.destroyDurably */
    :: atomic { at == Old -> if :: temporary[CACHE] && MUTATION != 3 -> destroy(1, Done) :: else -> at = Done fi }

    /* step: LoginFiles.end */
    :: atomic { at == EndName -> isChanged = syncFailed || name[CACHE] || temporary[CACHE];
        if :: name[CACHE] -> destroy(0, EndTemporary) :: else -> at = EndTemporary fi }
    :: atomic { at == EndTemporary -> if :: temporary[CACHE] -> destroy(1, EndSync) :: else -> at = EndSync fi }
    :: atomic { at == EndSync ->
        if :: isChanged -> isChanged = 0; sync(Done) :: else -> at = Done fi;
        if :: isBad -> isBad = 0; at = Fail :: else fi }

    /* step: Disk.overwrite */
    :: atomic { at == Overwrite -> i = bit(isTemporary -> temporary[CACHE] : name[CACHE]); at = Unlink;
        overwritten[CACHE] = overwritten[CACHE] | i;
        if :: overwritten[DISK] = overwritten[DISK] | i :: isBad = 1 fi;
        i = 0 }
    /* A file that cannot be overwritten is unlinked durably, but the command fails.
     * step: Disk.destroy */
    :: atomic { at == Unlink -> if :: isTemporary -> temporary[CACHE] = 0 :: else -> name[CACHE] = 0 fi;
        at = (isBad && next != EndName -> Resync : then); isTemporary = 0; then = Idle; changed() }
    :: atomic { at == Resync -> isBad = 0; sync(Fail); at = Fail }

    /* step: InvalidationService.commit, UserSessions.begin */
    :: atomic { at == Done -> at = Idle;
        if
        :: command == Login -> open(); loggedIn = 1
        :: command == Undo -> ended = 255; incomplete = 0; generation = 0; phase = Unknown
        :: command == Damaged -> generation = 0; phase = LoggedOut
        :: command == Purge -> if :: phase != LoggedOut -> open() :: else fi; receipt()
        :: command == Profile -> receipt()
        :: command == Logout -> phase = LoggedOut; receipt(); generation = 0
        :: command == Sweep -> swept = 1
        fi;
        command = None; next = Idle; forget_unused() }
    /* step: UserState.failed, UserState.loginFailed */
    :: atomic { at == Fail -> at = Idle; next = Idle;
        if
        :: command == Login -> command = Undo; next = EndName; at = Durable
        :: command == Undo -> incomplete = 1; phase = Unknown; command = None
        :: command == Profile -> command = Purge; next = Left; at = Durable
        :: command == Purge && phase != LoggedOut -> phase = BrokenPurge; command = None
        :: command == Logout && phase != LoggedOut -> phase = BrokenLogout; command = None
        :: else -> command = None
        fi }

    /* kill -9. Fault 1: a restarted daemon does not know that an fsync has failed. */
    :: atomic { FAULT == 1 || !syncFailed && overwritten[CACHE] == overwritten[DISK] -> crash() }
    /* power loss */
    :: atomic { true ->
        name[CACHE] = name[DISK]; temporary[CACHE] = temporary[DISK]; overwritten[CACHE] = overwritten[DISK];
        isDirty = 0; crash() }
    od
}
