import NIOPosix
import ThumbnailCache

/// Threads that may block on the disk.
struct ThreadPool: BlockingPool {
    private let threads: NIOThreadPool

    init(threads count: Int) {
        threads = NIOThreadPool(numberOfThreads: count)
        threads.start()
    }

    func submit(_ work: @escaping @Sendable () -> Void) {
        // Work that the pool no longer wants to run is run all the same: somebody waits for it to end, and what it
        // would touch has been closed by then.
        threads.submit { _ in work() }
    }

    func stop() async throws {
        try await threads.shutdownGracefully()
    }
}
