import Foundation
import Testing

extension EndToEnd {
    /// The tests' own machinery, without the daemon: what it cannot do, no test can prove.
    struct HarnessTests {
        @Test func `a test may block: it runs on a thread of its own, with its child tasks`() async {
            #expect(OnItsOwnThread.isHere)
            async let child = OnItsOwnThread.isHere
            #expect(await child)
        }

        @Test func `pictures made twice are the same, are all different, and have the sizes asked for`() throws {
            try withMachine { machine in
                let tool = "\(Files.repository)/tools/make-images"
                for name in ["a", "b"] {
                    let made = try machine.run([tool, machine.path(name), "50", "--largest", "70000"])
                    #expect(made.status == 0, "\(made.everything)")
                }
                let names = try FileManager.default.contentsOfDirectory(atPath: machine.path("a")).sorted()
                let pictures = try names.map { try read(machine.path("a/\($0)")) }
                #expect(names.count == 50)
                #expect(try pictures == names.map { try read(machine.path("b/\($0)")) })
                #expect(Set(pictures).count == 50)
                #expect(pictures.map(\.count).min() == 1_024)
                #expect(pictures.map(\.count).max() == 70_000)
            }
        }

        @Test(arguments: [64, 65, 200, 300, 320, 321, 8_192])
        func `a GIF has the size asked for`(size: Int) {
            #expect(Picture.gif("bob", size: size).count == size)
            #expect(Picture.gif("bob", size: size) != Picture.gif("eve", size: size))
        }

        @Test func `nginx serves a directory, and its log counts exactly`() throws {
            try withMachine { machine in
                let pictures = try machine.makeDirectory("pictures")
                try write(Picture.gif("bob"), to: "\(pictures)/bob.gif")
                let nginx = try Nginx(machine, serving: pictures)
                #expect(try nginx.requests() == [])
                let url = "\(nginx.url)/bob"
                // Without a proxy: a test of what the daemon makes of one sets it for the whole process.
                let fetch = """
                    import sys, urllib.request as u
                    sys.stdout.buffer.write(u.build_opener(u.ProxyHandler({})).open(sys.argv[1]).read())
                    """
                let fetched = try machine.run(["python3", "-c", fetch, url])
                #expect(fetched.output == Picture.gif("bob"), "\(fetched.errors)")
                #expect(try nginx.requests() == ["/bob.gif 200"])
            }
        }

        @Test func `the origin holds an answer until its gate opens`() throws {
            let origin = try GatedOrigin { _ in [.wait("gate"), .send(GatedOrigin.response([1, 2, 3])), .close] }
            defer { origin.end() }
            let connection = try connectTCP(origin.port)
            defer { close(connection) }
            let request = Array("GET /bob HTTP/1.1\r\nHost: x\r\n\r\n".utf8)
            #expect(send(connection, request, request.count, 0) == request.count)
            try origin.waitForRequests(1)
            #expect(origin.requests.first?.path == "/bob")
            var byte: UInt8 = 0
            #expect(recv(connection, &byte, 1, CInt(MSG_DONTWAIT)) == -1)
            origin.open("gate")
            var answer: [UInt8] = []
            while recv(connection, &byte, 1, 0) > 0 { answer.append(byte) }
            #expect(answer.suffix(3) == [1, 2, 3])
        }

        @Test func `a program's ending is seen, and what it wrote`() throws {
            try withMachine { machine in
                let finished = try machine.run(["sh", "-c", "cat; echo no >&2; exit 3"], input: Array("yes".utf8))
                #expect(finished.status == 3)
                #expect(finished.text == "yes")
                #expect(finished.errors == "no\n")
                let child = try machine.start(["sleep", "1000"])
                #expect(child.ending() == nil)
                child.end()
                #expect(child.ending() == 128 + SIGKILL)
            }
        }

        @Test func `what a test started ends with it, and its directory goes`() throws {
            var directory = ""
            var pid: pid_t = 0
            try withMachine { machine in
                directory = machine.directory
                pid = try machine.start(["sleep", "1000"]).pid
            }
            #expect(kill(pid, 0) == -1 && errno == ESRCH)
            #expect(!Files.exists(directory))
        }
    }
}
