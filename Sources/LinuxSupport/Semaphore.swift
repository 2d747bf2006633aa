import Glibc

/// A number of permits that threads wait for: sem_overview(7).
public final class Semaphore: @unchecked Sendable {
    // Unchecked, because a pointer is not Sendable: each of the calls may be made by any thread.
    private let semaphore: UnsafeMutablePointer<sem_t>

    public init() {
        semaphore = .allocate(capacity: 1)
        sem_init(semaphore, 0, 0)
    }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    public func signal() {
        sem_post(semaphore)
    }

    /// Blocks until there is a permit, and takes it.
    public func wait() {
        // Only a signal handler makes it return without one.
        while sem_wait(semaphore) != 0 {}
    }
}
