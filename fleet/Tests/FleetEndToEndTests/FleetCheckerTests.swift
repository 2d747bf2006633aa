import Testing

extension EndToEnd {
    /// Unit tests of the checker that `make fleet-test` uses, which itself needs root.
    struct FleetCheckerTests {
        @Test func `the checker rejects invalid histories and accepts valid ones`() throws {
            try withMachine { machine in
                let folder = "\(Files.repository)/fleet/Tests/FleetTests"
                let finished = try machine.runSuccessfully(
                    ["python3", "-B", "-m", "unittest", "discover", "-s", folder, "-p", "*_test.py"], directory: folder)
                #expect(finished.summary.contains(/Ran [1-9][0-9]+ tests/), "\(finished.summary)")
            }
        }
    }
}
