import CCurl
import Glibc
import NIOCore

// The functions that libcurl calls. The context is the transfer, which the loop keeps for as long as libcurl has the
// handle.

private func transfer(_ context: UnsafeMutableRawPointer?) -> Transfer? {
    context.map { Unmanaged<Transfer>.fromOpaque($0).takeUnretainedValue() }
}

extension Transfer {
    /// Whose handle that is; nil for one of libcurl's own.
    static func of(_ easy: UnsafeMutableRawPointer?) -> Transfer? {
        var context: UnsafeMutableRawPointer?
        guard let easy, ccurl_easy_get_pointer(easy, CURLINFO_PRIVATE, &context) == CURLE_OK else { return nil }
        return transfer(context)
    }

    /// Whether libcurl may forget it, as it does at times what comes over HTTP/2. A token request speaks HTTP/1.1.
    var needsNudges: Bool { url.scheme == .https && ticket.job.kind == .download }
}

func openSocket(
    _ context: UnsafeMutableRawPointer?, _ purpose: curlsocktype, _ address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let transfer = transfer(context), let address else { return CURL_SOCKET_BAD }
    return transfer.socket(for: address)
}

func beforeRequest(
    _ context: UnsafeMutableRawPointer?, _ remote: UnsafeMutablePointer<CChar>?,
    _ local: UnsafeMutablePointer<CChar>?, _ remotePort: Int32, _ localPort: Int32
) -> Int32 {
    guard let transfer = transfer(context), let remote, let local else { return CURL_PREREQFUNC_ABORT }
    let ends = ConnectionTable.Ends(
        localAddress: String(cString: local), localPort: localPort,
        remoteAddress: String(cString: remote), remotePort: remotePort)
    return transfer.maySend(on: ends) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

/// A function for data returns how much it took: anything else makes libcurl give up.
func receiveHeader(
    _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ context: UnsafeMutableRawPointer?
) -> Int {
    let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
    return transfer(context)?.receive(header: line) == true ? line.count : -1
}

func receiveBody(
    _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int, _ context: UnsafeMutableRawPointer?
) -> Int {
    let piece = UnsafeRawBufferPointer(start: bytes, count: size * count)
    return transfer(context)?.receive(body: piece) == true ? piece.count : -1
}

func receiveAsItCame(
    _ easy: UnsafeMutableRawPointer?, _ kind: curl_infotype, _ bytes: UnsafeMutablePointer<CChar>?, _ count: Int,
    _ context: UnsafeMutableRawPointer?
) -> Int32 {
    if kind == CURLINFO_DATA_IN { transfer(context)?.receive(asItCame: count) }
    return 0
}
