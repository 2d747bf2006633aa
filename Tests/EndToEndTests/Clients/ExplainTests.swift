import Foundation
import Testing

extension EndToEnd.Clients {
    /// `thumbcachectl explain`, and the reasons of get and show, with a running daemon.
    struct ExplainTests {
        private func run(
            _ machine: Machine, _ daemon: Daemon, _ arguments: String...
        ) throws -> (status: Int32, text: String) {
            let finished = try machine.run(
                ["\(Files.programs)/thumbcachectl", "--socket", daemon.socket] + arguments, environment: [:])
            return (finished.status, finished.text + finished.errors)
        }

        @Test func `explain says what get does with a held, a missing and a failed image`() throws {
            try withMachine { machine in
                let image = TestImage.gif("bob")
                let origin = try GatedOrigin { request in
                    switch request.path {
                    case "/bob?key=s3cret": [.send(GatedOrigin.response(image, headers: ["Cache-Control: max-age=60"]))]
                    case "/carol?key=s3cret": [.send(GatedOrigin.response([], status: "404 Not Found"))]
                    default: [.send(GatedOrigin.response([], status: "500 Broken"))]
                    }
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}?key=s3cret")
                    daemon.settings["origins.default", "failures"] = 2
                    daemon.settings["origins.default", "backoff"] = "6h"
                    daemon.settings["origins.default", "backoff-max"] = "1d"
                }
                func explain(_ profile: String) throws -> String {
                    let run = try run(machine, daemon, "explain", "alice", profile)
                    #expect(run.status == 0 && !run.text.contains("s3cret"), "\(run.text)")
                    return run.text
                }
                #expect(try explain("bob").hasPrefix("Get fails: NOLOGIN"))
                #expect(try run(machine, daemon, "login", "alice").status == 0)
                #expect(
                    try explain("bob") == """
                        No image is held: get requests it from the origin.
                        Origin default, \(origin.url): is requested next.

                        """)
                #expect(origin.requests.isEmpty)

                let copy = machine.path("copy")
                #expect(try run(machine, daemon, "get", "alice", "bob", "--output", copy).status == 0)
                let held = try explain("bob")
                #expect(held.hasPrefix("Get returns the image held "), "\(held)")
                #expect(held.contains("\nIt came from \(origin.url) "), "\(held)")
                #expect(held.contains(", and is fresh for "), "\(held)")

                let missing = try run(machine, daemon, "get", "alice", "carol", "--output", copy)
                #expect(missing.status == 4)
                #expect(missing.text.contains("no such image: the origin had no image "), "\(missing.text)")
                #expect(missing.text.contains("thumbcachectl purge alice carol forgets it"), "\(missing.text)")
                let shown = try run(machine, daemon, "show", "alice", "carol", "--cached")
                #expect(shown.status == 4 && shown.text.contains("none is cached, and the origin had no image "))
                #expect(try explain("carol").contains("which is believed for "))

                // Two failures open the circuit breaker of this uid.
                for _ in 0..<2 {
                    #expect(try run(machine, daemon, "get", "alice", "eve", "--output", copy).status == 1)
                }
                let suspended = try explain("eve")
                #expect(
                    suspended.hasPrefix("Get fails: ORIGIN \(origin.url) failed; requests to it are suspended for "))
                #expect(suspended.contains("its circuit breaker is open; the next request is in "), "\(suspended)")
                #expect(origin.requests.count == 4)
                let json = try run(machine, daemon, "explain", "alice", "eve", "--json").text
                #expect(json.hasPrefix("{\"action\":\"fail\",\"error\":\"ORIGIN "), "\(json)")

                #expect(try run(machine, daemon, "purge", "alice", "carol").status == 0)
                #expect(try !explain("carol").contains("which is believed for "))
            }
        }
    }
}
