import Testing

/// Tests of the built programs over sockets, files and processes. Each test starts and stops what it needs.
///
/// The tests run one after another, because most of them use both sides of a socket, and each on its own thread,
/// because they block; in Swift's thread pool they would starve the unit tests.
@Suite(.serialized, .onItsOwnThread)
enum EndToEnd {}
