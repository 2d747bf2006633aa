import Testing

@testable import CacheCore

/// RFC 9111 sections 4.2.3 and 5.1.
@Suite struct AgeCalculationTests {
    @Test(
        arguments: [
            (["25"], 25), (["0"], 0), (["0025"], 25), ([" 25 "], 25),
            // Values that overflow become 2^31 (section 1.2.2).
            (["2147483647"], 2_147_483_647), (["2147483648"], 1 << 31), (["99999999999999999999"], 1 << 31),
            // The first of several values applies.
            (["7200, 0"], 7_200), (["0, 7200"], 0), (["7200", "0"], 7_200), (["0", "7200"], 0), (["5,x"], 5),
            // An invalid first value is ignored, together with all later ones.
            ([], nil), ([""], nil), (["abc"], nil), (["-7200"], nil), (["7200.0"], nil), (["7200;foo=bar"], nil),
            (["72 00"], nil), (["x, 5"], nil), (["\"5\""], nil), (["x", "5"], nil),
        ] as [([String], Int64?)])
    func `section 5.1: Age`(lines: [String], seconds: Int64?) {
        #expect(AgeCalculation.ageValue(lines) == seconds)
    }

    struct Case: Sendable, CustomTestStringConvertible {
        let rule: String
        var age: Int64?
        var date: Int64?
        var delay: Int64 = 0
        let initialAge: Int64
        var testDescription: String { rule }
    }

    @Test(arguments: [
        Case(rule: "no Age and no Date: new", initialAge: 0),
        Case(rule: "Age", age: 25, date: 1_000, initialAge: 25),
        Case(rule: "Age and the response delay", age: 25, date: 1_000, delay: 3, initialAge: 28),
        Case(rule: "the response delay alone", date: 1_000, delay: 3, initialAge: 3),
        Case(rule: "an old Date without Age: the apparent age", date: 940, initialAge: 60),
        Case(rule: "an old Date and a lower Age", age: 25, date: 940, initialAge: 60),
        Case(rule: "an old Date and a higher Age", age: 90, date: 940, delay: 1, initialAge: 91),
        Case(rule: "a Date one day ago", date: 1_000 - 86_400, initialAge: 86_400),
        Case(rule: "F14: a Date more than a day ago is ignored", date: 1_000 - 86_401, initialAge: 0),
        Case(rule: "F14: a Date a year ago is ignored, Age is used", age: 25, date: 1_000 - 31_536_000, initialAge: 25),
        Case(rule: "a Date in the future", age: 25, date: 5_000, initialAge: 25),
        Case(rule: "an Age without Date", age: 25, initialAge: 25),
        Case(rule: "the largest Age", age: 1 << 31, date: 1_000, delay: 60, initialAge: 1 << 31 + 60),
    ])
    func `section 4.2.3: the age of a response on arrival`(given: Case) {
        let calculation = AgeCalculation(age: given.age, date: given.date, receivedAt: 1_000, delay: given.delay)
        #expect(calculation.initialAge == given.initialAge)
    }

    @Test func `F14: dates are compared with the clock that shows the earlier time`() {
        #expect(ResponseTime(now: 1_000, wallClock: 1_000 + 31_536_000).forDates == 1_000)
        #expect(ResponseTime(now: 1_000 + 31_536_000, wallClock: 1_000).forDates == 1_000)
    }
}
