import LinuxSupport

extension SigningKeys {
    /// Reads the keys from a file, else from the credential `signing-key` of systemd.
    /// - Parameters:
    ///   - path: of the setting `images.signing-key`; empty for the credential.
    ///   - credentials: CREDENTIALS_DIRECTORY of the environment; systemd.exec(5).
    static func load(path: String, credentials: String?) throws(Failure) -> SigningKeys {
        let file = path.isEmpty ? credentials.map { "\($0)/signing-key" } : path
        guard let file, !file.isEmpty else {
            throw Failure(
                description: "images.per-user = \"signed\" needs a key: set images.signing-key, or pass the credential "
                    + "signing-key (LoadCredential=)")
        }
        var bytes: [UInt8]
        do throws(PlainFileError) {
            bytes = try readPlainFile(file, limit: 4 << 10)
        } catch {
            throw Failure(description: "\(file) \(error)")
        }
        defer { bytes.wipe() }
        do throws(Failure) {
            return try SigningKeys(bytes)
        } catch {
            throw Failure(description: "\(file) \(error)")
        }
    }
}
