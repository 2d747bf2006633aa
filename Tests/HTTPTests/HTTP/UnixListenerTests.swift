import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import ProgramSupport
import Testing

@testable import thumbcached_http

/// A listener with the path of a Unix socket.
@Suite(.timeLimit(.minutes(2))) struct UnixListenerTests {
    private func start(_ path: String) async throws -> HTTPServer {
        try await HTTPServer.start(
            on: MultiThreadedEventLoopGroup.singleton.next(), at: .address(.unix(path: path)),
            setting: "images.listen", limits: HTTPLimits(), now: { .now() }, wallClock: { 0 }
        ) { _ in .now(Response(.notFound, "No image."), closes: false) }.get()
    }

    private func responds(_ server: HTTPServer) async throws -> Bool {
        try await TestPeer.connect(to: server.address).request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status == 404
    }

    @Test func `F49: the socket of a running service is not replaced, and a stop removes it`() async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString).path
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
        defer { #expect(throws: Never.self) { try FileManager.default.removeItem(atPath: directory) } }
        let path = "\(directory)/s"
        let first = try await start(path)
        let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? NSNumber
        #expect(mode?.intValue == 0o660)
        let failure = await #expect(throws: ListeningSocketFailure.self) { try await start(path) }
        #expect(failure?.description == "another process uses \(path): it holds the lock on \(path).lock")
        #expect(try await responds(first))
        try await first.close().get()
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory) == [])
        let second = try await start(path)
        #expect(try await responds(second))
        try await second.close().get()
    }
}
