import Dispatch
import Synchronization

/// Has signals done something else than ending the process, for as long as this lives.
final class Signals {
    private let sources: [any DispatchSourceSignal]

    /// - Parameter handler: called on a queue of its own, one signal after another.
    init(_ signals: [Int32], _ handler: @escaping @Sendable (_ signal: Int32) -> Void) {
        let queue = DispatchQueue(label: "signals")
        sources = signals.map { signal in
            let source = DispatchSource.makeSignalSource(signal: signal, queue: queue)
            source.setEventHandler { handler(signal) }
            source.activate()
            return source
        }
    }

    deinit { for source in sources { source.cancel() } }
}

/// Whether a signal has come that ends the program.
final class Stopping: Sendable {
    private let flag = Atomic(false)

    var isSet: Bool { flag.load(ordering: .acquiring) }

    func set() { flag.store(true, ordering: .releasing) }
}
