import DequeModule

/// The queue of images to download in the background for one user.
struct WarmingList {
    /// In the order of arrival.
    private var waiting: Deque<ImageKey> = []
    /// Those waiting and those in progress.
    private var known: Set<ImageKey> = []
    private var inProgress = 0
    private let memory: MemoryLease

    /// Downloads of one user at a time. Less than the origin's own limit, so that a GET always finds room.
    private static var mostAtOnce: Int { 2 }
    /// Most waiting image keys of one user: several times the number of a user's contacts.
    static var most: Int { 10_000 }

    init(memory: MemoryLease) {
        self.memory = memory
    }

    private static func cost(of imageKey: ImageKey) -> Int { 160 + imageKey.profile.count }

    /// Adds an image key. Returns false if it is known.
    /// - Throws: `busy` if the queue or the account's memory is full.
    mutating func add(_ imageKey: ImageKey) throws(CacheFailure) -> Bool {
        guard !known.contains(imageKey) else { return false }
        guard waiting.count < Self.most else {
            throw .busy("\(Self.most) images of this user are queued for WARM; try again later")
        }
        guard memory.reserve(Self.cost(of: imageKey)) else { throw .busy(memory.refusal) }
        known.insert(imageKey)
        waiting.append(imageKey)
        return true
    }

    /// Removes the next image key to download; nil if none waits or enough are in progress.
    mutating func popNext() -> ImageKey? {
        guard inProgress < Self.mostAtOnce, let imageKey = waiting.popFirst() else { return nil }
        inProgress += 1
        return imageKey
    }

    mutating func remove(_ profile: OpaqueID) {
        for imageKey in waiting where imageKey.profile == profile {
            known.remove(imageKey)
            memory.release(Self.cost(of: imageKey))
        }
        waiting.removeAll { $0.profile == profile }
    }

    mutating func ended(_ imageKey: ImageKey) {
        guard known.remove(imageKey) != nil else { return }
        inProgress -= 1
        memory.release(Self.cost(of: imageKey))
    }
}
