import CLinux

/// Which rights a version of Landlock knows: landlock(7), section VERSIONS. All that it knows are refused unless a rule
/// gives them; what came later is of no use to anybody here.
struct LandlockRights {
    /// What is refused with files where no rule allows it.
    let files: UInt64
    /// What is refused of TCP, on every port.
    let tcp: UInt64
    /// What of other processes is out of reach.
    let scopes: UInt64
    /// What the version leaves open, a sentence each.
    let lacks: [String]

    /// - Parameter version: 1 or more.
    init(version: CInt, sockets: Confinement.Sockets) {
        var lacks: [String] = []
        func lack(_ what: String) { lacks.append("The kernel's Landlock is of version \(version): \(what).") }

        var files = CLINUX_LANDLOCK_VERSION_1
        if version >= 2 { files |= CLINUX_LANDLOCK_REFER }
        // Asked for by every open, be it to read: the kernel then looks for the rule on the way up to the root. Without
        // it O_RDONLY with O_TRUNC, which openat2(2) hides from a filter, would empty every file.
        if version >= 3 { files |= CLINUX_LANDLOCK_TRUNCATE } else { lack("any file can be emptied") }
        if version >= 5 { files |= CLINUX_LANDLOCK_IOCTL_DEV } else { lack("open devices can be controlled") }

        // Whoever asks others connects to any port there is. No client binds to one.
        let tcp =
            switch sockets {
            case .unix: CLINUX_LANDLOCK_BIND_TCP | CLINUX_LANDLOCK_CONNECT_TCP
            case .internet: CLINUX_LANDLOCK_BIND_TCP
            }
        if version < 4 { lack("TCP is restricted by socket families alone") }

        // systemd's socket for notifications may be an abstract one: sd_notify(3).
        let scopes =
            switch sockets {
            case .unix: CLINUX_LANDLOCK_SCOPE_SIGNALS
            case .internet: CLINUX_LANDLOCK_SCOPE_SIGNALS | CLINUX_LANDLOCK_SCOPE_ABSTRACT_SOCKETS
            }
        if version < 6 { lack("signals and abstract sockets are restricted by system calls alone") }

        self.files = files
        self.tcp = version >= 4 ? tcp : 0
        self.scopes = version >= 6 ? scopes : 0
        self.lacks = lacks
    }

    /// Whether files can be renamed into another directory at all.
    var allowsRenames: Bool { files & CLINUX_LANDLOCK_REFER != 0 }

    var reading: UInt64 { CLINUX_LANDLOCK_READ_FILE | CLINUX_LANDLOCK_READ_DIR }

    /// All but programs and devices. Links and pipes are among it, since trash may hold them, and is renamed.
    var writing: UInt64 {
        let devices: UInt64 = CLINUX_LANDLOCK_MAKE_CHAR | CLINUX_LANDLOCK_MAKE_BLOCK | CLINUX_LANDLOCK_IOCTL_DEV
        return files & ~(CLINUX_LANDLOCK_EXECUTE | devices)
    }

    /// Of those above, the ones that a rule for something else than a directory may give: the kernel refuses others.
    static var ofPlainFiles: UInt64 {
        CLINUX_LANDLOCK_WRITE_FILE | CLINUX_LANDLOCK_READ_FILE | CLINUX_LANDLOCK_TRUNCATE
    }
}
