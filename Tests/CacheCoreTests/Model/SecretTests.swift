import LinuxSupport
import Testing

@testable import CacheCore

@Suite struct SecretTests {
    @Test func `I11: a secret shows itself in no description, however it is printed`() {
        let secret = Secret(Array("hunter2".utf8))
        var dumped = ""
        dump(LoginRecord(sessions: [], origin: nil, token: secret, loggedInAt: 0), to: &dumped)
        for text in ["\(secret)", String(reflecting: secret), dumped, "\([secret])"] {
            #expect(!text.contains("hunter2"))
            #expect(!text.contains("104"))
        }
    }

    @Test func `a secret lends the bytes it was given`() {
        let secret = Secret([1, 2, 3])
        #expect(secret.count == 3)
        #expect(secret.withBytes { Array($0) } == [1, 2, 3])
        #expect(Secret([]).withBytes { $0.count } == 0)
    }

    @Test func `secrets are equal by their bytes`() {
        #expect(Secret([1, 2]) == Secret([1, 2]))
        #expect(Secret([1, 2]) != Secret([1, 3]))
        #expect(Secret([1, 2]) != Secret([1]))
    }
}
