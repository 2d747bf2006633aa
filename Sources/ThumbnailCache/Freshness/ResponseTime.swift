/// When an answer arrived.
struct ResponseTime: Sendable, Equatable {
    /// Seconds since 1970 by ``Timekeeping/now``.
    let now: Int64
    /// Seconds since 1970 by ``Timekeeping/wallClock``.
    let wallClock: Int64

    init(now: Int64, wallClock: Int64) {
        self.now = now
        self.wallClock = wallClock
    }

    /// Now.
    init(_ time: any Timekeeping) {
        self.init(now: time.now, wallClock: time.wallClock)
    }

    /// What an origin's Date is compared with: the earlier of the two, so that a machine's clock that was set wrong while the
    /// daemon runs, or before, makes nothing old that is new (F14).
    var forDates: Int64 { min(now, wallClock) }
}

extension AgeCalculation {
    init(_ headers: ResponseHeaders, at responseTime: ResponseTime) {
        self.init(
            age: Self.ageValue(headers.fields["age"] ?? []),
            date: headers.fields["date"]?.first.flatMap { HTTPDate.seconds($0, now: responseTime.forDates) },
            receivedAt: responseTime.forDates, delay: headers.delay)
    }
}
