import Glibc
import LinuxSupport
import ProgramSupport

/// Tells systemd how the daemon is doing: sd_notify(3), by hand, since the protocol is one datagram.
///
/// A value made from the environment. Without NOTIFY_SOCKET, as when a person starts the daemon, it does nothing.
struct SystemdNotifier: Sendable, Equatable {
    enum Message: Sendable, Equatable {
        case ready
        /// Followed by ``ready`` when it is done. When it began, by CLOCK_MONOTONIC, in microseconds: so systemd knows
        /// which READY=1 belongs to it (Type=notify-reload).
        case reloading(monotonic: UInt64)
        case stopping
        /// A line for `systemctl status`.
        case status(String)
        /// The daemon is alive. Due every ``watchdogInterval``.
        case watchdog
    }

    /// Where to send; nil for nowhere. An `@` stands for the NUL that an abstract address begins with.
    private let name: String?
    /// Milliseconds in which ``Message/watchdog`` is due: half of what systemd waits. Nil where nobody waits for it.
    let watchdogInterval: Int64?

    init(environment: [String: String], pid: Int32 = getpid()) {
        name = environment["NOTIFY_SOCKET"].flatMap { $0.isEmpty ? nil : $0 }
        // Set without a pid, it means any process of the unit: sd_watchdog_enabled(3).
        let isMeant = environment["WATCHDOG_PID"].map { $0 == "\(pid)" } ?? true
        watchdogInterval = environment["WATCHDOG_USEC"].flatMap { Int64($0) }.flatMap { microseconds in
            isMeant && microseconds > 1 ? microseconds / 2_000 : nil
        }
    }

    /// Sends messages in one datagram.
    /// - Parameter atOnce: where systemd's queue is full, it throws instead of blocking.
    /// - Throws: When the environment names no usable socket, or nobody takes what is sent there.
    func send(_ messages: Message..., atOnce: Bool = false) throws(SystemError) {
        let flags = Int32(MSG_NOSIGNAL) | (atOnce ? Int32(MSG_DONTWAIT) : 0)
        guard let name else { return }
        let isAbstract = name.hasPrefix("@")
        guard isAbstract || name.hasPrefix("/"), name.utf8.count > 1 else {
            throw SystemError("understand NOTIFY_SOCKET=\(quoted(name))", code: EINVAL)
        }
        let address = try UnixAddress(name, isAbstract: isAbstract)
        let descriptor = try retryingInterrupts("make a socket to notify systemd") {
            socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        }
        defer { close(descriptor) }
        let text = Array(messages.map(\.text).joined(separator: "\n").utf8)
        _ = try retryingInterrupts("notify systemd at \(quoted(name))") {
            address.withSocketAddress { sendto(descriptor, text, text.count, flags, $0, $1) }
        }
    }
}

extension SystemdNotifier.Message {
    fileprivate var text: String {
        switch self {
        case .ready: "READY=1"
        case .reloading(let monotonic): "RELOADING=1\nMONOTONIC_USEC=\(monotonic)"
        case .stopping: "STOPPING=1"
        case .watchdog: "WATCHDOG=1"
        // A line break would end the value, and what follows be read as another.
        case .status(let text): "STATUS=" + text.split(whereSeparator: \.isNewline).joined(separator: " ")
        }
    }
}
