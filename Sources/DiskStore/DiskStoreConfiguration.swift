/// What the store is told. Nothing of it changes while it runs.
public struct DiskStoreConfiguration: Sendable {
    /// Where keys are kept.
    public enum KeyStorage: String, CaseIterable, Sendable {
        /// In the state directory: images and log-ins survive a reboot.
        case disk
        /// In the runtime directory, a tmpfs: a reboot logs everybody out.
        case runtime
    }

    /// Absolute paths. Each must be there, belong to the daemon's user and be writable for nobody else.
    public var cacheDirectory: String
    public var stateDirectory: String
    /// Only used with ``KeyStorage/runtime``, and to destroy keys that an earlier start with it left there.
    public var runtimeDirectory: String?
    public var keys: KeyStorage
    /// Absolute path of the directory in which log-out hooks leave markers; need not exist. nil: none is looked at.
    public var pendingLogouts: String?
    /// Bytes that all images and the trash may take.
    public var quota: Int
    /// Bytes that the images of one user may take.
    public var userQuota: Int
    /// Directories kept open, each of which costs a descriptor.
    public var openDirectories: Int
    /// Images whose files are kept open, each of which costs a descriptor; 0 for none.
    public var openEntries: Int

    public init(
        cacheDirectory: String, stateDirectory: String, runtimeDirectory: String? = nil, keys: KeyStorage = .disk,
        pendingLogouts: String? = nil, quota: Int = 1 << 30, userQuota: Int = 64 << 20, openDirectories: Int = 256,
        openEntries: Int = 1024
    ) {
        self.cacheDirectory = cacheDirectory
        self.stateDirectory = stateDirectory
        self.runtimeDirectory = runtimeDirectory
        self.keys = keys
        self.pendingLogouts = pendingLogouts
        self.quota = quota
        self.userQuota = userQuota
        self.openDirectories = openDirectories
        self.openEntries = openEntries
    }
}
