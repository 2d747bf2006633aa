import Testing

/// Tests of the built programs over sockets, files and processes. Each test starts and stops what it needs.
///
/// Each test runs on its own thread, because most of them block: they use both sides of a socket. In Swift's thread
/// pool they would starve the unit tests. The tests of a group run one after another, since each starts several
/// processes.
@Suite(.onItsOwnThread)
enum EndToEnd {
    @Suite(.serialized) enum Clients {}
    @Suite(.serialized) enum Histories {}
    @Suite(.serialized) enum Monitoring {}
    @Suite(.serialized) enum Origins {}
    @Suite(.serialized) enum Service {}
    @Suite(.serialized) enum Users {}
}
