import Testing

@testable import CacheCore

/// RFC 9111 sections 4.2.3 and 5.1.
@Suite struct AgeCalculationTests {
    @Test(
        arguments: [
            (["25"], 25), (["0"], 0), (["0025"], 25), ([" 25 "], 25),
            // A number too large to hold is 2^31 (section 1.2.2).
            (["2147483647"], 2_147_483_647), (["2147483648"], 1 << 31), (["99999999999999999999"], 1 << 31),
            // The first of a list counts.
            (["7200, 0"], 7_200), (["0, 7200"], 0), (["7200", "0"], 7_200), (["0", "7200"], 0), (["5,x"], 5),
            // What is no number is as good as none, also where a second one would be.
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
        Case(rule: "nothing said: new", initialAge: 0),
        Case(rule: "Age", age: 25, date: 1_000, initialAge: 25),
        Case(rule: "Age and the time it was under way", age: 25, date: 1_000, delay: 3, initialAge: 28),
        Case(rule: "the time it was under way alone", date: 1_000, delay: 3, initialAge: 3),
        Case(rule: "an old Date without Age: apparent age", date: 940, initialAge: 60),
        Case(rule: "an old Date and a lower Age", age: 25, date: 940, initialAge: 60),
        Case(rule: "an old Date and a higher Age", age: 90, date: 940, delay: 1, initialAge: 91),
        Case(rule: "a Date of a day ago", date: 1_000 - 86_400, initialAge: 86_400),
        Case(rule: "F14, a Date of more than a day ago: a clock is wrong", date: 1_000 - 86_401, initialAge: 0),
        Case(rule: "F14, the same with Age", age: 25, date: 1_000 - 31_536_000, initialAge: 25),
        Case(rule: "a Date of the future", age: 25, date: 5_000, initialAge: 25),
        Case(rule: "an Age without Date", age: 25, initialAge: 25),
        Case(rule: "as old as can be", age: 1 << 31, date: 1_000, delay: 60, initialAge: 1 << 31 + 60),
    ])
    func `section 4.2.3: the age of an answer that arrives`(given: Case) {
        let calculation = AgeCalculation(age: given.age, date: given.date, receivedAt: 1_000, delay: given.delay)
        #expect(calculation.initialAge == given.initialAge)
    }

    @Test func `F14: by whichever clock says less, Date is compared with the right one`() {
        #expect(ResponseTime(now: 1_000, wallClock: 1_000 + 31_536_000).forDates == 1_000)
        #expect(ResponseTime(now: 1_000 + 31_536_000, wallClock: 1_000).forDates == 1_000)
    }
}
