import Foundation
import Testing
import ThumbcacheProtocol

@testable import thumbcached

@Suite struct VersionTests {
    @Test func `both programs and the changelog state the same version`() throws {
        let ctl = try Thumbcachectl.run(["--version"])
        #expect(ctl.text == "thumbcachectl \(Version.current)\n")
        let log = try String(contentsOf: repository.appending(path: "CHANGELOG.md"), encoding: .utf8)
        let newest = try #require(log.split(separator: "\n").first { $0.hasPrefix("## ") })
        #expect(newest.hasPrefix("## \(Version.current)"))
    }
}
