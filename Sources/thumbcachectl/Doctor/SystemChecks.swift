import Glibc
import LinuxSupport

/// The properties of units, parsed from `systemctl show`.
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

    static func query(_ names: [String], _ daemon: InstalledDaemon) throws(SystemError) -> UnitStates {
        var lines: [String] = []
        for name in names {
            let shown = try daemon.run("systemctl", ["show", "--no-pager", "--property=\(properties)", name])
            guard shown.status == 0 else { throw SystemError("query systemd", code: EACCES) }
            lines += ["Id=\(name)"] + shown.lines
        }
        return UnitStates(lines)
    }
}

extension InstalledDaemon {
    /// sd_booted(3).
    var hasSystemd: Bool { access("/run/systemd/system", F_OK) == 0 }

    fileprivate var withoutUnits: Diagnostic? {
        if !isSystemDaemon {
            return .ok("not applicable: \(socket) is not the socket of the system's daemon")
        }
        return hasSystemd ? nil : .note("systemd is not running")
    }
}

struct UnitsCheck: DoctorCheck {
    let name = "units"
    private static let enabled = [
        "thumbcached.socket", "thumbcached-fetcher.socket", "thumbcached-renderer.socket", "thumbcached.path",
    ]
    private static let services = [
        "thumbcached.service", "thumbcached-fetcher.service", "thumbcached-renderer.service",
    ]

    /// Units of the separate renderer package.
    private static let optional = ["thumbcached-renderer.socket", "thumbcached-renderer.service"]

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        if let diagnostic = daemon.withoutUnits { return [diagnostic] }
        do throws(SystemError) {
            return Self.diagnostics(try UnitStates.query(Self.enabled + Self.services, daemon))
        } catch {
            return [.unknown("cannot query systemd: \(error.reason)")]
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
                    diagnostics.append(.note("\(unit) is not installed: images are not resized"))
                }
            case "not-found":
                diagnostics.append(.wrong("\(unit) is not installed", "reinstall the package, or run make install"))
            default: diagnostics.append(.wrong("\(unit) is not loaded", "systemctl status \(unit)"))
            }
            guard states[unit, "LoadState"] == "loaded" else { continue }
            let active = states[unit, "ActiveState"]
            if active == "failed" {
                diagnostics.append(
                    .wrong("\(unit) has failed (\(states[unit, "Result"]))", "see journalctl -u \(unit) -e"))
            } else if enabled.contains(unit), active != "active" {
                diagnostics.append(.wrong("\(unit) is not active", "systemctl start \(unit)"))
            }
            if enabled.contains(unit), !["enabled", "enabled-runtime"].contains(states[unit, "UnitFileState"]) {
                diagnostics.append(
                    .wrong("\(unit) is not enabled: it will not start at boot", "systemctl enable \(unit)"))
            }
            if let restarts = Int(states[unit, "NRestarts"]), restarts > 0 {
                diagnostics.append(
                    .note("\(unit) was restarted \(restarts) times", "see journalctl -u \(unit)"))
            }
        }
        return diagnostics.isEmpty
            ? [.ok("the socket and path units are active and enabled, and no service has failed")] : diagnostics
    }
}

/// Checks that the logout hook is active for each user that is logged in on the machine.
struct HookCheck: DoctorCheck {
    let name = "hook"

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        if !daemon.isSystemDaemon {
            return [.ok("not needed: caches of a user's own daemon end with LOGOUT or with the daemon")]
        }
        if !daemon.hasSystemd { return [Self.pam()] }
        do throws(SystemError) {
            let listed = try daemon.run("loginctl", ["list-users", "--no-legend", "--no-pager"])
            guard listed.status == 0 else { return [.unknown("loginctl failed to list the users")] }
            let uids = listed.lines.compactMap { $0.split(separator: " ").first.flatMap { UInt32($0) } }
            let units = uids.map { "thumbcached-logout@\($0).service" }
            guard !units.isEmpty else { return [.ok("no user is logged in on this machine")] }
            return Self.diagnostics(units, try UnitStates.query(units, daemon))
        } catch {
            return [.unknown("cannot query systemd: \(error.reason)")]
        }
    }

    static func diagnostics(_ units: [String], _ states: UnitStates) -> [Diagnostic] {
        let diagnostics = units.compactMap { unit -> Diagnostic? in
            switch states[unit, "ActiveState"] {
            case "active": nil
            case "failed": .wrong("\(unit) has failed: a logout is pending", "see journalctl -u \(unit)")
            default:
                .wrong("\(unit) is not active: the user's logout will not end the cache", "systemctl start \(unit)")
            }
        }
        return diagnostics.isEmpty ? [.ok("the hook is active for all \(units.count) users")] : diagnostics
    }

    private static func pam() -> Diagnostic {
        let files = ["common-session", "login", "sshd", "system-auth", "su"].map { "/etc/pam.d/\($0)" }
        for file in files {
            do throws(PlainFileError) {
                let lines = try readTextFile(file, limit: 1 << 16).split(whereSeparator: \.isNewline)
                let isThere = lines.contains { !$0.hasPrefix("#") && $0.contains("thumbcached/pam-session") }
                if isThere { return .ok("\(file) runs the hook pam-session") }
            } catch {
                continue
            }
        }
        return .wrong(
            "no logout hook: systemd is not running, and no file in /etc/pam.d names pam-session",
            "see \"Make logout work\" in docs/operations.md")
    }
}

/// Lists lingering users, whose caches outlive their sessions.
struct LingerCheck: DoctorCheck {
    let name = "linger"
    private static let directory = "/var/lib/systemd/linger"

    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic] {
        if let diagnostic = daemon.withoutUnits { return [diagnostic] }
        guard let directory = opendir(Self.directory) else {
            return errno == ENOENT
                ? [.ok("no user lingers")] : [.unknown("\(Self.directory): \(SystemError("opendir").reason)")]
        }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if !name.hasPrefix(".") { names.append(name) }
        }
        guard !names.isEmpty else { return [.ok("no user lingers")] }
        return names.sorted().map { name in
            .note("\(name) lingers: the cache remains after the last session ends", "loginctl disable-linger \(name)")
        }
    }
}
