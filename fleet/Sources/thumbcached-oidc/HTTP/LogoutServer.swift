import HTTPTypes
import HummingbirdCore
import HummingbirdTLS
import Logging
import NIOCore
import NIOSSL

/// The HTTP/1.1 server, with or without TLS.
struct LogoutServer: Sendable {
    let address: ListenAddress
    let limits: HTTPLimits
    /// Time limit of a response.
    let answerTime: TimeAmount
    let tls: TLSConfiguration?
    let endpoint: LogoutEndpoint
    let group: any EventLoopGroup
    let log: Logger

    /// Returns when its task is cancelled.
    /// - Parameter running: called with the listening channel.
    func run(_ running: @escaping @Sendable (any Channel) async -> Void) async throws {
        let table = ConnectionTable(limit: limits.connections)
        let times = ConnectionGuard.Times(
            request: .milliseconds(limits.requestTime), answer: answerTime, close: .milliseconds(limits.closeTime))
        let channel = HTTP1Channel(
            responder: { [endpoint] request, writer, channel in
                let reply = try await endpoint.respond(to: request, from: channel.remoteAddress)
                // A response to HEAD has no body.
                let body = request.method == .head ? ResponseBody() : ResponseBody(byteBuffer: reply.body)
                try await writer.write(response: reply.head, body: body)
            },
            configuration: HTTP1Channel.Configuration(
                additionalChannelHandlers: [ConnectionGuard(times, table: table)],
                httpDecoderConfiguration: .init(
                    maxHeaderFieldSize: HTTPLimits.head, maxHeaderListSize: HTTPLimits.head,
                    maxHeaderFieldCount: HTTPLimits.fields)))
        let bindAddress: BindAddress =
            switch address {
            case .tcp(let host, let port): .hostname(host, port: port)
            case .unix(let path): .unixDomainSocket(path: path)
            }
        let configuration = ServerConfiguration(
            address: bindAddress, backlog: 128, availableConnectionsDelegate: TableAvailability(table: table))
        if let tls {
            try await Server(
                childChannelSetup: try TLSChannel(channel, tlsConfiguration: tls), configuration: configuration,
                onServerRunning: running, eventLoopGroup: group, logger: log
            ).run()
        } else {
            try await Server(
                childChannelSetup: channel, configuration: configuration, onServerRunning: running,
                eventLoopGroup: group, logger: log
            ).run()
        }
    }
}

/// Pauses accepting while the table is busy.
private struct TableAvailability: AvailableConnectionsDelegate {
    let table: ConnectionTable

    func connectionOpened() {}
    func connectionClosed() {}
    func isAcceptingNewConnections() -> Bool { table.isAccepting }
}
