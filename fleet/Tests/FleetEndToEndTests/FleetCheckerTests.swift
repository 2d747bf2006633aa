import Testing

extension EndToEnd {
    /// What decides in `make fleet-test` whether a fleet has kept its promise: that test needs root, this one does not.
    struct FleetCheckerTests {
        @Test func `the checker sees the histories that must fail, and passes those that hold`() throws {
            try withMachine { machine in
                let folder = "\(Files.repository)/fleet/Tests/FleetTests"
                let finished = try machine.run(
                    ["python3", "-B", "-m", "unittest", "discover", "-s", folder, "-p", "*_test.py"], directory: folder)
                #expect(finished.status == 0, "\(finished.everything)")
                #expect(finished.everything.contains(/Ran [1-9][0-9]+ tests/), "\(finished.everything)")
            }
        }
    }
}
