/// Tells whether what clients saw can be explained: by an order in which the commands of each user ran one after
/// another, each somewhere between its request and its reply (Herlihy and Wing, Linearizability, 1990), and in which no
/// image came behind an ending that it is older than. But for a read that overlaps a PUT, which may have the PUT's
/// image before that has its place in the order, as a regular register lets it (Lamport, On Interprocess Communication,
/// 1986).
///
/// The search is Wing and Gong's (Testing and Verifying Concurrent Objects, 1993): it goes through the orders that the
/// times allow and passes over what it has come to before.
struct HistoryChecker {
    /// What the cache of one user may hold.
    private struct Holding: Hashable {
        enum Picture: Hashable {
            case put(Int)
            case downloaded(Int)
            /// A download that a kill may have taken with it: its reply does not wait for the disk (I4).
            case perhaps(Int)
        }

        var isLoggedIn = false
        var pictures: [String: Picture] = [:]
        /// When the newest ending began of those that count for all profiles.
        var fence = 0
        /// Of those that count for one.
        var fences: [String: Int] = [:]
    }

    /// A place in the search: which events are done, and what is held then.
    private struct Place: Hashable {
        /// All before it are done.
        var first = 0
        /// Done beyond it, in order.
        var ahead: [Int] = []
        var holding = Holding()

        mutating func finish(_ index: Int) {
            ahead.insert(index, at: ahead.firstIndex { $0 > index } ?? ahead.count)
            while ahead.first == first {
                ahead.removeFirst()
                first += 1
            }
        }
    }

    private let user: String
    private let events: [History.Event]
    private let downloads: [Int: History.Download]
    /// Those that ran at the same time as a log-out: both may have counted the user.
    private var logoutsMeet: Set<Int> = []
    /// Reads of an image whose PUT ran at the same time.
    private var putsMeet: Set<Int> = []

    /// What contradicts the history; nil if nothing does.
    static func contradiction(in history: History) -> String? {
        if let contradiction = contradictionOfEpochs(history.events) { return contradiction }
        for user in Set(history.events.compactMap(\.user)).sorted() {
            if let contradiction = HistoryChecker(user, history).contradiction() { return contradiction }
        }
        return nil
    }

    private init(_ user: String, _ history: History) {
        self.user = user
        // An answer to a read that never came shows nothing.
        events = history.events.filter { event in
            guard event.user == nil || event.user == user else { return false }
            switch event.command {
            case .get, .look: return event.outcome != .unknown
            default: return true
            }
        }.sorted { $0.began < $1.began }
        downloads = history.downloads
        for (index, event) in events.enumerated() where isOverlapped(event, where: { $0 == .logout }) {
            logoutsMeet.insert(index)
        }
        for (index, event) in events.enumerated() {
            guard case .image(let number) = event.outcome, let profile = event.command.profile else { continue }
            if isOverlapped(event, where: { $0 == .put(profile, number) }) { putsMeet.insert(index) }
        }
    }

    // MARK: Receipts

    /// A receipt's epoch is above that of every ending that was acknowledged before it was asked for.
    private static func contradictionOfEpochs(_ events: [History.Event]) -> String? {
        var ends: [(time: Int, epoch: Int64)] = []
        var begins: [(time: Int, epoch: Int64)] = []
        for event in events {
            guard case .receipt(let users, let epoch) = event.outcome, users > 0 else { continue }
            ends.append((event.ended, epoch))
            begins.append((event.began, epoch))
        }
        ends.sort { $0.time < $1.time }
        var highest: Int64 = 0
        var next = 0
        for (time, epoch) in begins.sorted(by: { $0.time < $1.time }) {
            while next < ends.count, ends[next].time < time {
                highest = max(highest, ends[next].epoch)
                next += 1
            }
            if epoch <= highest {
                return "a receipt asked for at \(time) has epoch \(epoch), and \(highest) was acknowledged before"
            }
        }
        return nil
    }

    // MARK: One user

    private func contradiction() -> String? {
        for event in events {
            guard event.outcome == .cancelled, let profile = event.command.profile else { continue }
            if !isOverlapped(event, where: { $0.ends(profile) }) {
                return "\(user): \(event): CANCELLED, and nothing ended it"
            }
        }
        return contradictionOfOrder()
    }

    private func isOverlapped(_ event: History.Event, where isIt: (History.Command) -> Bool) -> Bool {
        events.contains { other in
            other != event && isIt(other.command) && other.began < event.ended && event.began < other.ended
        }
    }

