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
    private let declarations = Event.allCases.map { ($0, $0.declaration) }

    public init() {}

    package func count(_ event: Event, _ amount: Int = 1) { counts.add(amount, at: event.rawValue) }

    public subscript(event: Event) -> Int { counts[event.rawValue] }

    /// - Parameter values: replace the counts of events that are counted elsewhere as well.
    public func metrics(in section: Metric.Section, replacing values: [Event: Int] = [:]) -> [Metric] {
        var groups: [(first: CounterDeclaration, samples: [Metric.Sample])] = []
        for (event, declaration) in declarations where declaration.section == section {
            let sample = Metric.Sample(
                text: "\(values[event] ?? self[event])", labels: declaration.label.map { [$0] } ?? [],
                visibility: declaration.visibility)
            if groups.last?.first.name == declaration.name {
                groups[groups.count - 1].samples.append(sample)
            } else {
                groups.append((declaration, [sample]))
            }
        }
        return groups.map { Metric($0.first.name, .counter, unit: $0.first.unit, $0.first.help, $0.samples) }
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
