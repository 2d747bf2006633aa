import Foundation
import Testing

/// One of the programs in `examples/avatar`, which all do the same job with the same words and the same exit status.
struct AvatarProgram: CustomTestStringConvertible, Sendable {
    static let examples = "\(Files.repository)/examples"

    let file: String
    /// What runs it; none for a program that is built.
    let interpreter: [String]
    let environment: [String: String]
    /// What builds it, without the names of the source and of what comes out.
    let compiler: [String]

    init(_ file: String, _ interpreter: [String] = [], environment: [String: String] = [:], build: [String] = []) {
        self.file = file
        self.interpreter = interpreter
        self.environment = environment
        compiler = build
    }

    var testDescription: String { ([interpreter.first].compactMap { $0 } + [file]).joined(separator: " ") }

    /// Builds it if need be, and runs it in every way in which it can end.
    func prove() throws {
        try withMachine { machine in
            let pictures = try machine.makeDirectory("pictures")
            let profile = "carol müller@example.org"
            let served = Picture.gif("carol", size: 70_000)
            try write(served, to: "\(pictures)/\(profile).gif")
            let own = Picture.gif("own", size: 1_000_000)
            try write(own, to: machine.path("own.gif"))
            try write("no image", to: machine.path("no-image"))
            let nginx = try Nginx(machine, serving: pictures)
            let daemon = try machine.daemon { $0.settings.setOrigin("\(nginx.url)/{profile}") }
            let command = try built(machine)
            let copy = machine.path("copy")

            func run(_ arguments: String..., socket: String = daemon.socket) throws -> Finished {
                unlink(copy)
                let surroundings = environment.merging(["THUMBCACHED_SOCKET": socket, "LC_ALL": "C.UTF-8"]) { $1 }
                let finished = try machine.run(command + arguments, environment: surroundings)
                // However it ended: where a session was held by the connection alone, soon.
                let client = try daemon.connect()
                try eventually("nobody is logged in") { try client.call("USERS") == .array([]) }
                return finished
            }

            let asked = try run("alice", profile, copy)
            #expect(asked.status == 0, "\(asked.everything)")
            #expect(asked.text == "70000 bytes written to \(copy)\ncaches ended: 1\nasked again: NOLOGIN\n")
            #expect(try read(copy) == served)
            #expect(try nginx.requests().count == 1)

            let stored = try run("alice smith", "bob", copy, machine.path("own.gif"))
            #expect(stored.status == 0, "\(stored.everything)")
            #expect(stored.text == "1000000 bytes written to \(copy)\ncaches ended: 1\nasked again: NOLOGIN\n")
            #expect(try read(copy) == own)

            let missing = try run("alice", "nobody", copy)
            #expect(missing.status == 4, "\(missing.everything)")
            #expect(missing.errors.contains("there is no picture"), "\(missing.errors)")
            #expect(!Files.exists(copy))

            let refused = try run("alice", "bob", copy, machine.path("no-image"))
            #expect(refused.status == 1, "\(refused.everything)")
            #expect(refused.errors.contains("BADIMAGE"), "\(refused.errors)")
            let unwritable = try run("alice", profile, machine.path("no-directory/copy"))
            #expect(unwritable.status == 1, "\(unwritable.everything)")
            #expect(try run("alice", "bob", copy, socket: machine.path("no-socket")).status == 1)
            #expect(try run("alice", "bob").status == 2)
        }
    }

    /// The command, ready to run.
    private func built(_ machine: Machine) throws -> [String] {
        let source = "\(Self.examples)/avatar/\(file)"
        if compiler.isEmpty { return interpreter + [source] }
        let program = machine.path("avatar")
        // Libraries stand behind what needs them.
        let libraries = compiler.filter { $0.hasPrefix("-l") }
        let words = compiler.filter { !$0.hasPrefix("-l") } + ["-o", program, source] + libraries
        let finished = try machine.run(words, environment: environment, within: 300)
        guard finished.status == 0 else { throw Failure("\(words): \(finished.everything)") }
        return [program]
    }
}
