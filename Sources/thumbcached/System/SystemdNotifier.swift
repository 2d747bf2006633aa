import Glibc
import LinuxSupport
import ProgramSupport

/// Sends service states to systemd (sd_notify(3)). Does nothing without NOTIFY_SOCKET.
struct SystemdNotifier: Sendable, Equatable {
    enum Message: Sendable, Equatable {
        case ready
        /// In microseconds of CLOCK_MONOTONIC; ``ready`` follows (Type=notify-reload).
        case reloading(monotonic: UInt64)
        case stopping
        /// A line for `systemctl status`.
        case status(String)
        /// The daemon is alive. Due every ``watchdogInterval``.
        case watchdog
    }

    /// The socket's path; `@` stands for the NUL of an abstract address.
    private let name: String?
    /// Milliseconds between two ``Message/watchdog``: half of systemd's timeout; nil without a watchdog.
    let watchdogInterval: Int64?

    init(environment: [String: String], pid: Int32 = getpid()) {
        name = environment["NOTIFY_SOCKET"].flatMap { $0.isEmpty ? nil : $0 }
        // Without WATCHDOG_PID, any process of the unit is meant (sd_watchdog_enabled(3)).
        let isMeant = environment["WATCHDOG_PID"].map { $0 == "\(pid)" } ?? true
        watchdogInterval = environment["WATCHDOG_USEC"].flatMap { Int64($0) }.flatMap { microseconds in
            isMeant && microseconds > 1 ? microseconds / 2_000 : nil
        }
    }

    /// Sends messages in one datagram.
    /// - Parameter atOnce: throws instead of blocking if systemd's queue is full.
    func send(_ messages: Message..., atOnce: Bool = false) throws {
        let flags = Int32(MSG_NOSIGNAL) | (atOnce ? Int32(MSG_DONTWAIT) : 0)
        guard let name else { return }
        let isAbstract = name.hasPrefix("@")
        guard isAbstract || name.hasPrefix("/"), name.utf8.count > 1 else {
            throw DaemonError("NOTIFY_SOCKET: expected an absolute path or @name, not \(quoted(name))")
        }
        let address = try UnixAddress(name, isAbstract: isAbstract)
        let descriptor = try retryingInterrupts("create a socket to notify systemd") {
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
        // A line break would end the value.
        case .status(let text): "STATUS=" + text.split(whereSeparator: \.isNewline).joined(separator: " ")
        }
    }
}
