import CLinux
import Glibc
import HelperProtocol
import ImageFetcher
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import ProgramSupport
import SocketLoops
import ThumbcacheProtocol

/// The fetcher from its start to its exit.
enum FetcherProgram {
    /// Descriptors for standard streams, the connection, the event loop, and files of certificate authorities.
    private static var fixedDescriptors: Int { 64 }
    /// Descriptors of a token request: its own socket, and one for libcurl's resolver.
    private static var descriptorsPerTokenRequest: Int { 2 }
    /// Descriptors of a download: the same, or before that the sockets of an SRV lookup. Each lookup has a download
    /// that waits for it, so there are no more lookups than downloads.
    private static var descriptorsPerDownload: Int { max(2, CurlImageFetcher.descriptorsPerQuery) }
    /// Milliseconds in which the daemon has to send the settings. It sends them when it connects.
    private static var settingsTimeout: Int64 { 10_000 }

    /// Returns the connection to the daemon: the first one to the socket from systemd, otherwise standard input.
    static func connection() throws -> CInt {
        var connection = STDIN_FILENO
        if let listener = try SocketActivation().descriptor() {
            connection = try retryingInterrupts("accept the daemon's connection") { accept(listener, nil, nil) }
        }
        // Moves the connection to descriptor 3 and closes all others.
        let own = fcntl(connection, F_DUPFD_CLOEXEC, 3)
        guard own >= 0, dup2(own, 3) == 3, fcntl(3, F_SETFD, FD_CLOEXEC) == 0, clinux_close_from(4) == 0 else {
            throw SystemError("move the daemon's connection to descriptor 3")
        }
        let null = try retryingInterrupts("open /dev/null") { open("/dev/null", O_RDONLY) }
        dup2(null, STDIN_FILENO)
        close(null)
        return 3
    }

    /// Serves the daemon until it closes the connection. Never returns.
    static func serve(_ connection: CInt) throws -> Never {
        guard fcntl(connection, F_SETFL, O_NONBLOCK) == 0 else { throw SystemError("fcntl") }
        let settings = try receiveSettings(from: connection)
        let level = NIOLockedValueBox(Logger.Level(rawValue: settings.logLevel) ?? .notice)
        let isJournal = Journal.isConnected(STDERR_FILENO, to: getenv("JOURNAL_STREAM").map { String(cString: $0) })
        let log = Logger(label: "thumbcached-fetcher") { label in
            StructuredLog(label: label, threshold: { level.withLockedValue { $0 } }, isJournal: isJournal)
        }
        let limited = try limitToDescriptors(settings, log)
        try confine(settings, log)

        let fetcher = CurlImageFetcher(settings: limited, log: log)
        try fetcher.start()
        guard let loop = fetcher.loop else { throw SystemError("start the event loop", code: ESHUTDOWN) }
        clinux_release_program_pages()
        try loop.submit {
            let stream = try loop.adopt(connection)
            stream.handler = FetcherService(stream, fetcher: fetcher, loop: loop, log: log) { new in
                level.withLockedValue { $0 = Logger.Level(rawValue: new.logLevel) ?? .notice }
                do {
                    fetcher.update(try limitToDescriptors(new, log))
                } catch {
                    log.error("limits not changed", metadata: ["reason": "\(error)"])
                }
            }
        }.wait()
        exitWhenClosed(connection)
    }

    /// Receives the first message, and no byte of the next. Exits if the daemon has closed the connection.
    private static func receiveSettings(from connection: CInt) throws -> FetcherSettings {
        let socket = MessageSocket(connection)
        guard let (fields, _) = try socket.receive(by: socket.deadline(in: settingsTimeout)) else { _exit(0) }
        guard case .settings(let settings) = try FetcherRequest(fields, origin: { _ in nil }) else {
            throw MessageError("the first message has no settings")
        }
        guard settings.version == Version.current else {
            let versions = "thumbcached has version \(settings.version), thumbcached-fetcher \(Version.current)"
            throw VersionError(description: "\(versions); restart thumbcached")
        }
        return settings
    }

    /// Raises the limit of open files, or else lowers the number of concurrent downloads to fit it.
    private static func limitToDescriptors(_ settings: FetcherSettings, _ log: Logger) throws(SystemError)
        -> FetcherSettings
    {
        func needed(_ downloads: Int) -> Int {
            fixedDescriptors + descriptorsPerDownload * downloads
                + descriptorsPerTokenRequest * CurlImageFetcher.tokenRequestsAtOnce
        }
        let wanted = needed(settings.downloads)
        let allowed = try raiseOpenFileLimit(to: wanted)
        guard allowed < wanted else { return settings }
        var limited = settings
        limited.downloads = max(1, (allowed - needed(0)) / descriptorsPerDownload)
        limited.downloadsPerAccount = min(limited.downloadsPerAccount, limited.downloads)
        log.warning(
            "limit of open files too low; raise LimitNOFILE= in the unit",
            metadata: ["limit": "\(allowed)", "needed": "\(wanted)", "downloads": "\(limited.downloads)"])
        return limited
    }

    /// Gives up all rights that downloads do not need, before the first request.
    private static func confine(_ settings: FetcherSettings, _ log: Logger) throws {
        try leaveRoot()
        try becomeUndumpable()
        if Confinement.isUnsupportedByThisBuild { return }
        // Files for name resolution and certificate authorities. openSUSE has the latter in /var/lib.
        let system = [
            "/var/lib/ca-certificates", "/etc", "/usr", "/lib", "/lib64", "/run/systemd/resolve", "/run/resolvconf",
            "/run/NetworkManager", "/run/nscd", "/dev/null", "/dev/urandom", "/dev/random",
        ]
        let missingFeatures = try Confinement(
            readable: system + readable(settings.authorities, log), writable: [], sockets: .internet
        ).apply()
        for feature in missingFeatures { log.notice("confinement incomplete", metadata: ["reason": "\(feature)"]) }
    }

    /// Filters out unreadable files. Only downloads of the origins that name them fail.
    private static func readable(_ authorities: Set<String>, _ log: Logger) -> [String] {
        authorities.sorted().filter { path in
            if access(path, R_OK) == 0 { return true }
            log.error(
                "an origin's ca-file is not readable for the user thumbcached-fetcher",
                metadata: ["file": "\(path)", "reason": "\(SystemError("access").reason)"])
            return false
        }
    }

    /// Exits when the daemon closes the connection, even while libcurl blocks its thread.
    private static func exitWhenClosed(_ connection: CInt) -> Never {
        while true {
            // Without events, poll(2) returns only when the other end is closed.
            var poll = pollfd(fd: connection, events: 0, revents: 0)
            if Glibc.poll(&poll, 1, -1) > 0 || errno != EINTR { _exit(0) }
        }
    }
}

private struct VersionError: Error, CustomStringConvertible {
    let description: String
}