    private func contradictionOfOrder() -> String? {
        var seen: Set<Place> = []
        var open = [Place()]
        var furthest = Place()
        while let place = open.popLast() {
            if place.first == events.count { return nil }
            guard seen.insert(place).inserted else { continue }
            if place.first + place.ahead.count > furthest.first + furthest.ahead.count { furthest = place }
            var following: [Place] = []
            for index in candidates(at: place) {
                let holdings = holdings(after: events[index], at: index, on: place.holding)
                let next = holdings.map { holding in
                    var next = place
                    next.holding = holding
                    next.finish(index)
                    return next
                }
                // What only reads, and can be explained now, may as well come now: nothing else is shut out by it.
                if events[index].isRead && holdings == [place.holding] {
                    following = next
                    break
                }
                following += next
            }
            open += following
        }
        let undone = candidates(at: furthest).map { "\n    \(events[$0])" }.joined()
        return "\(user): no order explains what follows on \(furthest.holding):\(undone)"
    }

    /// Events that may come next: those that began before any other that is left had ended.
    private func candidates(at place: Place) -> [Int] {
        var found: [Int] = []
        var earliestEnd = Int.max
        var ahead = place.ahead[...]
        for index in place.first..<events.count {
            if ahead.first == index {
                ahead.removeFirst()
                continue
            }
            guard events[index].began < earliestEnd else { break }
            earliestEnd = min(earliestEnd, events[index].ended)
            found.append(index)
        }
        return found
    }

    // MARK: One command

    /// What may be held after an event; none if it cannot happen there.
    private func holdings(after event: History.Event, at index: Int, on before: Holding) -> [Holding] {
        switch event.outcome {
        case .unknown:
            // A command that was under way is done, or is not.
            return [after(event, on: before), before]
        case .ok:
            if case .put = event.command, !before.isLoggedIn { return [] }
            return [after(event, on: before)]
        case .receipt(let users, _):
            if users > 0 && !before.isLoggedIn && event.user != nil && !logoutsMeet.contains(index) { return [] }
            // A profile of which there is nothing counts nobody.
            if users == 0 && before.isLoggedIn && !event.isOfProfile { return [] }
            return [after(event, on: before)]
        case .image(let number):
            guard before.isLoggedIn, let profile = event.command.profile else { return [] }
            let explained = after(image: number, of: profile, event, on: before)
            return explained.isEmpty && putsMeet.contains(index) ? [before] : explained
        case .missing, .failed:
            guard before.isLoggedIn, let profile = event.command.profile else { return [] }
            return withoutPicture(profile, before).map { [$0] } ?? []
        case .notLoggedIn:
            return before.isLoggedIn ? [] : [before]
        case .cancelled:
            return [before]
        }
    }

    private func after(_ event: History.Event, on before: Holding) -> Holding {
        var holding = before
        switch event.command {
        case .login:
            holding.isLoggedIn = true
        case .logout, .purge:
            holding.pictures = [:]
            holding.fences = [:]
            holding.fence = max(before.fence, event.began)
            if event.command == .logout { holding.isLoggedIn = false }
        case .purgeProfile(let profile):
            holding.pictures[profile] = nil
            holding.fences[profile] = max(before.fences[profile] ?? 0, event.began)
        case .put(let profile, let number):
            if before.isLoggedIn { holding.pictures[profile] = .put(number) }
        case .kill:
            holding.pictures = before.pictures.mapValues { picture in
                if case .downloaded(let number) = picture { .perhaps(number) } else { picture }
            }
        case .get, .look:
            break
        }
        return holding
    }

    private func after(
        image number: Int, of profile: String, _ event: History.Event, on before: Holding
    ) -> [Holding] {
        var holding = before
        switch before.pictures[profile] {
        case .put(number), .downloaded(number):
            return [before]
        case .perhaps(number):
            holding.pictures[profile] = .downloaded(number)
            return [holding]
        case .put, .downloaded:
            return []
        case .perhaps, nil:
            guard let download = downloads[number], download.path == "\(user)/\(profile)",
                download.began > max(before.fence, before.fences[profile] ?? 0), download.began < event.ended
            else { return [] }
            holding.pictures[profile] = download.isKept ? .downloaded(number) : nil
            return [holding]
        }
    }

    private func withoutPicture(_ profile: String, _ before: Holding) -> Holding? {
        var holding = before
        switch before.pictures[profile] {
        case .put, .downloaded: return nil
        case .perhaps, nil: holding.pictures[profile] = nil
        }
        return holding
    }
}
