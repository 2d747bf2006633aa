import Foundation
import Testing

@testable import thumbcached

@Suite struct KernelFactsTests {
    private func inFile<Result>(_ text: String, _ body: (String) throws -> Result) throws -> Result {
        try Fixture.withDirectory { directory in
            try Data(text.utf8).write(to: URL(filePath: "\(directory)/fact"))
            return try body("\(directory)/fact")
        }
    }

    @Test func `the kernel's own files are understood`() throws {
        #expect(try KernelFacts.bootID() == KernelFacts.bootID())
        #expect(try KernelFacts.bootID().utf8.count == 36)
        #expect(try KernelFacts.overflowUID() > 0)
    }

    @Test func `the id of a boot is read without its line break`() throws {
        let id = "05c9fbc8-5f82-4e11-aebf-3676ccdeafe4"
        let read = try inFile("\(id)\n") { try KernelFacts.bootID($0) }
        #expect(read == id)
        let uid = try inFile("65534\n") { try KernelFacts.overflowUID($0) }
        #expect(uid == 65_534)
    }

    @Test(arguments: ["", "\n", "none\n", "05c9fbc8-5f82-4e11-aebf-3676ccdeafe\n"])
    func `what is no id is an error that names the file`(text: String) throws {
        try inFile(text) { path in
            let error = #expect(throws: SystemError.self) { try KernelFacts.bootID(path) }
            #expect(error?.description.contains(path) == true)
        }
    }

    @Test(arguments: ["", "-1\n", "4294967296\n", "nobody\n"])
    func `what is no uid is an error`(text: String) throws {
        try inFile(text) { path in
            _ = #expect(throws: SystemError.self) { try KernelFacts.overflowUID(path) }
        }
    }

    @Test func `a file that is not there is an error that says so`() {
        let error = #expect(throws: SystemError.self) { try KernelFacts.bootID("/nonexistent/boot_id") }
        #expect(error?.description == "open /nonexistent/boot_id: No such file or directory")
    }
}
