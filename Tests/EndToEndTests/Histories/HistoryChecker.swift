/// Checks whether a history is linearizable (Herlihy and Wing, Linearizability, 1990): for each user, the commands must
/// have a sequential order in which each takes effect between its request and its reply, and in which no image is
/// served after the purge or logout that removed it. One exception: a read that overlaps a PUT may return the new image
/// early, as with a regular register (Lamport, On Interprocess Communication, 1986).
///
/// The search is that of Wing and Gong (Testing and Verifying Concurrent Objects, 1993): it tries all orders that the
/// times allow, and visits no state twice.
struct HistoryChecker {
    /// A possible state of one user's cache.
    private struct CacheState: Hashable {
        enum Image: Hashable {
            case put(Int)
            case downloaded(Int)
            /// A download before a kill. It may be lost, since its reply does not wait for the write to disk (I4).
            case uncertain(Int)
        }

        var isLoggedIn = false
        var images: [String: Image] = [:]
        /// Start of the latest purge of all profiles or logout.
        var fence = 0
        /// Start of the latest purge of each profile.
        var fences: [String: Int] = [:]
    }

    /// A node of the search: the events that are done, and the state after them.
    private struct SearchNode: Hashable {
        /// All events before this index are done.
        var first = 0
        /// Further events that are done, in ascending order.
        var ahead: [Int] = []
        var state = CacheState()

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
    /// Events that overlap a logout. Both receipts may count the user.
    private var overlapsLogout: Set<Int> = []
    /// Reads that overlap the PUT of the image they returned.
    private var overlapsPut: Set<Int> = []

    /// Describes why the history is inconsistent; nil if it is consistent.
    static func contradiction(in history: History) -> String? {
        if let contradiction = contradictionOfEpochs(history.events) { return contradiction }
        for user in Set(history.events.compactMap(\.user)).sorted() {
            if let contradiction = HistoryChecker(user, history).contradiction() { return contradiction }
        }
        return nil
    }

    private init(_ user: String, _ history: History) {
        self.user = user
        // A read without a reply is irrelevant.
        events = history.events.filter { event in
            guard event.user == nil || event.user == user else { return false }
            switch event.command {
            case .get, .getCached: return event.outcome != .unknown
            default: return true
            }
        }.sorted { $0.began < $1.began }
        downloads = history.downloads
        for (index, event) in events.enumerated() where isOverlapped(event, where: { $0 == .logout }) {
            overlapsLogout.insert(index)
        }
        for (index, event) in events.enumerated() {
            guard case .image(let number) = event.outcome, let profile = event.command.profile else { continue }
            if isOverlapped(event, where: { $0 == .put(profile, number) }) { overlapsPut.insert(index) }
        }
    }

    // MARK: Receipts

    /// Checks that the epoch of each receipt exceeds all epochs acknowledged before its request.
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
                return "epoch \(epoch) of the command at \(time) does not exceed the earlier epoch \(highest)"
            }
        }
        return nil
    }

    // MARK: One user

    private func contradiction() -> String? {
        for event in events {
            guard event.outcome == .cancelled, let profile = event.command.profile else { continue }
            if !isOverlapped(event, where: { $0.cancels(profile) }) {
                return "\(user): \(event): CANCELLED without a cause"
            }
        }
        return contradictionOfOrder()
    }

    private func isOverlapped(_ event: History.Event, where condition: (History.Command) -> Bool) -> Bool {
        events.contains { other in
            other != event && condition(other.command) && other.began < event.ended && event.began < other.ended
        }
    }

    private func contradictionOfOrder() -> String? {
        var seen: Set<SearchNode> = []
        var open = [SearchNode()]
        var furthest = SearchNode()
        while let node = open.popLast() {
            if node.first == events.count { return nil }
            guard seen.insert(node).inserted else { continue }
            if node.first + node.ahead.count > furthest.first + furthest.ahead.count { furthest = node }
            var following: [SearchNode] = []
            for index in candidates(at: node) {
                let states = states(after: events[index], at: index, on: node.state)
                let next = states.map { state in
                    var next = node
                    next.state = state
                    next.finish(index)
                    return next
                }
                // A read-only event that is possible here can come first without excluding another order.
                if events[index].isReadOnly && states == [node.state] {
                    following = next
                    break
                }
                following += next
            }
            open += following
        }
        let undone = candidates(at: furthest).map { "\n    \(events[$0])" }.joined()
        return "\(user): no consistent order; after \(furthest.state), none of these is possible:\(undone)"
    }

    /// Events that may come next: those that began before the end of every other remaining event.
    private func candidates(at node: SearchNode) -> [Int] {
        var found: [Int] = []
        var earliestEnd = Int.max
        var ahead = node.ahead[...]
        for index in node.first..<events.count {
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

    /// The possible states after an event; none if the event is impossible in this state.
    private func states(after event: History.Event, at index: Int, on before: CacheState) -> [CacheState] {
        switch event.outcome {
        case .unknown:
            // The interrupted command was done or not done.
            return [after(event, on: before), before]
        case .ok:
            if case .put = event.command, !before.isLoggedIn { return [] }
            return [after(event, on: before)]
        case .receipt(let users, _):
            if users > 0 && !before.isLoggedIn && event.user != nil && !overlapsLogout.contains(index) { return [] }
            // A purge of a profile without an image counts no user.
            if users == 0 && before.isLoggedIn && !event.isPurgeOfProfile { return [] }
            return [after(event, on: before)]
        case .image(let number):
            guard before.isLoggedIn, let profile = event.command.profile else { return [] }
            let explained = after(image: number, of: profile, event, on: before)
            return explained.isEmpty && overlapsPut.contains(index) ? [before] : explained
        case .missing, .failed:
            guard before.isLoggedIn, let profile = event.command.profile else { return [] }
            return withoutImage(profile, before).map { [$0] } ?? []
        case .notLoggedIn:
            return before.isLoggedIn ? [] : [before]
        case .cancelled:
            return [before]
        }
    }

    private func after(_ event: History.Event, on before: CacheState) -> CacheState {
        var state = before
        switch event.command {
        case .login:
            state.isLoggedIn = true
        case .logout, .purge:
            state.images = [:]
            state.fences = [:]
            state.fence = max(before.fence, event.began)
            if event.command == .logout { state.isLoggedIn = false }
        case .purgeProfile(let profile):
            state.images[profile] = nil
            state.fences[profile] = max(before.fences[profile] ?? 0, event.began)
        case .put(let profile, let number):
            if before.isLoggedIn { state.images[profile] = .put(number) }
        case .kill:
            state.images = before.images.mapValues { image in
                if case .downloaded(let number) = image { .uncertain(number) } else { image }
            }
        case .get, .getCached:
            break
        }
        return state
    }

    private func after(
        image number: Int, of profile: String, _ event: History.Event, on before: CacheState
    ) -> [CacheState] {
        var state = before
        switch before.images[profile] {
        case .put(number), .downloaded(number):
            return [before]
        case .uncertain(number):
            state.images[profile] = .downloaded(number)
            return [state]
        case .put, .downloaded:
            return []
        case .uncertain, nil:
            guard let download = downloads[number], download.path == "\(user)/\(profile)",
                download.began > max(before.fence, before.fences[profile] ?? 0), download.began < event.ended
            else { return [] }
            state.images[profile] = download.isStorable ? .downloaded(number) : nil
            return [state]
        }
    }

    private func withoutImage(_ profile: String, _ before: CacheState) -> CacheState? {
        var state = before
        switch before.images[profile] {
        case .put, .downloaded: return nil
        case .uncertain, nil: state.images[profile] = nil
        }
        return state
    }
}
