import LinuxSupport
@_spi(Wire) import Thumbcache

/// An explanation in English.
struct ExplanationText {
    let explanation: ImageExplanation
    /// The command that makes the daemon forget what it knows of the profile.
    let purge: String
    /// Seconds since 1970.
    var now = Times.Moment.now.seconds

    /// Sentences, one a line.
    var lines: [String] {
        var lines = [sentence(summary)]
        if let held = explanation.held { lines.append(sentence(text(held))) }
        lines += upstreams.map { sentence($0) }
        if let waiting = explanation.waiting {
            lines.append("Requests that wait for the download in flight: \(waiting).")
        }
        if let source = explanation.source {
            lines.append("Source, \(source.size.map { "the image of \($0) px" } ?? "the image without size"):")
            lines += ExplanationText(explanation: source, purge: purge, now: now).lines.map { "  " + $0 }
        }
        return lines
    }

    /// What get does and why.
    var summary: String {
        let held = explanation.held.map { "image held \($0.place == "disk" ? "on disk" : "in memory")" }
        let stale = held.map { "stale \($0)" } ?? "stale image's rendition"
        switch explanation.action {
        case .serve? where held == nil: return "get returns the source, which cannot be rendered now"
        case .serve?:
            guard explanation.held?.state != .fresh, let held else { return "get returns the \(held ?? "image")" }
            guard let retryIn = explanation.retryIn else { return "get returns the stale \(held)" }
            return "get returns the stale \(held), since the origin failed; the next request is in \(duration(retryIn))"
        case .refresh?: return "get returns the \(stale), and requests the image again in the background"
        case .revalidate?: return "get requests the image again, and returns the \(stale) if the origin fails"
        case .download?:
            guard let held else { return "no image is held: get requests it from the origin" }
            return "get requests the image from the origin, since the \(held) is too old"
        case .wait?: return "get waits for a download in flight"
        case .render?: return "get renders the image from its source"
        case .fallback?: return "get returns the origin's fallback image, since \(missing)"
        case ImageExplanation.Action.none?:
            if explanation.origin != nil { return missing }
            return held.map { "the \($0) is too old, and the user has no origin" }
                ?? "no image is held, and the user has no origin"
        case .fail?: return "get fails: \(PlainText.escape(explanation.error ?? ""))"
        case nil: return "get does something that this version of thumbcachectl does not know"
        }
    }

    private var missing: String {
        let upstreams = explanation.source?.upstreams ?? explanation.upstreams
        // The first that is requested again.
        let next = upstreams.filter { $0.age != nil }.min { $0.retryIn ?? .zero < $1.retryIn ?? .zero }
        guard let age = next?.age, let retryIn = next?.retryIn else { return "the origin has no image" }
        return "the origin had no image \(duration(age)) ago, which is believed for \(duration(retryIn)) more; "
            + "\(purge) forgets it"
    }

    private func text(_ held: ImageExplanation.Held) -> String {
        let age = Int(held.age.components.seconds)
        let from = held.from == "put" ? "it was put" : "it came from \(PlainText.escape(held.from))"
        let since = "\(from) \(duration(held.age)) ago, at \(moment(now.saturatingSubtract(age)))"
        guard let left = held.timeToLive else { return "\(since), and has no time limit" }
        let end = moment(now.saturatingAdd(Int(left.components.seconds)))
        return held.state == .fresh
            ? "\(since), and is fresh for \(duration(left)) more, until \(end)"
            : "\(since), and has been stale since \(end)"
    }

    private var upstreams: [String] {
        guard let next = explanation.upstreams.firstIndex(where: { $0.state == .ready }) else {
            return explanation.upstreams.map { text($0, isNext: false) }
        }
        return explanation.upstreams.enumerated().map { text($1, isNext: $0 == next) }
    }

    private func text(_ upstream: ImageExplanation.Upstream, isNext: Bool) -> String {
        let name = explanation.origin.map { "origin \(PlainText.escape($0)), " } ?? ""
        let ago = upstream.age.map { " \(duration($0)) ago" } ?? ""
        let again = upstream.retryIn.map { "; the next request is in \(duration($0))" } ?? ""
        let state =
            switch upstream.state {
            case .ready?: isNext ? "is requested next" : "is requested if the upstreams before it have no image"
            case .missing?: "had no image\(ago)\(again), or after a purge"
            case .unusable?: "had no usable image\(ago)\(again), or after a purge"
            case .suspended?: "failed, so its circuit breaker is open\(again)"
            case .unauthorized?: "needs an access token, which could not be refreshed"
            case .failed?, nil: "no request can be sent now"
            }
        return "\(name)\(PlainText.escape(upstream.host)): \(state)"
    }

    private func duration(_ duration: Duration) -> String { Times.duration(Int(duration.components.seconds)) }

    private func moment(_ seconds: Int) -> String { Times.Moment(seconds: seconds, milliseconds: 0).local }

    private func sentence(_ text: String) -> String { text.prefix(1).uppercased() + text.dropFirst() + "." }
}
