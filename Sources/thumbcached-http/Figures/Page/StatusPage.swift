import NIOCore
@_spi(Wire) import Thumbcache

/// The status page: one HTML file without scripts and external resources.
struct StatusPage {
    let latest: Scrape?
    let history: History
    let now: NIODeadline

    var metrics: ThumbcacheMetrics? { latest?.figures?.metrics }

    /// - Parameter nonce: identifies the page's style in the content security policy.
    func html(nonce: String) -> String {
        """
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="color-scheme" content="light dark">
        <meta http-equiv="refresh" content="5">
        <title>thumbcached: \(isUp ? "up" : "down")</title>
        <style nonce="\(nonce)">\(Self.style)</style>
        </head>
        <body>
        \(header)
        <main>
        \(notices)
        \(body)
        </main>
        <footer>The plots show the last ten minutes in steps of \(Service.samplePause.nanoseconds / 1_000_000_000) s. \
        <a href="/metrics">/metrics</a> has the same values for Prometheus. They are sums over all users; no user and \
        no profile is named.</footer>
        </body>
        </html>

        """
    }

    private var isUp: Bool { latest?.figures != nil }

    private var header: String {
        let version = metrics?.samples(of: "thumbcached_build_info").first?.labels["version"]
        let uptime = metrics?.sum(of: "thumbcached_uptime_seconds")
        var facts: [String] = []
        if let version { facts.append("version \(PageText.escaped(version))") }
        if let uptime { facts.append("up for \(PageText.duration(uptime))") }
        if let latest {
            facts.append("scraped \(PageText.duration(Double((now - latest.moment).nanoseconds) / 1e9)) ago")
        }
        return """
            <header>
            <h1>thumbcached <span class="pill \(isUp ? "good" : "bad")">\(isUp ? "up" : "down")</span></h1>
            <p>\(facts.isEmpty ? "not scraped yet" : facts.joined(separator: " · "))</p>
            </header>
            """
    }

    private var notices: String {
        var notices: [String] = []
        if let failure = latest?.failure { notices.append(PageText.escaped(failure.reason)) }
        if let pending = metrics?.sum(of: "thumbcached_invalidations_pending"), pending > 0 {
            notices.append(
                "Logouts or purges that could not be made durable: \(PageText.count(pending)). Their users are closed, "
                    + "and the daemon retries: check the disk.")
        }
        if let open = metrics?.sum(of: "thumbcached_breakers_open", having: ["scope": "host"]), open > 0 {
            notices.append(
                "Hosts of origins that cannot be reached: \(PageText.count(open)). Stored images are still served.")
        }
        return notices.map { "<p class=\"notice\">\($0)</p>" }.joined(separator: "\n")
    }

    private var body: String {
        let span = history.span
        guard let metrics else { return "<div class=\"cards\">\(plots(span))</div>" }
        return """
            <div class="cards">\(plots(span))</div>
            \(latencies(span))
            \(origins(metrics))
            <div class="cards facts">\(facts(metrics))</div>
            """
    }

    private func plots(_ span: (first: Sample, last: Sample)?) -> String {
        let hitRates = history.changes { old, new, _ in
            let all = new.images.all - old.images.all
            return all > 0 ? (new.images.hits - old.images.hits) / all : nil
        }
        let requests = history.changes { ($1.allRequests - $0.allRequests) / $2 }
        let downloads = history.changes { ($1.downloads - $0.downloads) / $2 }
        let slowest = history.changes { old, new, _ in Self.times(old, new).quantile(0.95) }
        var share: Double?
        var (failed, begun, all) = (0.0, 0.0, Histogram())
        if let span {
            let images = span.last.images.all - span.first.images.all
            share = images > 0 ? (span.last.images.hits - span.first.images.hits) / images : nil
            (failed, begun) = (span.last.failures - span.first.failures, span.last.downloads - span.first.downloads)
            all = Self.times(span.first, span.last)
        }
        func perSecond(_ value: Double) -> String { "\(PageText.short(value)) /s" }
        return [
            card("Hit rate", PageText.share(share), "from memory or disk", hitRates, PageText.share, most: 1),
            card("Requests", rate(requests), "\(PageText.count(all.count)) in ten minutes", requests, perSecond),
            card(
                "p95", PageText.time(all.quantile(0.95)),
                "p50: \(PageText.time(all.quantile(0.5)))", slowest, PageText.time, least: 0.0001),
            card(
                "Downloads", rate(downloads),
                "\(PageText.count(failed)) of \(PageText.count(begun)) failed in ten minutes", downloads, perSecond),
        ].joined()
    }

    static func times(_ old: Sample, _ new: Sample) -> Histogram {
        new.requests.reduce(Histogram()) { $0.adding($1.times.since(old.times(of: $1.source))) }
    }

    private func rate(_ rates: [Double?]) -> String {
        guard let last = rates.last, let last else { return PageText.nothing }
        return "\(PageText.short(last))<small> /s</small>"
    }

    /// - Parameter unit: formats a value.
    private func card(
        _ title: String, _ figure: String, _ remark: String, _ values: [Double?], _ unit: (Double) -> String,
        least: Double = 1, most: Double? = nil
    ) -> String {
        let plot = Plot(label: "\(title) in the last ten minutes", values: values, least: least, most: most)
        return """
            <section class="card"><h2>\(title)</h2><p class="figure">\(figure)</p><p class="remark">\(remark)</p>\
            \(plot.svg)<p class="scale"><span>10 min ago</span><span>top: \(unit(plot.top))</span><span>now</span></p>\
            </section>
            """
    }
}
