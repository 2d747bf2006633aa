import Glibc
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Testing

@testable import DaemonServer

@Suite(.timeLimit(.minutes(5))) struct AcceptPauseTests {
    private func withListener(_ body: (any Channel) async throws -> Void) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let log = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let listener = try await ServerBootstrap(group: group)
            .serverChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AcceptPause(log: log))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        do {
            try await body(listener)
        } catch {
            try await group.shutdownGracefully()
            throw error
        }
        try await group.shutdownGracefully()
    }

    @Test(arguments: [EMFILE, ENFILE, ENOBUFS, ENOMEM])
    func `F15: with descriptors short accepting pauses, and goes on by itself`(_ code: CInt) async throws {
        try await withListener { listener in
            listener.pipeline.fireErrorCaught(IOError(errnoCode: code, reason: "accept"))
            listener.pipeline.fireErrorCaught(IOError(errnoCode: code, reason: "accept"))
            let isReading = try await listener.getOption(.autoRead).get()
            #expect(!isReading)
            try await eventually { try await listener.getOption(.autoRead).get() }
            let client = try await ClientBootstrap(group: listener.eventLoop)
                .connect(to: try #require(listener.localAddress)).get()
            try await client.close()
        }
    }

    @Test func `a connection that was gone before it was accepted pauses nothing`() async throws {
        try await withListener { listener in
            listener.pipeline.fireErrorCaught(IOError(errnoCode: ECONNABORTED, reason: "accept"))
            listener.pipeline.fireErrorCaught(ChannelError.ioOnClosedChannel)
            let isReading = try await listener.getOption(.autoRead).get()
            #expect(isReading)
        }
    }
}
