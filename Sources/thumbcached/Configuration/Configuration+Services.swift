import CacheCore
import DaemonServer
import DiskStore
import HelperProtocol
import Logging
import NIOConcurrencyHelpers
import ThumbcacheProtocol

typealias LiveConfiguration = NIOLockedValueBox<Configuration>

extension Configuration {
    func store(_ descriptors: DescriptorBudget) -> DiskStoreConfiguration {
        DiskStoreConfiguration(
            cacheDirectory: storage.cache, stateDirectory: storage.state, runtimeDirectory: storage.runtime,
            keys: storage.keys, pendingLogouts: sessions.pendingLogouts.isEmpty ? nil : sessions.pendingLogouts,
            quota: storage.quota, userQuota: storage.userQuota, openDirectories: descriptors.directories,
            openEntries: descriptors.entries)
    }

    var cacheSettings: CacheSettings {
        CacheSettings(
            origins: origins, imageLimit: limits.server.request.image, dimensionLimit: limits.dimension,
            usersPerUID: limits.usersPerUID, sessionsPerUser: limits.sessionsPerUser,
            negativeEntries: limits.negativeEntries,
            // As many as the fetcher accepts of an account.
            downloadsWaiting: limits.server.queuePerAccount + limits.downloadsPerAccount,
            renditionsPerProfile: limits.renditionsPerProfile, renditionPixels: limits.pixels)
    }

    /// - Parameter logLevel: overrides the configuration's.
    func fetcher(logLevel: Logger.Level?) -> FetcherSettings {
        var fetcher = FetcherSettings(version: Version.current, logLevel: (logLevel ?? log.level).rawValue)
        (fetcher.maximumImageBytes, fetcher.maximumDimension) = (limits.server.request.image, limits.dimension)
        (fetcher.downloads, fetcher.downloadsPerAccount) = (limits.downloads, limits.downloadsPerAccount)
        fetcher.queuePerAccount = limits.server.queuePerAccount
        fetcher.origins = Set(origins.keys)
        fetcher.authorities = Set(origins.values.map(\.caFile).filter { !$0.isEmpty })
        // A field of a session file has at most 65,535 bytes.
        fetcher.maximumTokenBytes = min(limits.server.request.token, 65_535)
        return fetcher
    }
}
