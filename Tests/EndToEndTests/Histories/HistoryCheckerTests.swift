import Testing

extension EndToEnd.Histories {
    /// Tests of ``HistoryChecker`` with constructed histories.
    struct HistoryCheckerTests {
        private typealias Step = (String, History.Command, History.Outcome)

        /// A history of sequential commands, at the times 10 to 15, 20 to 25, and so on.
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

        private static func download(_ profile: String, at time: Int, isStorable: Bool = true) -> History.Download {
            .init(path: "alice/\(profile)", began: time, isStorable: isStorable)
        }

        private static let login: Step = ("alice", .login, .ok)
        private static func put(_ number: Int) -> Step { ("alice", .put("bob", number), .ok) }
        private static func get(_ outcome: History.Outcome) -> Step { ("alice", .get("bob"), outcome) }
        private static func getCached(_ outcome: History.Outcome) -> Step { ("alice", .getCached("bob"), outcome) }
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

        private static let consistent: [[Step]] = [
            [login, put(1), get(.image(1)), purge(1, 1), getCached(.missing), logout(1, 2), getCached(.notLoggedIn)],
            [getCached(.notLoggedIn), logout(0, 1), purge(0, 1), login, login, getCached(.missing), get(.failed)],
            [login, put(1), kill, getCached(.image(1)), put(2), ("*", .logout, .receipt(users: 1, epoch: 1)), login],
            [login, put(1), purgeBob(1, 1), purgeBob(0, 1), getCached(.missing), logout(1, 2)],
        ]

        @Test(arguments: consistent.indices)
        func `a consistent history is accepted`(index: Int) {
            let contradiction = HistoryChecker.contradiction(in: Self.history(Self.consistent[index]))
            #expect(contradiction == nil)
        }

        private static let inconsistent: [(String, [Step])] = [
            ("an image without a login", [get(.image(1))]),
            ("an unknown image", [login, get(.image(1))]),
            ("I7: an older image than that of the last PUT", [login, put(1), put(2), getCached(.image(1))]),
            ("I5: a stored image is missing", [login, put(1), getCached(.missing)]),
            ("I4: a kill removes a stored image", [login, put(1), kill, getCached(.missing)]),
            ("I4: a kill undoes a login", [login, kill, getCached(.notLoggedIn)]),
            ("I4: a kill undoes a logout", [login, logout(1, 1), kill, getCached(.missing)]),
            ("I3: an image after a purge", [login, put(1), purge(1, 1), getCached(.image(1))]),
            ("I3: an image after a purge of its profile", [login, put(1), purgeBob(1, 1), getCached(.image(1))]),
            (
                "I3: an image after a purge of all users",
                [login, put(1), ("*", .purge, .receipt(users: 1, epoch: 1)), getCached(.image(1))]
            ),
            ("I2: an image after a logout and a login", [login, put(1), logout(1, 1), login, getCached(.image(1))]),
            ("I2: a logged-in user after a logout", [login, logout(1, 1), getCached(.missing)]),
            ("I2: a PUT after a logout", [login, logout(1, 1), put(1)]),
            ("a logout that does not count a logged-in user", [login, logout(0, 1)]),
            ("a logout that counts a user who is not logged in", [logout(1, 1)]),
            ("a repeated epoch", [login, purge(1, 1), purge(1, 1)]),
            ("NOLOGIN after LOGIN", [login, getCached(.notLoggedIn)]),
            ("CANCELLED without a cause", [login, get(.cancelled)]),
            ("a failure of the origin instead of a stored image", [login, put(1), get(.failed)]),
        ]

        @Test(arguments: inconsistent.indices)
        func `an inconsistent history is rejected`(index: Int) {
            let (what, steps) = Self.inconsistent[index]
            #expect(HistoryChecker.contradiction(in: Self.history(steps)) != nil, "\(what)")
            // Only the last step is inconsistent.
            #expect(HistoryChecker.contradiction(in: Self.history(steps.dropLast())) == nil, "\(what)")
        }

        @Test(arguments: [(21, true, true), (19, true, false), (21, false, true), (36, true, false)])
        func `I3: a download is served after a purge only if it began after the start of the purge`(
            time: Int, isStorable: Bool, isConsistent: Bool
        ) {
            let downloads = [7: Self.download("bob", at: time, isStorable: isStorable)]
            let history = Self.history([Self.login, Self.purge(1, 1), Self.get(.image(7))], downloads: downloads)
            #expect((HistoryChecker.contradiction(in: history) == nil) == isConsistent)
        }

        @Test(arguments: [true, false])
        func `a storable download is stored, and a kill may remove it`(isStorable: Bool) {
            let downloads = [7: Self.download("bob", at: 11, isStorable: isStorable)]
            func isConsistent(_ steps: [Step]) -> Bool {
                let start = [Self.login, Self.get(.image(7))]
                return HistoryChecker.contradiction(in: Self.history(start + steps, downloads: downloads)) == nil
            }
            #expect(isConsistent([Self.getCached(.missing)]) == !isStorable)
            #expect(isConsistent([Self.getCached(.image(7)), Self.getCached(.image(7))]))
            #expect(isConsistent([Self.kill, Self.getCached(.missing)]))
            #expect(isConsistent([Self.kill, Self.getCached(.image(7))]))
            #expect(isConsistent([Self.kill, Self.getCached(.missing), Self.getCached(.missing), Self.get(.failed)]))
            #expect(!isConsistent([Self.put(8), Self.getCached(.image(7))]))
        }

        @Test func `overlapping commands may have run in either order`() {
            func isConsistent(_ outcomes: [History.Outcome]) -> Bool {
                var history = Self.history([Self.login, Self.put(1)])
                // A PUT and a purge overlap, with reads during both.
                history.events.append(
                    .init(user: "alice", command: .put("bob", 2), outcome: .ok, began: 30, ended: 90))
                history.events.append(
                    .init(
                        user: "alice", command: .purge, outcome: .receipt(users: 1, epoch: 1), began: 31, ended: 91))
                for (index, outcome) in outcomes.enumerated() {
                    history.events.append(
                        .init(
                            user: "alice", command: .getCached("bob"), outcome: outcome, began: 32 + 10 * index,
                            ended: 33 + 10 * index))
                }
                return HistoryChecker.contradiction(in: history) == nil
            }
            #expect(isConsistent([.image(1), .image(2), .missing]))
            #expect(isConsistent([.image(1), .missing, .image(2)]))
            #expect(isConsistent([.cancelled, .image(1)]))
            // A read that overlaps the PUT may return its image early.
            #expect(isConsistent([.image(2), .image(1), .image(2)]))
            #expect(!isConsistent([.missing, .image(1)]))
            #expect(!isConsistent([.missing, .image(1), .missing]))
        }

        @Test func `a command that a kill interrupted was done or not done`() {
            func isConsistent(_ outcome: History.Outcome) -> Bool {
                var history = Self.history([Self.login, Self.put(1)])
                history.events.append(
                    .init(user: "alice", command: .put("bob", 2), outcome: .unknown, began: 30, ended: 36))
                history.events.append(.init(user: nil, command: .kill, outcome: .ok, began: 32, ended: 35))
                history.events.append(
                    .init(user: "alice", command: .getCached("bob"), outcome: outcome, began: 40, ended: 41))
                return HistoryChecker.contradiction(in: history) == nil
            }
            #expect(isConsistent(.image(1)))
            #expect(isConsistent(.image(2)))
            #expect(!isConsistent(.missing))
        }
    }
}
