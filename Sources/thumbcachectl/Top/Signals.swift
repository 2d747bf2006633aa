import Dispatch

/// Handles signals instead of their default action while it exists.
final class Signals {
    private let sources: [any DispatchSourceSignal]

    /// - Parameter handler: called serially on a private queue.
    init(_ signals: [CInt], _ handler: @escaping @Sendable (_ signal: CInt) -> Void) {
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
