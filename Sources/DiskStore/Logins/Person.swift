/// Whom a log-in and its images belong to, as the disk knows them.
struct Person: Hashable, Sendable {
    let uid: UInt32
    let user: SealedName
}
