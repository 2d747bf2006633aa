import Foundation
import Glibc

/// Sends a GET request to a server on loopback, on a new connection, and reads the whole response.
@discardableResult
func getHTTP(_ port: UInt16, _ path: String) throws -> (status: Int, body: String) {
    let connection = try connectTCP(port)
    defer { close(connection) }
    let request = Array("GET \(path) HTTP/1.0\r\nHost: 127.0.0.1:\(port)\r\n\r\n".utf8)
    guard write(connection, request, request.count) == request.count else { throw Failure(systemCall: "write") }
    var answer: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while case let count = Glibc.read(connection, &buffer, buffer.count), count > 0 { answer += buffer[..<count] }
    let text = String(decoding: answer, as: UTF8.self)
    let end = text.firstRange(of: "\r\n\r\n")
    let status = text.split(separator: " ", maxSplits: 2).dropFirst().first.flatMap { Int($0) }
    return (status ?? 0, end.map { String(text[$0.upperBound...]) } ?? "")
}
