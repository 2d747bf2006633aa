import Testing

extension EndToEnd {
    /// The checker of histories, without the daemon: what it passes over, no history can show.
    struct HistoryCheckerTests {
        private typealias Step = (String, History.Command, History.Outcome)

        /// One command after another, each at the time of its place: 10 to 15, 20 to 25, and so on.
        private static func history(_ steps: [Step], downloads: [Int: History.Download] = [:]) -> History {
            var history = History()
            history.downloads = downloads
            for (index, (user, command, outcome)) in steps.enumerated() {
                let began = 10 * (index + 1)
                history.events.append(
                    .init(
                        user: user == "*" ? nil : user, command: command, outcome: outcome, began: began,
                        ended: began + 5))
            }
            return history
        }

        private static func download(_ profile: String, at time: Int, isKept: Bool = true) -> History.Download {
            .init(path: "alice/\(profile)", began: time, isKept: isKept)
        }

        private static let login: Step = ("alice", .login, .ok)
        private static func put(_ number: Int) -> Step { ("alice", .put("bob", number), .ok) }
        private static func get(_ outcome: History.Outcome) -> Step { ("alice", .get("bob"), outcome) }
        private static func look(_ outcome: History.Outcome) -> Step { ("alice", .look("bob"), outcome) }
        private static func logout(_ users: Int64, _ epoch: Int64) -> Step {
            ("alice", .logout, .receipt(users: users, epoch: epoch))
        }
        private static func purge(_ users: Int64, _ epoch: Int64) -> Step {
            ("alice", .purge, .receipt(users: users, epoch: epoch))
        }
        private static func purgeBob(_ users: Int64, _ epoch: Int64) -> Step {
            ("alice", .purgeProfile("bob"), .receipt(users: users, epoch: epoch))
        }
        private static let kill: Step = ("*", .kill, .ok)

        private static let right: [[Step]] = [
            [login, put(1), get(.image(1)), purge(1, 1), look(.missing), logout(1, 2), look(.notLoggedIn)],
            [look(.notLoggedIn), logout(0, 1), purge(0, 1), login, login, look(.missing), get(.failed)],
            [login, put(1), kill, look(.image(1)), put(2), ("*", .logout, .receipt(users: 1, epoch: 1)), login],
            [login, put(1), purgeBob(1, 1), purgeBob(0, 1), look(.missing), logout(1, 2)],
        ]

        @Test(arguments: right.indices)
        func `a history that can be explained is`(index: Int) {
            let contradiction = HistoryChecker.contradiction(in: Self.history(Self.right[index]))
            #expect(contradiction == nil)
        }

        private static let wrong: [(String, [Step])] = [
            ("no such user", [get(.image(1))]),
            ("an image that nobody made", [login, get(.image(1))]),
            ("I7: an older image than was put", [login, put(1), put(2), look(.image(1))]),
            ("I5: an image that was put is gone", [login, put(1), look(.missing)]),
            ("I4: a kill takes an image that was put", [login, put(1), kill, look(.missing)]),
            ("I4: a kill takes a log-in", [login, kill, look(.notLoggedIn)]),
            ("I4: a kill undoes a log-out", [login, logout(1, 1), kill, look(.missing)]),
            ("I3: an image behind a purge", [login, put(1), purge(1, 1), look(.image(1))]),
            ("I3: an image behind a purge of its profile", [login, put(1), purgeBob(1, 1), look(.image(1))]),
            (
                "I3: an image behind a purge of all",
                [login, put(1), ("*", .purge, .receipt(users: 1, epoch: 1)), look(.image(1))]
            ),
            ("I2: an image behind a log-out and a log-in", [login, put(1), logout(1, 1), login, look(.image(1))]),
            ("I2: a user behind a log-out", [login, logout(1, 1), look(.missing)]),
            ("I2: a PUT behind a log-out", [login, logout(1, 1), put(1)]),
            ("a log-out that counts nobody", [login, logout(0, 1)]),
            ("a log-out that counts somebody who was out", [logout(1, 1)]),
            ("an epoch that comes again", [login, purge(1, 1), purge(1, 1)]),
            ("NOLOGIN behind a LOGIN", [login, look(.notLoggedIn)]),
            ("CANCELLED, and nothing ended it", [login, get(.cancelled)]),
            ("the origin's failure in place of an image that is held", [login, put(1), get(.failed)]),
        ]

