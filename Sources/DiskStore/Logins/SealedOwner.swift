/// Whom a log-in and its images belong to, as the disk knows them.
struct SealedOwner: Hashable, Sendable {
    let uid: UInt32
    let user: SealedName
}
