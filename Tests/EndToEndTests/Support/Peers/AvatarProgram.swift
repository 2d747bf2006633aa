import Foundation
import Testing

/// One of the programs in `examples/avatar`. All have the same arguments, output and exit status.
struct AvatarProgram: CustomTestStringConvertible, Sendable {
    static let examples = "\(Files.repository)/examples"

    let file: String
    /// Interpreter and its arguments; empty for a compiled program.
    let interpreter: [String]
    let environment: [String: String]
    /// Compiler and its arguments, without the source and the output file.
    let compiler: [String]

    init(_ file: String, _ interpreter: [String] = [], environment: [String: String] = [:], build: [String] = []) {
        self.file = file
        self.interpreter = interpreter
        self.environment = environment
        compiler = build
    }

    var testDescription: String { ([interpreter.first].compactMap { $0 } + [file]).joined(separator: " ") }

    /// Builds the program if necessary, and checks each of its outcomes.
    func checkOutcomes() throws {
        try withMachine { machine in
            let images = try machine.makeDirectory("images")
            let profile = "carol müller@example.org"
            let served = TestImage.gif("carol", size: 70_000)
            try write(served, to: "\(images)/\(profile).gif")
            let own = TestImage.gif("own", size: 1_000_000)
            try write(own, to: machine.path("own.gif"))
            try write("no image", to: machine.path("no-image"))
            let nginx = try Nginx(machine, serving: images)
            let daemon = try machine.daemon { $0.settings.setOrigin("\(nginx.url)/{profile}") }
            let command = try built(machine)
            let copy = machine.path("copy")

            func run(_ arguments: String..., socket: String = daemon.socket) throws -> Finished {
                unlink(copy)
                let variables = environment.merging(["THUMBCACHED_SOCKET": socket, "LC_ALL": "C.UTF-8"]) { $1 }
                let finished = try machine.run(command + arguments, environment: variables)
                // The end of the connection ends a session that only the connection held.
                let client = try daemon.connect()
                try eventually("no user is logged in") { try client.call("USERS") == .array([]) }
                return finished
            }

            let downloaded = try run("alice", profile, copy)
            #expect(downloaded.status == 0, "\(downloaded.summary)")
            #expect(downloaded.text == "70000 bytes written to \(copy)\ncaches ended: 1\nafter logout: NOLOGIN\n")
            #expect(try read(copy) == served)
            #expect(try nginx.requests().count == 1)

            let stored = try run("alice smith", "bob", copy, machine.path("own.gif"))
            #expect(stored.status == 0, "\(stored.summary)")
            #expect(stored.text == "1000000 bytes written to \(copy)\ncaches ended: 1\nafter logout: NOLOGIN\n")
            #expect(try read(copy) == own)

            let missing = try run("alice", "nobody", copy)
            #expect(missing.status == 4, "\(missing.summary)")
            #expect(missing.errors.contains("no image"), "\(missing.errors)")
            #expect(!Files.exists(copy))

            let rejected = try run("alice", "bob", copy, machine.path("no-image"))
            #expect(rejected.status == 1, "\(rejected.summary)")
            #expect(rejected.errors.contains("BADIMAGE"), "\(rejected.errors)")
            let unwritable = try run("alice", profile, machine.path("no-directory/copy"))
            #expect(unwritable.status == 1, "\(unwritable.summary)")
            #expect(try run("alice", "bob", copy, socket: machine.path("no-socket")).status == 1)
            #expect(try run("alice", "bob").status == 2)
        }
    }

    /// Compiles the program if necessary, and returns the command that runs it.
    private func built(_ machine: Machine) throws -> [String] {
        let source = "\(Self.examples)/avatar/\(file)"
        if compiler.isEmpty { return interpreter + [source] }
        let program = machine.path("avatar")
        // The linker resolves symbols from left to right, so libraries come last.
        let libraries = compiler.filter { $0.hasPrefix("-l") }
        let words = compiler.filter { !$0.hasPrefix("-l") } + ["-o", program, source] + libraries
        try machine.runSuccessfully(words, environment: environment, within: 300)
        return [program]
    }
}
