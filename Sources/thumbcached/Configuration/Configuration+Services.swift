import CacheCore
import DaemonServer
import DiskStore
import HelperProtocol
import Logging
import NIOConcurrencyHelpers
import ThumbcacheProtocol

/// The configuration as it is now: read at the start, and replaced by a reload.
typealias LiveConfiguration = NIOLockedValueBox<Configuration>

/// What each part of the program takes of it.
extension Configuration {
    /// - Parameter openDirectories: as many as there are descriptors for.
    func store(openDirectories: Int) -> DiskStoreConfiguration {
        DiskStoreConfiguration(
            cacheDirectory: storage.cache, stateDirectory: storage.state, runtimeDirectory: storage.runtime,
            keys: storage.keys, pendingLogouts: sessions.pendingLogouts.isEmpty ? nil : sessions.pendingLogouts,
            quota: storage.quota, userQuota: storage.userQuota, openDirectories: openDirectories)
    }

    var cacheSettings: CacheSettings {
        CacheSettings(
            origins: origins, imageLimit: limits.image, dimensionLimit: limits.dimension,
            usersPerUID: limits.usersPerUID, sessionsPerUser: limits.sessionsPerUser,
            negativeEntries: limits.negativeEntries,
            // As many as the fetcher would take of a uid.
            downloadsWaiting: limits.queuePerUID + limits.downloadsPerUID,
            renditionsPerProfile: limits.renditionsPerProfile, renditionPixels: limits.pixels)
    }

    var serverLimits: ServerLimits {
        ServerLimits(
            connections: limits.connections, connectionsPerUID: limits.connectionsPerUID,
            adminConnections: limits.adminConnections, input: limits.input, output: limits.output,
            stall: limits.stall, queuePerUID: limits.queuePerUID,
            subscriptions: limits.subscriptions, arguments: limits.arguments,
            command: CommandLimits(id: limits.id, image: limits.image, token: limits.token))
    }

    var memoryLimits: MemoryBudget.Limits { MemoryBudget.Limits(perUID: limits.memoryPerUID, total: limits.memory) }

    /// - Parameter logLevel: over the configuration's.
    func fetcher(logLevel: Logger.Level?) -> FetcherSettings {
        var fetcher = FetcherSettings(version: Version.current, logLevel: (logLevel ?? log.level).rawValue)
        (fetcher.maximumImageBytes, fetcher.maximumDimension) = (limits.image, limits.dimension)
        (fetcher.downloads, fetcher.downloadsPerUID) = (limits.downloads, limits.downloadsPerUID)
        fetcher.queuePerUID = limits.queuePerUID
        fetcher.origins = Set(origins.keys)
        fetcher.authorities = Set(origins.values.map(\.caFile).filter { !$0.isEmpty })
        // A session file's fields are of 65,535 bytes at most.
        fetcher.maximumTokenBytes = min(limits.token, 65_535)
        return fetcher
    }
}
