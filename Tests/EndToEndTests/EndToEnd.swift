import Testing

/// The built program, seen from outside: sockets, files, processes, a real nginx. Everything that a test here needs is
/// started by it and ended by it.
///
/// One after another, because most of them keep both sides of a socket busy; each on a thread of its own, because they
/// block, and a blocked thread of Swift's pool would starve the unit tests that run meanwhile.
@Suite(.serialized, .onItsOwnThread)
enum EndToEnd {}
