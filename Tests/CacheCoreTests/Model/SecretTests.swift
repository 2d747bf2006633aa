import LinuxSupport
import Testing

@testable import CacheCore

@Suite struct SecretTests {
    @Test func `I11: a secret's descriptions do not contain it`() {
        let secret = Secret(Array("hunter2".utf8))
        var dumped = ""
        dump(LoginRecord(sessions: [], origin: nil, token: secret, loggedInAt: 0), to: &dumped)
        for text in ["\(secret)", String(reflecting: secret), dumped, "\([secret])"] {
            #expect(!text.contains("hunter2"))
            #expect(!text.contains("104"))
        }
    }

    @Test func `a secret provides its bytes`() {
        let secret = Secret([1, 2, 3])
        #expect(secret.count == 3)
        #expect(secret.withBytes { Array($0) } == [1, 2, 3])
        #expect(Secret([]).withBytes { $0.count } == 0)
    }

    @Test func `secrets with equal bytes are equal`() {
        #expect(Secret([1, 2]) == Secret([1, 2]))
        #expect(Secret([1, 2]) != Secret([1, 3]))
        #expect(Secret([1, 2]) != Secret([1]))
    }
}
