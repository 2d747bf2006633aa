import LinuxSupport
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// Connects to the configured server, or to the master that Sentinel reports.
package struct RedisConnector: Sendable {
    package let settings: RedisSettings
    /// The client name that the server shows.
    private let name: String
    private let loop: any EventLoop
    private let context: NIOSSLContext?

    /// Reads the certificate files.
    package init(_ settings: RedisSettings, name: String, loop: any EventLoop) throws {
        (self.settings, self.name, self.loop) = (settings, name, loop)
        context = settings.tls.isOn ? try NIOSSLContext(configuration: Self.configuration(settings.tls)) : nil
    }

    private static func configuration(_ tls: RedisSettings.TLS) throws -> TLSConfiguration {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.minimumTLSVersion = .tlsv12
        if !tls.authorities.isEmpty { configuration.trustRoots = .file(tls.authorities) }
        if !tls.certificate.isEmpty {
            configuration.certificateChain = try NIOSSLCertificate.fromPEMFile(tls.certificate).map { .certificate($0) }
            configuration.privateKey = .privateKey(try NIOSSLPrivateKey(file: tls.key, format: .pem))
        }
        return configuration
    }

    /// Connects to the master. Tries each sentinel in turn.
    package func connect() async throws(RedisError) -> RedisConnection {
        guard !settings.sentinels.isEmpty else {
            return try await connect(to: settings.address, settings.user, settings.password, asMaster: true)
        }
        var reasons: [String] = []
        for sentinel in settings.sentinels {
            do throws(RedisError) {
                let master = try await master(by: sentinel)
                return try await connect(to: master, settings.user, settings.password, asMaster: true)
            } catch {
                reasons.append(error.description)
            }
        }
        throw RedisError(reasons.joined(separator: "; "))
    }

    private func master(by sentinel: RedisAddress) async throws(RedisError) -> RedisAddress {
        let connection = try await connect(
            to: sentinel, settings.sentinelUser, settings.sentinelPassword, asMaster: false)
        defer { connection.close() }
        let answer = try await connection.send("SENTINEL", "get-master-addr-by-name", settings.master).elements
        guard let answer, answer.count == 2, let host = answer[0].text, let port = answer[1].text.flatMap({ Int($0) }),
            1...65_535 ~= port
        else { throw RedisError("the sentinel at \(sentinel) does not know the master \(settings.master)") }
        return .tcp(host: host, port: port)
    }

    private func connect(
        to address: RedisAddress, _ user: String, _ password: Secret?, asMaster: Bool
    ) async throws(RedisError) -> RedisConnection {
        let connection = RedisConnection(
            wire: try await wire(to: address), address: address, timeout: .milliseconds(settings.timeout))
        do throws(RedisError) {
            try await connection.authenticate(name, user: user, password: password)
            if asMaster { try await connection.requireMaster() }
            return connection
        } catch {
            connection.close()
            throw error
        }
    }

    private func wire(to address: RedisAddress) async throws(RedisError) -> WireConnection {
        let timeout = TimeAmount.milliseconds(settings.timeout)
        let bootstrap = ClientBootstrap(group: loop).connectTimeout(timeout)
            .channelInitializer { [context] channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let context else { return }
                    // Names and addresses are both checked against the certificate, but SNI allows only names.
                    let name = address.host.flatMap { Self.isNumeric($0) ? nil : $0 }
                    try channel.pipeline.syncOperations.addHandlers(
                        NIOSSLClientHandler(context: context, serverHostname: name),
                        HandshakeWatch(channel.eventLoop, timeout))
                }
            }
        do {
            let channel =
                switch address {
                case .unix(let path): try await bootstrap.connect(unixDomainSocketPath: path).get()
                case .tcp(let host, let port): try await bootstrap.connect(host: host, port: port).get()
                }
            do {
                if context != nil {
                    try await channel.eventLoop.flatSubmit {
                        do {
                            return try channel.pipeline.syncOperations.handler(type: HandshakeWatch.self).isReady
                        } catch {
                            // The channel was closed, which removed its handlers.
                            return channel.eventLoop.makeFailedFuture(HandshakeWatch.Closed())
                        }
                    }.get()
                }
                return try await channel.eventLoop.submit {
                    try WireConnection.adopt(channel, longestReply: RedisConnection.longestReply)
                }.get()
            } catch {
                channel.close(promise: nil)
                throw error
            }
        } catch {
            throw RedisError("cannot connect to \(address): \(oneLine("\(error)"))")
        }
    }

    private static func isNumeric(_ host: String) -> Bool {
        host.contains(":")
            || host.utf8.allSatisfy { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 || $0 == UInt8(ascii: ".") }
    }
}

/// Reports the result of the TLS handshake. Without it, a rejected certificate would appear as a lost connection.
private final class HandshakeWatch: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    struct Closed: Error, CustomStringConvertible {
        var description: String { "closed during the TLS handshake" }
    }

    struct TooSlow: Error, CustomStringConvertible {
        var description: String { "TLS handshake timed out" }
    }

    private let promise: EventLoopPromise<Void>
    private let timer: Scheduled<Void>

    init(_ loop: any EventLoop, _ timeout: TimeAmount) {
        let promise = loop.makePromise(of: Void.self)
        self.promise = promise
        timer = loop.scheduleTask(in: timeout) { promise.fail(TooSlow()) }
    }

    var isReady: EventLoopFuture<Void> { promise.futureResult }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted? = event as? TLSUserEvent {
            timer.cancel()
            promise.succeed()
        }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        promise.fail(error)
        context.fireErrorCaught(error)
    }

    /// Called when the channel closes.
    func handlerRemoved(context: ChannelHandlerContext) {
        timer.cancel()
        promise.fail(Closed())
    }
}
