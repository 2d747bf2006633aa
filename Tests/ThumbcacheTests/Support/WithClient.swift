import NIOCore

@testable @_spi(Wire) import Thumbcache

/// Runs the body with a fake daemon and a running client.
func withClient(
    hello: String = FakeDaemon.greeting, _ adjust: (inout ThumbcacheConfiguration) -> Void = { _ in },
    _ body: (ThumbcacheClient, FakeDaemon) async throws -> Void
) async throws {
    let daemon = try await FakeDaemon(hello: hello)
    var configuration = ThumbcacheConfiguration()
    // Short pauses, since no test depends on their length.
    configuration.firstPause = .zero
    configuration.requestTimeout = nil
    // Longer than a busy machine delays a connection.
    configuration.connectTimeout = .seconds(120)
    adjust(&configuration)
    let client = ThumbcacheClient(path: daemon.path, configuration: configuration)
    let running = Task { await client.run() }
    do {
        try await body(client, daemon)
    } catch {
        running.cancel()
        await running.value
        try await daemon.stop()
        throw error
    }
    running.cancel()
    await running.value
    try await daemon.stop()
}

/// Returns the error that the body throws, or nil.
func error(of body: () async throws(ThumbcacheError) -> some Any) async -> ThumbcacheError? {
    do throws(ThumbcacheError) {
        _ = try await body()
        return nil
    } catch {
        return error
    }
}

/// Encoded replies.
enum Wire {
    static func bulk(_ text: String) -> String { "$\(text.utf8.count)\r\n\(text)\r\n" }

    static func image(_ text: String, ttl: String = ":60", state: String = "fresh", epoch: Int = 1) -> String {
        "%11\r\n+image\r\n" + bulk(text) + "+digest\r\n+d-\(text)\r\n+type\r\n+image/png\r\n"
            + "+length\r\n:\(text.utf8.count)\r\n+width\r\n:2\r\n+height\r\n:3\r\n+age\r\n:4\r\n+ttl\r\n\(ttl)\r\n"
            + "+state\r\n+\(state)\r\n+source\r\n+disk\r\n+epoch\r\n:\(epoch)\r\n"
    }

    static let receipt =
        "%6\r\n+users\r\n:1\r\n+images\r\n:2\r\n+bytes\r\n_\r\n+cancelled\r\n:3\r\n+sessions\r\n:0\r\n+epoch\r\n:9\r\n"
}

extension ThumbcacheImage {
    var text: String { String(buffer: bytes) }
}
