import Synchronization

/// An enumeration of counted events. Its raw values are indices from 0 on.
public protocol CountedEvent: CaseIterable, Hashable, RawRepresentable, Sendable where RawValue == Int {
    /// Consecutive cases with one metric name are samples of one metric, which takes the first case's help.
    var declaration: CounterDeclaration { get }
}

public struct CounterDeclaration: Sendable {
    let section: Metric.Section
    let name: String
    let label: (name: String, value: String)?
    let unit: String
    let help: String
    let visibility: Metric.Visibility

    /// - Parameter name: without the prefix `thumbcached_`, with the suffix `_total`.
    public init(
        _ section: Metric.Section, _ name: String, label: (name: String, value: String)? = nil, unit: String,
        _ help: String, _ visibility: Metric.Visibility = .observers
    ) {
        (self.section, self.name, self.label, self.unit) = (section, name, label, unit)
        (self.help, self.visibility) = (help, visibility)
    }
}

/// One count for each case of an enumeration, since the daemon's start.
public final class Counters<Event: CountedEvent>: Sendable {
    private let counts = AtomicCounts(Event.allCases.count)
    private let groups: [Metric.Section: [CounterGroup]]

    public init() {
        var groups: [CounterGroup] = []
        for event in Event.allCases {
            let declaration = event.declaration
            if groups.last?.first.name == declaration.name {
                groups[groups.count - 1].add(event.rawValue, declaration)
            } else {
                groups.append(CounterGroup(event.rawValue, declaration))
            }
        }
        self.groups = Dictionary(grouping: groups, by: \.first.section)
    }

    package func count(_ event: Event, _ amount: Int = 1) { counts.add(amount, at: event.rawValue) }

    public subscript(event: Event) -> Int { counts[event.rawValue] }

    /// - Parameters:
    ///   - seesAll: false for only those metrics that have samples for everyone.
    ///   - values: replace the counts of events that are counted elsewhere as well.
    public func metrics(
        in section: Metric.Section, seesAll: Bool = true, replacing values: [Event: Int] = [:]
    ) -> [Metric] {
        let values = Dictionary(uniqueKeysWithValues: values.map { ($0.rawValue, $1) })
        return groups[section, default: []].compactMap { group in
            seesAll || group.isForEveryone ? group.metric(counts, replacing: values) : nil
        }
    }
}

/// The counters of one metric. Not generic: unspecialized code would make INFO twice as expensive.
private struct CounterGroup: Sendable {
    private struct Member: Sendable {
        let index: Int
        let labels: [(name: String, value: String)]
        let visibility: Metric.Visibility
    }

    let first: CounterDeclaration
    private var members: [Member] = []
    private(set) var isForEveryone = false

    init(_ index: Int, _ declaration: CounterDeclaration) {
        first = declaration
        add(index, declaration)
    }

    mutating func add(_ index: Int, _ declaration: CounterDeclaration) {
        let labels = declaration.label.map { [$0] } ?? []
        members.append(Member(index: index, labels: labels, visibility: declaration.visibility))
        if declaration.visibility == .everyone { isForEveryone = true }
    }

    func metric(_ counts: AtomicCounts, replacing values: [Int: Int]) -> Metric {
        Metric(
            first.name, .counter, unit: first.unit, first.help, isForEveryone: isForEveryone,
            members.map { member in
                Metric.Sample(
                    text: "\(values[member.index] ?? counts[member.index])", labels: member.labels,
                    visibility: member.visibility)
            })
    }
}

package final class AtomicCounts: @unchecked Sendable {
    // Unchecked, because a pointer is not Sendable. Its target is atomic.
    private let counts: UnsafeMutableBufferPointer<Atomic<Int>>

    package init(_ count: Int) {
        counts = .allocate(capacity: count)
        for index in 0..<count { counts.initializeElement(at: index, to: Atomic(0)) }
    }

    deinit {
        counts.deinitialize()
        counts.deallocate()
    }

    package func add(_ amount: Int, at index: Int) { counts[index].add(amount, ordering: .relaxed) }

    /// Adds without a locked instruction. Only one thread may ever add to this count.
    package func addAsOnlyWriter(_ amount: Int, at index: Int) {
        counts[index].store(counts[index].load(ordering: .relaxed) &+ amount, ordering: .relaxed)
    }

    package subscript(index: Int) -> Int { counts[index].load(ordering: .relaxed) }
}
