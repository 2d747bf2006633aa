import ArgumentParser
import Glibc

struct Doctor: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Find problems of the installation, and suggest remedies.",
        discussion: """
            Checks the configuration, the socket, permissions of directories, files with secrets and certificates, \
            the store, the keys, the origins (each gets a request for the profile 'thumbcachectl-doctor'), the units, \
            the logout hook, lingering users, and thumbcached-http if it is configured: its configuration, its \
            listeners and its signing key. Each result is one line: ok, note, wrong, or unknown if the item \
            could not be examined. Nothing is changed. Run it as root for a complete check.

            Exit status: 0 no problem; 1 a problem was found; 3 no problem was found, but the check was incomplete.

            Example:
              sudo thumbcachectl doctor
            """)

    @Option(
        help: ArgumentHelp("The daemon's configuration, if not the default file.", valueName: "file"),
        completion: .file())
    var config: String?

    @Option(
        help: ArgumentHelp("The configuration of thumbcached-http, if not the default file.", valueName: "file"),
        completion: .file())
    var httpConfig: String?

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    private static var checks: [any DoctorCheck] {
        [
            ConfigurationCheck(), SocketCheck(), PermissionsCheck(), CredentialsCheck(), StoreCheck(), KeysCheck(),
            OriginsCheck(), UnitsCheck(), HookCheck(), LingerCheck(), HTTPCheck(),
        ]
    }

    func run(in environment: Environment) async throws(Failure) {
        let daemon = try InstalledDaemon(
            environment, self.daemon, configuration: config, httpConfiguration: httpConfig)
        let terminal = Terminal(STDOUT_FILENO, variable: environment.variable)
        var diagnostics: [(check: String, diagnostic: Diagnostic)] = []
        for check in Self.checks {
            let found = await check.diagnose(daemon).map {
                (check: check.name, diagnostic: $0.with(daemon.accessAdvice))
            }
            // Printed immediately, since an origin may be slow.
            if !output.json { try show(Diagnosis(diagnostics: found).lines(on: terminal)) }
            diagnostics += found
        }
        let diagnosis = Diagnosis(diagnostics: diagnostics)
        if output.json { try show([diagnosis.json]) }
        if let failure = diagnosis.failure { throw failure }
    }

    private func show(_ lines: [String]) throws(Failure) { try write(Array(lines.map { $0 + "\n" }.joined().utf8)) }
}
