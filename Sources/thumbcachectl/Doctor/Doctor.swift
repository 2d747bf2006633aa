import ArgumentParser
import Glibc

struct Doctor: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Look for what is wrong, and say what to do.",
        discussion: """
            Looks at the configuration, the socket, the permissions of directories, the files with secrets and \
            certificates, the store, the keys, the origins (each is really asked, for the profile \
            'thumbcachectl-doctor'), the units, the log-out hook and lingering users. A line each: ok, note, wrong, or \
            unknown where it could not be looked at. It changes nothing. Run it as root to have all looked at.

            Exit status: 0 nothing is wrong; 1 something is; 3 nothing is, but not all could be looked at.

            Example:
              sudo thumbcachectl doctor
            """)

    @Option(
        help: ArgumentHelp("The daemon's configuration, if not the usual one.", valueName: "file"),
        completion: .file())
    var config: String?

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    private static var checks: [any DoctorCheck] {
        [
            ConfigurationCheck(), SocketCheck(), PermissionsCheck(), CredentialsCheck(), StoreCheck(), KeysCheck(),
            OriginsCheck(), UnitsCheck(), HookCheck(), LingerCheck(),
        ]
    }

    func run(in environment: Environment) async throws(Failure) {
        let daemon = try InstalledDaemon(environment, self.daemon, configuration: config)
        let terminal = Terminal(STDOUT_FILENO, variable: environment.variable)
        var diagnostics: [(check: String, diagnostic: Diagnostic)] = []
        for check in Self.checks {
            let found = await check.look(at: daemon).map {
                (check: check.name, diagnostic: $0.with(daemon.accessAdvice))
            }
            // As it comes: an origin may take its time.
            if !output.json { try show(Diagnosis(diagnostics: found).lines(on: terminal)) }
            diagnostics += found
        }
        let diagnosis = Diagnosis(diagnostics: diagnostics)
        if output.json { try show([diagnosis.json]) }
        if let failure = diagnosis.failure { throw failure }
    }

    private func show(_ lines: [String]) throws(Failure) { try write(Array(lines.map { $0 + "\n" }.joined().utf8)) }
}
