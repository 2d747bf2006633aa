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

/// What the program does, from its start to its end.
enum FetcherProgram {
    /// Descriptors beside those of downloads: standard streams, the connection, the event loop's, files of authorities.
    private static var fixedDescriptors: Int { 64 }
    /// Sockets that a token request can take: its own, and what libcurl resolves its host with.
    private static var descriptorsPerTokenRequest: Int { 2 }
    /// The same of a download; but before it has either, a domain may be asked for it: over UDP and TCP, at each name
    /// server. A question has somebody who waits for it, so that there are no more of them than of downloads.
    private static var descriptorsPerDownload: Int { max(2, CurlImageFetcher.descriptorsPerQuestion) }

    // MARK: Being started

    /// The socket that leads to the daemon: the first who connects where systemd listens, else standard input.
    static func connection() throws(SystemError) -> CInt {
        var connection = STDIN_FILENO
        if let passed = getenv("LISTEN_FDS"), getenv("LISTEN_PID").map({ String(cString: $0) }) == "\(getpid())" {
            guard String(cString: passed) == "1" else {
                throw SystemError("take LISTEN_FDS=\(String(cString: passed)) sockets instead of one", code: EINVAL)
            }
            connection = try retryingInterrupts("accept the daemon's connection") { accept(3, nil, nil) }
        }
        // The only one beside the standard streams, under a number of its own.
        let own = fcntl(connection, F_DUPFD_CLOEXEC, 3)
        guard own >= 0, dup2(own, 3) == 3, fcntl(3, F_SETFD, FD_CLOEXEC) == 0, clinux_close_from(4) == 0 else {
            throw SystemError("keep the daemon's connection")
        }
        let null = try retryingInterrupts("open /dev/null") { open("/dev/null", O_RDONLY) }
        dup2(null, STDIN_FILENO)
        close(null)
        return 3
    }

    // MARK: Serving

    /// Downloads what the daemon asks for, until it is gone. Never returns.
    static func serve(_ connection: CInt) throws -> Never {
        let settings = try firstSettings(from: connection)
        let level = NIOLockedValueBox(Logger.Level(rawValue: settings.logLevel) ?? .notice)
        let isJournal = Journal.isBehind(STDERR_FILENO, getenv("JOURNAL_STREAM").map { String(cString: $0) })
        let log = Logger(label: "thumbcached-fetcher") { label in
            StructuredLog(label: label, threshold: { level.withLockedValue { $0 } }, isJournal: isJournal)
        }
        let fitting = try fit(settings, log)
        try confine(settings, log)

        let fetcher = CurlImageFetcher(configuration: FetcherConfiguration(fitting), log: log)
        try fetcher.start()
        guard fcntl(connection, F_SETFL, O_NONBLOCK) == 0 else { throw SystemError("fcntl") }
        guard let loop = fetcher.loop else { throw SystemError("start the event loop", code: ESHUTDOWN) }
        try loop.submit {
            let stream = try loop.adopt(connection)
            stream.handler = FetcherService(stream, fetcher: fetcher, loop: loop) { new in
                level.withLockedValue { $0 = Logger.Level(rawValue: new.logLevel) ?? .notice }
                do {
                    fetcher.update(FetcherConfiguration(try fit(new, log)))
                } catch {
                    log.error("limits are not changed", metadata: ["reason": "\(error)"])
                }
            }
        }.wait()
        waitForEnd(of: connection)
    }

    /// The first message, which says what is needed before anybody is asked.
    private static func firstSettings(from connection: CInt) throws -> FetcherSettings {
        let message = try FirstMessage.read(from: connection)
        guard case .settings(let settings) = try FetcherRequest(message) else {
            throw SystemError("understand the first message, which is no settings", code: EPROTO)
        }
        guard settings.version == Version.current else {
            let versions = "thumbcached is \(settings.version) and this is \(Version.current)"
            throw SystemError("\(versions): restart thumbcached", code: EPROTO)
        }
        return settings
    }

    /// No more downloads at once than there are descriptors for.
    private static func fit(_ settings: FetcherSettings, _ log: Logger) throws(SystemError) -> FetcherSettings {
        func needed(_ downloads: Int) -> Int {
            fixedDescriptors + descriptorsPerDownload * downloads
                + descriptorsPerTokenRequest * CurlImageFetcher.tokenRequestsAtOnce
        }
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { throw SystemError("read the limit of open files") }
        let wanted = rlim_t(needed(settings.downloads))
        if limit.rlim_cur < wanted, limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = min(wanted, limit.rlim_max)
            guard setrlimit(resource, &limit) == 0 else { throw SystemError("raise the limit of open files") }
        }
        let allowed = Int(min(limit.rlim_cur, rlim_t(Int32.max)))
        guard allowed < Int(wanted) else { return settings }
        var fitting = settings
        fitting.downloads = max(1, (allowed - needed(0)) / descriptorsPerDownload)
        fitting.downloadsPerUID = min(fitting.downloadsPerUID, fitting.downloads)
        log.warning(
            "the process may have too few open files; raise LimitNOFILE= in the unit",
            metadata: ["limit": "\(allowed)", "needed": "\(wanted)", "downloads": "\(fitting.downloads)"])
        return fitting
    }

    /// Gives up what downloading does not need, before anybody is asked who could make it want it.
    private static func confine(_ settings: FetcherSettings, _ log: Logger) throws {
        try leaveRoot()
        try becomeUndumpable()
        if Confinement.isInTheWayOfThisBuild { return }
        // Where names of hosts and authorities come from: on openSUSE /etc leads to /var/lib for the latter.
        let system = [
            "/var/lib/ca-certificates", "/etc", "/usr", "/lib", "/lib64", "/run/systemd/resolve", "/run/resolvconf",
            "/run/NetworkManager",
            "/run/nscd", "/dev/null", "/dev/urandom", "/dev/random",
        ]
        let lacks = try Confinement(
            readable: system + readable(settings.authorities, log), writable: [], sockets: .internet
        ).apply()
        for lack in lacks { log.notice("it is confined less than it should be", metadata: ["reason": "\(lack)"]) }
    }

    /// Those that it can get at; without its authorities an origin's downloads fail, and others' do not.
    private static func readable(_ authorities: Set<String>, _ log: Logger) -> [String] {
        authorities.sorted().filter { path in
            if access(path, R_OK) == 0 { return true }
            log.error(
                "an origin's ca-file cannot be read by the user that downloads",
                metadata: ["file": "\(path)", "reason": "\(SystemError("access").reason)"])
            return false
        }
    }

    /// Ends the process when the daemon is gone, whatever libcurl is at.
    private static func waitForEnd(of connection: CInt) -> Never {
        while true {
            // Nothing is waited for but that the other end is closed.
            var poll = pollfd(fd: connection, events: 0, revents: 0)
            if Glibc.poll(&poll, 1, -1) > 0 || errno != EINTR { _exit(0) }
        }
    }
}

extension FetcherConfiguration {
    init(_ settings: FetcherSettings) {
        self.init(userAgent: "thumbcached/\(settings.version)")
        (maximumImageBytes, maximumDimension) = (settings.maximumImageBytes, settings.maximumDimension)
        (downloads, downloadsPerUID) = (settings.downloads, settings.downloadsPerUID)
        queuePerUID = settings.queuePerUID
        maximumTokenBytes = settings.maximumTokenBytes
        origins = settings.origins
    }
}
