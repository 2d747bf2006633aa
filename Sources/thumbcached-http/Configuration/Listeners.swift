import ProgramSupport

/// Where the program listens. A socket of systemd takes the place of the configured address.
struct Listeners: Equatable, Sendable {
    let figures: ListeningPlace?
    let images: ListeningPlace?

    /// Why the program cannot listen.
    struct Failure: Error, Equatable, CustomStringConvertible {
        let description: String
    }

    /// - Parameter file: the configuration file, for the message.
    init(
        _ configuration: HTTPConfiguration, passed: [SocketActivation.Socket], file: String
    ) throws(Failure) {
        var named: [String: ListeningPlace] = [:]
        for socket in passed {
            guard ["figures", "images"].contains(socket.name), named[socket.name] == nil else {
                throw Failure(
                    description: "systemd passes a socket with the name \(quoted(socket.name)); expected one each with "
                        + "FileDescriptorName=figures or images")
            }
            named[socket.name] = .passed(socket.descriptor, isUnix: socket.isUnix)
        }
        figures = named["figures"] ?? configuration.figures.listen.map(ListeningPlace.address)
        images = named["images"] ?? configuration.images.listen.map(ListeningPlace.address)
        guard figures != nil || images != nil else {
            throw Failure(description: "no listener: set figures.listen or images.listen in \(file)")
        }
    }
}
