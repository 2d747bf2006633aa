import CCurl
import Fleet
import Glibc
import LinuxSupport
import Logging
import NIOCore
import NIOPosix
import NIOSSL

/// Composition root. Serves until a signal terminates the process, without a response to requests in flight.
struct Serve: Sendable {
    let configuration: OIDCConfiguration
    let log: Logger

    func run() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let service = try await service(group)
        if service == nil { log.warning("no identity provider configured; rejecting all logouts") }
        let endpoint = LogoutEndpoint(
            service, limits: configuration.limits, log: log, now: Self.milliseconds)
        let server = LogoutServer(
            address: configuration.listen, limits: configuration.limits, answerTime: answerTime, tls: try tls(),
            endpoint: endpoint, group: group, log: Self.quiet(log))
        try await server.run { [log, configuration] channel in
            var address = configuration.listen
            switch address {
            case .tcp(let host, _): address = .tcp(host: host, port: channel.localAddress?.port ?? 0)
            case .unix(let path):
                // Lets the file's group connect; until here the mode is 0600, by the umask.
                guard chmod(path, 0o660) == 0 else {
                    log.error(
                        "cannot set the socket's mode", metadata: ["reason": "\(SystemError("chmod").reason)"])
                    return
                }
            }
            log.notice(
                "serving", metadata: ["address": "\(address)", "tls": "\(!configuration.certificate.isEmpty)"])
        }
    }

    private func service(_ group: any EventLoopGroup) async throws -> LogoutService? {
        guard configuration.hasProvider, let user = configuration.user else { return nil }
        let code = ccurl_global_init()
        guard code == CURLE_OK else { throw KeyFailure("libcurl: \(String(cString: curl_easy_strerror(code)))") }
        let keys = KeyStore(
            HTTPSKeyDownload(
                url: configuration.jwks, authorities: configuration.authorities, limit: configuration.keyTimeout),
            algorithms: configuration.rules.algorithms, times: configuration.keyTimes, log: log,
            now: Self.milliseconds)
        // Download at start, so that errors appear in the log before the first logout.
        await keys.refresh()
        let connector = try RedisConnector(configuration.redis, name: "thumbcached-oidc", loop: group.next())
        return LogoutService(
            TokenVerifier(rules: configuration.rules, keys: keys), user: user, session: configuration.session,
            memory: ReplayMemory(limit: configuration.remembered),
            publisher: StreamPublisher(connector: connector, settings: configuration.stream), log: log,
            now: { Double(nanoseconds(of: CLOCK_REALTIME)) / 1e9 })
    }

    private func tls() throws -> TLSConfiguration? {
        guard !configuration.certificate.isEmpty else { return nil }
        var tls = TLSConfiguration.makeServerConfiguration(
            certificateChain: try NIOSSLCertificate.fromPEMFile(configuration.certificate).map { .certificate($0) },
            privateKey: .privateKey(try NIOSSLPrivateKey(file: configuration.key, format: .pem)))
        tls.minimumTLSVersion = .tlsv12
        return tls
    }

    /// The sum of all timeouts in a response: two key downloads, the sentinels, the server and its replicas.
    private var answerTime: TimeAmount {
        let servers = Int64(1 + 2 * configuration.redis.sentinels.count)
        return .milliseconds(
            5_000 + 2 * configuration.keyTimeout + 6 * servers * configuration.redis.timeout
                + configuration.stream.wait)
    }

    /// Milliseconds of CLOCK_BOOTTIME, which includes suspend.
    private static let milliseconds: @Sendable () -> Int64 = { nanoseconds(of: CLOCK_BOOTTIME) / 1_000_000 }

    /// Suppresses the server's informational messages, which repeat ours.
    private static func quiet(_ log: Logger) -> Logger {
        var log = log
        log.logLevel = .warning
        return log
    }
}
