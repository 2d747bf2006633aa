import Logging
import NIOCore
import RESP
import SocketLoops
import ThumbcacheProtocol
import ThumbnailCache

/// HELLO and CLIENT: what is said of the connection itself.
extension Connection {
    func hello(_ command: HelloCommand) {
        if command.hasAuth {
            let reason = "AUTH is not needed: the kernel says that you are uid \(peer.uid)"
            return respond(.error(CommandError(.err, reason)))
        }
        if let wanted = command.version {
            guard let version = RESPVersion(rawValue: wanted) else {
                return respond(
                    .error(CommandError(.noProto, "unsupported protocol version \(wanted): 2 and 3 are spoken")))
            }
            self.version = version
        }
        if let name = command.name { self.name = ByteBuffer(bytes: name.readableBytesView) }
        respond(
            .reply { buffer in
                buffer.writeMapHeader(count: HelloKey.allCases.count, version: version)
                for key in HelloKey.allCases {
                    buffer.writeBulkString(key.rawValue)
                    switch key {
                    case .server: buffer.writeBulkString("thumbcached")
                    case .version: buffer.writeBulkString(context.version)
                    case .proto: buffer.writeRESPInteger(version.rawValue)
                    case .id: buffer.writeRESPInteger(Int(place.clientID))
                    case .mode: buffer.writeBulkString("standalone")
                    case .role: buffer.writeBulkString("master")
                    case .modules: buffer.writeArrayHeader(count: 0)
                    }
                }
            })
    }

    func client(_ command: ClientCommand) {
        switch command {
        case .id: respond(.reply { $0.writeRESPInteger(Int(place.clientID)) })
        case .getName where name.readableBytes == 0: respond(.reply { $0.writeNull(version: version) })
        case .getName: respond(.reply { $0.writeBulkString(name) })
        case .setName(let name):
            self.name = ByteBuffer(bytes: name.readableBytesView)
            respond(.ok)
        // What client libraries say of themselves; CLIENT LIST is where it will be seen.
        case .setInfo: respond(.ok)
        }
    }
}
