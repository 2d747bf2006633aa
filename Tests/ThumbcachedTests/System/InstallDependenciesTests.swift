import Foundation
import Testing

/// `tools/install-dependencies` on a machine with basic programs only.
@Suite struct InstallDependenciesTests {
    @Test func `a missing benchmark program leads to its package, also if the script has a function of that name`()
        throws
    {
        try Fixture.withDirectory { directory in
            for program in ["id", "sed", "sort"] {
                try FileManager.default.createSymbolicLink(
                    atPath: "\(directory)/\(program)", withDestinationPath: "/usr/bin/\(program)")
            }
            let errors = Pipe()
            let process = Process()
            process.executableURL = URL(filePath: "/usr/bin/bash")
            process.arguments = [repository.appending(path: "tools/install-dependencies").path, "bench"]
            process.environment = ["PATH": directory]
            process.standardError = errors
            try process.run()
            let output = String(decoding: errors.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
            process.waitUntilExit()
            #expect(process.terminationStatus == 1)
            #expect(output.contains(" libmemcached-tools "), "\(output)")
        }
    }
}
