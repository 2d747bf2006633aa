import Dispatch

/// Has signals done something else than ending the process, for as long as this lives.
final class Signals {
    private let sources: [any DispatchSourceSignal]

    /// - Parameter handler: called on a queue of its own, one signal after another.
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
