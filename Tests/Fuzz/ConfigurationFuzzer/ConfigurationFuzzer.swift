import CacheCore
import ProgramSupport

@testable import thumbcached

/// F50: whatever a file says, it is read or refused, never trapped on. What is refused has a reason on one line for
/// each mistake; what is read is within its bounds, and read the same again.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    // Nothing but UTF-8 comes to the loader.
    guard let text = String(validating: bytes, as: UTF8.self) else { return 0 }
    // No account has a name here: looking one up would ask the machine.
    let nobody = AccountDirectory(uid: { _ in nil }, gid: { _ in nil })
    let directories = ["CACHE_DIRECTORY": "/c", "STATE_DIRECTORY": "/s", "RUNTIME_DIRECTORY": "/r"]
    let loader = ConfigurationLoader(environment: directories, uid: 0, accounts: nobody)
    do throws(ConfigurationError) {
        let read = try loader.decode(text, file: "f")
        check(read.limits.image <= read.storage.userQuota, "an image may be larger than its user's quota")
        check(read.storage.userQuota <= read.storage.quota, "a user's quota is over the store's")
        check(read.limits.connections > 0 && read.threads > 0, "nobody could connect")
        let again = try? loader.decode(text, file: "f")
        check(again == read, "the same text is read otherwise")
        for warning in read.warnings {
            check(!warning.sentence.contains { $0.isNewline }, "a warning takes more than one line")
        }
    } catch {
        check(!error.problems.isEmpty, "it is refused without a reason")
        for problem in error.problems {
            check(!problem.sentence.isEmpty, "a reason says nothing")
            check(!problem.sentence.contains { $0.isNewline }, "a reason takes more than one line")
        }
    }
    return 0
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}
