import Glibc
import LinuxSupport

/// What systemd says of units: `systemctl show`, whose blocks have a line for each property.
struct UnitStates {
    private var units: [String: [String: String]] = [:]

    static let properties = "LoadState,ActiveState,UnitFileState,Result,NRestarts"

    init(_ lines: [String]) {
        var unit = ""
        for line in lines {
            guard let equals = line.firstIndex(of: "=") else { continue }
            let (key, value) = (String(line[..<equals]), String(line[line.index(after: equals)...]))
            if key == "Id" { unit = value }
            units[unit, default: [:]][key] = value
        }
    }

    subscript(unit: String, property: String) -> String { units[unit]?[property] ?? "" }

    static func ask(_ names: [String], _ daemon: InstalledDaemon) throws(SystemError) -> UnitStates {
        var lines: [String] = []
        for name in names {
            let shown = try daemon.run("systemctl", ["show", "--no-pager", "--property=\(properties)", name])
            guard shown.status == 0 else { throw SystemError("ask systemd", code: EACCES) }
            lines += ["Id=\(name)"] + shown.lines
        }
        return UnitStates(lines)
    }
}

extension InstalledDaemon {
    /// sd_booted(3).
    var hasSystemd: Bool { access("/run/systemd/system", F_OK) == 0 }

    fileprivate var withoutUnits: Diagnostic? {
        if !isMachines {
            return .ok("nothing to look at: it is about the daemon of the whole machine, and this one is at \(socket)")
        }
        return hasSystemd ? nil : .note("systemd does not run here")
    }
}

/// The units of the package.
struct UnitsCheck: DoctorCheck {
    let name = "units"
    private static let enabled = [
        "thumbcached.socket", "thumbcached-fetcher.socket", "thumbcached-renderer.socket", "thumbcached.path",
    ]
    private static let services = [
        "thumbcached.service", "thumbcached-fetcher.service", "thumbcached-renderer.service",
    ]

    /// Of a package of its own.
    private static let optional = ["thumbcached-renderer.socket", "thumbcached-renderer.service"]

    func look(at daemon: InstalledDaemon) async -> [Diagnostic] {
        if let diagnostic = daemon.withoutUnits { return [diagnostic] }
        do throws(SystemError) {
            return Self.diagnostics(try UnitStates.ask(Self.enabled + Self.services, daemon))
        } catch {
            return [.unknown("systemd could not be asked: \(error.reason)")]
        }
    }

    static func diagnostics(_ states: UnitStates) -> [Diagnostic] {
        var diagnostics: [Diagnostic] = []
        for unit in enabled + services {
            switch states[unit, "LoadState"] {
            case "loaded": break
            case "masked": diagnostics.append(.wrong("\(unit) is masked", "systemctl unmask \(unit)"))
            case "not-found" where optional.contains(unit):
                if enabled.contains(unit) {
                    diagnostics.append(.note("\(unit) is not installed: no pictures of other sizes are made"))
                }
            case "not-found": diagnostics.append(.wrong("\(unit) is not installed", "make install, or apt install"))
            default: diagnostics.append(.wrong("\(unit) is not loaded", "systemctl status \(unit)"))
            }
            guard states[unit, "LoadState"] == "loaded" else { continue }
            let active = states[unit, "ActiveState"]
            if active == "failed" {
                diagnostics.append(
                    .wrong("\(unit) has failed (\(states[unit, "Result"]))", "journalctl -u \(unit) -e says why"))
            } else if enabled.contains(unit), active != "active" {
                diagnostics.append(.wrong("\(unit) is not active", "systemctl start \(unit)"))
            }
            if enabled.contains(unit), !["enabled", "enabled-runtime"].contains(states[unit, "UnitFileState"]) {
                diagnostics.append(
                    .wrong("\(unit) is not enabled: a boot would not start it", "systemctl enable \(unit)"))
            }
            if let restarts = Int(states[unit, "NRestarts"]), restarts > 0 {
                diagnostics.append(
                    .note("\(unit) was started anew \(restarts) times", "journalctl -u \(unit) says why"))
            }
        }
        return diagnostics.isEmpty
            ? [.ok("sockets and path are active and enabled, no service has failed")] : diagnostics
    }
}

/// What ends the caches of those who are logged in on the machine.
struct HookCheck: DoctorCheck {
    let name = "hook"

    func look(at daemon: InstalledDaemon) async -> [Diagnostic] {
        if !daemon.isMachines { return [.ok("caches of a daemon of one's own end with LOGOUT, or with the daemon")] }
        if !daemon.hasSystemd { return [Self.pam()] }
        do throws(SystemError) {
            let listed = try daemon.run("loginctl", ["list-users", "--no-legend", "--no-pager"])
            guard listed.status == 0 else { return [.unknown("loginctl could not say who is logged in")] }
            let uids = listed.lines.compactMap { $0.split(separator: " ").first.flatMap { UInt32($0) } }
            let units = uids.map { "thumbcached-logout@\($0).service" }
            guard !units.isEmpty else { return [.ok("nobody is logged in on this machine")] }
            return Self.diagnostics(units, try UnitStates.ask(units, daemon))
        } catch {
            return [.unknown("systemd could not be asked: \(error.reason)")]
        }
    }

    static func diagnostics(_ units: [String], _ states: UnitStates) -> [Diagnostic] {
        let diagnostics = units.compactMap { unit -> Diagnostic? in
            switch states[unit, "ActiveState"] {
            case "active": nil
            case "failed": .wrong("\(unit) has failed: a log-out waits for the daemon", "journalctl -u \(unit)")
            default: .wrong("\(unit) is not active: that log-out would end no cache", "systemctl start \(unit)")
            }
        }
        return diagnostics.isEmpty ? [.ok("the log-outs of \(units.count) users end their caches")] : diagnostics
    }

    private static func pam() -> Diagnostic {
        let files = ["common-session", "login", "sshd", "system-auth", "su"].map { "/etc/pam.d/\($0)" }
        for file in files {
            do throws(PlainFileError) {
                let lines = try readTextFile(file, limit: 1 << 16).split(whereSeparator: \.isNewline)
                let isThere = lines.contains { !$0.hasPrefix("#") && $0.contains("thumbcached/pam-session") }
                if isThere { return .ok("\(file) has pam-session end the caches") }
            } catch {
                continue
            }
        }
        return .wrong(
            "nothing ends caches when users log out: systemd does not run here, and no file in /etc/pam.d names "
                + "pam-session", "see \"Log-out in every environment\" in docs/operations.md")
    }
}

/// Those whose caches outlive their sessions.
struct LingerCheck: DoctorCheck {
    let name = "linger"
    private static let directory = "/var/lib/systemd/linger"

    func look(at daemon: InstalledDaemon) async -> [Diagnostic] {
        if let diagnostic = daemon.withoutUnits { return [diagnostic] }
        guard let directory = opendir(Self.directory) else {
            return errno == ENOENT
                ? [.ok("nobody lingers")] : [.unknown("\(Self.directory): \(SystemError("opendir").reason)")]
        }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if !name.hasPrefix(".") { names.append(name) }
        }
        guard !names.isEmpty else { return [.ok("nobody lingers")] }
        return names.sorted().map { name in
            .note("\(name) lingers: the cache lives on without a session", "loginctl disable-linger \(name)")
        }
    }
}