        @Test(arguments: wrong.indices)
        func `a history that nothing explains is found out`(index: Int) {
            let (what, steps) = Self.wrong[index]
            #expect(HistoryChecker.contradiction(in: Self.history(steps)) != nil, "\(what)")
            // Without its last step it is right.
            #expect(HistoryChecker.contradiction(in: Self.history(steps.dropLast())) == nil, "\(what)")
        }

        @Test(arguments: [(21, true, true), (19, true, false), (21, false, true), (36, true, false)])
        func `I3: a download is served behind a purge only if it began behind the purge's beginning`(
            time: Int, isKept: Bool, isRight: Bool
        ) {
            let downloads = [7: Self.download("bob", at: time, isKept: isKept)]
            let history = Self.history([Self.login, Self.purge(1, 1), Self.get(.image(7))], downloads: downloads)
            #expect((HistoryChecker.contradiction(in: history) == nil) == isRight)
        }

        @Test(arguments: [true, false])
        func `a download is held if it may be kept, and a kill may take it`(isKept: Bool) {
            let downloads = [7: Self.download("bob", at: 11, isKept: isKept)]
            func isRight(_ steps: [Step]) -> Bool {
                let start = [Self.login, Self.get(.image(7))]
                return HistoryChecker.contradiction(in: Self.history(start + steps, downloads: downloads)) == nil
            }
            #expect(isRight([Self.look(.missing)]) == !isKept)
            #expect(isRight([Self.look(.image(7)), Self.look(.image(7))]))
            #expect(isRight([Self.kill, Self.look(.missing)]))
            #expect(isRight([Self.kill, Self.look(.image(7))]))
            #expect(isRight([Self.kill, Self.look(.missing), Self.look(.missing), Self.get(.failed)]))
            #expect(!isRight([Self.put(8), Self.look(.image(7))]))
        }

        @Test func `commands that overlap may have run in either order, and each only in one of them`() {
            func isRight(_ outcomes: [History.Outcome]) -> Bool {
                var history = Self.history([Self.login, Self.put(1)])
                // A PUT and a purge under way at once, and looks at what came of it.
                history.events.append(
                    .init(user: "alice", command: .put("bob", 2), outcome: .ok, began: 30, ended: 90))
                history.events.append(
                    .init(
                        user: "alice", command: .purge, outcome: .receipt(users: 1, epoch: 1), began: 31, ended: 91))
                for (index, outcome) in outcomes.enumerated() {
                    history.events.append(
                        .init(
                            user: "alice", command: .look("bob"), outcome: outcome, began: 32 + 10 * index,
                            ended: 33 + 10 * index))
                }
                return HistoryChecker.contradiction(in: history) == nil
            }
            #expect(isRight([.image(1), .image(2), .missing]))
            #expect(isRight([.image(1), .missing, .image(2)]))
            #expect(isRight([.cancelled, .image(1)]))
            // Before the PUT is done, and after.
            #expect(isRight([.image(2), .image(1), .image(2)]))
            #expect(!isRight([.missing, .image(1)]))
            #expect(!isRight([.missing, .image(1), .missing]))
        }

        @Test func `what a kill left without an answer was done, or was not`() {
            func isRight(_ outcome: History.Outcome) -> Bool {
                var history = Self.history([Self.login, Self.put(1)])
                history.events.append(
                    .init(user: "alice", command: .put("bob", 2), outcome: .unknown, began: 30, ended: 36))
                history.events.append(.init(user: nil, command: .kill, outcome: .ok, began: 32, ended: 35))
                history.events.append(
                    .init(user: "alice", command: .look("bob"), outcome: outcome, began: 40, ended: 41))
                return HistoryChecker.contradiction(in: history) == nil
            }
            #expect(isRight(.image(1)))
            #expect(isRight(.image(2)))
            #expect(!isRight(.missing))
        }
    }
}
