import Foundation
import LinuxSupport
import Testing

@testable import thumbcached

@Suite struct KernelFactsTests {
    private func inFile<Result>(_ text: String, _ body: (String) throws -> Result) throws -> Result {
        try Fixture.withDirectory { directory in
            try Data(text.utf8).write(to: URL(filePath: "\(directory)/fact"))
            return try body("\(directory)/fact")
        }
    }

    @Test func `the kernel's files are read`() throws {
        let id = try KernelFacts.bootID(environment: [:])
        #expect(id.wholeMatch(of: /[0-9a-f]{32}/) != nil)
        #expect(try KernelFacts.bootID(environment: ["THUMBCACHED_BOOT_ID": ""]) == id)
        #expect(try KernelFacts.overflowUID() > 0)
    }

    @Test func `a boot id is read without line break and dashes, as systemd's %b`() throws {
        let id = "05c9fbc8-5f82-4e11-aebf-3676ccdeafe4"
        let read = try inFile("\(id)\n") { try KernelFacts.bootID(environment: [:], file: $0) }
        #expect(read == "05c9fbc85f824e11aebf3676ccdeafe4")
        // A unit that hides /proc/sys passes the id.
        for passed in [id, read, read.uppercased()] {
            #expect(try KernelFacts.bootID(environment: ["THUMBCACHED_BOOT_ID": passed], file: "/nonexistent") == read)
        }
        let uid = try inFile("65534\n") { try KernelFacts.overflowUID($0) }
        #expect(uid == 65_534)
    }

    @Test(arguments: ["", "\n", "none\n", "05c9fbc8-5f82-4e11-aebf-3676ccdeafe\n"])
    func `an invalid id is an error that names the file`(text: String) throws {
        try inFile(text) { path in
            let error = #expect(throws: DaemonError.self) { try KernelFacts.bootID(environment: [:], file: path) }
            let found = text.split(separator: "\n").first ?? ""
            #expect(error?.description == "\(path): \"\(found)\" is no boot id; expected 32 hexadecimal digits")
        }
    }

    @Test func `an invalid id in the environment is an error that names the variable`() {
        let error = #expect(throws: DaemonError.self) {
            try KernelFacts.bootID(environment: ["THUMBCACHED_BOOT_ID": "%b"])
        }
        #expect(error?.description.contains("THUMBCACHED_BOOT_ID") == true)
    }

    @Test(arguments: ["", "-1\n", "4294967296\n", "nobody\n"])
    func `an invalid uid is an error`(text: String) throws {
        try inFile(text) { path in
            _ = #expect(throws: DaemonError.self) { try KernelFacts.overflowUID(path) }
        }
    }

    @Test func `a missing file is an error`() {
        let error = #expect(throws: SystemError.self) {
            try KernelFacts.bootID(environment: [:], file: "/nonexistent/boot_id")
        }
        #expect(error?.description == "open /nonexistent/boot_id: No such file or directory")
    }
}
