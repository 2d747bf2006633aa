import Glibc
import Thumbcache

/// Measures the Swift client library: requests that share one connection, and images in the client's memory.
///
///     ClientBench pipelined SOCKET USER IMAGES REQUESTS TASKS     prints requests per second
///     ClientBench cached    SOCKET USER IMAGES REQUESTS           prints nanoseconds per request
///
/// Requests the images in turn. Their profiles are numbers of twelve digits.
@main enum ClientBench {
    static func main() async throws {
        let words = CommandLine.arguments.dropFirst()
        let numbers = words.dropFirst(3).compactMap { Int($0) }.filter { $0 > 0 }
        switch (words.first, numbers.count) {
        case ("pipelined", 3): try await pipelined(words[2], words[3], numbers[0], numbers[1], tasks: numbers[2])
        case ("cached", 2): try await cached(words[2], words[3], numbers[0], numbers[1])
        default:
            print("ClientBench pipelined SOCKET USER IMAGES REQUESTS TASKS | cached SOCKET USER IMAGES REQUESTS")
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
