import Glibc
import NIOCore
import Thumbcache

/// Measures the Swift client library: requests that share one connection, and images in the client's memory.
///
///     ClientBench pipelined SOCKET USER IMAGES REQUESTS TASKS     prints requests per second
///     ClientBench minimal   SOCKET USER IMAGES REQUESTS TASKS     prints the same for the minimal client
///     ClientBench metadata  SOCKET USER IMAGES REQUESTS TASKS     prints the same for its requests with META
///     ClientBench cached    SOCKET USER IMAGES REQUESTS           prints nanoseconds per request
///
/// Requests the images in turn. Their profiles are numbers of twelve digits.
@main enum ClientBench {
    static func main() async throws {
        let words = CommandLine.arguments.dropFirst()
        let numbers = words.dropFirst(3).compactMap { Int($0) }.filter { $0 > 0 }
        switch (words.first, numbers.count) {
        case ("pipelined", 3): try await pipelined(words[2], words[3], numbers[0], numbers[1], tasks: numbers[2])
        case ("minimal", 3), ("metadata", 3):
            let hasMetadata = words.first == "metadata"
            try await minimal(words[2], words[3], hasMetadata, numbers[0], numbers[1], tasks: numbers[2])
        case ("cached", 2): try await cached(words[2], words[3], numbers[0], numbers[1])
        default:
            print(
                "ClientBench pipelined|minimal|metadata SOCKET USER IMAGES REQUESTS TASKS | "
                    + "cached SOCKET USER IMAGES REQUESTS")
            exit(2)
        }
    }

    private static func pipelined(
        _ path: String, _ user: String, _ images: Int, _ requests: Int, tasks: Int
    ) async throws {
        let client = ThumbcacheClient(path: path)
        let (user, names) = (ThumbcacheID(user), names(images))
        let rate = try await whileRunning(client) {
            let start = ContinuousClock.now
            try await withThrowingTaskGroup { group in
                for task in 0..<tasks {
                    group.addTask {
                        for number in stride(from: task, to: requests, by: tasks) {
                            let name = names[number % names.count]
                            // Requests with this policy share one connection.
                            guard try await client.get(user, name, policy: .inBackground) != nil else {
                                throw MissingImage(name: name)
                            }
                        }
                    }
                }
                try await group.waitForAll()
            }
            return Double(requests) / start.duration(to: .now).seconds
        }
        print(rate)
    }

    /// All images have the same length.
    private static func minimal(
        _ path: String, _ user: String, _ hasMetadata: Bool, _ images: Int, _ requests: Int, tasks: Int
    ) async throws {
        let names = names(images).map(\.description)
        let frames = names.map { name in
            let words = ["GET", user, name, "NOWAIT"] + (hasMetadata ? ["META"] : [])
            let strings = words.map { "$\($0.utf8.count)\r\n\($0)\r\n" }
            return ByteBuffer(string: "*\(words.count)\r\n" + strings.joined())
        }
        let length = try await replyLength(path, ThumbcacheID(user), names[0])
        let client = try await MinimalClient.connect(path, hasMetadata ? ArrayReplies() : FixedReplies(length: length))
        let start = ContinuousClock.now
        await withTaskGroup { group in
            for task in 0..<tasks {
                group.addTask {
                    for number in stride(from: task, to: requests, by: tasks) {
                        await client.reply(to: frames[number % frames.count])
                    }
                }
            }
        }
        print(Double(requests) / start.duration(to: .now).seconds)
    }

    /// The length of a reply with this image: `$8192`, a line break, the image and a line break.
    private static func replyLength(_ path: String, _ user: ThumbcacheID, _ name: String) async throws -> Int {
        let client = ThumbcacheClient(path: path)
        let image = try await whileRunning(client) { try await client.get(user, ThumbcacheID(name)) }
        guard let length = image?.bytes.readableBytes else { throw MissingImage(name: ThumbcacheID(name)) }
        return "$\(length)\r\n".utf8.count + length + 2
    }

    private static func cached(_ path: String, _ user: String, _ images: Int, _ requests: Int) async throws {
        let client = ThumbcacheClient(path: path)
        let (user, names) = (ThumbcacheID(user), names(images))
        let cache = ThumbcacheImages(client, byteLimit: 1 << 30)
        let time = try await whileRunning(client) {
            // Cancelled at the end of this scope.
            async let _: Void = cache.run()
            while cache.count < images { for name in names { _ = try await cache.get(user, name) } }
            let start = ContinuousClock.now
            for number in 0..<requests {
                let name = names[number % names.count]
                guard try await cache.get(user, name) != nil else { throw MissingImage(name: name) }
            }
            return start.duration(to: .now).seconds / Double(requests)
        }
        print(time * 1e9)
    }

    private static func names(_ count: Int) -> [ThumbcacheID] {
        (0..<count).map { number in
            let digits = String(number)
            return ThumbcacheID(String(repeating: "0", count: 12 - digits.count) + digits)
        }
    }

    private static func whileRunning<Value: Sendable>(
        _ client: ThumbcacheClient, _ work: () async throws -> Value
    ) async throws -> Value {
        async let _: Void = client.run()
        return try await work()
    }
}

struct MissingImage: Error {
    let name: ThumbcacheID
}

extension Duration {
    fileprivate var seconds: Double { self / .seconds(1) }
}
