/// Every command there is, by its name in lower case.
public enum CommandName: String, Sendable, CaseIterable {
    case get, mget, put, purge, stat
    case login, logout, users
    case hello, ping, echo, quit, reset, select, client
    case command, info
}
