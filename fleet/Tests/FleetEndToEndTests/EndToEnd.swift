import Testing

/// Tests of the built programs of a fleet. They run one after another, since each starts several hosts.
@Suite(.serialized, .onItsOwnThread)
enum EndToEnd {}
