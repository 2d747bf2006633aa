import Testing

enum PythonPackage {
    static let directory = "\(Files.repository)/clients/python"
    /// The value of PYTHONPATH that makes `import thumbcache` work.
    static let sources = "\(directory)/src"
}

extension EndToEnd.Clients {
    struct PythonPackageTests {
        @Test(arguments: ["/usr/bin/python3", pythonOfTests])
        func `the tests of the Python package pass with Debian's redis-py and that of PyPI`(python: String) throws {
            try withMachine { machine in
                try machine.runSuccessfully(
                    [python, "-m", "unittest", "discover", "--start-directory", "\(PythonPackage.directory)/tests"],
                    environment: [
                        "PYTHONPATH": PythonPackage.sources, "PYTHONDONTWRITEBYTECODE": "1",
                        "THUMBCACHED_PROGRAMS": Files.programs, "TMPDIR": machine.directory,
                    ], within: 300)
            }
        }
    }
}
