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
        let place = explanation.held.map { $0.place == "disk" ? "on disk" : "in memory" } ?? ""
        switch explanation.action {
        case .serve? where explanation.held == nil: return "get returns the source, which cannot be rendered now"
        case .serve? where explanation.held?.state == .fresh: return "get returns the image held \(place)"
        case .serve?:
            let retry = explanation.retryIn.map { "in \(duration($0))" } ?? "later"
            return "get returns the stale image held \(place), since the origin failed; it is asked again \(retry)"
        case .refresh?:
            return "get returns the stale image held \(place), and asks the origin again in the background"
        case .revalidate?:
            return "get asks the origin again, and returns the stale image held \(place) if the origin fails"
        case .download? where explanation.held != nil:
            return "get asks the origin, since the image held \(place) is too old"
        case .download?: return "no image is held: get asks the origin"
        case .wait?: return "get waits for a download in flight"
        case .render?: return "get renders the image from its source"
        case .fallback?: return "get returns the origin's fallback image, since \(missing)"
        case ImageExplanation.Action.none?:
            return explanation.origin == nil ? "no image is held, and the user has no origin to ask" : missing
        case .fail?: return "get fails: \(PlainText.escape(explanation.error ?? ""))"
        case nil: return "get does something that this version of thumbcachectl does not know"
        }
    }

    private var missing: String {
        let asked = explanation.source?.upstreams ?? explanation.upstreams
        guard let age = asked.compactMap(\.age).max(), let retryIn = explanation.retryIn else {
            return "the origin has no image"
        }
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
            : "\(since), and is stale since \(end)"
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
        let again = upstream.retryIn.map { ", and is asked again in \(duration($0))" } ?? ""
        let state =
            switch upstream.state {
            case .ready?: isNext ? "is asked next" : "is asked if those before it have no image"
            case .missing?: "had no image\(ago)\(again), or after a purge"
            case .unusable?: "had no usable image\(ago)\(again), or after a purge"
            case .suspended?: "failed, so its circuit breaker is open\(again)"
            case .unauthorized?: "needs an access token, which could not be refreshed"
            case .failed?, nil: "cannot be asked now"
            }
        return "\(name)\(PlainText.escape(upstream.host)): \(state)"
    }

    private func duration(_ duration: Duration) -> String { Times.duration(Int(duration.components.seconds)) }

    private func moment(_ seconds: Int) -> String { Times.Moment(seconds: seconds, milliseconds: 0).local }

    private func sentence(_ text: String) -> String { text.prefix(1).uppercased() + text.dropFirst() + "." }
}
