import CacheCore
import DiskStore
import NIOCore
import ThumbcacheProtocol

// Output of `verify`. Paths may contain anything; ``Printer`` escapes them for terminals.

extension StoreReport {
    var lines: [String] {
        let problems = counted(findings.count, "problem", "problems")
        let summary =
            unread.isEmpty
            ? findings.isEmpty ? "The store has no problems." : "The store has \(problems)."
            : "The store could be read only in part; the readable part has \(problems)."
        let who = users == 0 ? "No user is" : counted(users, "user is", "users are")
        return [summary, "\(who) logged in, with \(held.phrase("image"))."]
            + waiting(trash, pendingLogouts)
            + findings.map { "\($0.path) \($0.what). \($0.problem.remedy)" }
            + unread.map { "\($0.path) could not be read: \($0.reason)" }
    }

    var value: Value {
        map(
            ("users", .integer(users)), ("images", .integer(held.images)), ("bytes", .integer(held.bytes)),
            ("trash", trash.value), ("pending-logouts", pendingFiles(pendingLogouts)),
            (
                "findings",
                .array(
                    findings.map { finding in
                        map(
                            ("path", .simpleString(finding.path)),
                            ("problem", .simpleString(finding.problem.rawValue)),
                            ("what", .simpleString(finding.what)), ("remedy", .simpleString(finding.problem.remedy)))
                    })
            ), ("unread", parts(unread)))
    }
}

extension UserTraces {
    func lines(of user: String, uid: UInt32?) -> [String] {
        let whose = uid.map { "\(user) of uid \($0)" } ?? user
        var lines: [String] = []
        if isNothing {
            lines = ["The store contains nothing of \(whose): no key, no session, no images."]
        } else if traces.contains(where: { $0.kind == .key }) {
            lines = ["\(whose) is logged in, with \(held.phrase("image"))."]
        } else if !traces.isEmpty {
            lines = ["\(whose) is not logged in, but data remains, with \(held.phrase("image"))."]
        } else if unread.isEmpty {
            lines = ["The store contains nothing of \(whose), but a logout is pending."]
        } else {
            lines = ["The store could be read only in part: data of \(whose) may exist."]
        }
        return lines + waiting(trash, pendingLogouts) + traces.map { "\($0.path) \($0.kind.what), uid \($0.uid)." }
            + unread.map { "\($0.path) could not be read: \($0.reason)" }
    }

    func value(of user: String, uid: UInt32?) -> Value {
        map(
            ("user", .bulk(ByteBuffer(string: user))), ("uid", uid.map { .integer(Int($0)) } ?? .null),
            ("images", .integer(held.images)), ("bytes", .integer(held.bytes)), ("trash", trash.value),
            ("pending-logouts", pendingFiles(pendingLogouts)),
            (
                "traces",
                .array(
                    traces.map { trace in
                        map(
                            ("path", .simpleString(trace.path)), ("uid", .integer(Int(trace.uid))),
                            ("kind", .simpleString(trace.kind.rawValue)))
                    })
            ), ("unread", parts(unread)))
    }
}

extension UserTraces.Kind {
    fileprivate var what: String {
        switch self {
        case .key: "is the key file, which represents the login"
        case .session: "is the session file, with encrypted tokens"
        case .images: "is the directory of images"
        case .temporary: "is a temporary file of a login"
        }
    }
}

extension Usage {
    fileprivate var value: Value { map(("files", .integer(images)), ("bytes", .integer(bytes))) }

    fileprivate func phrase(_ thing: String) -> String {
        let number = counted(images, thing, thing + "s")
        return bytes == 0 ? number : "\(number) in \(counted(bytes, "byte", "bytes"))"
    }
}

/// Lines about the trash and pending logouts, which are normal.
private func waiting(_ trash: Usage, _ pendingLogouts: [UInt32: Int]) -> [String] {
    var lines: [String] = []
    if trash != Usage() {
        lines.append("The trash contains \(trash.phrase("file")) that no key opens; the daemon deletes them.")
    }
    for (uid, _) in pendingLogouts.sorted(by: { $0.key < $1.key }) {
        lines.append("A logout of uid \(uid) is pending; the daemon processes it before it serves that uid again.")
    }
    return lines
}

private func pendingFiles(_ byUID: [UInt32: Int]) -> Value {
    .array(
        byUID.sorted { $0.key < $1.key }.map { map(("uid", .integer(Int($0.key))), ("files", .integer($0.value))) })
}

private func parts(_ unread: [UnreadPart]) -> Value {
    .array(unread.map { map(("path", .simpleString($0.path)), ("reason", .simpleString($0.reason))) })
}

private func map(_ members: (String, Value)...) -> Value { .map(members.flatMap { [.simpleString($0), $1] }) }

private func counted(_ count: Int, _ one: String, _ several: String) -> String {
    count == 1 ? "1 \(one)" : "\(count == 0 ? "no" : "\(count)") \(several)"
}
