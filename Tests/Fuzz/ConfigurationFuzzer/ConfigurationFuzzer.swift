import CacheCore
import DaemonServer
import ProgramSupport
import ThumbcacheProtocol

@testable import thumbcached

/// F50: any configuration file is accepted or rejected without a trap. A rejection has one line per mistake; an
/// accepted value is within its bounds and is read the same again.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    // The loader gets valid UTF-8 only.
    guard let text = String(validating: bytes, as: UTF8.self) else { return 0 }
    // No account exists, because looking one up would query the system.
    let accounts = AccountDirectory(uid: { _ in nil }, gid: { _ in nil })
    let directories = ["CACHE_DIRECTORY": "/c", "STATE_DIRECTORY": "/s", "RUNTIME_DIRECTORY": "/r"]
    let loader = ConfigurationLoader(environment: directories, uid: 0, accounts: accounts)
    do throws(ConfigurationError) {
        let read = try loader.decode(text, file: "f")
        check(
            read.limits.server.request.image <= read.storage.userQuota, "limits.image exceeds storage.user-quota")
        check(read.storage.userQuota <= read.storage.quota, "storage.user-quota exceeds storage.quota")
        check(read.limits.server.connections > 0 && read.threads > 0, "no connections or no threads")
        let again = try? loader.decode(text, file: "f")
        check(again == read, "the same text has different results")
        for warning in read.warnings {
            check(!warning.sentence.contains { $0.isNewline }, "a warning has more than one line")
        }
    } catch {
        check(!error.problems.isEmpty, "rejected without a reason")
        for problem in error.problems {
            check(!problem.sentence.isEmpty, "a reason is empty")
            check(!problem.sentence.contains { $0.isNewline }, "a reason has more than one line")
        }
    }
    return 0
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}
