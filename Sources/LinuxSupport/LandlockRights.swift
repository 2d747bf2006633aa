import CLinux

/// The rights that a version of Landlock supports: landlock(7), section VERSIONS. All are restricted, so that only
/// rules grant them; rights of later versions are not needed.
struct LandlockRights {
    /// File rights that need a rule.
    let files: UInt64
    /// TCP rights, denied on every port.
    let tcp: UInt64
    /// Access to other processes that is denied.
    let scopes: UInt64
    /// A sentence for each restriction that the version lacks.
    let missingFeatures: [String]

    init(version: CInt, sockets: Confinement.Sockets) {
        var missing: [String] = []
        func add(_ feature: String) { missing.append("Landlock version \(version): \(feature).") }

        var files = CLINUX_LANDLOCK_VERSION_1
        if version >= 2 { files |= CLINUX_LANDLOCK_REFER }
        // Otherwise O_RDONLY with O_TRUNC, which openat2(2) hides from a seccomp filter, would truncate any file. The
        // kernel checks this right at every open.
        if version >= 3 { files |= CLINUX_LANDLOCK_TRUNCATE } else { add("any file can be truncated") }
        if version >= 5 { files |= CLINUX_LANDLOCK_IOCTL_DEV } else { add("ioctl on open devices is not restricted") }

        // Programs with network access may connect to any port; none binds to one.
        let tcp =
            switch sockets {
            case .unix: CLINUX_LANDLOCK_BIND_TCP | CLINUX_LANDLOCK_CONNECT_TCP
            case .internet: CLINUX_LANDLOCK_BIND_TCP
            }
        if version < 4 { add("only socket families restrict TCP") }

        // systemd's notification socket may be an abstract one (sd_notify(3)).
        let scopes =
            switch sockets {
            case .unix: CLINUX_LANDLOCK_SCOPE_SIGNALS
            case .internet: CLINUX_LANDLOCK_SCOPE_SIGNALS | CLINUX_LANDLOCK_SCOPE_ABSTRACT_SOCKETS
            }
        if version < 6 { add("only system calls restrict signals and abstract sockets") }

        self.files = files
        self.tcp = version >= 4 ? tcp : 0
        self.scopes = version >= 6 ? scopes : 0
        missingFeatures = missing
    }

    /// Whether files can be renamed into another directory.
    var allowsRenames: Bool { files & CLINUX_LANDLOCK_REFER != 0 }

    var reading: UInt64 { CLINUX_LANDLOCK_READ_FILE | CLINUX_LANDLOCK_READ_DIR }

    /// All rights except executing and devices. Links and FIFOs are included, because trash may contain and rename
    /// them.
    var writing: UInt64 {
        let devices: UInt64 = CLINUX_LANDLOCK_MAKE_CHAR | CLINUX_LANDLOCK_MAKE_BLOCK | CLINUX_LANDLOCK_IOCTL_DEV
        return files & ~(CLINUX_LANDLOCK_EXECUTE | devices)
    }

    /// The rights that a rule for a plain file may grant; the kernel rejects others.
    static var ofPlainFiles: UInt64 {
        CLINUX_LANDLOCK_WRITE_FILE | CLINUX_LANDLOCK_READ_FILE | CLINUX_LANDLOCK_TRUNCATE
    }
}
