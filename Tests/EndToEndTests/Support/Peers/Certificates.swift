/// An authority, and a server's certificate by it.
func makeCertificates(_ machine: Machine) throws -> (
    authority: String, certificate: String, key: String
) {
    let place = try machine.makeDirectory("tls")
    try write("subjectAltName=DNS:localhost\n", to: "\(place)/names")
    for words in [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost",
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out certificate.pem -days 2"
            + " -extfile names",
    ] {
        let made = try machine.run(["openssl"] + words.split(separator: " ").map(String.init), directory: place)
        guard made.status == 0 else { throw Failure("openssl: \(made.everything)") }
    }
    return ("\(place)/ca.pem", "\(place)/certificate.pem", "\(place)/key.pem")
}
