extension Configuration {
    /// The keys that differ from those of a running daemon and that a reload cannot take over, in the order
    /// of the settings. Limits, origins and the log level can be taken over; what is open already cannot be moved.
    func changesNeedingRestart(from old: Configuration) -> [String] {
        Self.knownSettings.filter { !$0.isReloadable && !$0.isEqual(self, old) }.map(\.name)
    }

    /// What a running daemon goes by after a reload: this configuration, with the values of `old` wherever only a
    /// restart takes over a change.
    func reloaded(over old: Configuration) -> Configuration {
        var result = self
        for setting in Self.knownSettings where !setting.isReloadable { setting.copy(old, &result) }
        return result
    }

    /// For what looks at values only: no account is looked up.
    private static var knownSettings: [Setting<Configuration>] { settings(accounts: .system) }
}
